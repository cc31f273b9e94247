"""Where everything stands in the drawing of a machine with what a run has covered of it.

Lengths are in pixels, as an SVG without scaling has them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

from joinproto.fuzzing.outcome import Outcome
from joinproto.fuzzing.shadow import TABLES, Row, out_of_reach, row_of

WIDTH, HEIGHT = 900, 560
BOX_WIDTH, BOX_HEIGHT = 130, 34
ASIDE = 9
"""By which an arrow is moved to its side, so that the one back does not lie on it."""


class Reach(Enum):
    """What a run has covered of some rows."""

    COVERED = "covered"
    MISSING = "missing"
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, kw_only=True)
class Node:
    """A state."""

    name: str
    x: float
    y: float
    reach: Reach
    text: str


@dataclass(frozen=True, kw_only=True)
class Edge:
    """All rows that lead from one state to another."""

    x: float
    y: float
    to_x: float
    to_y: float
    reach: Reach
    text: str


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """A machine."""

    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    width: int = WIDTH
    height: int = HEIGHT


def drawing(outcome: Outcome) -> Drawing:
    """The machine that was under test."""
    places = _places(outcome.role)
    staying: dict[str, list[Row]] = {name: [] for name in places}
    leading: dict[tuple[str, str], list[Row]] = {}
    for rule in TABLES[outcome.role].rules:
        here, there = str(rule.source.value), str(rule.target.value)
        if here == there:
            staying[here].append(row_of(rule))
        else:
            leading.setdefault((here, there), []).append(row_of(rule))
    return Drawing(
        nodes=tuple(_node(outcome, name, places[name], rows) for name, rows in staying.items()),
        edges=tuple(
            _edge(outcome, places[here], places[there], rows)
            for (here, there), rows in leading.items()
        ),
    )


def _places(role: str) -> dict[str, tuple[float, float]]:
    """The states on an ellipse, in the order of the table, from the top."""
    rules = TABLES[role].rules
    names = list(
        dict.fromkeys(str(state.value) for rule in rules for state in (rule.source, rule.target))
    )
    return {
        name: (
            WIDTH / 2 + (WIDTH / 2 - BOX_WIDTH / 2 - 10) * math.sin(turn),
            HEIGHT / 2 - (HEIGHT / 2 - BOX_HEIGHT / 2 - 10) * math.cos(turn),
        )
        for number, name in enumerate(names)
        for turn in [2 * math.pi * number / len(names)]
    }


def _node(outcome: Outcome, name: str, place: tuple[float, float], rows: list[Row]) -> Node:
    return Node(
        name=name,
        x=place[0],
        y=place[1],
        reach=_reach(outcome, rows) if rows else Reach.COVERED,
        text=_text(outcome, rows),
    )


def _edge(
    outcome: Outcome,
    here: tuple[float, float],
    there: tuple[float, float],
    rows: list[Row],
) -> Edge:
    along = (there[0] - here[0], there[1] - here[1])
    length = math.hypot(*along)
    side = (-along[1] / length * ASIDE, along[0] / length * ASIDE)
    start, end = _edge_of_box(here, along), _edge_of_box(there, (-along[0], -along[1]))
    return Edge(
        x=round(start[0] + side[0], 1),
        y=round(start[1] + side[1], 1),
        to_x=round(end[0] + side[0], 1),
        to_y=round(end[1] + side[1], 1),
        reach=_reach(outcome, rows),
        text=_text(outcome, rows),
    )


def _edge_of_box(place: tuple[float, float], along: tuple[float, float]) -> tuple[float, float]:
    """Where a line from the middle of a box leaves it."""
    across = [BOX_WIDTH / 2 / abs(along[0])] if along[0] else []
    down = [BOX_HEIGHT / 2 / abs(along[1])] if along[1] else []
    share = min(across + down)
    return place[0] + along[0] * share, place[1] + along[1] * share


def _reach(outcome: Outcome, rows: list[Row]) -> Reach:
    reachable = [row for row in rows if not out_of_reach(outcome.role, row)]
    if not reachable:
        return Reach.UNREACHABLE
    return Reach.COVERED if all(row in outcome.covered for row in reachable) else Reach.MISSING


def _text(outcome: Outcome, rows: list[Row]) -> str:
    return "\n".join(f"{title(row)}: {count(outcome, row)}" for row in rows)


def title(row: Row) -> str:
    """A row in words."""
    state, on, when = row
    return f"{state}, {on}" + (f" [{when}]" if when else "")


def count(outcome: Outcome, row: Row) -> str:
    """How often a row was reached, or why it cannot be."""
    if reason := out_of_reach(outcome.role, row):
        return f"out of reach: {reason}"
    cases = outcome.covered.get(row, 0)
    return f"{cases} case{'s' * (cases != 1)}" if cases else "not reached"
