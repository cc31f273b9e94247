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
from joinproto.runtime.output import Part

CHUNK = 128 * 1024
BATCH_BYTES = 1536 * 1024
"""What a chunk of nothing but empty lines may come to with a prefix in front of each."""

SAMPLE = 16 * 1024
LONG_LINE = 1024
"""From this average on, lines are given on in slices instead of being searched and copied."""

MOST_PARTS = 512
"""The system takes 1024 in one call; there are a few more than those counted here."""

DRAIN_CHUNKS = 64
"""A pipe holds a few chunks at most; more than this comes from somebody who goes on writing."""


class Lines(Protocol):
    """Where lines go."""

    def write(self, *parts: Part) -> None:
        """Take whole lines, in parts that follow one another."""


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
        return b"".join(self.parts(data, now))

    def parts(self, data: bytes, now: float) -> list[Part]:
        """The same in parts, which spares copies: this is what the throughput hangs on."""
        if self._ended_early:
            self._ended_early = False
            data = data.removeprefix(b"\n")
        end = data.rfind(b"\n") + 1
        if not end:
            return [self._hold(data, now)]
        if len(self._partial) + end > self._piece:
            lines: list[Part] = [self._pieced(bytes(self._partial) + data[:end])]
        else:
            lines = [self.prefix, bytes(self._partial), *self._prefixed(data, end)]
        self._partial.clear()
        self._since = None
        if end < len(data):
            lines.append(self._hold(data[end:], now))
        return lines

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

    def _prefixed(self, data: bytes, end: int) -> list[Part]:
        """`data` up to `end`, where a line ends, with the prefix behind every LF but the last."""
        # A look at the beginning is enough: counting is as slow as everything else together.
        few = data.count(b"\n", 0, SAMPLE) * LONG_LINE < min(len(data), SAMPLE)
        parts = self._between(data, end) if few else None
        if parts is not None:
            return parts
        # One pass in C over all of it; what it puts behind the last LF is cut off again.
        marked = data.replace(b"\n", b"\n" + self.prefix)
        surplus = len(self.prefix) + len(data) - end
        return [memoryview(marked)[: len(marked) - surplus]]

    def _between(self, data: bytes, end: int) -> list[Part] | None:
        """The same for long lines, as slices of what came; None when there are too many."""
        view = memoryview(data)
        parts: list[Part] = []
        start = 0
        while (stop := data.find(b"\n", start, end - 1) + 1) > 0:
            parts += view[start:stop], self.prefix
            start = stop
            if len(parts) > MOST_PARTS:
                return None
        parts.append(view[start:end])
        return parts

    def _pieced(self, block: bytes) -> bytes:
        """`block`, which ends in LF and may hold a line that is too long."""
        return b"".join(self._pieces(line) for line in block[:-1].split(b"\n"))

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
        for _ in range(DRAIN_CHUNKS * (CHUNK // self._bite)):
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
            data = os.read(self._fd, self._bite)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        if self._tap is not None:
            self._tap(data)
        self._refresh()
        self._give(*self._liner.parts(data, self._loop.now()))
        self._took()
        return True

    @property
    def _bite(self) -> int:
        """How much to read at once, so that the lines of it stay within `BATCH_BYTES`."""
        return min(CHUNK, max(1, BATCH_BYTES // (len(self._liner.prefix) + 1)))

    def _refresh(self) -> None:
        if self._fresh is not None:
            self._liner.prefix = self._fresh()

    def _give(self, *parts: Part) -> None:
        if any(parts):
            self._sink.write(*parts)
