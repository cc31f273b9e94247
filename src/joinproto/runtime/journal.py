"""The journal of a run: JSON lines, appended as things happen, from which its end can be told.

The first line is `{"event": "run", ...}` with the run's id; the others are the events of
`specs/events.schema.json`.  What a host is told to act upon is on the disk before it is told: the
`joined` event before its Accept leaves, `formed` before any WorldFormed does.  No salt is in it.

A controller that crashed is not brought back.  Its hosts learn of its end from the end of their
links, and no other controller could take these up.  `finish` therefore opens no port and admits
nobody: it tells what had been formed and closes the journal, and `Journal.create` takes no file
that holds a run.  So the same ranks are never handed out twice, whichever way the crash fell: a
rank that a host was told is in the journal, and what is in the journal is never handed out again.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Self

from joinproto.errors import ConfigError, JoinprotoError
from joinproto.record import Record
from joinproto.runtime.board import EXIT_CODES
from joinproto.runtime.observe import timestamp
from joinproto.runtime.past import VERSION, Past, open_plain, read_open, summary

CRASHED: Final = (
    "the controller ended without finishing; its hosts were told by the end of their links"
)


class JournalError(JoinprotoError):
    """The journal cannot be written; what was to follow the record must not happen."""


# -- writing ----------------------------------------------------------------------------------


class Journal:
    """A journal that this process writes, and nobody else at the same time.

    Args:
        fd: the file, open for appending and locked; the journal owns it from now on.
        path: its name, for people.
        run: the run's id.
    """

    def __init__(self, fd: int, path: str, run: str) -> None:
        self._fd = fd
        self._path = path
        self.run = run

    @classmethod
    def create(cls, path: str | os.PathLike[str]) -> Self:
        """Begin the journal of a new run in a file that is not there yet, or is empty.

        Raises:
            ConfigError: the file holds a run already, another controller writes it, or it cannot
                be made.
            JournalError: its first line cannot be written.
        """
        name = os.fspath(path)
        fd = open_plain(name, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            _lock(fd, name)
            if os.fstat(fd).st_size:
                raise ConfigError(_taken(name, fd))
            journal = cls(fd, name, str(uuid.uuid4()))
            journal._begin()
        except BaseException:
            os.close(fd)
            raise
        return journal

    def write(self, record: Mapping[str, Any], *, sync: bool) -> None:
        """Append an event; with `sync` it is on the disk once this returns.

        Raises:
            JournalError: it is not; what was written of it has been taken back where that is
                possible.
        """
        data = json.dumps(record, allow_nan=False).encode() + b"\n"
        before = None
        try:
            before = os.fstat(self._fd).st_size
            _write_all(self._fd, data)
            if sync:
                os.fdatasync(self._fd)
        except OSError as error:
            if before is not None:
                # A later record must not stand behind half of this one.
                with suppress(OSError):
                    os.ftruncate(self._fd, before)
            raise JournalError(f"{self._path}: cannot be written: {error.strerror}") from None

    def close(self) -> None:
        """Let go of the file, and of the lock on it; may be called again."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _begin(self) -> None:
        first = {"event": "run", "time": timestamp(), "version": VERSION, "run": self.run}
        self.write(first, sync=True)
        try:
            os.fchmod(self._fd, 0o600)
            os.fsync(self._fd)
            # Or the file itself may be gone after a power cut, whatever was synced into it.
            directory = os.open(os.path.dirname(self._path) or ".", os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(directory)
            finally:
                os.close(directory)
        except OSError as error:
            raise JournalError(f"{self._path}: cannot be kept: {error.strerror}") from None


def _lock(fd: int, path: str) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise ConfigError(
            f"{path}: the controller that writes it still runs; end that one first"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be locked: {error.strerror}") from None


def _taken(path: str, fd: int) -> str:
    """Why a file that holds something is not written over, and what to do."""
    with open(fd, "rb", closefd=False) as file:
        past = read_open(file, path)
    if past.ended is not None:
        return f"{path}: it holds a run that has ended ({past.ended}); name another file"
    return (
        f"{path}: it holds a run that has not ended; see what became of it with "
        f"joinproto controller --resume {path}, and name another file"
    )


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        written = os.write(fd, rest)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        rest = rest[written:]


# -- finishing ------------------------------------------------------------------------------


class Finished(Record):
    """What `finish` found: the run as it was, lines for people, and the command's exit code."""

    past: Past
    lines: Sequence[str]
    exit_code: int


def finish(path: str | os.PathLike[str]) -> Finished:
    """Tell what became of the run in a journal, and close it when its controller did not.

    A part of a line at the end, left by a crash, is taken off.  A run that has not ended gets a
    `finished` event: outcome `failed` with exit code 1 when a world had formed, `window-failed`
    with 3 when none had.  A run that has ended stays as it is, with its own exit code.

    Opens no port and hands out nothing (see the head of this module).

    Raises:
        ConfigError: the controller still runs, or the file cannot be read, is no journal or
            contradicts itself; it is then unchanged.
        JournalError: it cannot be written.
    """
    name = os.fspath(path)
    fd = open_plain(name, os.O_RDWR | os.O_APPEND)
    try:
        _lock(fd, name)
        with open(fd, "rb", closefd=False) as file:
            past = read_open(file, name)
        if past.cut:
            _take_off(fd, name, past.size)
        if past.run is not None and past.ended is None:
            Journal(fd, name, past.run).write(_end_of(past), sync=True)
    finally:
        os.close(fd)
    code = EXIT_CODES[_outcome(past)] if past.exit_code is None else past.exit_code
    return Finished(past=past, lines=tuple(summary(past)), exit_code=code)


def _take_off(fd: int, path: str, size: int) -> None:
    try:
        os.ftruncate(fd, size)
        os.fdatasync(fd)
    except OSError as error:
        raise JournalError(f"{path}: cannot be written: {error.strerror}") from None


def _outcome(past: Past) -> str:
    """Of a run whose controller crashed."""
    return "failed" if past.formed else "window-failed"


def _end_of(past: Past) -> dict[str, Any]:
    return {
        "event": "finished",
        "time": timestamp(),
        "outcome": _outcome(past),
        "exit_code": EXIT_CODES[_outcome(past)],
        "failed_ranks": sorted(rank for rank, code in past.exits.items() if code),
        "lost_hosts": sorted(past.lost),
        "reason": CRASHED,
    }
