from __future__ import annotations

import json

import pytest

from joinproto.conformance.selection import (
    Expectations,
    Instance,
    Selection,
    instances,
    matches,
    name_of,
    written,
)
from joinproto.conformance.verdicts import Level, Verdict
from tests.support.conformance import case_of, result_of

NAME = "agent/framing/over-cap@4-open"


@pytest.mark.parametrize(
    "pattern",
    [
        "agent/framing/over-cap",
        "agent/framing",
        "agent/framing/",
        "agent/*",
        "*cap",
        "*@4-open",
        "agent/framing/over-cap@4-*",
        NAME,
    ],
)
def test_a_pattern_that_means_it(pattern: str) -> None:
    assert matches(NAME, pattern)


@pytest.mark.parametrize("pattern", ["agent/fram", "controller/*", "*@2-open", "over-cap", ""])
def test_a_pattern_that_does_not(pattern: str) -> None:
    assert not matches(NAME, pattern)


def test_a_case_about_no_version_is_run_in_the_newest() -> None:
    cases = [
        case_of({"listen": True}, id="agent/a/any"),
        case_of(
            {"listen": True}, id="agent/a/both", wires=(2, 4), admissions=("open", "pre-shared")
        ),
        case_of({"listen": True}, id="agent/a/old", wires=(2,)),
    ]
    assert [each.name for each in instances(cases, (2, 4))] == [
        "agent/a/any@4-open",
        "agent/a/both@2-open",
        "agent/a/both@2-pre-shared",
        "agent/a/both@4-open",
        "agent/a/both@4-pre-shared",
        "agent/a/old@2-open",
    ]
    assert instances(cases, (4,))[0].name == "agent/a/any@4-open"
    assert len(instances(cases, (4,))) == 3


def test_what_a_selection_takes() -> None:
    case = case_of({"listen": True}, level=Level.SHOULD, id="agent/framing/x")
    instance = Instance(case=case, wire=2, admission="open")
    assert Selection().takes(instance)
    assert Selection(patterns=("nothing", "agent/framing")).takes(instance)
    assert not Selection(patterns=("nothing",)).takes(instance)
    assert not Selection(levels=frozenset((Level.MUST,))).takes(instance)
    assert not Selection(wires=(4,)).takes(instance)


def test_expectations_have_reasons() -> None:
    expected = Expectations.read('{"agent/framing": "it dies", "agent/gone/*": "old"}')
    assert expected.reason(NAME) == "it dies"
    assert expected.reason("agent/tags/x@4-open") == ""
    assert expected.stale([NAME]) == ("agent/gone/*",)
    assert not expected.may_pass(NAME)


def test_an_expectation_may_be_met_only_sometimes() -> None:
    expected = Expectations.read('{"agent/framing": {"reason": "a race", "sometimes": true}}')
    assert expected.reason(NAME) == "a race"
    assert expected.may_pass(NAME)
    assert not expected.may_pass("agent/tags/x@4-open")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"a": " "}', "'a' has no reason"),
        ('{"a": 1}', "'a' has no reason"),
        ('{"a": {"sometimes": true}}', "'a' has no reason"),
        ('{"a": {"reason": "x", "sometimes": false}}', "'a': beside"),
        ('{"a": {"reason": "x", "until": "2027"}}', "'a': beside"),
    ],
)
def test_what_is_no_file_of_expectations(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Expectations.read(text)


def test_expectations_are_written_of_what_failed() -> None:
    results = [
        result_of("agent/a/b", Verdict.FAIL, expected="x", got="y"),
        result_of("agent/a/c", Verdict.FAIL, expected_failure="known"),
        result_of("agent/a/d", Verdict.INCONCLUSIVE),
        result_of("agent/a/e", Verdict.NON_STRICT),
        result_of("agent/a/f"),
    ]
    found = json.loads(written(results))
    assert sorted(found) == [name_of(f"agent/a/{name}", 4, "open") for name in "bcd"]
    assert found["agent/a/c@4-open"] == "known"
    assert "expected x, got y" in found["agent/a/b@4-open"]
    assert Expectations.read(written(results)).reasons == found
