from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from joinproto.conformance.case import Case, Ending, files, load, parse
from joinproto.conformance.clauses import ROLES
from joinproto.conformance.clauses import load as load_clauses
from joinproto.conformance.verdicts import Level

SPECS = Path(__file__).parents[2] / "specs"
SCHEMA = json.loads((SPECS / "conformance-cases.schema.json").read_text())
FILES = [(role, name, text) for role in ROLES for name, text in files(role)]
CASES = [case for role in ROLES for case in load(role)]


@pytest.mark.parametrize(("role", "name", "text"), FILES, ids=[f"{f[0]}/{f[1]}" for f in FILES])
def test_a_file_of_cases_is_as_its_schema_says(role: str, name: str, text: str) -> None:
    validator = jsonschema.Draft202012Validator(SCHEMA)
    content = json.loads(text)
    for entry in content.pop("cases"):
        errors = [error.message for error in validator.iter_errors({"title": "", "cases": [entry]})]
        assert not errors, f"{entry['id']}: {errors[0][:500]}"


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_ids_are_unique() -> None:
    ids = [case.id for case in CASES]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("role", ROLES)
def test_there_are_enough_of_them(role: str) -> None:
    assert len(load(role)) >= 120
    assert load(role)[0].sanity


def test_clauses_exist_and_bind_the_role() -> None:
    known = load_clauses()
    for case in CASES:
        for clause in case.clauses:
            assert clause in known, f"{case.id}: {clause}"
        assert any(case.role in known[clause].binds for clause in case.clauses), case.id


def test_at_most_two_of_a_role_wait_out_the_margin() -> None:
    for role in ROLES:
        assert sum(case.waits_margin for case in load(role)) <= 2


def test_connections_are_named_before_they_are_used() -> None:
    for case in CASES:
        named: set[str] = set()
        for step in [*case.given, *case.steps]:
            named |= set(_named(step))
            for used in _used(step):
                plain = used.rstrip("0123456789")
                assert used in named or f"{plain}*" in named, f"{case.id}: {used}"


def _named(value: Any) -> list[str]:
    if isinstance(value, list):
        return [name for each in value for name in _named(each)]
    if not isinstance(value, dict):
        return []
    found = [str(value[verb]) for verb in ("hello", "accept", "dial", "honest") if verb in value]
    if "times" in value and "dial" in value:
        found = [f"{name}*" for name in found]
    return found + [name for each in value.values() for name in _named(each)]


def _used(step: Any) -> list[str]:
    verbs = ("half_close", "close", "reset")
    on = step.get("on", [])
    return [str(step[verb]) for verb in verbs if verb in step] + (
        [on] if isinstance(on, str) else on
    )


def test_regular_expressions_of_cases_are_ones() -> None:
    for case in CASES:
        for pattern in re.findall(r'"(?:line|like)": "((?:[^"\\]|\\.)*)"', json.dumps(case.steps)):
            re.compile(json.loads(f'"{pattern}"'))


def one(**values: Any) -> Case:
    entry = {"id": "a", "title": "It.", "clauses": ["JP-FRM-001"], "steps": [{"close": "c"}]}
    text = json.dumps({"title": "", "cases": [entry | values]})
    return parse("agent", "group.json", text)[0]


def test_what_a_case_leaves_out() -> None:
    case = one()
    assert case.id == "agent/group/a"
    assert (case.role, case.group, case.sanity) == ("agent", "group", False)
    assert (case.level, case.admissions, case.memory) == (Level.MUST, ("open",), True)
    assert case.ending is None


def test_what_it_gives() -> None:
    case = one(admission="both", wires=[2], level="MAY", ending={"how": ["rst"], "within": 1})
    assert case.admissions == ("open", "pre-shared")
    assert (case.wires, case.level) == ((2,), Level.MAY)
    assert case.ending == Ending(on="c", how=("rst",), within=1.0)


def test_the_strictest_clause_decides() -> None:
    clauses = load_clauses()
    by_level = {
        level: next(c.id for c in clauses.values() if c.level == level)
        for level in ("MUST NOT", "SHOULD", "MAY")
    }
    assert one(clauses=[by_level["MAY"], by_level["SHOULD"]]).level is Level.SHOULD
    assert one(clauses=[by_level["SHOULD"], by_level["MUST NOT"]]).level is Level.MUST


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"cases": [{"id": "a"}]}',
        '{"cases": [{"id": "a", "title": "", "clauses": ["JP-FRM-001"], "steps": [{}]}]}',
        '{"cases": [{"id": "a", "title": "", "clauses": ["JP-FRM-001"],'
        ' "steps": [{"close": "c", "reset": "c"}]}]}',
        '{"cases": [{"id": "a", "title": "", "clauses": ["JP-ABC-999"], "steps": []}]}',
    ],
)
def test_what_is_no_file_of_cases(text: str) -> None:
    with pytest.raises(ValueError, match="agent/x.json is no file of cases"):
        parse("agent", "x.json", text)
