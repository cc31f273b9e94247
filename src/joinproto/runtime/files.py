"""Files that somebody names: opened without waiting for anybody, and who can read them too."""

from __future__ import annotations

import os
import stat


def open_at_once(path: str | bytes | os.PathLike[str], flags: int) -> int:
    """Open a file, as `os.open` does or as the opener of `open`; one that is made is its owner's.

    Raises:
        OSError: it cannot be opened.
        ValueError: its name cannot be one.
    """
    # Without O_NONBLOCK the opening of a named pipe would wait for its other end for ever.
    return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY, 0o600)


def readable_by_all(mode: int) -> bool:
    """Whether `mode` is that of a plain file which every user of this host can read."""
    return stat.S_ISREG(mode) and bool(mode & stat.S_IROTH)
