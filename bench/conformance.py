#!/usr/bin/env python3
"""How long the conformance suite takes against joinproto's own agent and controller.

Somebody who writes an agent runs it after every change, so it is to be over in a minute.  Each role
is run once, with two jobs at time scale 0.1, as a user would; the cases that take longest are told,
since none that has no deadline of 30 s to wait out is to take more than 5 s.

usage: python bench/conformance.py [--jobs N] [--json FILE]

Exit code: 0, or 1 when a role or a case takes longer than it may, or does not pass.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench._common import machine
from interop.peers import OURS
from joinproto.conformance.case import load
from joinproto.conformance.results import Record, read

ROLE_LIMIT, CASE_LIMIT = 60.0, 5.0
"""Seconds that all cases of a role, and one case, may take."""

SHOWN = 5


def measure(role: str, jobs: int) -> Record:
    """Run all cases of a role against our own."""
    with tempfile.TemporaryDirectory(prefix="joinproto-bench-") as folder:
        command = [*OURS, "conform", role, "--self", "--time-scale", "0.1", "--jobs", str(jobs)]
        subprocess.run([*command, "--output", folder], stdout=subprocess.DEVNULL, check=False)
        return read((Path(folder) / "results.jsonl").read_text().splitlines())


def tell(role: str, record: Record) -> bool:
    """Print what a run took; returns whether it keeps the limits."""
    assert record.summary is not None
    margin = {case.id for case in load(role) if case.waits_margin}
    longest = sorted(record.results, key=lambda result: -result.seconds)
    over = [each for each in longest if each.case not in margin and each.seconds > CASE_LIMIT]
    passed = sum(each.verdict in ("PASS", "INFO") for each in record.results)
    took = record.summary.seconds
    counted = f"{len(record.results)} cases, {passed} passed"
    print(f"{role}: {took:.1f} s (limit {ROLE_LIMIT:g}) for {counted}")
    for each in longest[:SHOWN]:
        note = " (waits out the margin)" if each.case in margin else ""
        print(f"    {each.seconds:6.2f} s  {each.case}{note}")
    return took <= ROLE_LIMIT and not over and record.summary.exit_code == 0


def main() -> int:
    """Measure, print, and say whether the limits are kept."""
    parser = argparse.ArgumentParser(description="How long the conformance suite takes.")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    args = parser.parse_args()
    print(machine())
    records = {role: measure(role, args.jobs) for role in ("agent", "controller")}
    kept = [tell(role, record) for role, record in records.items()]
    if args.json:
        figures = {
            role: {each.case: each.seconds for each in record.results}
            for role, record in records.items()
        }
        args.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
