#!/usr/bin/env python3
"""Runs the conformance suite many times against our own programs; every verdict must be the same.

usage: python bench/_flakes.py [--runs N]

Exit code: 0, or 1 when a case came to different verdicts, or was run twice to come to one.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.conformance import measure
from joinproto.conformance.selection import name_of


def main() -> int:
    """Run, count, and tell what was not the same every time."""
    parser = argparse.ArgumentParser(description="Looks for verdicts that depend on chance.")
    parser.add_argument("--runs", type=int, default=20)
    args = parser.parse_args()
    verdicts: dict[str, Counter[str]] = defaultdict(Counter)
    for number in range(args.runs):
        for role in ("agent", "controller"):
            for each in measure(role, 2).results:
                again = " at the second try" if each.attempts > 1 else ""
                verdicts[name_of(each.case, each.wire, each.admission)][each.verdict + again] += 1
        print(f"run {number + 1} of {args.runs}: {len(verdicts)} cases", flush=True)
    flaky = {name: found for name, found in verdicts.items() if len(found) > 1}
    for name, found in sorted(flaky.items()):
        print(f"{name}: {dict(found)}")
    print(f"{len(flaky)} of {len(verdicts)} cases came to different verdicts")
    return 1 if flaky else 0


if __name__ == "__main__":
    sys.exit(main())
