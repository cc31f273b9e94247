"""The badge: its words and colour, as a picture and for shields.io."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings

from joinproto.conformance.reports import badge
from joinproto.conformance.results import Record, Result, Summary
from joinproto.conformance.verdicts import Verdict
from tests.support.records import failed, record, records, result

DONE = Summary(counts={})
UNSUPPORTED = result(verdict=Verdict.UNSUPPORTED)


@pytest.mark.parametrize(
    ("results", "message", "colour"),
    [
        ([result(), result(verdict=Verdict.INFO), UNSUPPORTED], "2/2 pass", "brightgreen"),
        ([result(), failed()], "1/2 pass", "red"),
        ([result(expected_failure="why")], "1/1 pass", "red"),
        ([result(), result(verdict=Verdict.HARNESS_ERROR)], "1/2 pass", "orange"),
        ([result(), failed(expected_failure="why")], "1/2 pass", "yellowgreen"),
        ([result(), result(verdict=Verdict.NON_STRICT)], "1/2 pass", "yellowgreen"),
        ([UNSUPPORTED], "0/0 pass", "lightgrey"),
    ],
)
def test_words_and_colour(results: list[Result], message: str, colour: str) -> None:
    whole = record(*results, summary=DONE)
    assert json.loads(badge.endpoint(whole)) == {
        "schemaVersion": 1,
        "label": "joinproto agent",
        "message": message,
        "color": colour,
    }


def test_a_stale_expectation_makes_it_red() -> None:
    stale = Summary(counts={}, stale=("x",), exit_code=1)
    assert badge.colour(record(result(), summary=stale)) == "red"


def test_a_run_that_was_cut_short_says_so() -> None:
    told = json.loads(badge.endpoint(record(result())))
    assert (told["message"], told["color"]) == ("1/1 pass, cut short", "lightgrey")


def test_the_picture_has_the_words_and_the_colour() -> None:
    root = ElementTree.fromstring(badge.svg(record(result(), summary=DONE)).encode())
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert {"joinproto agent", "1/1 pass"} <= {element.text for element in root.iter()}
    assert badge.COLOURS["brightgreen"] in {element.get("fill") for element in root.iter()}


@settings(max_examples=20)
@given(records)
def test_both_can_be_read_whatever_came(whole: Record) -> None:
    ElementTree.fromstring(badge.svg(whole).encode())
    assert json.loads(badge.endpoint(whole))["color"] in badge.COLOURS
