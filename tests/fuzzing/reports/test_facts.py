from __future__ import annotations

from joinproto.fuzzing.outcome import Regression
from joinproto.fuzzing.reports.facts import file_of, headline, replay
from tests.support.findings import finding, outcome


def test_nothing_new_in_a_line() -> None:
    told = headline(outcome(cases=3, interrupted=True))
    assert told.startswith("nothing new; 3 cases in 2 s, 0 of 65 rows reached")
    assert told.endswith("(interrupted)")


def test_what_is_new_and_what_is_there_again() -> None:
    found = finding("controller", "died")
    old = Regression(file="a.json", finding=finding("controller", "hung"), again=True)
    gone = Regression(file="b.json", finding=finding("controller", "deaf"), again=False)
    told = headline(outcome(findings=(found,), regressions=(old, gone)))
    assert told.startswith("1 finding, 1 of 2 old ones struck again; ")


def test_the_command_that_plays_it_once_more() -> None:
    controller = finding("controller", "died", target="./mine {port}")
    file = file_of(controller)
    assert replay(controller) == f"joinproto fuzz replay {file} --start './mine {{port}}'"
    running = finding("controller", "died", target="127.0.0.1:7077", admission="pre-shared")
    assert replay(running).endswith("--salt-file FILE --address 127.0.0.1:7077")
    assert replay(finding("agent", "died", target="./mine a")).endswith(".json -- ./mine a")
