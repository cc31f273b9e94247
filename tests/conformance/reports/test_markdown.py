"""The Markdown summary: what it says, and that no text of a target changes its structure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from markdown_it import MarkdownIt
from markdown_it.token import Token

from joinproto.conformance.reports import markdown
from joinproto.conformance.results import Record, Result, Summary
from joinproto.conformance.verdicts import Verdict
from tests.support import records
from tests.support.records import HOSTILE, failed, record, result

PARSER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def rendered(whole: Record) -> list[Token]:
    return PARSER.parse(markdown.render(whole))


def tables(whole: Record) -> list[list[list[str]]]:
    """The text of each cell of each row of each table."""
    found: list[list[list[str]]] = []
    for before, token in pairwise([Token("", "", 0), *rendered(whole)]):
        if token.type == "table_open":
            found.append([])
        elif token.type == "tr_open":
            found[-1].append([])
        elif token.type == "inline" and before.type in ("th_open", "td_open"):
            found[-1][-1].append(text(token))
    return found


def text(token: Token) -> str:
    return "".join(child.content for child in token.children or () if child.type == "text")


def headings(whole: Record) -> list[str]:
    tokens = rendered(whole)
    return [after.content for token, after in pairwise(tokens) if token.type == "heading_open"]


def every(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from every(token.children or [])


def outline(whole: Record) -> list[tuple[str, str]]:
    """The structure of the document: all but its text."""
    return [
        (token.type, token.content if token.type.startswith("html") else token.tag)
        for token in every(rendered(whole))
        if token.type not in ("inline", "text", "text_special", "softbreak")
    ]


DONE = Summary(counts={}, stale=("agent/gone/*",))


def test_what_it_says() -> None:
    whole = record(
        failed(case="agent/framing/a"),
        result(case="agent/framing/b", expected_failure="known bug", repeat="again b"),
        failed(case="agent/tag/c", expected_failure="never mind"),
        result(case="agent/tag/d", verdict=Verdict.NON_STRICT, got="-1"),
        result(case="agent/tag/e", verdict=Verdict.UNSUPPORTED, got="no salt file"),
        result(case="agent/tag/f", verdict=Verdict.UNSUPPORTED, got="no salt file"),
        summary=DONE,
    )
    assert headings(whole) == [
        "❌ joinproto conform agent",
        "Unexpected",
        "Failed as expected",
        "Non-strict",
        "Unsupported",
        "Expectations that no case matches",
    ]
    overview, unexpected, expected, lax, unsupported, stale = tables(whole)
    assert overview == [
        ["group", "PASS", "UNSUPPORTED", "NON-STRICT", "FAIL"],
        ["agent/framing", "1", "", "", "1"],
        ["agent/tag", "", "2", "1", "1"],
        ["all", "1", "2", "1", "2"],
    ]
    assert unexpected[1:] == [
        [
            "agent/framing/a@4-open",
            "FAIL",
            "JP-FRM-012: A length above the cap MUST end the connection.",
            "the connection ends within 3 s",
            "nothing within 3 s",
            "joinproto conform agent --case agent/framing/length-over-cap -- ./my-agent",
        ],
        [
            "agent/framing/b@4-open",
            "PASS",
            "JP-FRM-012",
            "to fail: known bug",
            "",
            "again b",
        ],
    ]
    assert expected[1][0] == "agent/tag/c@4-open"
    assert expected[1][3] == "never mind"
    assert lax[1:] == [["agent/tag/d@4-open", "JP-FRM-012", "-1"]]
    assert unsupported[1:] == [["no salt file", "2", "agent/tag/e, agent/tag/f"]]
    assert stale == [["expectation"], ["agent/gone/*"]]


def test_a_run_that_conforms_is_short() -> None:
    whole = record(result(), summary=Summary(counts={}))
    assert headings(whole) == ["✅ joinproto conform agent"]
    assert "**1 of 1 passed**" in markdown.render(whole)
    assert "seed 7, time scale 0.1, retries of inconclusive cases 1" in (markdown.render(whole))


def test_a_run_that_was_cut_short_does_not_look_well() -> None:
    assert headings(record(result())) == ["❌ joinproto conform agent"]


def test_a_long_table_is_cut_and_says_so() -> None:
    whole = record(*(failed(case=f"agent/many/{number}") for number in range(203)))
    assert len(tables(whole)[1]) == 1 + markdown.MOST_ROWS
    assert "3 more are in the other reports." in markdown.render(whole)
    assert len(markdown.render(whole).encode()) < 1_000_000


@pytest.mark.parametrize("hostile", HOSTILE)
def test_text_of_a_target_is_text(hostile: str) -> None:
    def filled(word: str) -> list[Result]:
        return [
            failed(got=word, expected=word, broken=word, repeat=word, notes=(word,)),
            failed(expected_failure=word),
            result(verdict=Verdict.NON_STRICT, got=word),
            result(verdict=Verdict.UNSUPPORTED, got=word),
        ]

    def document(word: str) -> Record:
        return record(*filled(word), target=word, summary=Summary(counts={}, stale=(word,)))

    assert outline(document(hostile)) == outline(document("word"))


@settings(max_examples=25)
@given(records.records)
def test_nothing_breaks_out_of_its_cell(whole: Record) -> None:
    assert markdown.render(whole).encode()
    known = {"<code>", "</code>"}
    for kind, content in outline(whole):
        assert kind != "html_block"
        assert kind != "html_inline" or content in known
        assert kind not in ("link_open", "image", "fence", "code_block", "code_inline", "em_open")
    for table in tables(whole):
        assert len({len(row) for row in table}) == 1
