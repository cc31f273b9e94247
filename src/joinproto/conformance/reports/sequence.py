"""Where everything stands in the sequence diagram of a case: who said what to whom, and when.

Lengths are in pixels, as an SVG without scaling has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from joinproto.conformance.reports.facts import SUITE, TARGET, Piece, peers, pieces, receiver
from joinproto.conformance.reports.text import one_line
from joinproto.conformance.results import Happening

MOST_ROWS = 150
"""A target may flood; what is left out is counted."""

LEFT, RIGHT = 150, 330
"""Room for the times, and for what is told at the last line."""

FIRST_GAP, GAP = 340, 200
"""Between suite and target, who say most, and between the others."""

TOP, ROW, BOTTOM = 40, 30, 24
FITTING = 50
"""Characters above an arrow, or beside a mark; all of them are told where the pointer rests."""

WORDS = {"open": "connects", "fin": "FIN", "rst": "RST"}


@dataclass(frozen=True, kw_only=True)
class Lifeline:
    """One who takes part."""

    name: str
    x: int


@dataclass(frozen=True, kw_only=True)
class Row:
    """Something that happened: an arrow, or a mark at a lifeline where both ends are one.

    Attributes:
        at: seconds since the case began.
        y: how far down.
        x: where it starts.
        end: where it ends.
        what: which sort of happening.
        label: what is shown.
        text: all of it.
    """

    at: float
    y: int
    x: int
    end: int
    what: str
    label: str
    text: str

    @property
    def is_mark(self) -> bool:
        """It has no arrow."""
        return self.x == self.end

    @property
    def head(self) -> str:
        """The points of the arrow's head."""
        back = self.end - 9 if self.end > self.x else self.end + 9
        return f"{self.end},{self.y} {back},{self.y - 4} {back},{self.y + 4}"


@dataclass(frozen=True, kw_only=True)
class Diagram:
    """All of it.

    Attributes:
        lifelines: from left to right.
        rows: from top to bottom.
        left_out: how many rows there is no room for.
        width: of the picture.
        height: of the picture.
    """

    lifelines: tuple[Lifeline, ...]
    rows: tuple[Row, ...]
    left_out: int
    width: int
    height: int


def diagram(happenings: Sequence[Happening]) -> Diagram:
    """Lay the happenings of a case out."""
    told = list(pieces(happenings))
    lines = {name: _place(number) for number, name in enumerate(_taking_part(happenings))}
    known = peers(happenings)
    several = len({each.connection for each in happenings if each.connection}) > 1
    rows = tuple(
        _row(piece, TOP + (number + 1) * ROW, lines, known, several)
        for number, piece in enumerate(told[:MOST_ROWS])
    )
    return Diagram(
        lifelines=tuple(Lifeline(name=name, x=x) for name, x in lines.items()),
        rows=rows,
        left_out=max(0, len(told) - MOST_ROWS),
        width=max(lines.values()) + RIGHT,
        height=TOP + len(rows) * ROW + BOTTOM,
    )


def _taking_part(happenings: Iterable[Happening]) -> list[str]:
    """The suite, the target, and what that started in the order of its ranks."""
    others = {each.who for each in happenings} - {SUITE, TARGET}
    return [SUITE, TARGET, *sorted(others, key=_rank)]


def _place(number: int) -> int:
    return LEFT + (FIRST_GAP + (number - 1) * GAP if number else 0)


def _rank(name: str) -> tuple[int, str]:
    number = re.fullmatch(r"rank (\d{1,9})", name)
    return (int(number[1]) if number else -1, name)


def _row(piece: Piece, y: int, lines: dict[str, int], known: dict[str, str], several: bool) -> Row:
    happening = piece.first
    start = end = lines[happening.who]
    if happening.connection:
        end = lines[receiver(happening, known)]
    words = label(piece)
    if several and happening.connection:
        words = f"{happening.connection}: {words}"
    return Row(
        at=happening.at,
        y=y,
        x=start,
        end=end,
        what=happening.what,
        label=one_line(words, FITTING),
        text=one_line(words, 1000),
    )


def label(piece: Piece) -> str:
    """What happened, in words."""
    what = piece.first.what
    if what == "bytes":
        count = f"{piece.size:,} byte{'s' * (piece.size != 1)}"
        parts = f" in {piece.count} pieces" if piece.count > 1 else ""
        return f"{piece.text} ({count}{parts})" if piece.text else f"{count}{parts}"
    words = WORDS.get(what, "" if what in ("act", "line") and piece.text else what)
    return ": ".join(part for part in (words, piece.text) if part)
