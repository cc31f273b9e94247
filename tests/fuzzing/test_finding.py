from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from joinproto.fuzzing.finding import Finding, read
from tests.support.findings import finding, hostile

SPECS = Path(__file__).parents[2] / "specs"


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    for made in (hostile(), hostile("agent"), finding("controller", "leaked", repeats=40)):
        assert read(made.write(tmp_path)) == made


def test_it_is_as_its_schema_says() -> None:
    schema = json.loads((SPECS / "fuzz-finding.schema.json").read_text(encoding="utf-8"))
    for made in (hostile(), finding("controller", "hung")):
        Draft202012Validator(schema).validate(json.loads(json.dumps(made.to_json())))


def test_the_same_fault_has_the_same_name() -> None:
    first = finding("controller", "hung", {"dial": "c"})
    second = finding("controller", "hung", {"dial": "d"}, {"say": "Hello"})
    assert first.id == second.id
    assert first.id.startswith("controller-hung-")
    assert first.id != finding("agent", "hung").id
    assert first.id != finding("controller", "died").id


def test_a_finding_in_a_line() -> None:
    steady = finding("controller", "hung", found=3, tried=3)
    assert not steady.flaky
    assert steady.summary == ("it did not do what it had to within its deadline: it was so [there]")
    assert hostile().summary.endswith(" (flaky: 2 of 3 tries)")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"format": 2}, "format 2"),
        ({"seed": "x"}, "member 'seed' cannot be 'x'"),
        ({"seed": True}, "member 'seed' cannot be True"),
        ({"more": 1}, "unknown member 'more'"),
        ({"strike": {"oracle": "luck", "what": "", "where": ""}}, "oracle 'luck'"),
        ({"strike": {}}, "not a finding"),
        ({"happenings": [{}]}, "not a finding"),
        ({"case": {"role": "x", "wire": 4, "steps": []}}, "role is agent or controller"),
    ],
)
def test_what_is_no_finding(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Finding.from_json({**hostile().to_json(), **change})


@pytest.mark.parametrize(
    ("text", "problem"), [("{", "not JSON"), ("[]", "a JSON object"), ("[" * 9999, "not JSON")]
)
def test_a_file_that_holds_none(text: str, problem: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=problem):
        read(path)


def test_a_member_is_missing() -> None:
    values = hostile().to_json()
    del values["seed"]
    with pytest.raises(ValueError, match="no member 'seed'"):
        Finding.from_json(values)
