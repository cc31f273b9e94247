"""The sequence diagram: who takes part, where each arrow goes, and what is too much."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joinproto.conformance.reports.facts import pieces
from joinproto.conformance.reports.sequence import FITTING, MOST_ROWS, diagram, label
from joinproto.conformance.results import Happening
from tests.support.records import happenings


def happened(who: str, what: str, **changes: Any) -> Happening:
    values: dict[str, Any] = {"at": 0.0, "connection": "" if what in ("act", "line") else "c"}
    return Happening(who=who, what=what, **(values | changes))


def test_who_takes_part_from_left_to_right() -> None:
    told = [happened(who, "up", connection="") for who in ("rank 10", "rank 2", "relay")]
    drawn = diagram(told)
    assert [each.name for each in drawn.lifelines] == [
        "suite",
        "target",
        "relay",
        "rank 2",
        "rank 10",
    ]
    places = [each.x for each in drawn.lifelines]
    assert places == sorted(places)
    assert [row.x for row in drawn.rows] == [places[4], places[3], places[2]]
    assert all(row.is_mark for row in drawn.rows)


def test_arrows_go_to_the_other_end_of_the_connection() -> None:
    drawn = diagram(
        [
            happened("target", "open"),
            happened("suite", "bytes", hex="00", size=1),
            happened("rank 0", "open", connection="r"),
            happened("suite", "fin", connection="r"),
        ]
    )
    suite, target, rank = (each.x for each in drawn.lifelines)
    assert [(row.x, row.end) for row in drawn.rows] == [
        (target, suite),
        (suite, target),
        (rank, suite),
        (suite, rank),
    ]
    assert [row.label for row in drawn.rows] == [
        "c: connects",
        "c: 1 byte",
        "r: connects",
        "r: FIN",
    ]
    for row in drawn.rows:
        point, *back = (int(corner.split(",")[0]) for corner in row.head.split())
        assert point == row.end
        assert all(min(row.x, row.end) < x < max(row.x, row.end) for x in back)


@pytest.mark.parametrize(
    ("happening", "words"),
    [
        (happened("target", "open"), "connects"),
        (happened("target", "rst"), "RST"),
        (happened("suite", "fin", text="half-close"), "FIN: half-close"),
        (happened("target", "bytes", size=2000), "2,000 bytes"),
        (happened("target", "bytes", size=1, text="Hello"), "Hello (1 byte)"),
        (happened("target", "exit", text="exit code 1"), "exit: exit code 1"),
        (happened("rank 0", "up"), "up"),
        (happened("suite", "act", text="the target is started"), "the target is started"),
        (happened("target", "line", text="stderr: x"), "stderr: x"),
        (happened("target", "line"), "line"),
    ],
)
def test_what_is_said_of_it(happening: Happening, words: str) -> None:
    (piece,) = pieces([happening])
    assert label(piece) == words


def test_a_long_label_is_cut_and_told_where_the_pointer_rests() -> None:
    (row,) = diagram([happened("target", "line", text="x" * 200)]).rows
    assert len(row.label) == FITTING
    assert row.text == "x" * 200


def test_a_flood_is_counted_but_not_drawn() -> None:
    drawn = diagram([happened("target", "line")] * (MOST_ROWS + 7))
    assert (len(drawn.rows), drawn.left_out) == (MOST_ROWS, 7)


@settings(max_examples=50)
@given(st.lists(happenings, max_size=12))
def test_all_of_it_lies_in_the_picture(told: list[Happening]) -> None:
    drawn = diagram(told)
    assert len(drawn.rows) + drawn.left_out <= len(told)
    for row in drawn.rows:
        assert 0 < row.y < drawn.height
        assert {row.x, row.end} <= {each.x for each in drawn.lifelines}
    assert max(each.x for each in drawn.lifelines) < drawn.width
