"""Whether a child was killed for want of memory, which only the kernel's count of that tells."""

from __future__ import annotations

import signal
from collections.abc import Iterable

from joinproto.runtime.cgroup import own_cgroup

KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
"""How such a child ends, and how a shell ends whose last command did."""


class KillWatch:
    """Tells kills for want of memory from others.

    The kernel counts the former for each control group; that of this process is asked, which
    concerns it and its descendants alone, and the count of the whole machine where there is none.

    Args:
        sources: files to ask, the first that answers is kept to; None: those of this system.
    """

    def __init__(self, sources: Iterable[str] | None = None) -> None:
        self._path: str | None = None
        self._seen = 0
        for path in _sources() if sources is None else sources:
            count = _count_in(path)
            if count is not None:
                self._path, self._seen = path, count
                break

    def explains(self, code: int, *, by_agent: bool) -> bool:
        """Whether a child that ended with this code was killed for want of memory.

        To be asked once for every end, in order: each kill explains one of them at most.
        """
        count = None if self._path is None else _count_in(self._path)
        if count is None:
            return False
        if code in KILLED and not by_agent and count > self._seen:
            self._seen += 1
            return True
        # Whom else the kernel has killed until now is not to pass for a later end.
        self._seen = count
        return False


def _sources() -> Iterable[str]:
    unified = own_cgroup()
    if unified is not None:
        yield f"{unified}/memory.events"
    older = _memory_cgroup()
    if older is not None:
        yield f"/sys/fs/cgroup/memory{older}/memory.oom_control"
        # In a container, where the path is that of the host and the mount begins at the group.
        yield "/sys/fs/cgroup/memory/memory.oom_control"
    yield "/proc/vmstat"


def _memory_cgroup(listed: str = "/proc/self/cgroup") -> str | None:
    """The version 1 memory control group of this process, from where such groups are mounted."""
    try:
        with open(listed, encoding="utf-8", errors="surrogateescape") as file:
            rows = (line.rstrip("\n").split(":", 2) for line in file)
            return next(path for _, names, path in rows if "memory" in names.split(","))
    except (OSError, StopIteration, ValueError):
        return None


def _count_in(path: str) -> int | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            rows = (line.split() for line in file)
            return next(int(row[1]) for row in rows if row[:1] == ["oom_kill"])
    except (OSError, StopIteration, ValueError, IndexError):
        return None
