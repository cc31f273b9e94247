from __future__ import annotations

from typing import Any

import pytest

from joinproto.conformance.case import load
from joinproto.conformance.memory import NotInMemory, play_in_memory
from joinproto.conformance.verdicts import Verdict
from tests.support.conformance import case_of

CASES = [
    (case, wire, admission)
    for role in ("agent", "controller")
    for case in load(role)
    if case.memory
    for wire in case.wires or (4,)
    for admission in case.admissions
]


@pytest.mark.parametrize(
    ("case", "wire", "admission"), CASES, ids=lambda value: getattr(value, "id", value)
)
def test_our_machines_pass(case: Any, wire: int, admission: str) -> None:
    outcome, _ = play_in_memory(case, wire=wire, admission=admission)
    assert outcome.verdict in (Verdict.PASS, Verdict.INFO), outcome


JOIN = ({"hello": "c"}, {"say": "Accept"}, {"say": "WorldFormed"}, {"await": [{"up": 0}]})


@pytest.mark.parametrize(
    "case",
    [
        case_of({"listen": True}, memory=False),
        case_of({"dial": "c"}),
        case_of({"signal": "KILL"}),
        case_of({"hello": "c"}, setup={"env": {"A": "b"}}),
        case_of({"hello": "c"}, setup={"spec": {"data_path": "/x"}}),
        case_of(*JOIN, {"rank": 0, "do": {"write": {"text": "x"}}}),
        case_of({"dial": "c", "raw": True}, role="controller"),
        case_of({"accept": "c"}, role="controller"),
        case_of({"listen": True}, role="controller"),
        case_of({"signal": "HUP"}, role="controller"),
        case_of({"restart": True}, role="controller"),
        case_of({"dial": "c"}, role="controller", needs=("manual",)),
    ],
    ids=lambda case: str(case.steps[-1])[:30],
)
def test_what_only_real_processes_have(case: Any) -> None:
    with pytest.raises(NotInMemory):
        play_in_memory(case, wire=4, admission="open")


def test_an_agent_that_is_refused_dials_again() -> None:
    case = case_of({"wait": 1}, {"listen": True}, {"hello": "c"}, setup={"listen": False})
    outcome, _ = play_in_memory(case, wire=4, admission="open")
    assert outcome.verdict is Verdict.PASS


def test_a_controller_that_has_ended_takes_no_dials() -> None:
    case = case_of(
        {"honest": "c"},
        {"await": [{"message": "WorldFormed"}]},
        {"say": "RankExited"},
        {"close": "c"},
        {"await": [{"exit": [0]}]},
        {"dial": "late"},
        role="controller",
    )
    outcome, _ = play_in_memory(case, wire=4, admission="open")
    assert outcome.got == "connection refused"
