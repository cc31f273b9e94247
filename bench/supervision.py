#!/usr/bin/env python3
"""Supervision and output of `joinproto agent`, beside the published agent in the same run.

Both run the same shell commands as ranks, under the same controller.  Worlds of the two take turns,
so that whatever else the machine does meets both alike; a figure is the median of its samples.
CPU, wake-ups and memory are those of the agent and of every helper process it has, without ranks.
Memory is PSS: what other processes map too (this program is one) counts by its share.

usage: python bench/supervision.py [--rows NAME,...] [--quick] [--json FILE]

Exit code: 0, or 1 when a goal is not reached.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import _supervising as supervising
from bench._common import PEER, compile_bytecode
from bench._report import Measurement, add_options, report
from bench._supervising import FULL, QUICK, Sizes
from bench._table import Goal, Row
from bench._worlds import OURS, Contender, linked, published

PUBLISHED = f"flodl {PEER}"
LINKED = f"flodl {PEER} with libtorch"

NONE = Goal(0, relative=False)

Part: TypeAlias = Measurement[Contender, Sizes]

FLOODS: Mapping[int, tuple[Goal, Goal | None]] = {
    100: (Goal(3, least=True), Goal(0.4)),
    10: (Goal(3, least=True), None),
    10_000: (Goal(1.2, least=True), None),
}
"""Length of the lines, and the goals for throughput and CPU."""


# -- the rows ---------------------------------------------------------------------------------


def measurements(scratch: Path) -> list[Part]:
    """Everything that there is to measure; files of lines go to `scratch`."""
    return [
        Measurement(
            "death",
            supervising.death,
            [_time("a rank's death → RankExited received", "death", 0.1)],
        ),
        Measurement(
            "abort",
            supervising.abort,
            [
                _time("Abort → 8 ranks dead", "dead", 0.5),
                _time("Abort → agent gone", "gone", 0.5),
            ],
        ),
        Measurement(
            "start",
            supervising.start,
            [_time("WorldFormed → 8 ranks have started their command", "started", 1.5)],
        ),
        *(_flood(scratch, length) for length in FLOODS),
        Measurement("idle", supervising.idle, _idle_rows()),
        Measurement(
            "sigkill",
            supervising.sigkill,
            [_row("ranks alive 2 s after SIGKILL of the agent", "alive", NONE)],
        ),
        Measurement(
            "sigterm",
            supervising.sigterm,
            [_row("ranks alive after the agent's end by SIGTERM", "alive", NONE)],
        ),
    ]


def _flood(scratch: Path, length: int) -> Part:
    throughput, cpu = FLOODS[length]
    lines = f"4 ranks, lines of {length} bytes"
    rows = [
        _row(f"{lines}: throughput", "speed", throughput, unit="MB/s"),
        _row(f"{lines}: CPU", "cpu", cpu, unit="s/GB"),
        _row(f"{lines}: lines lost or torn", "lost", NONE),
    ]
    return Measurement(f"lines-{length}", supervising.flood(scratch, length), rows)


def _idle_rows() -> list[Row]:
    return [
        _row("idle, 8 ranks: wake-ups", "wakeups", Goal(1, relative=False), unit="1/s"),
        _row("idle, 8 ranks: memory (PSS)", "pss", Goal(40, relative=False), unit="MB"),
        _row("idle, 8 ranks: memory (PSS)", "pss", Goal(0.3), unit="MB", rival=LINKED),
        _row("idle, 8 ranks: resident (RSS)", "rss", None, unit="MB", rival=LINKED),
    ]


def _time(title: str, figure: str, factor: float) -> Row:
    return _row(title, figure, Goal(factor), unit="ms")


def _row(
    title: str, figure: str, goal: Goal | None, *, unit: str = "", rival: str = PUBLISHED
) -> Row:
    return Row(title=title, figure=figure, rival=rival, goal=goal, unit=unit)


# -- running ----------------------------------------------------------------------------------


def agents() -> tuple[list[Contender], dict[str, str]]:
    """The agents that can be had on this machine, ours first; why the others cannot, by name."""
    found = [OURS]
    missing = {}
    for name, find in ((PUBLISHED, published), (LINKED, linked)):
        try:
            found.append(find(name))
        except FileNotFoundError as error:
            missing[name] = str(error)
    return found, missing


def run(table: Sequence[Part], contenders: Sequence[Contender], sizes: Sizes) -> None:
    """Take every measurement, the agents by turns."""
    for contender in contenders:
        # Warms the caches up.
        supervising.start(contender, sizes)
    for measurement in table:
        print(f"supervision: measuring {measurement.name}", file=sys.stderr, flush=True)
        for _ in range(sizes.turns.get(measurement.name, sizes.flood_turns)):
            for contender in contenders:
                if measurement.concerns(contender):
                    measurement.record(contender, measurement.measure(contender, sizes))


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="joinproto-bench-") as scratch:
        table = measurements(Path(scratch))
        parser = argparse.ArgumentParser(
            description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
        )
        add_options(parser, [measurement.name for measurement in table])
        options = parser.parse_args()
        # Told to end, it cleans up.
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
        compile_bytecode()
        contenders, missing = agents()
        table = [measurement for measurement in table if measurement.name in options.rows]
        run(table, contenders, QUICK if options.quick else FULL)
    rows = [row for measurement in table for row in measurement.rows]
    return report("supervision", rows, missing, options.json)


if __name__ == "__main__":
    sys.exit(main())
