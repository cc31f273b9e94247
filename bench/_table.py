"""The table of a comparison: goals, samples by agent, and how the one compares with the other."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Figures: TypeAlias = dict[str, list[float]]
"""Samples by the name of the figure that they are of."""


@dataclass(frozen=True)
class Goal:
    """What our figure is to be.

    Attributes:
        bound: so many times the other agent's, or so much.
        least: that is the least that is enough; else the most that is allowed.
        relative: the bound is a factor.
    """

    bound: float
    least: bool = False
    relative: bool = True

    def __str__(self) -> str:
        return f"{'≥' if self.least else '≤'} {self.bound:g}{' ×' if self.relative else ''}"

    def reached(self, ours: float, theirs: float | None) -> bool | None:
        """Whether it is; None where there is nothing to compare with."""
        if self.relative and theirs is None:
            return None
        bound = self.bound * (theirs or 0.0) if self.relative else self.bound
        return ours >= bound if self.least else ours <= bound


@dataclass
class Row:
    """A line of the table.

    Attributes:
        title: what is measured.
        figure: the name of its samples.
        rival: the name of the agent that ours is compared with.
        goal: None where a figure is only told.
        unit: of the samples.
        ours: samples of ours.
        theirs: samples of the rival.
        note: why there are none, should there be none.
    """

    title: str
    figure: str
    rival: str
    goal: Goal | None = None
    unit: str = ""
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)
    note: str = ""

    @property
    def our_median(self) -> float | None:
        """Median of ours; None: it was not measured."""
        return statistics.median(self.ours) if self.ours else None

    @property
    def their_median(self) -> float | None:
        """Median of the rival's; None: it was not measured."""
        return statistics.median(self.theirs) if self.theirs else None

    @property
    def ratio(self) -> float | None:
        """Ours to the rival's; None: there is none."""
        ours, theirs = self.our_median, self.their_median
        return ours / theirs if ours is not None and theirs else None

    @property
    def reached(self) -> bool | None:
        """Whether the goal is reached; None: there is none, or nothing to compare with."""
        ours = self.our_median
        if self.goal is None or ours is None:
            return None
        return self.goal.reached(ours, self.their_median)

    def as_json(self) -> dict[str, object]:
        """The row for a program to read."""
        return {
            "what": self.title,
            "unit": self.unit,
            "goal": None if self.goal is None else str(self.goal),
            "reached": self.reached,
            "ratio": self.ratio,
            "ours": {"median": self.our_median, "samples": self.ours},
            "theirs": {"name": self.rival, "median": self.their_median, "samples": self.theirs},
            "note": self.note,
        }


def tell(rows: Sequence[Row], missing: Mapping[str, str]) -> None:
    """Print the table; `missing` has the rivals that were not there to be measured, and why."""
    width = max(len(row.title) for row in rows)
    print(f"{'what':{width}}      ours    theirs         ratio    goal  reached  theirs being")
    for row in rows:
        theirs, ratio = (_number(value) for value in (row.their_median, row.ratio))
        figures = f"{_number(row.our_median):>9} {theirs:>9} {row.unit:5} {ratio:>8}"
        print(f"{row.title:{width}} {figures} {_verdict(row)}  {row.note or row.rival}")
    for rival in sorted({row.rival for row in rows} & missing.keys()):
        print(f"{rival} was not measured: {missing[rival]}")


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:.0f}" if abs(value) >= 10_000 else f"{value:.4g}"


def _verdict(row: Row) -> str:
    if row.goal is None:
        return f"{'':7}  {'':7}"
    reached = {True: "yes", False: "no", None: "unknown"}[row.reached]
    return f"{row.goal!s:>7}  {reached:7}"
