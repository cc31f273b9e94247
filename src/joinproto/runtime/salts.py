"""Where a pre-shared salt comes from, and how a new one is made.

Never from argv, which everyone on the host can read.  Wherever it comes from it is 32 hex digits;
white space around them, such as the newline at the end of a file, does not count.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from nacl.bindings import randombytes

from joinproto.errors import ConfigError
from joinproto.keys import Salt
from joinproto.limits import SALT_BYTES
from joinproto.runtime.environment import SALT_VARIABLE
from joinproto.runtime.files import open_at_once, readable_by_all

SALT_FILE_BYTES: Final = 1024
"""The most a salt's file or descriptor may give: whatever is longer is some other file."""

SALT_WAIT: Final = 10.0
"""Seconds until a pipe must have given the salt and ended; a forgotten writer hangs nobody."""

_LAST_STANDARD_FD: Final = 2
_MAX_FD: Final = 2**31 - 1


def read_salt_file(path: str | os.PathLike[str]) -> tuple[Salt, str | None]:
    """The salt in a file (or named pipe), and a warning to show when others may read the file.

    Raises:
        ConfigError: it cannot be read or holds no salt; names the path, never what it holds
            (fault `salt`).
    """
    where = f"salt file {os.fspath(path)!r}"
    try:
        fd = open_at_once(path, os.O_RDONLY)
    except (OSError, ValueError) as error:
        raise _unreadable(where, error) from None
    try:
        salt = _parse(_read(fd, where), where)
        mode = os.fstat(fd).st_mode
    finally:
        os.close(fd)
    if readable_by_all(mode):
        return salt, f"{where} can be read by every user of this host; chmod o-r it"
    return salt, None


def read_salt_fd(fd: int) -> Salt:
    """The salt from an inherited descriptor, which is read to its end and closed.

    Standard input, output and error stay open: what is opened next would take their place.

    Raises:
        ConfigError: it cannot be read or gives no salt (fault `salt`).
    """
    where = f"salt descriptor {fd}"
    if not 0 <= fd <= _MAX_FD:
        raise ConfigError(f"{where}: there is no such descriptor", fault="salt")
    try:
        raw = _read(fd, where)
    finally:
        if fd > _LAST_STANDARD_FD:
            with suppress(OSError):  # not open, which reading it has told
                os.close(fd)
    return _parse(raw, where)


def salt_from_environ(environ: Mapping[str, str]) -> Salt | None:
    """The salt in `JOINPROTO_SALT`; None when that is not set.

    Raises:
        ConfigError: it is set to anything but a salt (fault `salt`).
    """
    digits = environ.get(SALT_VARIABLE)
    return None if digits is None else _from_hex(digits, SALT_VARIABLE)


def new_salt() -> Salt:
    """A random salt."""
    return Salt(randombytes(SALT_BYTES))


def _read(fd: int, where: str) -> bytes:
    """Everything up to the end of `fd`, bounded in bytes and in time."""
    deadline = time.monotonic() + SALT_WAIT
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    raw = b""
    while len(raw) <= SALT_FILE_BYTES:
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not poller.poll(remaining * 1000):
            raise ConfigError(
                f"{where}: it has not ended within {SALT_WAIT:g} s; "
                "write the salt to it and close it",
                fault="salt",
            )
        try:
            part = os.read(fd, SALT_FILE_BYTES + 1 - len(raw))
        except OSError as error:
            raise _unreadable(where, error) from None
        if not part:
            return raw
        raw += part
    raise ConfigError(
        f"{where}: it is longer than {SALT_FILE_BYTES} bytes; a salt is 32 hex digits",
        fault="salt",
    )


def _parse(raw: bytes, where: str) -> Salt:
    if not raw.isascii():
        raise ConfigError(f"{where}: it holds bytes that are not ASCII", fault="salt")
    return _from_hex(raw.decode("ascii"), where)


def _from_hex(digits: str, where: str) -> Salt:
    try:
        return Salt.from_hex(digits)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}", fault="salt") from None


def _unreadable(where: str, error: OSError | ValueError) -> ConfigError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return ConfigError(f"{where} cannot be read: {reason}", fault="salt")
