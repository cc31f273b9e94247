from __future__ import annotations

import json
from typing import Any

from joinproto.fuzzing.oracles import ORACLES
from joinproto.fuzzing.outcome import Outcome, Regression
from joinproto.fuzzing.reports.sarif import render
from tests.support.findings import finding, hostile, outcome


def run(of: Outcome) -> dict[str, Any]:
    """The run in the file, read back by somebody who is strict."""
    log = json.loads(json.dumps(render(of)))
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-schema-2.1.0.json")
    (only,) = log["runs"]
    assert isinstance(only["tool"]["driver"]["name"], str)
    made: dict[str, Any] = only
    return made


def test_every_oracle_is_a_rule() -> None:
    rules = run(outcome())["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(ORACLES)
    assert all(rule["shortDescription"]["text"] for rule in rules)
    assert any(rule["help"]["text"].startswith("JP-PAY-017: A decoder") for rule in rules[:1])


def test_nothing_new_has_no_results() -> None:
    made = run(outcome())
    assert made["results"] == []
    assert made["invocations"][0]["executionSuccessful"]
    assert made["invocations"][0]["startTimeUtc"] == "2026-01-01T00:00:00Z"


def test_a_finding_is_a_result() -> None:
    steady = finding("controller", "hung", found=3, tried=3)
    old = Regression(file="a.json", finding=steady, again=True)
    flaky, again = run(outcome(findings=(hostile(),), regressions=(old,)))["results"]
    assert (flaky["ruleId"], flaky["level"]) == ("died", "warning")
    assert (again["ruleId"], again["level"]) == ("hung", "error")
    assert list(ORACLES)[flaky["ruleIndex"]] == "died"
    location = flaky["locations"][0]["physicalLocation"]
    assert location["artifactLocation"]["uri"] == f"findings/{hostile().id}.json"
    assert flaky["partialFingerprints"] == {"bucket/v1": hostile().id}
    assert "\x1b" not in flaky["message"]["text"]
