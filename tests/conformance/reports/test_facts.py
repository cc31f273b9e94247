"""What reports tell of a record: standings, groups, counts, and what was said as one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joinproto.conformance import clauses
from joinproto.conformance.reports import facts
from joinproto.conformance.reports.facts import Standing, standing
from joinproto.conformance.results import Happening, Summary
from joinproto.conformance.verdicts import Verdict
from tests.support.records import failed, happenings, record, result

DONE = Summary(counts={})


def said(who: str, data: bytes, **changes: Any) -> Happening:
    """Bytes on connection c."""
    values: dict[str, Any] = {"at": 0.0, "what": "bytes", "connection": "c"}
    return Happening(who=who, hex=data.hex(), **(values | {"size": len(data)} | changes))


@pytest.mark.parametrize(
    ("verdict", "alone", "expected"),
    [
        (Verdict.PASS, Standing.FINE, Standing.PASSED),
        (Verdict.INFO, Standing.FINE, Standing.PASSED),
        (Verdict.UNSUPPORTED, Standing.UNSUPPORTED, Standing.UNSUPPORTED),
        (Verdict.NON_STRICT, Standing.NON_STRICT, Standing.EXPECTED),
        (Verdict.INCONCLUSIVE, Standing.UNDECIDED, Standing.EXPECTED),
        (Verdict.FAIL, Standing.FAILED, Standing.EXPECTED),
        (Verdict.HARNESS_ERROR, Standing.UNDECIDED, Standing.EXPECTED),
    ],
)
def test_how_a_result_stands(verdict: Verdict, alone: Standing, expected: Standing) -> None:
    assert standing(result(verdict=verdict)) is alone
    assert standing(result(verdict=verdict, expected_failure="why")) is expected


def test_what_needs_a_look_comes_first_and_all_else_in_order() -> None:
    whole = record(
        result(case="a"),
        failed(case="b", expected_failure="why"),
        result(case="c"),
        result(case="d", verdict=Verdict.INCONCLUSIVE),
        failed(case="e"),
        result(case="f", expected_failure="why"),
    )
    assert [each.case for each in facts.what_matters_first(whole)] == list("efdbac")
    assert [each.case for each in facts.with_standing(whole, Standing.FINE)] == ["a", "c"]


def test_groups() -> None:
    cases = ["agent/framing/a", "agent/tag/b", "agent/framing/c", "lone"]
    found = facts.by_group(result(case=case) for case in cases)
    assert {name: [each.case for each in results] for name, results in found.items()} == {
        "agent/framing": ["agent/framing/a", "agent/framing/c"],
        "agent/tag": ["agent/tag/b"],
        "lone": ["lone"],
    }


def test_reasons() -> None:
    found = facts.by_reason(
        [result(got="no salt"), result(notes=("x", "y")), result(got="no salt"), result()]
    )
    assert {reason: len(results) for reason, results in found.items()} == {
        "no salt": 2,
        "x; y": 1,
        "no reason was given": 1,
    }


def test_the_headline() -> None:
    cases = [
        result(),
        result(verdict=Verdict.INFO),
        result(verdict=Verdict.UNSUPPORTED),
        result(verdict=Verdict.NON_STRICT),
        failed(),
        failed(expected_failure="why"),
    ]
    assert facts.headline(record(*cases, summary=DONE)) == (
        "2 of 5 passed; 1 failed; 1 failed as expected; 1 non-strict; 1 unsupported"
    )
    one, two = (Summary(counts={}, stale=("x",) * number) for number in (1, 2))
    assert facts.headline(record(summary=one)) == (
        "0 of 0 passed; 1 of the expectations matches no case"
    )
    assert facts.headline(record(summary=two)).endswith("; 2 of the expectations match no case")
    assert facts.headline(record()) == "0 of 0 passed; the run was cut short after 0 results"


def test_what_conforms() -> None:
    assert facts.conforms(record(result(), failed(expected_failure="why"), summary=DONE))
    assert not facts.conforms(record(result()))
    assert not facts.conforms(record(result(), failed(), summary=DONE))
    assert not facts.conforms(record(result(), summary=Summary(counts={}, exit_code=1)))


def test_the_sentence_of_a_clause() -> None:
    clause = next(iter(clauses.load().values()))
    assert facts.sentence(clause.id) == clause.text
    assert facts.sentence("JP-NONE-999") == ""


# -- what was said ----------------------------------------------------------------------------


def test_bytes_that_drip_are_one_piece_up_to_the_message() -> None:
    drip = [
        said("target", b"a"),
        said("target", b"b"),
        said("target", b"c", text="Hello"),
        said("target", b"d"),
        said("suite", b"e"),
        said("suite", b"f", connection="d"),
    ]
    found = [(piece.data, piece.count, piece.text) for piece in facts.pieces(drip)]
    assert found == [(b"abc", 3, "Hello"), (b"d", 1, ""), (b"e", 1, ""), (b"f", 1, "")]


def test_bytes_that_were_cut_off_are_a_piece_of_their_own() -> None:
    cut = [said("target", b"a", size=70_000), said("target", b"b")]
    assert [(piece.data, piece.size) for piece in facts.pieces(cut)] == [(b"a", 70_000), (b"b", 1)]


@settings(max_examples=50)
@given(st.lists(happenings))
def test_pieces_have_all_the_bytes_and_leave_out_no_text(all_of_it: list[Happening]) -> None:
    found = list(facts.pieces(all_of_it))
    assert b"".join(piece.data for piece in found).hex() == "".join(h.hex for h in all_of_it)
    assert sum(piece.count for piece in found) == len(all_of_it)
    assert [piece.text for piece in found if piece.text] == [h.text for h in all_of_it if h.text]


def test_who_reaches_whom() -> None:
    known = facts.peers([said("suite", b"a"), said("rank 0", b"b", connection="r")])
    assert known == {"r": "rank 0"}
    assert facts.receiver(said("suite", b"x"), known) == "target"
    assert facts.receiver(said("suite", b"x", connection="r"), known) == "rank 0"
    assert facts.receiver(said("relay", b"x", connection="r"), known) == "suite"
