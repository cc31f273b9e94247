"""A run as tables: what is shown of it, what never reaches a terminal, and the table that lives."""

from __future__ import annotations

import io
import json
import re
import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from joinproto.cli import live as module
from joinproto.cli.live import LiveTable, clean, render
from joinproto.effects import Severity

HOSTILE = "[red]x[/red]\x1b[2J\x9b31m\r\u202e\u2028end"
SPELT_OUT = "[red]x[/red]\\x1b[2J\\x9b31m\\r\\u202e\\u2028end"


def rank(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "rank": number,
        "device": number,
        "state": "waiting",
        "code": None,
        "signal": None,
        "started_at_secs": None,
        "ended_at_secs": None,
        **fields,
    }


def member(host: str, *ranks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "host": host,
        "peer": "10.0.0.1:5000",
        "wire": 4,
        "libtorch": "",
        "gpus": ["H200"] * len(ranks),
        "joined_at_secs": 1.25,
        "connected": True,
        "lost": None,
        "left_at_secs": None,
        "ranks": list(ranks),
        **fields,
    }


def detail(*members: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "phase": "waiting",
        "joined_ranks": sum(len(each["ranks"]) for each in members),
        "joined_hosts": len(members),
        "min_rank_start": 4,
        "target_ranks": 8,
        "window_remaining_secs": 12,
        "cap_remaining_secs": 61,
        "start_mode": "auto",
        "start_armed": False,
        "world_size": None,
        "reason": None,
        "outcome": None,
        "turned_away": 0,
        "exited_ranks": 0,
        "failed_ranks": 0,
        "members": list(members),
        **fields,
    }


def show(view: dict[str, Any], width: int = 120, **options: Any) -> list[str]:
    """The lines of a picture, where there is no terminal."""
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(render(view, **options))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def cells(line: str) -> list[str]:
    return re.split(r" {2,}", line.strip())


RUNNING = {"state": "running", "started_at_secs": 2.0}
EXITED = {**RUNNING, "state": "exited", "code": 0, "ended_at_secs": 5.5}


# -- the window -------------------------------------------------------------------------------


def test_the_window_as_it_fills() -> None:
    lines = show(detail(member("a", rank(0), rank(1)), member("b", rank(2))))
    assert lines[0] == (
        "waiting: 3 rank(s) on 2 host(s) of at least 4, target 8; window 12 s; cap 61 s"
    )
    head, _, first, second = lines[1:]
    assert cells(head) == [
        *("host", "ranks", "devices", "GPUs", "wire", "peer", "joined after"),
    ]
    assert cells(first) == ["a", "0–1", "0–1", "2 × H200", "4", "10.0.0.1:5000", "1.2 s"]
    assert cells(second)[:4] == ["b", "2", "2", "H200"]


def test_an_empty_window() -> None:
    assert show(detail(target_ranks=None, cap_remaining_secs=None)) == [
        "waiting: 0 rank(s) on 0 host(s) of at least 4; window 12 s"
    ]


@pytest.mark.parametrize(("armed", "told"), [(False, "not given yet"), (True, "given")])
def test_a_start_by_hand(armed: bool, told: str) -> None:
    (line,) = show(detail(phase="staging", start_mode="manual", start_armed=armed))
    assert line.endswith(f"; start manual, {told}")


def test_what_published_controllers_publish() -> None:
    host = {
        "host": "w",
        "ranks": [0, 1, 4],
        "local_devices": [3, 5],
        "gpus": ["a", "b"],
        "libtorch": "2.9",
        "joined_at_secs": 7,
    }
    view = detail(host, phase="training")
    for name in ("start_mode", "start_armed", "reason", "outcome", "turned_away"):
        del view[name]
    lines = show(view)
    assert lines[0] == "training: 3 rank(s) on 1 host(s)"
    assert cells(lines[1]) == ["host", "ranks", "devices", "GPUs", "libtorch", "joined after"]
    assert cells(lines[3]) == ["w", "0–1, 4", "3, 5", "a, b", "2.9", "7.0 s"]


