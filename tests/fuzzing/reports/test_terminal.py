from __future__ import annotations

from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from joinproto.conformance.session import Settings
from joinproto.fuzzing.harness import Progress
from joinproto.fuzzing.hunt import Plan
from joinproto.fuzzing.outcome import Regression
from joinproto.fuzzing.reports.terminal import EVERY, Terminal
from tests.support.findings import finding, hostile, outcome

PLAN = Plan(
    settings=Settings(role="controller", command=("./mine", "{port}"), seed=3),
    admission="open",
    wires=(4,),
    seconds=60.0,
)


class Screen:
    """What is shown, on a terminal or in a log."""

    def __init__(self, *, terminal: bool) -> None:
        self.file = StringIO()
        self.console = Console(file=self.file, force_terminal=terminal, width=200)

    @property
    def text(self) -> str:
        return self.file.getvalue()


def progress(seconds: float) -> Progress:
    return Progress(seconds=seconds, cases=500, covered=12, findings=1)


def test_a_log_gets_a_line_now_and_then() -> None:
    screen = Screen(terminal=False)
    with Terminal(PLAN, screen.console) as terminal:
        for seconds in (0.0, EVERY / 2, EVERY, EVERY + 1, 2 * EVERY):
            terminal.progress(progress(seconds))
    lines = screen.text.splitlines()
    assert lines[0] == "fuzzing ./mine '{port}' (seed 3)"
    assert lines[1] == "10 of 60 s  500 cases (50 a second)  12 of 65 rows  1 finding"
    assert len(lines) == 3


def test_a_terminal_shows_one_line_that_changes() -> None:
    screen = Screen(terminal=True)
    with Terminal(PLAN, screen.console) as terminal:
        terminal.progress(progress(1.0))
        terminal.tell(finding("controller", "hung"), Path("findings/x.json"))
    assert "FOUND" in screen.text


@pytest.mark.parametrize("terminal", [True, False])
def test_a_finding_steers_nothing(terminal: bool) -> None:
    screen = Screen(terminal=terminal)
    with Terminal(PLAN, screen.console) as shown:
        shown.tell(hostile(), Path("findings/y.json"))
    assert "\x1b[31m\u202e" not in screen.text
    assert "\\x1b[31m\\u202e" in screen.text
    for told in ("JP-PAY-017: A decoder MUST", "findings/y.json", "2 of 3 tries"):
        assert told in screen.text


def test_the_end() -> None:
    screen = Screen(terminal=False)
    again = Regression(file="old.json", finding=finding("controller", "hung"), again=True)
    Terminal(PLAN, screen.console).summary(
        outcome(regressions=(again,), known={"deaf:x": "ticket 12"})
    )
    assert "STRIKES AGAIN old.json: " in screen.text
    assert "known: deaf:x: ticket 12" in screen.text
    assert "not reached: Routing, Start; " in screen.text
    screen = Screen(terminal=False)
    made = outcome()
    Terminal(PLAN, screen.console).summary(outcome(covered=dict.fromkeys(made.reachable, 1)))
    assert screen.text == "nothing new; 100 cases in 2 s, 65 of 65 rows reached\n"
