"""What runs: descendants, zombies, bystanders, and whether all of it ends in time."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from interop.processes import marked
from tests.support.python import PATIENCE, wait_until


def stat(pid: int) -> list[str]:
    """What the kernel tells of a process behind its name: state, parent, group, session, …

    Raises:
        OSError: it is gone.
    """
    text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    return text.rpartition(")")[2].split()


def state(pid: int) -> str:
    """R, S, T, Z and so on; empty for a process that is gone."""
    try:
        return stat(pid)[0]
    except OSError:
        return ""


def children(pid: int) -> list[int]:
    """The children of a process, the dead ones that it has not reaped included."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(stat(int(name))[1]) == pid:
                found.append(int(name))
        except OSError:
            continue
    return found


def zombies(pid: int) -> list[int]:
    """The children of a process that have ended and were not reaped."""
    return [child for child in children(pid) if state(child) == "Z"]


def helper_of(pid: int) -> int:
    """The helper of an agent, or of one that this process started, once it is there."""
    found: list[int] = []

    def look() -> bool:
        below = [pid, *children(pid)]
        alike = [child for each in below for child in children(each) if _is_helper(child)]
        # What it forks looks like it until it is something else.
        forked = {child for each in alike for child in children(each)}
        found[:] = [pid for pid in alike if pid not in forked]
        return bool(found)

    wait_until(look, f"process {pid} has a helper")
    (helper,) = found
    return helper


def _is_helper(pid: int) -> bool:
    try:
        return b"reaper" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def descriptors(pid: int) -> dict[int, str]:
    """What a process has open."""
    folder = f"/proc/{pid}/fd"
    return {int(name): os.readlink(f"{folder}/{name}") for name in os.listdir(folder)}


def memory(pid: int, which: str = "VmRSS") -> int:
    """Bytes of a process that are in memory; with VmHWM, the most there ever were."""
    status = Path(f"/proc/{pid}/status").read_text()
    (line,) = [line for line in status.splitlines() if line.startswith(f"{which}:")]
    return int(line.split()[1]) * 1024


def survivors(mark: str, *others: int, until: float) -> list[int]:
    """Who of those that carry the mark, and of `others`, is still there at the time `until`.

    It is waited for their ends, not for the time to pass.
    """
    while True:
        # The others first: what one of them has just forked carries no mark before it is another
        # program, and is looked for when they are gone.
        left = [*(pid for pid in others if state(pid) not in ("", "Z", "X")), *marked(mark)]
        if not left or time.monotonic() >= until:
            return left
        wait_for_end(left[0], until)


def wait_for_end(pid: int, until: float) -> None:
    """Wait until a process has ended, at most up to this time."""
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.poll(max(0.0, until - time.monotonic()) * 1000)
    finally:
        os.close(pidfd)


@contextmanager
def bystander(*, session: bool = True) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has nothing to do with any agent; it fails the test when it does not stay."""
    process = subprocess.Popen(["sleep", "600"], start_new_session=session)
    try:
        yield process
        assert process.poll() is None, f"somebody ended a bystander ({process.returncode})"
    finally:
        process.kill()
        process.wait(PATIENCE)
