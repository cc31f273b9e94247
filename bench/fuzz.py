#!/usr/bin/env python3
"""How many cases a second fuzzing gets through, in process and over TCP.

guided    the codec target on one core under atheris, joinproto and construct instrumented, its
          cases changed by the custom mutator
unguided  the same target and mutator in a plain loop
sessions  `joinproto fuzz controller --self --open`: sessions over TCP, from dial to end of link,
          with two jobs

In the first two most cases are tagged anew.  There is nothing to compare any with: goals are cases
a second.  The first needs atheris (`make fuzz` installs it) and is not measured without it.

usage: python bench/fuzz.py [--rows NAME,...] [--quick] [--json FILE]

Exit code: 0, or 1 when a goal is not reached.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench._common import compile_bytecode
from bench._report import add_options, report
from bench._table import Goal, Row
from fuzz.table import CORPUS, LONGEST, ROOT, TARGETS
from interop.peers import OURS

TARGET: Final = "codec-4"
KEPT: Final = 500
"""Cases that are changed further in a plain loop, where nothing says which are worth it."""


class NotMeasured(Exception):
    """Why a figure is not there."""


def guided(seconds: float) -> float:
    """Cases a second under atheris.

    Raises:
        NotMeasured: there is no atheris, or a case broke the target.
    """
    if find_spec("atheris") is None:
        raise NotMeasured("not run: no atheris (requirements/fuzz.lock)")
    with tempfile.TemporaryDirectory(prefix="joinproto-bench-") as folder:
        options = ["--seconds", f"{seconds:.0f}", "--keep", folder]
        command = [sys.executable, str(ROOT / "run.py"), TARGET, *options]
        done = subprocess.run(command, capture_output=True, text=True)
    rate = re.search(r"^stat::average_exec_per_sec: *(\d+)$", done.stderr, re.MULTILINE)
    if done.returncode or rate is None:
        last = done.stderr.strip().splitlines()[-1:]
        raise NotMeasured(f"exit code {done.returncode}: {' '.join(last)}")
    return float(rate[1])


def unguided(seconds: float) -> float:
    """Cases a second without coverage: changing a case, and checking it."""
    target = TARGETS[TARGET]
    random = Random(1)
    check, change = target.check, target.change(target.mutator(random))
    cases = [path.read_bytes() for path in target.cases(CORPUS)]
    count = 0
    start = time.perf_counter()
    while (took := time.perf_counter() - start) < seconds:
        case = change(cases[int(random.random() * len(cases))], LONGEST)
        check(case)
        if len(cases) < KEPT:
            cases.append(case)
        count += 1
    return count / took


def sessions(seconds: float) -> float:
    """Connections a second over TCP with our own controller, two jobs, all cases of a run counted.

    Raises:
        NotMeasured: the harness could not run.
    """
    with tempfile.TemporaryDirectory(prefix="joinproto-bench-") as folder:
        options = ["--self", "--open", "--max-time", str(seconds), "--seed", "1"]
        command = [*OURS, "fuzz", "controller", *options, "--output", folder]
        done = subprocess.run(command, capture_output=True, text=True)
        results = Path(folder) / "results.json"
        if not results.exists():
            last = done.stderr.strip().splitlines()[-1:]
            raise NotMeasured(f"exit code {done.returncode}: {' '.join(last)}")
        run = json.loads(results.read_text(encoding="utf-8"))
        return float(run["sessions"] / run["seconds"])


MEASUREMENTS: Final[dict[str, tuple[Callable[[float], float], str, float]]] = {
    "guided": (guided, "codec, tagged anew, guided by coverage", 2000),
    "unguided": (unguided, "codec, tagged anew, without coverage", 5000),
    "sessions": (sessions, "sessions over TCP with our controller", 300),
}
"""Name → how it is measured, what it is called, and the least that is enough a second."""


def row_of(name: str, seconds: float) -> Row:
    """A row, measured."""
    measure, title, least = MEASUREMENTS[name]
    row = Row(title, name, "", Goal(least, least=True, relative=False), "/s")
    try:
        row.ours.append(measure(seconds))
    except NotMeasured as why:
        row.note = str(why)
    return row


def main() -> int:
    """Measure, print, and say whether the goals are reached."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, [*MEASUREMENTS])
    options = parser.parse_args()
    compile_bytecode()
    seconds = 5 if options.quick else 15
    rows = [row_of(name, seconds) for name in options.rows]
    return report("fuzz", rows, {}, options.json)


if __name__ == "__main__":
    sys.exit(main())
