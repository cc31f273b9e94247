"""How far a run is: a line for each result in a log, a bar with an estimate on a terminal."""

from __future__ import annotations

import io
import re

from rich.console import Console

from joinproto.conformance.reports.progress import Progress
from joinproto.conformance.verdicts import Verdict
from tests.support.records import failed, result

RESULTS = (
    result(case="agent/a/b"),
    failed(case="agent/a/c", got="no\nend"),
    failed(case="agent/a/d", expected_failure="known"),
    result(case="agent/a/e", expected_failure="known"),
    result(case="agent/a/f", verdict=Verdict.NON_STRICT, got="[b]-1[/b]"),
    result(case="agent/a/g\x1b[2J", verdict=Verdict.UNSUPPORTED, got="no salt"),
)


def shown(*, tty: bool) -> str:
    file = io.StringIO()
    console = Console(file=file, width=100, force_terminal=tty, color_system=None)
    with Progress(len(RESULTS), console) as progress:
        for each in RESULTS:
            progress.add(each)
        assert progress.counted == "PASS 2  UNSUPPORTED 1  NON-STRICT 1  FAIL 2"
    return file.getvalue()


def test_a_log_has_a_line_for_each_result() -> None:
    assert shown(tty=False).splitlines() == [
        "1/6  PASS          agent/a/b@4-open",
        r"2/6  FAIL          agent/a/c@4-open: no\nend",
        "3/6  FAIL          agent/a/d@4-open: as expected: known",
        "4/6  PASS          agent/a/e@4-open: expected to fail: known",
        "5/6  NON-STRICT    agent/a/f@4-open: [b]-1[/b]",
        r"6/6  UNSUPPORTED   agent/a/g\x1b[2J@4-open: no salt",
    ]


def test_a_terminal_has_a_bar_and_what_went_wrong() -> None:
    found = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown(tty=True))
    told = [line.strip() for line in re.split(r"[\r\n]+", found) if "agent/" in line]
    assert told == [
        r"FAIL          agent/a/c@4-open: no\nend",
        "PASS          agent/a/e@4-open: expected to fail: known",
        "NON-STRICT    agent/a/f@4-open: [b]-1[/b]",
    ]
    assert "6/6 PASS 2  UNSUPPORTED 1  NON-STRICT 1  FAIL 2" in found
    assert re.search(r"\d:\d\d:\d\d left (-|\d)", found)


def test_how_many_are_to_come_may_change() -> None:
    for tty, found in ((False, "1/3  PASS"), (True, "1/3 PASS 1")):
        file = io.StringIO()
        with Progress(0, Console(file=file, force_terminal=tty, color_system=None)) as progress:
            progress.expect(3)
            progress.add(RESULTS[0])
        assert found in file.getvalue()


def test_nothing_is_left_behind_where_the_run_is_broken_off() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, color_system=None)
    try:
        with Progress(2, console) as progress:
            progress.add(result())
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        pass
    file = console.file
    assert isinstance(file, io.StringIO)
    assert file.getvalue().rfind("\x1b[?25h") > file.getvalue().rfind("\x1b[?25l")  # the cursor