def test_hosts_that_are_too_many() -> None:
    members = [member(f"host-{n}", rank(n)) for n in range(50)]
    members[44]["lost"] = "reset"
    lines = show(detail(*members))
    assert len(lines) == 3 + 40 + 1
    assert cells(lines[3])[0] == "host-44"
    assert lines[-1] == "… and 10 more"


# -- ranks ------------------------------------------------------------------------------------


def test_every_rank_once_they_run() -> None:
    killed = {**EXITED, "code": -9, "signal": "SIGKILL"}
    view = detail(
        member("a", rank(0, **RUNNING), rank(1, **EXITED), rank(2, **{**EXITED, "code": 3})),
        member("b", rank(3, **killed), rank(4, **{**RUNNING, "state": "lost"}), lost="silence"),
        phase="training",
        exited_ranks=3,
        failed_ranks=[2, 3, 4],
        turned_away=7,
    )
    lines = show(view)
    assert lines[0] == "training: 5 rank(s) on 2 host(s); 3 exited; 3 failed; 7 dial(s) turned away"
    assert cells(lines[1]) == ["rank", "host", "device", "state", "ended with", "after"]
    assert [cells(line) for line in lines[3:]] == [
        ["0", "a", "0", "running"],
        ["1", "a", "1", "exited", "code 0", "3.5 s"],
        ["2", "a", "2", "exited", "code 3", "3.5 s"],
        ["3", "b", "3", "exited", "SIGKILL", "3.5 s"],
        ["4", "b", "4", "lost", "silence"],
    ]


def test_ranks_that_are_too_many_have_what_failed_first() -> None:
    ranks = [rank(n, **RUNNING) for n in range(100)]
    ranks[99] = rank(99, **{**EXITED, "code": 1})
    ranks[70] = rank(70, **{**RUNNING, "state": "lost"})
    ranks[60] = rank(60, **EXITED)
    lines = show(detail(member("a", *ranks), phase="training"))
    assert [cells(line)[0] for line in lines[3:6]] == ["70", "99", "0"]
    assert len(lines) == 3 + 40 + 1
    assert lines[-1] == "… and 59 more running, 1 more exited"


def test_a_run_that_was_given_up() -> None:
    lines = show(detail(phase="failed", outcome="window-failed", reason="no quorum"))
    assert lines == ["failed (window-failed): 0 rank(s) on 0 host(s)", "given up: no quorum"]


def test_a_narrow_terminal_hides_nothing() -> None:
    name = "a-host-with-a-name-that-is-rather-long"
    lines = show(detail(member(name, rank(0, **RUNNING))), width=40)
    assert "…" not in "".join(lines)
    assert all(len(line) <= 40 for line in lines)


# -- what comes from the network --------------------------------------------------------------


def test_what_a_hostile_name_looks_like() -> None:
    assert clean(HOSTILE) == SPELT_OUT
    assert clean("né 東京 [b]") == "né 東京 [b]"
    assert clean("\ud800") == "\\ud800"


@pytest.mark.parametrize("state", ["waiting", "running"])
def test_a_hostile_controller_stays_text(state: str) -> None:
    bad = rank(0, state=state, signal=HOSTILE)
    view = detail(
        member(HOSTILE, bad, libtorch=HOSTILE, gpus=[HOSTILE], peer=HOSTILE, lost=HOSTILE),
        reason=HOSTILE,
        outcome=HOSTILE,
    )
    lines = show(view, width=600)
    assert any(SPELT_OUT in line for line in lines[2:])
    assert f"given up: {SPELT_OUT}" in lines
    assert not any(controls("".join(lines)))


def controls(text: str) -> list[str]:
    return [char for char in text if unicodedata.category(char) in ("Cc", "Cf", "Cs")]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(sorted({*detail(), *member("a"), *rank(0), "local_devices"}))
FIELDS = st.dictionaries(NAMES, JSON, max_size=8)
MEMBERS = st.lists(
    FIELDS | st.fixed_dictionaries({"ranks": st.lists(FIELDS, max_size=3), "gpus": JSON}),
    max_size=3,
)


