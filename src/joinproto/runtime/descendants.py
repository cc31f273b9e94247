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
from functools import cache
from typing import TypeAlias

ROUND = 0.05
"""Seconds to wait for the killed to be gone before looking again."""

WAITING = b"joinproto-next"
"""The name of a process that an agent's helper has forked, and that is not yet what it is to be."""

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
    call, last_error = _prctl()
    if call(option, value, 0, 0, 0) != 0:
        code = last_error()
        raise OSError(code, os.strerror(code))


@cache
def _prctl() -> tuple[Callable[..., int], Callable[[], int]]:
    """The C function, and what tells why it failed.

    Made once, before any child is: a forked process that made it anew would take milliseconds.
    """
    import ctypes

    call = ctypes.CDLL(None, use_errno=True).prctl
    call.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    return call, ctypes.get_errno


PARENT, SESSION, STARTED = 1, 3, 19
"""Places in what the kernel tells of a process (proc(5), its stat), behind the name: its parent,
its session, and when it was started, in ticks of the clock."""


def about(pid: int, place: int) -> int | None:
    """One thing that the kernel tells of a process; None when it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may hold anything, so count from its end.
            return int(file.read().rpartition(b")")[2].split()[place])
    except (OSError, IndexError, ValueError):
        return None


def parent_of(pid: int) -> int | None:
    """The parent of a process; None when it is gone."""
    return about(pid, PARENT)


def children() -> dict[int, list[int]]:
    """The children of every process that can be seen and has any."""
    found: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            parent = parent_of(int(entry))
            if parent is not None:
                found.setdefault(parent, []).append(int(entry))
    return found


def descendants(root: int) -> list[int]:
    """Every process whose chain of parents leads to `root`, nearest first."""
    below = children()
    found = list(below.get(root, ()))
    for pid in found:
        found += below.get(pid, ())
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


Reaped: TypeAlias = Callable[[int, int], None]
"""Told the number and the wait status of a child that was reaped."""


def sweep(until: float, reaped: Reaped, mine: Callable[[int], bool] | None = None) -> list[int]:
    """Kill every descendant of this process, and theirs, until there are none.

    Args:
        until: when to give up, on the monotonic clock.
        reaped: told of each child that is reaped.
        mine: whether a child is to be swept, with all below it; None: they all are.

    Returns:
        Those that are still there: in an uninterruptible sleep, or somebody else's by now.
    """
    me = os.getpid()
    while left := _left(me, reaped, mine):
        for pid in left:
            kill(pid, me)
        wait_for_one(left, min(ROUND, until - time.monotonic()))
        if time.monotonic() >= until:
            return _left(me, reaped, mine)
    return []


def _left(me: int, reaped: Reaped, mine: Callable[[int], bool] | None) -> list[int]:
    """Reap what has ended; the descendants that have not."""
    if mine is None:
        return descendants(me) if reap(reaped) else []
    while True:
        roots = [pid for pid in children().get(me, ()) if mine(pid)]
        # What is reaped here has left its own children to this process: look again.
        if not [pid for pid in roots if reap_one(pid, reaped)]:
            return [pid for root in roots for pid in (root, *descendants(root))]


def reap(reaped: Reaped) -> bool:
    """Reap every child that has ended; whether any child is left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        reaped(pid, status)


def reap_one(pid: int, reaped: Reaped) -> bool:
    """Reap this child if it has ended; whether it has."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        # Somebody else in this process waits for children too, and was quicker.
        return True
    if ended:
        reaped(pid, status)
    return bool(ended)


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
