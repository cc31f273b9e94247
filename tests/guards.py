"""A pytest plugin with the rules that every test is held to while it runs.

* A test that is not marked slow, interop or long stays under a second.  Only time on the processor
  is counted, and only a clear excess fails: what else the machine does must not fail a test.
* No child process and no open descriptor of ours outlives the test that made it.
"""

from __future__ import annotations

import gc
import os
import signal
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

CPU_LIMIT = 8.0
"""Seconds.  Far above the rule of 1 s: coverage and busy neighbours make a test slower than it is,
and a guard that fails by itself guards nothing."""

UNHURRIED = ("slow", "interop", "long")
LEAKABLE = ("socket:", "pipe:", "anon_inode:")
"""What links in /proc/self/fd begin with; anon_inode is an epoll, a pidfd and the like."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test that took much longer than its marks allow."""
    start = time.process_time()
    yield
    spent = time.process_time() - start
    if spent > CPU_LIMIT and not any(item.get_closest_marker(mark) for mark in UNHURRIED):
        pytest.fail(
            f"took {spent:.1f} s of processor time; make it faster or mark it slow", pytrace=False
        )


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Fail a test that leaves a child or an open descriptor; a child left is killed."""
    children, descriptors = _children(), _descriptors()
    yield
    left = [_kill(pid) for pid in sorted(_children() - children)]
    opened = _descriptors() - descriptors
    if opened:
        # An object in a reference cycle closes when it is collected, and the warning that it gives
        # then is an error that names it, which is of more use than a number.
        gc.collect()
        opened &= _descriptors()
    left += [f"descriptor {number} ({target})" for number, target in sorted(opened)]
    if left:
        pytest.fail(f"left behind: {', '.join(left)}", pytrace=False)


def _children() -> set[int]:
    """The pids of this process's children, those included that ended and were not waited for."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return set()  # the usual case, found without reading all of /proc
    return {pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if _is_ours(pid)}


def _is_ours(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False  # it ended between the listing and here
    # The second field, a name in brackets, may itself hold brackets and spaces.
    return int(stat.rpartition(")")[2].split()[1]) == os.getpid()


def _descriptors() -> set[tuple[int, str]]:
    found = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # the descriptor that the listing itself used
            target = os.readlink(f"/proc/self/fd/{number}")
            if target.startswith(LEAKABLE):
                found.add((int(number), target))
    return found


def _kill(pid: int) -> str:
    """End the child `pid` of ours and tell what it was."""
    command = (
        Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    )
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return f"child {pid} ({command.strip() or 'ended, never waited for'})"
