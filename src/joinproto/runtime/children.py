"""The agent's side of its helper: asks it to start and signal children, hears of their ends."""

from __future__ import annotations

import errno
import marshal
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from joinproto.errors import CommandNotFound, SpawnFailed
from joinproto.runtime import descendants
from joinproto.runtime.cgroup import Cgroup
from joinproto.runtime.loop import READ, Loop

MESSAGE_BYTES = 65536
END_WAIT = 2.0
"""Seconds that the helper has to end by itself, when nothing is left for it to do."""

MOST_EXPECTED = 64
"""Each of them takes some memory while it waits; the others are forked when they are due."""

LIBRARIES = ("LD_LIBRARY_PATH",)

_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv[1]); from joinproto.runtime.reaper import main; main()"
)


class Family(Protocol):
    """Who is told of the children."""

    def child_started(self, slot: int, pid: int) -> None:
        """The child's process runs."""

    def child_failed(self, slot: int, error: SpawnFailed) -> None:
        """The child could not be started."""

    def child_exited(self, slot: int, code: int) -> None:
        """The child's process ended; −N for signal N."""

    def helper_died(self, codes: Mapping[int, int]) -> None:
        """The helper is gone, and so are the children, with these codes by slot."""


class Children:
    """The children of an agent, by slot, with a helper between.

    Args:
        loop: where the helper's words are waited for.
        family: who is told what they are.

    Raises:
        SpawnFailed: the helper cannot be started.
    """

    def __init__(self, loop: Loop, family: Family) -> None:
        self._loop = loop
        self._family = family
        self._pids: dict[int, int] = {}
        self._commands: dict[int, tuple[str, str | None]] = {}
        self._sweeps = 0
        self._left: list[int] = []
        self._heir = False
        self._cgroup = Cgroup(None)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._pid = _start_helper(theirs)
        except OSError as error:
            ours.close()
            raise SpawnFailed(f"the helper process: {error.strerror}") from None
        finally:
            theirs.close()
        self._started = descendants.about(self._pid, descendants.STARTED) or 0
        self._sock = ours
        self._alive = True
        loop.watch(ours.fileno(), READ, self._hear)

    def prepare(self) -> None:
        """Make this process the heir of what a helper that is killed would leave behind.

        Apart from the constructor because it costs time, of which there is enough once the Hello
        is out.
        """
        self._heir = descendants.become_subreaper()

    def expect(self, count: int) -> None:
        """Have the helper get ready for so many children, which spares time when they are due."""
        self._ask("prepare", min(count, MOST_EXPECTED))

    def spawn(
        self, slot: int, argv: Sequence[str], environment: Mapping[str, str], directory: str | None
    ) -> tuple[int, int]:
        """Ask for a child; returns the reading ends of its two output streams, non-blocking.

        Raises:
            SpawnFailed: it could not even be asked for.
        """
        try:
            request = marshal.dumps(
                (
                    [os.fsencode(word) for word in argv],
                    {os.fsencode(k): os.fsencode(v) for k, v in environment.items()},
                    None if directory is None else os.fsencode(directory),
                )
            )
            if any(b"\0" in os.fsencode(w) for w in (*argv, *environment.values())):
                raise ValueError
        except ValueError:
            # The value is not repeated: it may be a secret.
            raise SpawnFailed(f"{argv[0]}: an argument or a variable cannot be passed on") from None
        self._commands[slot] = (argv[0], directory)
        fds: list[int] = []
        try:
            for _ in range(2):
                fds += os.pipe2(os.O_CLOEXEC)
            fds.append(os.memfd_create("joinproto-spawn"))
            with open(fds[4], "wb", closefd=False) as file:
                file.write(request)
            # The request's descriptor shares its offset, so the helper rewinds it.
            socket.send_fds(self._sock, [marshal.dumps(("spawn", slot))], [fds[4], fds[1], fds[3]])
        except OSError as error:
            for fd in fds:
                os.close(fd)
            raise SpawnFailed(f"{argv[0]}: {error.strerror}") from None
        for fd in (fds[1], fds[3], fds[4]):
            os.close(fd)
        os.set_blocking(fds[0], False)
        os.set_blocking(fds[2], False)
        return fds[0], fds[2]

    def signal(self, slot: int, number: int) -> None:
        """Send a signal to the child's process group, if the child still runs."""
        self._ask("signal", slot, int(number))

    def sweep(self, seconds: float) -> None:
        """End every descendant, within so many seconds; does not wait for it."""
        self._sweeps += 1
        self._ask("sweep", seconds)

    @property
    def pids(self) -> Mapping[int, int]:
        """Process numbers of the children that run, by slot."""
        return self._pids

    def close(self, seconds: float) -> list[int]:
        """End every descendant and the helper; returns the numbers of those that will not end."""
        try:
            if self._alive:
                self._swept_by_helper(seconds)
        finally:
            self._loop.forget(self._sock.fileno())
            self._sock.close()
            if self._alive:
                self._alive = False
                if not _ends(self._pid, END_WAIT):
                    self._left = self._end_heritage(lambda pid, status: None)
            if self._heir:
                descendants.cease_to_be_subreaper()
        return self._left

    # -- inside -------------------------------------------------------------------------------

    def _ask(self, *message: Any) -> None:
        if self._alive:
            try:
                self._sock.sendall(marshal.dumps(message))
            except OSError:
                # It is gone; the end of its socket says so as well, on the loop.
                return

    def _swept_by_helper(self, seconds: float) -> None:
        self.sweep(seconds)
        until = time.monotonic() + seconds + END_WAIT
        # Not on the loop: whatever else is ready there has no say any more, nor may it fail here.
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        while self._alive and self._sweeps and (left := until - time.monotonic()) > 0:
            if poll.poll(left * 1000):
                self._hear(0)

    def _hear(self, _: int) -> None:
        """Take all that there is, so that no child is asked for before an end that came first."""
        while (data := self._next_message()) is not None:
            if not data:
                self._died()
                return
            self._obey(*marshal.loads(data))

    def _next_message(self) -> bytes | None:
        """What the helper said next; empty when it is gone; None: nothing yet."""
        try:
            return self._sock.recv(MESSAGE_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    def _obey(self, word: str, *rest: Any) -> None:
        if word == "started":
            slot, pid = rest
            self._pids[slot] = pid
            self._family.child_started(slot, pid)
        elif word == "failed":
            slot, code, directory = rest
            self._family.child_failed(slot, self._failure(slot, code, directory))
        elif word == "exited":
            slot, code = rest
            self._pids.pop(slot, None)
            self._family.child_exited(slot, code)
        elif word == "swept":
            self._sweeps -= 1
            self._left = rest[0]
        else:
            self._cgroup = Cgroup(rest[0])

    def _failure(self, slot: int, code: int, directory: bytes) -> SpawnFailed:
        command, wanted = self._commands[slot]
        cause = os.strerror(code)
        if directory:
            return CommandNotFound(f"directory {wanted}: {cause}")
        if code in (errno.ENOENT, errno.EACCES, errno.ENOTDIR, errno.ENOEXEC):
            return CommandNotFound(f"{command}: {cause}")
        return SpawnFailed(f"{command}: {cause}")

    def _died(self) -> None:
        """The helper was killed: its children die with it, and what they leave comes to us."""
        self._alive = False
        self._loop.forget(self._sock.fileno())
        slots = {pid: slot for slot, pid in self._pids.items()}
        codes: dict[int, int] = {}

        def reaped(pid: int, status: int) -> None:
            if pid in slots:
                codes[slots[pid]] = os.waitstatus_to_exitcode(status)

        self._left = self._end_heritage(reaped)
        gone = dict.fromkeys(self._pids, -signal.SIGKILL)
        self._pids.clear()
        self._family.helper_died({**gone, **codes})

    def _end_heritage(self, reaped: descendants.Reaped) -> list[int]:
        """End the helper, should it still be there, and all that it leaves behind."""

        def note(pid: int, status: int) -> None:
            if pid == self._pid:
                # From here on the number may be anybody's.
                self._pid = 0
            reaped(pid, status)

        self._cgroup.kill()
        left = descendants.sweep(time.monotonic() + END_WAIT, note, self._is_heritage)
        self._cgroup.remove()
        return left

    def _is_heritage(self, pid: int) -> bool:
        """Whether a child of this process is the helper or was handed down by it.

        The others were started by the program that this agent is part of.  They are in its session
        or older than the helper, which the helper's descendants never are; or they are the helpers
        of other agents in it, which look after their own.
        """
        if pid == self._pid:
            return True
        started = descendants.about(pid, descendants.STARTED)
        return (
            started is not None
            and started >= self._started
            and descendants.about(pid, descendants.SESSION) != os.getsid(0)
            and not _is_helper(pid)
        )


def _start_helper(sock: socket.socket) -> int:
    """Start the helper with `sock` as its standard input, without Python between fork and exec."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    return os.posix_spawn(
        sys.executable,
        # Isolated, and without site: it needs nothing from there, and starts in half the time.
        [sys.executable, "-I", "-S", "-c", _PROGRAM, root],
        # Nothing of the agent's environment, which holds secrets, stays in the helper's, but for
        # where the interpreter may have to look for its own libraries.
        {
            "PATH": os.defpath,
            **{name: os.environ[name] for name in LIBRARIES if name in os.environ},
        },
        file_actions=[
            (os.POSIX_SPAWN_DUP2, sock.fileno(), 0),
            *((os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (1, 2)),
        ],
        # Its own session: what is sent to the agent's group or terminal does not reach it.
        setsid=True,
        # Children inherit the mask, and one that blocks SIGTERM would never hear of it.
        setsigmask=(),
    )


def _is_helper(pid: int) -> bool:
    """Whether a process is the helper of an agent."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file, open(f"/proc/{pid}/comm", "rb") as comm:
            same = _PROGRAM.encode() in file.read().split(b"\0")
            return same and comm.read().strip() != descendants.WAITING
    except OSError:
        return False


def _ends(pid: int, seconds: float) -> bool:
    """Reap the helper once it ends by itself; whether it does, in time."""
    fd = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    ended = bool(poll.poll(seconds * 1000))
    os.close(fd)
    return ended and descendants.reap_one(pid, lambda pid, status: None)
