#!/usr/bin/env python3
"""`joinproto controller`, beside the published launcher in the same run.

Both admit the same dialers, which are one process with prepared frames, under open admission.  The
two take turns, so that whatever else the machine does meets both alike; a figure is the median of
its samples.  Who dials needs a core of its own beside that of the controller: with one core for
both, these are figures of something else.

That 500 dial at once is more than the accept queue of the published launcher takes (128): the
system has those it turned away dial again after a second, and most of its time is that second.  The
rows with 64 at a time, which fit the queue, are without it.

usage: python bench/controller.py [--peer VERSION] [--rows NAME,...] [--quick] [--json FILE]

Exit code: 0, or 1 when a goal is not reached.
"""

from __future__ import annotations

import argparse
import resource
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import _dialing as dialing
from bench._common import PEER, compile_bytecode
from bench._dialing import FULL, QUICK, Contender, Sizes
from bench._report import Measurement, add_options, report
from bench._table import Goal, Row
from interop.peers import WIRES

Part: TypeAlias = Measurement[Contender, Sizes]

ALONE = "–"
"""The rival of what is measured of ours alone."""

NONE = Goal(0, relative=False)
SOON = Goal(50, relative=False)
FLAT = Goal(4, relative=False)
"""Megabytes: what an allocator may keep; a leak of a hundred bytes a connection is more."""


# -- the rows ---------------------------------------------------------------------------------


def measurements(rival: str, sizes: Sizes) -> list[Part]:
    """Everything that there is to measure, beside the controller called `rival`."""

    def row(title: str, figure: str, goal: Goal | None, unit: str = "", other: str = rival) -> Row:
        return Row(title=title, figure=figure, rival=other, goal=goal, unit=unit)

    crowd = f"{sizes.crowd} agents at once"
    queue = f"{sizes.crowd} agents, {dialing.QUEUE} at a time"
    many = f"{sizes.many} agents"
    garbage = f"{sizes.garbage_seconds:g} s of garbage"
    accept = "connect → Accept"
    return [
        Measurement(
            "single", dialing.single, [row(f"{accept}, one at a time", "accept", Goal(0.15), "ms")]
        ),
        Measurement(
            "crowd",
            dialing.crowd,
            [
                row(f"{crowd}: joins", "joins", Goal(8, least=True), "1/s"),
                row(f"{crowd}: last WorldFormed", "formed", Goal(0.3), "ms"),
            ],
        ),
        Measurement(
            "queue",
            dialing.queue,
            [
                row(f"{queue}: joins", "joins", None, "1/s"),
                row(f"{queue}: last WorldFormed", "formed", None, "ms"),
            ],
        ),
        Measurement(
            "silent-2",
            dialing.behind_few,
            [row(f"{accept} behind 2 silent", "accept", SOON, "ms")],
        ),
        Measurement(
            "silent-many",
            dialing.behind_many,
            [row(f"{accept} behind {sizes.silent} silent", "accept", SOON, "ms", ALONE)],
        ),
        Measurement(
            "many",
            dialing.many,
            [
                row(f"{many}: with a world", "with_world", at_least(sizes.many), "", ALONE),
                row(f"{many}: ranks missing or twice", "wrong", NONE, "", ALONE),
                row(f"{many}: last WorldFormed", "seconds", None, "s", ALONE),
                row(f"{many}: memory (RSS) for each", "memory", None, "kB", ALONE),
            ],
        ),
        Measurement(
            "garbage",
            dialing.garbage,
            [
                row(f"{garbage}: connections", "rate", None, "1/s", ALONE),
                row(
                    f"{garbage}: of {sizes.honest} agents with a world",
                    "with_world",
                    at_least(sizes.honest),
                    "",
                    ALONE,
                ),
                row(f"{garbage}: ranks missing or twice", "wrong", NONE, "", ALONE),
                row(f"{garbage}: {accept}", "accept", None, "ms", ALONE),
                row(
                    f"{garbage}: memory (RSS) after {sizes.garbage_before:g} s → end",
                    "growth",
                    FLAT,
                    "MB",
                    ALONE,
                ),
            ],
        ),
    ]


def at_least(count: int) -> Goal:
    """All of them."""
    return Goal(count, least=True, relative=False)


ONCE = ("many", "garbage")
"""What takes long, and is measured once."""


# -- running ----------------------------------------------------------------------------------


def run(table: Sequence[Part], contenders: Sequence[Contender], sizes: Sizes) -> None:
    """Take every measurement, the controllers by turns."""
    for measurement in table:
        print(f"controller: measuring {measurement.name}", file=sys.stderr, flush=True)
        if measurement.name == "many" and (why_not := short_of_descriptors(sizes)):
            for row in measurement.rows:
                row.note = why_not
            continue
        for _ in range(turns_of(measurement.name, sizes)):
            for contender in contenders:
                if measurement.concerns(contender):
                    measurement.record(contender, measurement.measure(contender, sizes))


def turns_of(name: str, sizes: Sizes) -> int:
    """How often this measurement is taken."""
    if name in ONCE:
        return 1
    return sizes.slow_turns if name.startswith("silent") else sizes.turns


def short_of_descriptors(sizes: Sizes) -> str:
    """Why the largest world cannot be, or nothing."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    needed = dialing.descriptors_needed(sizes)
    if hard == resource.RLIM_INFINITY or hard >= needed:
        return ""
    return f"not run: limit on open files {hard}, {needed} needed (ulimit -Hn)"


def controllers(version: str) -> tuple[list[Contender], dict[str, str]]:
    """Those that can be had on this machine, ours first; why the other cannot, by name."""
    try:
        return [dialing.ours(version), dialing.published(version)], {}
    except FileNotFoundError as error:
        return [dialing.ours(version)], {f"flodl {version}": str(error)}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peer", choices=sorted(WIRES), default=PEER, help="the published version to compare with"
    )
    add_options(parser, [measurement.name for measurement in measurements("", FULL)])
    options = parser.parse_args()
    # Told to end, it cleans up.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    compile_bytecode()
    sizes = QUICK if options.quick else FULL
    contenders, missing = controllers(options.peer)
    every = measurements(f"flodl {options.peer}", sizes)
    table = [measurement for measurement in every if measurement.name in options.rows]
    run(table, contenders, sizes)
    rows = [row for measurement in table for row in measurement.rows]
    return report("controller", rows, missing, options.json)


if __name__ == "__main__":
    sys.exit(main())
