from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from joinproto import effects as fx
from joinproto.connection import AgentConnection, ControllerConnection
from joinproto.keys import Salt
from joinproto.machines.agent import AgentState, Plan
from joinproto.machines.controller import Admission, ControllerState
from joinproto.messages import Hello
from joinproto.testing import End, FakeClock, Link, ResetLink

MakeLink = Callable[[AgentConnection, ControllerConnection], Link]

SALT = Salt(bytes(range(16)))


class Tap:
    """An end that takes down what it is told and sends what it is given."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.out: list[bytes] = []
        self.answers: list[Any] = []
        self.next_timer: float | None = None

    def _take(self, given: Any) -> list[Any]:
        self.told.append(given)
        answers, self.answers = self.answers, []
        return answers

    def receive_data(self, data: bytes, now: float) -> list[Any]:
        return self._take(data)

    def receive_eof(self, now: float) -> list[Any]:
        return self._take("eof")

    def link_broken(self, cause: str, now: float) -> list[Any]:
        return self._take(cause)

    def data_to_send(self) -> bytes:
        return self.out.pop(0) if self.out else b""

    def flushed(self, now: float) -> list[Any]:
        return self._take("flushed")

    def handle_timer(self, now: float) -> list[Any]:
        self.next_timer = None
        return self._take(("timer", now))


@pytest.fixture
def taps() -> tuple[Tap, Tap]:
    return Tap(), Tap()


@pytest.fixture
def link(taps: tuple[Tap, Tap], joinproto_clock: FakeClock) -> Link:
    left, right = taps
    return Link(End(left, joinproto_clock), End(right, joinproto_clock))


class TestBytes:
    def test_they_arrive_at_the_other_end(self, link: Link, taps: tuple[Tap, Tap]) -> None:
        left, right = taps
        left.out, right.out = [b"ab", b"c"], [b"d"]
        assert link.settle()
        assert b"".join(data for data in right.told if isinstance(data, bytes)) == b"abc"
        assert (left.told, link.settle()) == (["flushed", "flushed", b"d"], False)

    def test_they_come_in_chunks(self, link: Link, taps: tuple[Tap, Tap]) -> None:
        left, right = taps
        left.out, link.right.chunk = [b"abcde"], 2
        link.settle()
        assert right.told == [b"ab", b"cd", b"e"]

    def test_they_come_as_the_test_says(self, link: Link, taps: tuple[Tap, Tap]) -> None:
        left, right = taps
        left.out, link.right.held = [b"abc"], True
        link.settle()
        assert (right.told, link.right.coming) == ([], b"abc")
        assert link.right.deliver(1)
        link.right.held = False
        link.settle()
        assert right.told == [b"a", b"bc"]
        assert not link.right.deliver()

    def test_a_stalled_end_is_never_told_that_all_is_out(
        self, link: Link, taps: tuple[Tap, Tap]
    ) -> None:
        left, right = taps
        left.out, link.left.stalled = [b"a"], True
        assert not link.settle()
        link.left.stalled = False
        link.settle()
        assert (left.told, right.told) == (["flushed"], [b"a"])


class TestEnds:
    def test_a_close_lets_everything_out_first(self, link: Link, taps: tuple[Tap, Tap]) -> None:
        left, right = taps
        left.out = [b"a", b"b"]
        link.left.do([fx.CloseLink()])
        link.settle()
        assert (left.told, right.told) == ([], [b"ab", "eof"])
        assert link.left.closed
        assert not link.right.closed

    def test_an_end_of_stream_is_told_once(self, link: Link, taps: tuple[Tap, Tap]) -> None:
        link.left.do([fx.CloseLink(), fx.CloseLink()])
        link.settle()
        link.settle()
        assert taps[1].told == ["eof"]

    def test_an_end_that_sends_no_more_goes_on_reading(
        self, link: Link, taps: tuple[Tap, Tap]
    ) -> None:
        left, right = taps
        link.left.do([fx.EndSending()])
        left.out, right.out = [b"lost"], [b"a"]
        link.settle()
        assert right.told == ["flushed", "eof"]
        assert b"a" in left.told

    def test_what_is_sent_to_a_closed_end_comes_back_as_a_reset(
        self, link: Link, taps: tuple[Tap, Tap]
    ) -> None:
        left, right = taps
        link.right.held = True
        link.left.do([fx.CloseLink()])
        right.out = [b"late"]
        link.settle()
        link.right.held = False
        link.settle()
        assert right.told == ["flushed", "connection reset by peer"]
        assert left.told == []

    def test_a_reset_by_one_end(self, link: Link, taps: tuple[Tap, Tap]) -> None:
        left, right = taps
        left.out, link.right.held = [b"gone"], True
        link.settle()
        link.left.do([ResetLink()])
        link.right.held = False
        link.settle()
        assert right.told == ["connection reset by peer"]
        assert link.left.closed

    def test_a_reset_in_between(self, link: Link, taps: tuple[Tap, Tap]) -> None:
        link.reset("no route to host")
        link.settle()
        assert [tap.told for tap in taps] == [["no route to host"], ["no route to host"]]
        taps[0].out = [b"into the void"]
        link.settle()
        assert taps[1].told == ["no route to host"]

    def test_an_end_of_stream_in_between_comes_behind_what_is_under_way(
        self, link: Link, taps: tuple[Tap, Tap]
    ) -> None:
        left, right = taps
        left.out, link.right.held = [b"a"], True
        link.settle()
        link.eof()
        link.right.held = False
        link.settle()
        assert (left.told, right.told) == (["flushed", "eof"], [b"a", "eof"])

    def test_a_lost_link_tells_nobody(self, link: Link, taps: tuple[Tap, Tap]) -> None:
        left, right = taps
        link.lose()
        left.out = [b"a"]
        link.left.do([fx.CloseLink()])
        link.settle()
        assert right.told == []


class TestTime:
    def test_what_is_due_is_handled(
        self, link: Link, taps: tuple[Tap, Tap], joinproto_clock: FakeClock
    ) -> None:
        taps[0].next_timer, taps[1].next_timer = 3.0, 2.0
        assert link.next_timer == 2.0
        link.settle()
        joinproto_clock.advance(2.0)
        link.settle()
        assert (taps[0].told, taps[1].told) == ([], [("timer", 2.0)])
        assert link.next_timer == 3.0

    def test_nothing_is_due_at_a_closed_end(self, link: Link, taps: tuple[Tap, Tap]) -> None:
        taps[0].next_timer = 0.0
        link.left.do([fx.CloseLink()])
        assert link.next_timer is None


def test_effects_that_do_not_concern_the_link_are_kept(link: Link, taps: tuple[Tap, Tap]) -> None:
    wanted = fx.Lost(cause="x")
    taps[0].out, taps[1].answers = [b"a"], [wanted, fx.EndSending()]
    link.settle()
    assert link.right.effects == [wanted]
    assert "eof" in taps[0].told


def test_effects_may_be_carried_out_at_once(taps: tuple[Tap, Tap]) -> None:
    done: list[Any] = []
    end = End(taps[0], FakeClock(), done.append)
    end.do([fx.RunEnded()])
    assert (done, end.effects) == ([fx.RunEnded()], [])


def test_ends_that_never_come_to_rest_are_told(
    link: Link, taps: tuple[Tap, Tap], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joinproto.testing.link.STEPS", 10)
    monkeypatch.setattr(taps[0], "data_to_send", lambda: b"again")
    with pytest.raises(RuntimeError, match="never come to rest"):
        link.settle()


def test_an_agent_joins_a_controller(joinproto_link: MakeLink, joinproto_clock: FakeClock) -> None:
    hello = Hello(host="a", local_devices=(0,))
    agent = AgentConnection(Plan(hello=hello, wires=(2,), salt=SALT))
    assert agent.start(joinproto_clock.now) == [fx.Dial(timeout=3.0, wire=2)]
    controller = ControllerConnection(Admission(salt=SALT, open=False))
    link = joinproto_link(agent, controller)
    link.right.chunk = 1
    link.settle()
    assert link.right.effects == [fx.Offer(hello=hello)]
    states = [agent.state]
    link.right.do(controller.admit((5,), 60, joinproto_clock.now))
    link.right.do(controller.form("00", None, joinproto_clock.now))
    link.settle()
    states.append(agent.state)
    assert states == [AgentState.AWAIT_ACCEPT, AgentState.SUPERVISING]
    assert [effect for effect in link.left.effects if isinstance(effect, fx.Spawn)] == [
        fx.Spawn(slot=0, artifact_hex="00", rank=5, local_rank=0, device=0, wire=2)
    ]
    assert controller.state is ControllerState.FORMED
