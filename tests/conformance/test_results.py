"""The record of a run: written as its schema says, read back whole, and what is none refused."""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator

from joinproto.conformance.results import (
    Happening,
    Line,
    Record,
    Result,
    Run,
    Summary,
    read,
    write_line,
)
from joinproto.conformance.verdicts import Verdict
from tests.support.records import failed, record, records, result, run

SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parents[2] / "specs" / "conformance-results.schema.json").read_text()
)
VALIDATOR = Draft202012Validator(SCHEMA)

SUMMARY = Summary(counts={"PASS": 1, "FAIL": 1}, unexpected=("a",), exit_code=1, seconds=0.5)
WHOLE = record(
    failed(happenings=(Happening(at=0.25, who="target", what="bytes", hex="00ff", size=2),)),
    result(notes=("one", "two"), expected_failure="why"),
    summary=SUMMARY,
)


def written(whole: Record) -> list[str]:
    """The lines of a record."""
    file = io.StringIO()
    lines: list[Line | None] = [whole.run, *whole.results, whole.summary]
    for line in lines:
        if line is not None:
            write_line(file, line)
    return file.getvalue().splitlines(keepends=True)


def changed(number: int, **changes: Any) -> list[str]:
    """The lines of a record, with members of one set; None: they are left out."""
    lines = written(WHOLE)
    values = json.loads(lines[number - 1]) | changes
    kept = {name: value for name, value in values.items() if value is not None}
    lines[number - 1] = json.dumps(kept) + "\n"
    return lines


# -- written and read back --------------------------------------------------------------------


@settings(max_examples=30)
@given(records)
def test_a_record_is_as_its_schema_says_and_is_read_back(whole: Record) -> None:
    lines = written(whole)
    assert all(line.isascii() and line.isprintable() for line in map(str.strip, lines))
    for line in lines:
        VALIDATOR.validate(json.loads(line))
    assert read(lines) == whole


@pytest.mark.parametrize(
    ("name", "kind"),
    [("run", Run), ("result", Result), ("summary", Summary), ("happening", Happening)],
)
def test_the_schema_has_each_member_and_no_other(name: str, kind: type) -> None:
    members = [each.name for each in fields(kind)] + ["type"] * (kind is not Happening)
    described = SCHEMA["$defs"][name]
    assert sorted(described["properties"]) == sorted(described["required"]) == sorted(members)
    assert described["additionalProperties"] is False


def test_the_schema_has_each_verdict() -> None:
    assert SCHEMA["$defs"]["verdict"]["enum"] == list(Verdict)


@pytest.mark.parametrize(
    ("number", "changes"),
    [
        (1, {"role": "relay"}),
        (1, {"format": 2}),
        (1, {"time_scale": 0}),
        (2, {"verdict": "OK"}),
        (2, {"clauses": None}),
        (2, {"extra": 1}),
        (2, {"happenings": [{"at": 0, "who": "me"}]}),
        (4, {"counts": {"GOOD": 1}}),
        (4, {"exit_code": 5}),
        (4, {"type": "end"}),
    ],
)
def test_the_schema_takes_nothing_else(number: int, changes: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid(json.loads(changed(number, **changes)[number - 1]))


def test_each_line_is_flushed() -> None:
    flushed: list[str] = []

    class File(io.StringIO):
        def flush(self) -> None:
            flushed.append(self.getvalue())

    file = File()
    write_line(file, run())
    write_line(file, result())
    assert [text.count("\n") for text in flushed] == [1, 2]


def test_a_counter_is_written_as_what_it_counts() -> None:
    counted = Summary(counts=Counter({"PASS": 2}))
    assert read(written(record(summary=counted))).summary == Summary(counts={"PASS": 2})


# -- cut off ----------------------------------------------------------------------------------


@settings(max_examples=20)
@given(records)
def test_what_was_completed_is_read_wherever_the_record_is_cut_off(whole: Record) -> None:
    lines = written(whole)
    for keep in range(1, len(lines)):
        for cut in (1, len(lines[keep]) // 2, len(lines[keep]) - 2):
            found = read([*lines[:keep], lines[keep][:cut]])
            assert found.run == whole.run
            assert found.results == whole.results[: keep - 1]
            assert found.summary is None


def test_a_last_line_that_lacks_only_its_end_is_whole() -> None:
    lines = written(WHOLE)
    assert read([*lines[:-1], lines[-1].rstrip("\n")]) == WHOLE


@pytest.mark.parametrize("text", ["", "{", '{"type": "run", "role": "ag'])
def test_a_record_without_a_whole_line_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="^not a record of a run: it has no whole line$"):
        read(io.StringIO(text))


# -- damaged ----------------------------------------------------------------------------------

LINES = written(WHOLE)


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (["\n", *LINES], "line 1 is not JSON: Expecting value"),
        ([LINES[0], LINES[1][:-9] + "\n", LINES[2]], "line 2 is not JSON: "),
        (["[" * 100_000 + "\n"], "line 1 is not JSON: "),
        ([LINES[0], '{"type": NaN}\n'], "line 2 is not JSON: NaN is no number of JSON"),
        (['["run"]\n'], "line 1: a line of a record is a JSON object"),
        (["{}\n"], "line 1: type None; there are run, result and summary"),
        (['{"type": ["run"]}\n'], "line 1: type ['run']; there are run, result and summary"),
        (changed(1, format=2), "line 1: format 2; this joinproto reads 1"),
        (changed(1, format=None), "line 1: format None; this joinproto reads 1"),
        (changed(2, case=None), "line 2: member 'case' is missing"),
        (changed(2, more=1), "line 2: unknown member 'more'"),
        (changed(2, verdict="FAILED"), "line 2: member 'verdict' cannot be 'FAILED'"),
        (changed(2, level=["MUST"]), "line 2: member 'level' cannot be ['MUST']"),
        (changed(2, clauses="JP"), "line 2: member 'clauses' cannot be 'JP'"),
        (changed(2, clauses=[1]), "line 2: member 'clauses' cannot be [1]"),
        (changed(2, wire=True), "line 2: member 'wire' cannot be True"),
        (changed(2, seconds="1"), "line 2: member 'seconds' cannot be '1'"),
        (changed(2, seconds=10**400), "line 2: member 'seconds' cannot be 1000"),
        (changed(2, happenings=[{}]), "line 2: member 'happenings' cannot be [{}]"),
        (changed(2, got="x", title={"a": 1}), "line 2: member 'title' cannot be {'a': 1}"),
        (changed(4, counts={"PASS": "1"}), "line 4: member 'counts' cannot be {'PASS': '1'}"),
        (changed(4, counts=[]), "line 4: member 'counts' cannot be []"),
        (LINES[1:], "line 1: the first line of a record is of type run"),
        ([LINES[0], *LINES], "line 2: a record has one run; this is a second"),
        ([*LINES, LINES[1]], "line 5: nothing follows the summary of a record"),
    ],
)
def test_what_is_wrong_with_a_record_is_told_in_one_line(lines: list[str], reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)) as caught:
        read(lines)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "damage", [{"hex": "0"}, {"hex": "zz"}, {"at": "now"}, {"size": 1.5}, {"colour": "red"}]
)
def test_what_is_wrong_with_a_happening(damage: dict[str, Any]) -> None:
    happening = {"at": 0, "who": "suite", "what": "act", "connection": "", "hex": "", "size": 0}
    entry = {**happening, "text": "", **damage}
    with pytest.raises(ValueError, match="line 2: member 'happenings' cannot be "):
        read(changed(2, happenings=[entry]))
