"""A child's output, taken from its pipe and given on in whole lines, each behind a prefix.

Bytes pass through unchanged.  A line ends at LF only.  A line longer than `LINE_PIECE_BYTES`, and
a partial line that holds a carriage return and has waited for `CARRIAGE_RETURN_AGE`, go out in
pieces; each piece stands behind the prefix and gets an LF where it has none.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

from joinproto.limits import CARRIAGE_RETURN_AGE, LINE_PIECE_BYTES
from joinproto.runtime.loop import READ, Loop

CHUNK = 128 * 1024

DRAIN_CHUNKS = 64
"""A pipe holds a few chunks at most; more than this comes from somebody who goes on writing."""


class Lines(Protocol):
    """Where lines go."""

    def write(self, data: bytes) -> None:
        """Take whole lines."""


class Liner:
    """Cuts bytes into prefixed lines.

    Args:
        prefix: what stands in front of every line.
        piece: the longest line, in bytes without prefix and LF.
    """

    def __init__(self, prefix: bytes, piece: int = LINE_PIECE_BYTES) -> None:
        self.prefix = prefix
        self._piece = piece
        self._partial = bytearray()
        self._since: float | None = None
        # A piece went out with an LF of ours; if the line's own comes next, it has been written.
        self._ended_early = False

    @property
    def held_bytes(self) -> int:
        """Bytes of the line that has not ended."""
        return len(self._partial)

    @property
    def flush_at(self) -> float | None:
        """When `flush_old` wants to be called; None: not at all."""
        return None if self._since is None else self._since + CARRIAGE_RETURN_AGE

    def feed(self, data: bytes, now: float) -> bytes:
        """The lines that `data` completes, ready to be written."""
        if self._ended_early:
            self._ended_early = False
            data = data.removeprefix(b"\n")
        end = data.rfind(b"\n") + 1
        if not end:
            return self._hold(data, now)
        lines = self._lines(bytes(self._partial) + data[:end] if self._partial else data[:end])
        self._partial.clear()
        self._since = None
        return lines + self._hold(data[end:], now)

    def flush_old(self, now: float) -> bytes:
        """A progress bar that has waited long enough, as a piece."""
        if self.flush_at is None or now < self.flush_at:
            return b""
        return self.cut()

    def cut(self) -> bytes:
        """The line that has not ended, as a piece."""
        if self._partial:
            self._ended_early = True
        return self.finish()

    def finish(self) -> bytes:
        """What is left of a line that will not end."""
        rest = bytes(self._partial)
        self._partial.clear()
        self._since = None
        return self.prefix + rest + b"\n" if rest else b""

    # -- inside -------------------------------------------------------------------------------

    def _hold(self, data: bytes, now: float) -> bytes:
        if self._since is None and b"\r" in data:
            self._since = now
        self._partial += data
        whole = len(self._partial) // self._piece * self._piece
        if not whole:
            return b""
        pieces = bytes(self._partial[:whole])
        del self._partial[:whole]
        self._ended_early = not self._partial
        self._since = now if b"\r" in self._partial else None
        return self._pieces(pieces)

    def _lines(self, block: bytes) -> bytes:
        """`block`, which ends in LF, with the prefix in front of every line."""
        if len(block) > self._piece and max(map(len, block.split(b"\n"))) > self._piece:
            return b"".join(self._pieces(line) for line in block[:-1].split(b"\n"))
        # One pass in C over the whole block: this is what the throughput hangs on.
        return self.prefix + block[:-1].replace(b"\n", b"\n" + self.prefix) + b"\n"

    def _pieces(self, line: bytes) -> bytes:
        starts = range(0, max(1, len(line)), self._piece)
        return b"".join(self.prefix + line[at : at + self._piece] + b"\n" for at in starts)


class Forwarder:
    """One output stream of one child.

    Args:
        loop: where the pipe is watched.
        fd: the pipe's reading end, non-blocking, which it owns from now on.
        prefix: what stands in front of every line.
        sink: where the lines go.
        ended: called once, when the last byte has been given on.
        took: called when bytes have been taken in, and given on as far as they make lines.
        tap: told the bytes as they came; None: nobody.
        fresh: gives the prefix anew before each batch; None: it stays as it is.
    """

    def __init__(
        self,
        loop: Loop,
        fd: int,
        prefix: bytes,
        sink: Lines,
        ended: Callable[[], None],
        took: Callable[[], None],
        *,
        tap: Callable[[bytes], None] | None = None,
        fresh: Callable[[], bytes] | None = None,
    ) -> None:
        self._loop = loop
        self._fd = fd
        self._liner = Liner(prefix)
        self._sink = sink
        self._ended = ended
        self._took = took
        self._tap = tap
        self._fresh = fresh
        self.open = True
        loop.watch(fd, READ, self._ready)

    @property
    def held_bytes(self) -> int:
        """Bytes of the line that has not ended."""
        return self._liner.held_bytes

    @property
    def next_timer(self) -> float | None:
        """When `handle_timer` wants to be called; None: not at all."""
        return self._liner.flush_at

    def handle_timer(self, now: float) -> None:
        """Give on a progress bar that has waited long enough."""
        self._give(self._liner.flush_old(now))

    def cut(self) -> None:
        """Give on the line that has not ended, as a piece."""
        self._refresh()
        self._give(self._liner.cut())

    def pause(self) -> None:
        """Read no more for now: the pipe fills and the child waits, nothing is lost."""
        self._loop.forget(self._fd)

    def resume(self) -> None:
        """Read on."""
        if self.open and not self._loop.watches(self._fd):
            self._loop.watch(self._fd, READ, self._ready)

    def drain(self) -> None:
        """Take what is in the pipe now, without waiting for more, and end."""
        for _ in range(DRAIN_CHUNKS):
            if not (self.open and self._read()):
                break
        self.close()

    def close(self) -> None:
        """End, with what has been read so far."""
        if not self.open:
            return
        self.open = False
        self._loop.forget(self._fd)
        os.close(self._fd)
        self._give(self._liner.finish())
        self._ended()

    # -- inside -------------------------------------------------------------------------------

    def _ready(self, _: int) -> None:
        self._read()

    def _read(self) -> bool:
        """Take one chunk; whether there may be more at once."""
        try:
            data = os.read(self._fd, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        if self._tap is not None:
            self._tap(data)
        self._refresh()
        self._give(self._liner.feed(data, self._loop.now()))
        self._took()
        return True

    def _refresh(self) -> None:
        if self._fresh is not None:
            self._liner.prefix = self._fresh()

    def _give(self, lines: bytes) -> None:
        if lines:
            self._sink.write(lines)
