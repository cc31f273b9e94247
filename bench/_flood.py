"""Ranks that write as fast as they can, and a reader that misses nothing."""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from bench._common import DEADLINE
from bench._worlds import HOST

READ_BYTES = 1024 * 1024

QUIET = 2.0
"""Seconds without a byte after which no more are expected, all writers having written theirs."""

SAMPLE_BYTES = 64 * 1024
SAMPLE_EVERY = 50
"""One piece in so many is taken apart."""

DIGITS = 9

JOB = """\
echo $$ >"$SAID"; read -r go <"$GATE"
cat "$LINES"
echo done >"$SAID"; read -r go <"$GATE"
"""
"""What a rank runs: it writes when it is told to, and ends when it is told to."""


def write_lines(path: Path, *, length: int, count: int) -> None:
    """Write so many numbered lines of `length` bytes, LF included."""
    fill = b"x" * (length - DIGITS - 1) + b"\n"
    with open(path, "wb") as file:
        for start in range(0, count, 1000):
            block = range(start, min(start + 1000, count))
            file.write(b"".join(b"%0*d%b" % (DIGITS, number, fill) for number in block))


def prefixes(ranks: int) -> list[bytes]:
    """What stands in front of the lines of each rank, whose number is that of its device."""
    return [b"[%b:%d:r%d] " % (HOST.encode(), rank, rank) for rank in range(ranks)]


class Reader:
    """Takes everything from a pipe, on a thread of its own; a context manager.

    While bytes come it only stores them, since what it spends on them is missing elsewhere.

    Args:
        fd: the pipe's reading end, which it owns from now on.
        expected: how many bytes are to come.

    Attributes:
        size: bytes so far.
        last_at: `time.perf_counter()` of the last byte.
    """

    def __init__(self, fd: int, expected: int) -> None:
        self._fd = fd
        self._expected = expected
        # Made of something, so that its memory is there before it is needed.
        self._buffer = bytearray(b"?") * (expected + READ_BYTES)
        self._complete = threading.Event()
        self.size = 0
        self.last_at = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.await_end()
        os.close(self._fd)

    def await_all(self) -> float:
        """Wait until all that is expected has come, or nothing more does; when the last byte did.

        To be called when those who write have written everything.
        """
        seen = -1
        while not self._complete.wait(QUIET) and self.size > seen:
            seen = self.size
        return self.last_at

    def await_end(self) -> None:
        """Wait until nobody can write any more.

        Raises:
            TimeoutError: somebody still can.
        """
        self._thread.join(DEADLINE)
        if self._thread.is_alive():
            raise TimeoutError("somebody holds the agent's output open")

    def wrong_lines(self, ranks: int, count: int) -> int:
        """Lines lost or too many; and in samples, those torn, misplaced or not behind a prefix.

        One more where bytes are missing or too many.

        Args:
            ranks: how many have written.
            count: the lines of each.
        """
        surplus = abs(ranks * count - self._buffer.count(b"\n", 0, self.size))
        starts = range(0, self.size, SAMPLE_EVERY * SAMPLE_BYTES)
        ends = (min(start + SAMPLE_BYTES, self.size) for start in starts)
        samples = (bytes(self._buffer[start:end]) for start, end in zip(starts, ends, strict=True))
        surplus += self.size != self._expected
        return surplus + sum(_odd_lines(sample, ranks) for sample in samples)

    def _run(self) -> None:
        room = memoryview(self._buffer)
        # Beyond what is expected everything falls onto the same place: there is too much anyway.
        while count := os.readv(self._fd, [room[min(self.size, self._expected) :]]):
            self.last_at = time.perf_counter()
            self.size += count
            if self.size >= self._expected:
                self._complete.set()


def _odd_lines(sample: bytes, ranks: int) -> int:
    pattern = re.compile(
        b"(?:%b)(\\d{%d})x*" % (b"|".join(map(re.escape, prefixes(ranks))), DIGITS)
    )
    following: dict[bytes, int] = {}
    odd = 0
    # The first and the last line of a sample may be parts.
    for line in sample.split(b"\n")[1:-1]:
        found = pattern.fullmatch(line)
        if found is None:
            odd += 1
            continue
        prefix, number = line[: found.start(1)], int(found[1])
        odd += number != following.get(prefix, number)
        following[prefix] = number + 1
    return odd
