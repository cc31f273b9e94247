"""JUnit XML: what each result becomes, and that a strict parser reads it whatever a peer sent."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings

from joinproto.conformance.reports import junit
from joinproto.conformance.results import Record, Result, Summary
from joinproto.conformance.verdicts import Verdict
from tests.support.records import HOSTILE, failed, record, records, result

ALLOWED: dict[str, tuple[set[str], set[str]]] = {
    "testsuites": ({"testsuite"}, {"name", "time", "tests", "failures", "errors"}),
    "testsuite": (
        {"properties", "testcase"},
        {"name", "tests", "failures", "errors", "time", "skipped", "timestamp"},
    ),
    "properties": ({"property"}, set()),
    "property": (set(), {"name", "value"}),
    "testcase": (
        {"skipped", "error", "failure", "system-out", "system-err"},
        {"name", "time", "classname"},
    ),
    "skipped": (set(), {"type", "message"}),
    "error": (set(), {"type", "message"}),
    "failure": (set(), {"type", "message"}),
    "system-out": (set(), set()),
    "system-err": (set(), set()),
}
"""Children and attributes of each element, as junit-10.xsd of Jenkins has them."""


def parsed(whole: Record) -> ElementTree.Element:
    return ElementTree.fromstring(junit.render(whole))


def only_case(one: Result) -> ElementTree.Element:
    """The one case of a record of it."""
    case = parsed(record(one)).find("testsuite/testcase")
    assert case is not None
    return case


def check(element: ElementTree.Element) -> None:
    """Hold an element against what the schema allows."""
    children, attributes = ALLOWED[element.tag]
    assert {child.tag for child in element} <= children
    assert set(element.keys()) <= attributes
    for child in element:
        check(child)


@pytest.mark.parametrize(
    ("changes", "tag", "kind", "message"),
    [
        (
            {"verdict": Verdict.FAIL, "broken": "JP-FRM-012: It MUST.", "got": "nothing"},
            "failure",
            "FAIL",
            "JP-FRM-012: It MUST.",
        ),
        (
            {"verdict": Verdict.PASS, "expected_failure": "known"},
            "failure",
            "UNEXPECTED-PASS",
            "passes although expected to fail: known",
        ),
        (
            {"verdict": Verdict.INCONCLUSIVE, "got": "no Hello"},
            "error",
            "INCONCLUSIVE",
            "no Hello",
        ),
        ({"verdict": Verdict.HARNESS_ERROR, "got": "bug"}, "error", "HARNESS-ERROR", "bug"),
        (
            {"verdict": Verdict.UNSUPPORTED, "got": "it takes no salt"},
            "skipped",
            "UNSUPPORTED",
            "it takes no salt",
        ),
        (
            {"verdict": Verdict.FAIL, "expected_failure": "known"},
            "skipped",
            "FAIL",
            "fails as expected: known",
        ),
        (
            {"verdict": Verdict.NON_STRICT, "expected_failure": "known"},
            "skipped",
            "NON-STRICT",
            "fails as expected: known",
        ),
    ],
)
def test_what_a_result_becomes(changes: dict[str, Any], tag: str, kind: str, message: str) -> None:
    (outcome,) = only_case(result(**changes))
    assert (outcome.tag, outcome.attrib) == (tag, {"type": kind, "message": message})


def test_what_simply_passed_is_empty() -> None:
    case = only_case(result(seconds=0.25))
    assert list(case) == []
    assert case.attrib == {
        "classname": "agent.framing",
        "name": "length-over-cap@4-open",
        "time": "0.25",
    }


@pytest.mark.parametrize("verdict", [Verdict.INFO, Verdict.NON_STRICT])
def test_what_passed_with_a_remark_says_it(verdict: Verdict) -> None:
    (said,) = only_case(result(verdict=verdict, got="exit code -1", notes=("seen twice",)))
    assert said.tag == "system-out"
    assert said.text is not None
    assert {"got: exit code -1", "note: seen twice"} <= set(said.text.splitlines())


def test_a_failure_tells_all_that_there_is() -> None:
    failure, stderr = only_case(failed(stderr="line one\nline two"))
    assert failure.text is not None
    assert failure.text.splitlines() == [
        "verdict: FAIL",
        "behaviour: FAIL",
        "ending: PASS",
        "case: A frame that announces too much ends the connection.",
        "clauses: JP-FRM-012",
        "broken: JP-FRM-012: A length above the cap MUST end the connection.",
        "expected: the connection ends within 3 s",
        "got: nothing within 3 s",
        "attempts: 1",
        "repeat: joinproto conform agent --case agent/framing/length-over-cap -- ./my-agent",
    ]
    assert (stderr.tag, stderr.text) == ("system-err", "line one\nline two")


def test_a_suite_is_a_group_and_all_are_counted() -> None:
    root = parsed(
        record(
            failed(case="agent/framing/a", seconds=1.5),
            result(case="agent/tag/b", verdict=Verdict.INCONCLUSIVE),
            result(case="agent/framing/c", verdict=Verdict.UNSUPPORTED),
            summary=Summary(counts={}),
        )
    )
    assert root.attrib == {
        "name": "joinproto conform agent",
        "tests": "3",
        "failures": "1",
        "errors": "1",
        "time": "1.5",
    }
    framing, tag = root
    assert framing.attrib == {
        "name": "agent/framing",
        "timestamp": "2026-01-31T23:59:59+00:00",
        "tests": "2",
        "failures": "1",
        "errors": "0",
        "skipped": "1",
        "time": "1.5",
    }
    assert (tag.get("name"), tag.get("errors")) == ("agent/tag", "1")
    properties = {each.get("name"): each.get("value") for each in framing.iter("property")}
    assert properties == {
        "role": "agent",
        "target": "./my-agent --quiet",
        "joinproto": "0.1.0",
        "wires": "2, 4",
        "seed": "7",
        "time scale": "0.1",
        "retries of inconclusive cases": "1",
        "outcome of the run": "0 of 2 passed; 1 failed; 1 undecided; 1 unsupported",
    }


def test_what_xml_has_no_room_for_is_spelt_out() -> None:
    failure, stderr = only_case(failed(got="a\x00\x1b[31m]]>\ud800\ufffe", stderr="\r\n\x85é"))
    assert failure.text is not None
    assert r"got: a\x00\x1b[31m]]>\ud800\ufffe" in failure.text.splitlines()
    assert stderr.text == "\\r\n\\x85é"


@settings(max_examples=25)
@given(records)
def test_a_strict_parser_reads_it_whatever_came(whole: Record) -> None:
    root = parsed(whole)
    check(root)
    assert root.get("tests") == str(len(whole.results)) == str(len(list(root.iter("testcase"))))


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(text: str) -> None:
    (failure, stderr) = only_case(failed(got=text, broken="", stderr=text, notes=(text,)))
    assert failure.text is not None
    assert failure.get("message")
    assert list(failure) == list(stderr) == []
