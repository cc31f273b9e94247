from __future__ import annotations

import json
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from joinproto.fuzzing.outcome import Outcome, Regression
from joinproto.fuzzing.reports import write_all
from tests.support.findings import finding, hostile, outcome

SPECS = Path(__file__).parents[2] / "specs"


def test_all_reports_of_a_run(tmp_path: Path) -> None:
    written = write_all(outcome(findings=(hostile(),)), tmp_path / "made")
    assert {path.name for path in written} == {
        *("results.json", "report.html", "junit.xml", "results.sarif"),
    }
    assert all(path.read_bytes() for path in written)


@pytest.mark.parametrize(
    "made",
    [
        outcome(),
        outcome(role="agent", known={"a": "b"}, doubts={"c": 1}, interrupted=True),
        outcome(
            findings=(hostile(),),
            regressions=(Regression(file="x", finding=finding("controller", "hung"), again=True),),
            covered={("Routing", "Start", ""): 4},
        ),
    ],
)
def test_results_are_as_their_schema_says(made: Outcome, tmp_path: Path) -> None:
    write_all(made, tmp_path)
    schema = json.loads((SPECS / "fuzz-results.schema.json").read_text(encoding="utf-8"))
    Draft202012Validator(schema).validate(json.loads((tmp_path / "results.json").read_text()))
