"""Ends whatever a target has left behind: all that it started inherits the mark of its case."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from pathlib import Path

ROUNDS = 50
"""How often to look for more; what multiplies faster than it is killed is given up."""

GONE = 1000
"""Milliseconds that one killed process may take to be gone."""


def end_marked(variable: str, mark: str) -> int:
    """Kill every process whose environment holds `variable` with `mark` in it.

    Returns:
        How many there were.
    """
    ended = 0
    for _ in range(ROUNDS):
        found = [pid for pid in _pids() if _carries(pid, variable, mark)]
        if not found:
            break
        for pid in found:
            ended += _end(pid, variable, mark)
    return ended


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _carries(pid: int, variable: str, mark: str) -> bool:
    try:
        entries = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it has ended, or is somebody else's
        return False
    start = f"{variable}=".encode()
    return any(entry.startswith(start) and mark.encode() in entry for entry in entries)


def _end(pid: int, variable: str, mark: str) -> int:
    with suppress(ProcessLookupError):
        descriptor = os.pidfd_open(pid)
        try:
            # The number may have gone to another process since; the descriptor cannot.
            if _carries(pid, variable, mark):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
                waiting = select.poll()
                waiting.register(descriptor, select.POLLIN)
                waiting.poll(GONE)
                return 1
        finally:
            os.close(descriptor)
    return 0
