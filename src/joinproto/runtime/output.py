"""Where the agent's and its children's lines go: its own standard output and error.

A reader that stalls must never stop the agent, so nothing here blocks: what cannot be written now
is kept and written later.  The descriptors that the agent inherited are shared with whoever started
it, so they are never made non-blocking themselves: a pipe or terminal is opened once more for that.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import stat
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from joinproto.runtime.loop import WRITE, Loop

Part: TypeAlias = bytes | memoryview
Writer: TypeAlias = Callable[[Sequence[Part]], int]
"""Writes parts one behind the other, as much as can be written now; returns how many bytes."""

PIPE_BUF = 4096
"""A pipe that is ready takes this much without blocking (POSIX)."""

PIPE_BYTES = 1024 * 1024
"""What a pipe to a reader is made to hold, where the system allows it: fewer, larger turns."""


class Sink:
    """One destination, fed with whole lines.

    Args:
        loop: where it waits for a reader that stalls.
        fd: the descriptor, which stays open and as it is.
        resumed: called when everything held has been written.
    """

    def __init__(self, loop: Loop, fd: int, resumed: Callable[[], None]) -> None:
        self._loop = loop
        self._resumed = resumed
        self._held: deque[bytes] = deque()
        self._offset = 0
        self.held_bytes = 0
        self.written_bytes = 0
        self.gone = False
        self._waiting = False
        self._marks: deque[tuple[int, Callable[[], None]]] = deque()
        self._own, self._writer, self._close = _writer(fd)

    def write(self, *parts: Part) -> None:
        """Write whole lines now, or keep them until they can be written.

        The parts follow one another; nothing is copied of what can be written at once.
        """
        if self.gone:
            return
        count = 0 if self._waiting else self._write_now(parts)
        size = sum(map(len, parts))
        if count < size and not self.gone:
            self._held.append(b"".join(parts)[count:])
            self.held_bytes += size - count
            self._wait()

    def after(self, then: Callable[[], None]) -> None:
        """Call `then` once all that was given so far has been written, or the reader is gone."""
        if self.held_bytes:
            self._marks.append((self.written_bytes + self.held_bytes, then))
        else:
            then()

    def leads_to(self, fd: int) -> bool:
        """Whether a descriptor leads to the same pipe, terminal or file."""
        return not self.gone and same_file(self._own, fd)

    def close(self) -> None:
        """Stop; what is held is lost."""
        if self._waiting:
            self._loop.forget(self._own)
        self._close()
        self.gone = True

    # -- inside -------------------------------------------------------------------------------

    def _write_now(self, parts: Sequence[Part]) -> int:
        try:
            count = self._writer(parts)
        except BlockingIOError:
            return 0
        except OSError:
            self._lose()
            return 0
        self.written_bytes += count
        return count

    def _push(self) -> None:
        while self._held and self._push_one():
            continue
        self._tell_marks()

    def _tell_marks(self) -> None:
        while self._marks and (self.gone or self._marks[0][0] <= self.written_bytes):
            self._marks.popleft()[1]()

    def _push_one(self) -> bool:
        """Write the first of what is held; whether all of it could be written."""
        data = self._held[0]
        count = self._write_now([memoryview(data)[self._offset :]])
        if self.gone:
            return False
        self.held_bytes -= count
        self._offset += count
        if self._offset < len(data):
            return False
        self._held.popleft()
        self._offset = 0
        return True

    def _wait(self) -> None:
        if not self._waiting:
            try:
                self._loop.watch(self._own, WRITE, self._ready)
            except PermissionError:
                # A file, which cannot be waited for: it has taken a part and has no room for more.
                self._lose()
            else:
                self._waiting = True

    def _lose(self) -> None:
        """The reader is gone for good; its ranks are not to suffer for it."""
        self.gone = True
        self._held.clear()
        self.held_bytes = 0

    def _ready(self, _: int) -> None:
        self._push()
        if not self._held:
            self._waiting = False
            self._loop.forget(self._own)
            self._resumed()


def _writer(fd: int) -> tuple[int, Writer, Callable[[], None]]:
    """A descriptor of our own for `fd`, how to write to it without blocking, how to close it."""
    mode = os.fstat(fd).st_mode
    own = os.dup(fd)
    if stat.S_ISSOCK(mode):
        sock = socket.socket(fileno=own)
        return own, lambda parts: sock.sendmsg(parts, [], socket.MSG_DONTWAIT), sock.close
    if stat.S_ISFIFO(mode):
        widen(own, PIPE_BYTES)
    if not stat.S_ISREG(mode):
        try:
            # The same pipe or terminal, with flags that nobody else sees.
            again = os.open(f"/proc/self/fd/{own}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
        except OSError:
            return own, lambda parts: _patient_write(own, parts), lambda: os.close(own)
        os.close(own)
        own = again
    return own, lambda parts: os.writev(own, parts), lambda: os.close(own)


def widen(fd: int, size: int) -> None:
    """Give a pipe room for so many bytes, where it has less and the system lets it have it."""
    try:
        if fcntl.fcntl(fd, fcntl.F_GETPIPE_SZ) < size:
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, size)
    except OSError:
        # The user's share of pipe memory is used up; the usual size works too.
        return


def _patient_write(fd: int, parts: Sequence[Part]) -> int:
    """Write to a descriptor that may block, only as much as it is ready for."""
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    if not poll.poll(0):
        raise BlockingIOError
    return os.write(fd, b"".join(parts)[:PIPE_BUF])


def same_file(one: int, other: int) -> bool:
    """Whether two descriptors lead to the same pipe, terminal or file."""
    return os.path.samestat(os.fstat(one), os.fstat(other))


def flush(
    loop: Loop,
    sinks: Collection[Sink],
    patience: float,
    wanted: Callable[[], bool] = lambda: True,
) -> None:
    """Give readers the time to take what is held, for as long as they take any of it.

    Args:
        loop: where they are waited for.
        sinks: where things are held.
        patience: seconds in which some of it must be taken.
        wanted: whether anybody still wants to wait for that.
    """

    def goes_on() -> bool:
        return wanted() and any(sink.held_bytes for sink in sinks)

    written = -1
    while goes_on() and _written(sinks) > written:
        written = _written(sinks)
        until = loop.now() + patience
        while goes_on() and loop.now() < until:
            loop.run_once(until)
            if _written(sinks) > written:
                break


def _written(sinks: Collection[Sink]) -> int:
    return sum(sink.written_bytes for sink in sinks)


class Output:
    """The agent's standard output and error, as one place to say things.

    Where both lead to the same file they share a sink, so that a line is never torn by the other.

    Args:
        loop: where stalled readers are waited for.
        out: descriptor for what children write to their standard output.
        err: descriptor for what they write to standard error, and for the agent's own lines.
        resumed: called when a stalled reader has caught up.
        mute: the agent's own lines are left out: who reads them is told otherwise.
    """

    def __init__(
        self,
        loop: Loop,
        *,
        out: int,
        err: int,
        resumed: Callable[[], None],
        mute: bool = False,
    ) -> None:
        self._mute = mute
        shared = same_file(out, err)
        self.out = Sink(loop, out, resumed)
        self.err = self.out if shared else Sink(loop, err, resumed)

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """Each destination once."""
        return (self.out,) if self.err is self.out else (self.out, self.err)

    @property
    def held_bytes(self) -> int:
        """Bytes that wait for a reader."""
        return sum(sink.held_bytes for sink in self.sinks)

    @property
    def written_bytes(self) -> int:
        """Bytes that readers have taken."""
        return sum(sink.written_bytes for sink in self.sinks)

    def say(self, line: str) -> None:
        """Write a line of the agent's own, as UTF-8 whatever the locale is."""
        if self._mute:
            return
        text = line.replace("\r", "\\r").replace("\n", "\\n")
        self.err.write(f"joinproto agent: {text}\n".encode(errors="backslashreplace"))

    def close(self) -> None:
        """Stop; what is held is lost."""
        for sink in self.sinks:
            sink.close()
