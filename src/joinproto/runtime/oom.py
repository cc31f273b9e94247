"""Whether the kernel has killed for want of memory."""

from __future__ import annotations

from collections.abc import Iterable

from joinproto.runtime.cgroup import own_cgroup


def kill_count(sources: Iterable[str] | None = None) -> int | None:
    """How many processes the kernel has killed for want of memory so far; None: it does not say.

    The count of this process's control group is asked first, which concerns it and its descendants
    alone, and that of the whole machine where there is none.

    Args:
        sources: files to ask, the first that answers wins; None: those of this system.
    """
    for path in _sources() if sources is None else sources:
        count = _count_in(path)
        if count is not None:
            return count
    return None


def _sources() -> Iterable[str]:
    unified = own_cgroup()
    if unified is not None:
        yield f"{unified}/memory.events"
    older = _memory_cgroup()
    if older is not None:
        yield f"{older}/memory.oom_control"
    yield "/proc/vmstat"


def _memory_cgroup() -> str | None:
    """Where the version 1 memory control group of this process lies in the file system."""
    try:
        with open("/proc/self/cgroup", encoding="utf-8", errors="surrogateescape") as file:
            rows = (line.rstrip("\n").split(":", 2) for line in file)
            inside = next(path for _, names, path in rows if "memory" in names.split(","))
    except (OSError, StopIteration, ValueError):
        return None
    return f"/sys/fs/cgroup/memory{inside}"


def _count_in(path: str) -> int | None:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            rows = (line.split() for line in file)
            return next(int(row[1]) for row in rows if row[:1] == ["oom_kill"])
    except (OSError, StopIteration, ValueError, IndexError):
        return None
