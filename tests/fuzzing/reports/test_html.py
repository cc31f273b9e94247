from __future__ import annotations

from html.parser import HTMLParser

import pytest

from joinproto.fuzzing.outcome import Outcome, Regression
from joinproto.fuzzing.reports.html import render
from tests.support.findings import finding, hostile, outcome

VOID = ("meta", "line", "rect", "circle", "polygon", "path", "br", "input", "link")


class Page(HTMLParser):
    """Reads a page; every element has to be closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.names: set[str] = set()
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.add(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def page(of: Outcome) -> Page:
    return Page(render(of))


@pytest.mark.parametrize("role", ["agent", "controller"])
def test_nothing_new(role: str) -> None:
    made = page(outcome(role=role))
    assert "nothing new" in made.text
    assert "None." in made.text
    assert "not reached" in made.text
    assert "svg" in made.names


def test_a_finding_is_shown_whole_and_steers_nothing() -> None:
    shown = hostile()
    made = page(outcome(findings=(shown,)))
    assert "b" not in made.names
    assert "\\x1b[31m" in made.text
    assert "JP-PAY-017: A decoder MUST refuse" in made.text
    assert f"joinproto fuzz replay findings/{shown.id}.json" in made.text
    assert '{"send": "3c", "on": "c"}' in made.text
    assert "magic of the channel" in made.text
    assert "in 2 of 3 tries" in made.text
    assert "-11" in made.text


def test_what_else_there_was() -> None:
    again = Regression(file="old.json", finding=finding("controller", "hung"), again=True)
    gone = Regression(file="mended.json", finding=finding("controller", "hung"), again=False)
    made = page(outcome(regressions=(again, gone), known={"deaf:x": "why"}, doubts={"obeyed:y": 3}))
    for told in (
        "old.json: strikes again",
        "mended.json: does not strike",
        "deaf:x: why",
        "obeyed:y: seen 3 times, never again",
        "struck again",
    ):
        assert told in made.text


def test_it_needs_no_network_and_runs_no_script() -> None:
    text = render(outcome(findings=(hostile(),)))
    assert "script-src" not in text
    assert "<script" not in text
    assert "http://" not in text
    assert "https://" not in text
