"""A control group (version 2) of our own for children, where one may be made.

Its `cgroup.kill` ends everything in it at one stroke, which even a tree that forks faster than it
can be walked does not escape.
"""

from __future__ import annotations

import os
from contextlib import suppress

PREFIX = "joinproto-"
"""How the name of a helper's begins; the number of its process follows."""


class Cgroup:
    """A control group, or (path None) the lack of one: then everything here does nothing.

    Args:
        path: where it lies in the file system.
    """

    def __init__(self, path: str | None) -> None:
        self.path = path

    def enter(self) -> None:
        """Move the calling process in; one that cannot stays where it is."""
        self._write("cgroup.procs")

    def leave(self) -> bool:
        """Move the calling process out again, to where it came from; whether it is out."""
        return self._write("../cgroup.procs")

    def kill(self) -> None:
        """End everything in it."""
        self._write("cgroup.kill", b"1")

    def remove(self) -> None:
        """Remove it, if it is empty."""
        if self.path is not None:
            try:
                os.rmdir(self.path)
            except OSError:
                # Somebody is still in it, or it is gone.
                return

    def _write(self, name: str, value: bytes = b"0") -> bool:
        """Write to one of its files; whether that was done."""
        if self.path is None:
            return False
        try:
            fd = os.open(os.path.join(self.path, name), os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            os.write(fd, value)
        except OSError:
            # What it would have done, parent-death signals and the sweep do too.
            return False
        finally:
            os.close(fd)
        return True


def make_cgroup(name: str) -> Cgroup:
    """A new control group below the one of this process; the lack of one, where that fails."""
    own = own_cgroup()
    if own is None:
        return Cgroup(None)
    path = os.path.join(own, name)
    try:
        os.mkdir(path)
    except OSError:
        return Cgroup(None)
    if not os.path.exists(os.path.join(path, "cgroup.kill")):
        # An older kernel (before 5.14).
        os.rmdir(path)
        return Cgroup(None)
    _remove_abandoned(own)
    return Cgroup(path)


def _remove_abandoned(below: str) -> None:
    """Remove what helpers have left that were killed together with their agents."""
    with suppress(OSError):
        for name in os.listdir(below):
            number = name.removeprefix(PREFIX)
            if number != name and number.isdigit() and not os.path.exists(f"/proc/{number}"):
                # One that somebody is still in is not removed.
                Cgroup(os.path.join(below, name)).remove()


def own_cgroup() -> str | None:
    """Where the version 2 control group of this process lies in the file system."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            inside = next(line[3:-1] for line in file if line.startswith("0::"))
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            fields = (line.split() for line in file)
            mount = next(f[4] for f in fields if f[f.index("-") + 1] == "cgroup2")
    except (OSError, StopIteration, ValueError):
        return None
    return os.path.normpath(f"{mount}/{inside}")
