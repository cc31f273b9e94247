"""One log file per child, with the bytes that it wrote, rotated by size."""

from __future__ import annotations

import os
from collections.abc import Callable

from joinproto.errors import ConfigError

LOG_BYTES = 64 * 1024 * 1024
TOTAL_BYTES = 1024 * 1024 * 1024
GENERATIONS = 2
"""The file that is written, and the one before it."""

PIECE_BYTES = 4 * 1024
"""A longer line is written as it comes, so that little is held for it."""


def check_directory(path: str) -> None:
    """Make the directory where it is not there yet.

    Raises:
        ConfigError: it cannot be made, or not be written to.
    """
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"--log-dir {path}: {error.strerror}") from None
    if not os.access(path, os.W_OK | os.X_OK):
        raise ConfigError(f"--log-dir {path}: may not be written to")


def size_of_each(files: int, *, each: int = LOG_BYTES, total: int = TOTAL_BYTES) -> int:
    """How large each of so many logs may grow before it is rotated, in bytes."""
    return max(1, min(each, total // (GENERATIONS * max(1, files))))


class Log:
    """The log of one child.

    Args:
        path: the file, which is added to; `path`.1 is the generation before it.
        limit: bytes that a file may hold at most; it is rotated at the end of a line where there
            is one.
        complain: told once when it cannot be written; the child does not suffer for it.
    """

    def __init__(self, path: str, limit: int, complain: Callable[[str], None]) -> None:
        self._path = path
        self._limit = limit
        self._complain = complain
        self._fd: int | None = None
        self._size = 0
        self._partial = {"out": b"", "err": b""}
        self._open_line: str | None = None
        self._open()

    def feed(self, stream: str, data: bytes) -> None:
        """Add bytes of one stream (`out` or `err`), as they came; lines are kept whole."""
        data = self._partial[stream] + data
        end = data.rfind(b"\n") + 1
        self._partial[stream] = data[end:]
        if end:
            self._write(stream, data[:end], ended=True)
        if len(self._partial[stream]) > PIECE_BYTES:
            self._write(stream, self._partial[stream], ended=False)
            self._partial[stream] = b""

    def end(self, stream: str) -> None:
        """One stream has ended."""
        rest = self._partial[stream]
        if rest or self._open_line == stream:
            self._write(stream, rest + b"\n", ended=True)
            self._partial[stream] = b""

    def close(self) -> None:
        """Stop writing."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    # -- inside -------------------------------------------------------------------------------

    def _write(self, stream: str, block: bytes, *, ended: bool) -> None:
        """Write whole lines, or (not `ended`) a piece of a line that goes on."""
        if self._open_line not in (None, stream):
            # The other stream's line is not done; no line ever holds parts of two.
            block = b"\n" + block
        self._open_line = None if ended else stream
        while block and self._fd is not None:
            fitting = self._fitting(block)
            if fitting:
                self._put(block[:fitting])
                block = block[fitting:]
            else:
                self._rotate()

    def _fitting(self, block: bytes) -> int:
        """How many bytes of the block still go into this file."""
        room = max(0, self._limit - self._size)
        if len(block) <= room:
            return len(block)
        # A line that is longer than a whole file is cut.
        return block.rfind(b"\n", 0, room) + 1 or (0 if self._size else room)

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        # A pipe in the place of the file is not waited for.
        flags |= os.O_NONBLOCK
        try:
            self._fd = os.open(self._path, flags, 0o640)
            self._size = os.fstat(self._fd).st_size
        except OSError as error:
            self._fail(error)

    def _rotate(self) -> None:
        self.close()
        try:
            os.replace(self._path, f"{self._path}.1")
        except OSError as error:
            self._fail(error)
            return
        self._open()

    def _put(self, block: bytes) -> None:
        view = memoryview(block)
        try:
            while view and self._fd is not None:
                count = os.write(self._fd, view)
                self._size += count
                view = view[count:]
        except OSError as error:
            self._fail(error)

    def _fail(self, error: OSError) -> None:
        self.close()
        self._complain(f"log {self._path}: {error.strerror}; it is written no further")
