"""What processes have used so far, as the kernel counts it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pids: Iterable[int]) -> float:
    """Processor time of these processes, of threads that have ended too."""
    return sum(map(_ticks, pids)) / TICKS


def _ticks(pid: int) -> int:
    # The name in parentheses may hold anything, so count from its end: utime and stime.
    words = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    return int(words[11]) + int(words[12])


def switches(pids: Iterable[int]) -> int:
    """How often the threads of these processes were switched away from: once for each wake-up."""
    counted = re.compile(r"^(?:non)?voluntary_ctxt_switches:\s*(\d+)$", re.MULTILINE)
    threads = (path for pid in pids for path in Path(f"/proc/{pid}/task").iterdir())
    return sum(sum(map(int, counted.findall((path / "status").read_text()))) for path in threads)


def memory_bytes(pids: Iterable[int], field: str) -> int:
    """Memory of these processes; `field` is one of smaps_rollup: Pss, Rss, Private_Dirty."""
    wanted = re.compile(rf"^{field}:\s*(\d+) kB$", re.MULTILINE)
    return 1024 * sum(
        int(number)
        for pid in pids
        for number in wanted.findall(Path(f"/proc/{pid}/smaps_rollup").read_text())
    )
