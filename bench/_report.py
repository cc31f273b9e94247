"""What comparisons share: their measurements by name, taken by turns, and what is told of them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from bench._common import machine
from bench._table import Figures, Row, tell

OURS = "joinproto"
"""The name of our contender in every comparison."""


class Named(Protocol):
    """Whatever is measured."""

    @property
    def name(self) -> str:
        """What it is called in figures."""


C = TypeVar("C", bound=Named)
S = TypeVar("S")


@dataclass
class Measurement(Generic[C, S]):
    """What is measured in one go, by one name, and the rows that come of it."""

    name: str
    measure: Callable[[C, S], Figures]
    rows: list[Row]

    def concerns(self, contender: C) -> bool:
        """Whether it has rows for this contender."""
        return contender.name == OURS or any(row.rival == contender.name for row in self.rows)

    def record(self, contender: C, figures: Figures) -> None:
        """Add what was measured to the rows."""
        for row in self.rows:
            if contender.name == OURS:
                row.ours += figures[row.figure]
            elif row.rival == contender.name:
                row.theirs += figures[row.figure]


def chosen(text: str, names: Sequence[str]) -> list[str]:
    """The measurements that are named, in the order of the table.

    Raises:
        argparse.ArgumentTypeError: one of them is not there.
    """
    wanted = text.split(",")
    for name in wanted:
        if name not in names:
            raise argparse.ArgumentTypeError(f"no {name!r}; there are {', '.join(names)}")
    return [name for name in names if name in wanted]


def add_options(parser: argparse.ArgumentParser, names: Sequence[str]) -> None:
    """The options of every comparison, with the names of its measurements."""
    parser.add_argument(
        "--rows",
        metavar="NAME,...",
        type=lambda text: chosen(text, names),
        default=list(names),
        help=f"measure these alone: {','.join(names)}",
    )
    parser.add_argument("--quick", action="store_true", help="less of everything; rougher")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")


def report(program: str, rows: Sequence[Row], missing: Mapping[str, str], file: Path | None) -> int:
    """Print the table, write it to a file too, and return the exit code."""
    tell(rows, missing)
    if file is not None:
        figures = {"rows": [row.as_json() for row in rows], "missing": missing, **machine()}
        file.write_text(json.dumps(figures, indent=2) + "\n")
    short = [row.title for row in rows if row.reached is False]
    sys.stdout.flush()
    for title in short:
        print(f"{program}: not reached: {title}", file=sys.stderr)
    return 1 if short else 0
