from __future__ import annotations

import pytest

from joinproto.conformance.case import Ending
from joinproto.conformance.verdicts import Level, Verdict
from joinproto.conformance.world import Exit, Flood
from joinproto.messages import Abort, RankExited
from tests.support.conformance import StillWorld, played

REPORT = RankExited(rank=0, code=0)
END = {"await": [{"end": ["fin"]}]}


def test_what_comes_as_it_should_passes() -> None:
    world = StillWorld("c")
    world.conversations["c"].end("fin", 0.0)
    outcome = played(world, END)
    assert outcome.verdict is Verdict.PASS
    assert outcome.expected == outcome.got == ""


@pytest.mark.parametrize(
    ("level", "verdict"),
    [
        (Level.MUST, Verdict.FAIL),
        (Level.SHOULD, Verdict.NON_STRICT),
        (Level.MAY, Verdict.INFO),
    ],
)
def test_a_deviation_is_as_bad_as_the_case_demands(level: Level, verdict: Verdict) -> None:
    outcome = played(StillWorld("c"), END, level=level)
    assert outcome.behaviour is verdict
    assert outcome.expected == "the end of the stream (FIN) on c"
    assert outcome.got == "nothing within 5.0 s"


def test_what_fails_on_the_way_there_says_nothing() -> None:
    world = StillWorld("c")
    outcome = played(world, {"listen": True}, given=[END])
    assert outcome.verdict is Verdict.INCONCLUSIVE
    assert world.done == []


def test_a_pattern_may_say_what_it_comes_to() -> None:
    world = StillWorld("c")
    world.said(REPORT)
    pattern = {"message": "RankExited", "verdict": "NON-STRICT", "note": "so it is"}
    outcome = played(world, {"await": [pattern]})
    assert outcome.verdict is Verdict.NON_STRICT
    assert outcome.notes == ["so it is"]


def test_what_a_pattern_leads_to() -> None:
    world = StillWorld("c")
    world.said(REPORT)
    pattern = {"message": "RankExited", "then": [{"close": "c"}], "stop": True}
    assert played(world, {"await": [pattern]}, {"reset": "c"}).verdict is Verdict.PASS
    assert world.done == [("close", "c")]


def test_a_target_that_crashes_fails_whatever_else_it_did() -> None:
    world = StillWorld("c")
    world.exit = Exit(at=0.0, code=-6)
    outcome = played(world, {"await": [{"exit": "nonzero"}]})
    assert outcome.verdict is Verdict.FAIL
    assert outcome.got == "the target was ended by SIGABRT"


def test_a_signal_that_was_sent_is_no_crash() -> None:
    world = StillWorld("c")
    world.exit = Exit(at=0.0, code=-15)
    assert played(world, {"signal": "TERM"}).verdict is Verdict.PASS
    assert world.done == [("signal", 15)]


def test_a_controller_must_go_on() -> None:
    world = StillWorld("c")
    world.exit = Exit(at=0.0, code=0)
    assert played(world, {"listen": True}, role="controller").got.endswith("code 0")
    waits = {"await": [{"exit": [0]}]}
    assert played(world, waits, role="controller").verdict is Verdict.PASS
    fails = {"await": [{"exit": "nonzero"}]}
    outcome = played(world, fails, role="controller", level=Level.SHOULD)
    assert outcome.verdict is Verdict.NON_STRICT
    assert played(world, {"signal": "TERM"}, role="controller").verdict is Verdict.PASS


def test_a_controller_that_has_given_up_may_end() -> None:
    world = StillWorld("c")
    world.said(Abort(reason="x"))
    world.exit = Exit(at=0.0, code=1)
    outcome = played(world, {"await": [{"message": "Abort"}]}, role="controller")
    assert outcome.verdict is Verdict.PASS


def test_a_flood_fails() -> None:
    world = StillWorld("c")

    def flood() -> None:
        raise Flood("too much")

    world.at(0.1, flood)
    outcome = played(world, END)
    assert (outcome.verdict, outcome.got) == (Verdict.FAIL, "too much")


def test_a_target_that_takes_no_connections() -> None:
    world = StillWorld()
    world.refuses = True
    outcome = played(world, {"dial": "a"}, role="controller")
    assert (outcome.verdict, outcome.got) == (Verdict.FAIL, "connection refused")


def test_a_dial_that_may_be_refused_ends_the_case_well() -> None:
    world = StillWorld()
    world.refuses = True
    world.exit = Exit(at=0.0, code=2)
    steps = ({"dial": "a", "refusable": True}, {"say": "Hello", "on": "a"})
    assert played(world, *steps, role="controller").verdict is Verdict.PASS
    assert world.done == []


# -- how the connection ended -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "ending"), [("fin", Verdict.PASS), ("rst", Verdict.NON_STRICT), ("", Verdict.FAIL)]
)
def test_the_ending_has_a_verdict_of_its_own(how: str, ending: Verdict) -> None:
    world = StillWorld("c")
    if how:
        world.at(1.0, lambda: world.conversations["c"].end(how, 1.0))
    demanded = Ending(on="c", how=("fin",), within=3.0)
    outcome = played(world, {"listen": True}, ending=demanded)
    assert outcome.behaviour is Verdict.PASS
    assert outcome.ending is ending
    assert bool(outcome.expected) == (how != "fin")


def test_a_wrong_ending_beside_another_deviation_is_a_note() -> None:
    world = StillWorld("c")
    demanded = Ending(on="c", how=("fin",), within=3.0)
    outcome = played(world, END, level=Level.SHOULD, ending=demanded)
    assert outcome.expected.startswith("the end of the stream")


def test_no_ending_is_asked_of_a_connection_that_never_was() -> None:
    demanded = Ending(on="x", how=("fin",), within=3.0)
    assert played(StillWorld(), {"listen": True}, ending=demanded).verdict is Verdict.PASS