@settings(max_examples=60)
@given(view=FIELDS, members=JSON | MEMBERS)
def test_whatever_a_controller_answers_can_be_shown(view: dict[str, Any], members: Any) -> None:
    assert not controls("".join(show({**view, "members": members})))


def test_numbers_that_are_none() -> None:
    huge = 10**400
    view = detail(
        member("a", rank(0, **{**EXITED, "ended_at_secs": huge}), joined_at_secs=huge),
        window_remaining_secs=huge,
        cap_remaining_secs=float("inf"),
    )
    assert "window" not in show(view)[0]
    view["members"][0]["ranks"][0]["state"] = "waiting"
    assert json.dumps(huge) not in "".join(show(view))


# -- the table that lives ---------------------------------------------------------------------


class Terminal(io.StringIO):
    """A terminal that remembers what was written to it."""

    def isatty(self) -> bool:
        return True


class FakeBoard:
    """A board whose state a test sets."""

    def __init__(self) -> None:
        self.state: dict[str, Any] | None = detail()

    def detail(self) -> dict[str, Any]:
        if self.state is None:
            raise LookupError
        return self.state


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    for name, value in {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    return Terminal()


def test_a_table_that_lives(terminal: Terminal) -> None:
    board = FakeBoard()
    table = LiveTable(board, terminal)
    board.state = detail(member("first", rank(0)))
    table.refresh()
    assert "first" in terminal.getvalue()
    before = len(terminal.getvalue())
    table.on_text(Severity.WARNING, f"a line of {HOSTILE}")
    added = terminal.getvalue()[before:]
    # The line, and the table again below it.
    assert added.index(SPELT_OUT) < added.index("first")
    assert "\x1b[33m" in added
    board.state = detail(phase="done", outcome="ok")
    table.close()
    assert "done" in terminal.getvalue()
    end = len(terminal.getvalue())
    table.refresh()
    table.close()
    assert len(terminal.getvalue()) == end
    assert terminal.getvalue().count("\x1b[?25l") == terminal.getvalue().count("\x1b[?25h") == 1


def test_lines_are_printed_after_the_end_too(terminal: Terminal) -> None:
    table = LiveTable(FakeBoard(), terminal)
    table.close()
    table.on_text(Severity.INFO, "finished: ok")
    table.on_text(Severity.DEBUG, "detail")
    assert terminal.getvalue().endswith("finished: ok\n")


def test_a_long_line_is_the_terminals_to_break(terminal: Terminal) -> None:
    table = LiveTable(FakeBoard(), terminal)
    table.on_text(Severity.INFO, "x " * 100)
    table.close()
    assert "x " * 99 in terminal.getvalue()


def test_a_run_of_which_nothing_is_known_yet(terminal: Terminal) -> None:
    board = FakeBoard()
    board.state = None
    table = LiveTable(board, terminal)
    table.refresh()
    table.close()
    assert "rank" not in terminal.getvalue()


def test_it_fits_into_the_terminal(terminal: Terminal) -> None:
    board = FakeBoard()
    table = LiveTable(board, terminal)
    board.state = detail(*(member(f"host-{n}", rank(n)) for n in range(30)))
    table.refresh()
    shown = terminal.getvalue()
    table.close()
    assert f"… and {30 - (24 - module.FURNITURE)} more" in shown


def test_nothing_runs_by_itself(terminal: Terminal) -> None:
    import threading

    before = threading.active_count()
    table = LiveTable(FakeBoard(), terminal)
    assert threading.active_count() == before
    table.close()


class Gone(Terminal):
    """A terminal that goes away."""

    error: OSError | None = None

    def write(self, text: str) -> int:
        if self.error is not None:
            raise self.error
        return super().write(text)


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), BrokenPipeError()], ids=str)
def test_a_terminal_that_goes_away_does_no_harm(terminal: Terminal, error: OSError) -> None:
    gone = Gone()
    table = LiveTable(FakeBoard(), gone)
    gone.error = error
    table.refresh()
    table.on_text(Severity.ERROR, "unheard")
    table.refresh()
    table.close()
