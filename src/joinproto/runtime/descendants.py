"""Finding and ending every descendant of this process, wherever it has gone.

A process is a descendant when its chain of parents leads here.  One whose parent ended is handed by
the kernel to the nearest ancestor that has made itself a subreaper, so for a subreaper the chain
never breaks, whatever session or process group a process has moved to.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Callable

ROUND = 0.05
"""Seconds to wait for the killed to be gone before looking again."""

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
PR_GET_CHILD_SUBREAPER = 37


def become_subreaper() -> bool:
    """Have orphaned descendants handed to this process; whether they were not before.

    Raises:
        OSError: the kernel does not know how.
    """
    import ctypes

    already = ctypes.c_int()
    prctl(PR_GET_CHILD_SUBREAPER, ctypes.addressof(already))
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    return not already.value


def cease_to_be_subreaper() -> None:
    """Undo that: whoever waits for none but its own children would pile up dead orphans."""
    prctl(PR_SET_CHILD_SUBREAPER, 0)


def prctl(option: int, value: int) -> None:
    """The system call of that name.

    Raises:
        OSError: it failed.
    """
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def parents() -> dict[int, int]:
    """The parent of every process that can be seen."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            parent = parent_of(int(entry))
            if parent is not None:
                found[int(entry)] = parent
    return found


def parent_of(pid: int) -> int | None:
    """The parent of a process; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may hold anything, so count from its end.
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None


def descendants(root: int) -> list[int]:
    """Every process whose chain of parents leads to `root`, nearest first."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found = list(children.get(root, ()))
    for pid in found:
        found += children.get(pid, ())
    return found


def kill(pid: int, root: int) -> None:
    """Send SIGKILL to a descendant of `root`, and to nobody else.

    Between finding a number and signalling it the process may end and its number go to another one;
    a descriptor names the process itself, and its chain of parents is asked again behind it.
    """
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if _leads_to(pid, root):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
    except OSError:
        # It ended, or has become somebody else's (setuid): nothing that could be done here.
        return
    finally:
        os.close(fd)


def _leads_to(pid: int, root: int) -> bool:
    above: int | None = pid
    while above is not None and above > 1:
        above = parent_of(above)
        if above == root:
            return True
    return False


def sweep(until: float, reaped: Callable[[int, int], None] = lambda pid, status: None) -> list[int]:
    """Kill every descendant of this process, and theirs, until there are none.

    Args:
        until: when to give up, on the monotonic clock.
        reaped: told the number and wait status of each child that is reaped.

    Returns:
        Those that are still there: in an uninterruptible sleep, or somebody else's by now.
    """
    me = os.getpid()
    while True:
        if not reap(reaped):
            return []
        left = descendants(me)
        for pid in left:
            kill(pid, me)
        wait_for_one(left, min(ROUND, until - time.monotonic()))
        if time.monotonic() >= until:
            return descendants(me) if reap(reaped) else []


def reap(reaped: Callable[[int, int], None]) -> bool:
    """Reap every child that has ended; whether any child is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        reaped(pid, status)


def wait_for_one(pids: list[int], seconds: float) -> None:
    """Wait until one of these processes is gone, at most so long."""
    poll = select.poll()
    fds = []
    try:
        for pid in pids[:64]:
            fd = os.pidfd_open(pid)
            fds.append(fd)
            poll.register(fd, select.POLLIN)
    except OSError:
        # One is gone already.
        seconds = 0.0
    poll.poll(max(0.0, seconds) * 1000)
    for fd in fds:
        os.close(fd)


def exit_code(status: int) -> int:
    """An exit code from a wait status: −N for signal N."""
    return os.waitstatus_to_exitcode(status)
