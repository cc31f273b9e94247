"""The record on a terminal: all that a failure has to say, in plain text where that is no tty."""

from __future__ import annotations

import io
import unicodedata
from typing import Literal

import pytest
from hypothesis import given, settings
from rich.console import Console

from joinproto.conformance import clauses
from joinproto.conformance.reports import terminal
from joinproto.conformance.results import Record, Summary
from joinproto.conformance.verdicts import Verdict
from tests.support import records
from tests.support.records import HOSTILE, failed, record, result


def shown(whole: Record, *, width: int = 80, tty: bool = False) -> str:
    file = io.StringIO()
    colours: Literal["standard"] | None = "standard" if tty else None
    console = Console(file=file, width=width, force_terminal=tty, color_system=colours)
    terminal.print_record(console, whole)
    return file.getvalue()


def lines(whole: Record) -> list[str]:
    return [line.rstrip() for line in shown(whole).splitlines()]


def test_a_failure_says_all_in_lines_that_can_be_copied() -> None:
    repeat = "joinproto conform agent --case agent/framing/a -- " + "x" * 100
    one = failed(
        case="agent/framing/a",
        clauses=("JP-FRM-012", "JP-FRM-010"),
        stderr="\n".join(f"line {number}" for number in range(20)),
        notes=("twice",),
        repeat=repeat,
    )
    found = lines(record(one))
    assert found[:8] == [
        "FAIL  agent/framing/a@4-open",
        "  case      A frame that announces too much ends the connection.",
        f"  clause    JP-FRM-010: {clauses.load()['JP-FRM-010'].text}",
        "  broken    JP-FRM-012: A length above the cap MUST end the connection.",
        "  expected  the connection ends within 3 s",
        "  got       nothing within 3 s",
        "  note      twice",
        "  stderr    line 12",
    ]
    assert found[8:15] == [" " * 12 + f"line {number}" for number in range(13, 20)]
    assert found[15] == f"  repeat    {repeat}"


def test_only_a_line_feed_ends_a_line_of_stderr() -> None:
    assert "  stderr    a\\x85b\\u2028c\\rd" in lines(record(failed(stderr="a\x85b\u2028c\rd\n")))


def test_an_unexpected_pass_says_what_was_expected() -> None:
    found = lines(record(result(expected_failure="known bug")))
    assert found[0] == "PASS  agent/framing/length-over-cap@4-open"
    assert "  expected  a failure: known bug" in found


def test_what_is_as_it_should_be_is_only_counted() -> None:
    whole = record(
        result(),
        result(verdict=Verdict.UNSUPPORTED, got="no salt file"),
        result(verdict=Verdict.UNSUPPORTED, got="no salt file"),
        failed(case="agent/tag/b", expected_failure="known"),
        summary=Summary(counts={}, stale=("agent/gone/*",)),
    )
    found = [line for line in lines(whole) if line and not set(line) <= set(" ─")]
    assert [" ".join(line.split()) for line in found] == [
        "UNSUPPORTED 2 × no salt file",
        "no case matches the expectation agent/gone/*",
        "group PASS UNSUPPORTED FAIL",
        "agent/framing 1 2",
        "agent/tag 1",
        "all 1 2 1",
        "1 of 2 passed; 1 failed as expected; 2 unsupported; 1 of the expectations matches no case",
    ]


def test_where_there_is_no_terminal_there_is_no_escape() -> None:
    assert "\x1b" not in shown(record(failed()))
    assert "\x1b[1;31mFAIL" in shown(record(failed()), tty=True)


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_stays_text(text: str) -> None:
    one = failed(case=text, got=text, broken=text, stderr=text, repeat=text)
    found = shown(record(one), width=400)
    assert all(char == "\n" or char.isprintable() for char in found)


def test_brackets_are_no_markup() -> None:
    assert "  got       [red]x[/red] [/] :smile:" in lines(
        record(failed(got="[red]x[/red] [/] :smile:"))
    )


@settings(max_examples=15)
@given(records.records)
def test_any_record_can_be_shown(whole: Record) -> None:
    found = shown(whole)
    found.encode()
    steering = {char for char in found if unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp")}
    assert steering <= {"\n", "\t"}
