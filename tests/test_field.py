"""Failures that people met in the field, held against the machines; time is the clock's alone.

The runtime's part of them, on real sockets, is tested where the runtime is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from joinproto import codec
from joinproto import effects as fx
from joinproto.connection import ControllerConnection
from joinproto.errors import DeadlinePassed, LinkLost, Unreachable
from joinproto.grammar import JOIN_MAGIC
from joinproto.keys import Salt
from joinproto.limits import whole_seconds
from joinproto.machines.agent import AgentState, Plan
from joinproto.machines.controller import Admission, ControllerState
from joinproto.messages import Accept, Hello
from joinproto.testing import (
    SESSION,
    AcceptAndClose,
    Admit,
    DialFailed,
    Drip,
    End,
    Expect,
    FakeAgent,
    FakeClock,
    FakeController,
    Link,
    MemoryHost,
    Pause,
    Say,
    Step,
    WaitEnd,
)

SALT = Salt(bytes(range(16)))
HELLO = Hello(host="a", local_devices=(0,))
ACCEPT = Accept(ranks=(0,), salt_hex=SESSION.hex(), formation_wait_secs=60)

FOR_EVER = Pause(1e6)
SCALES = pytest.mark.parametrize("scale", [0.1, 1.0, 2.5])


def plan(*, wires: tuple[int, ...] = (2,), scale: float = 1.0, salt: Salt | None = None) -> Plan:
    return Plan(hello=HELLO, wires=wires, scale=scale, salt=salt)


def joined(fake: FakeController, clock: FakeClock, **options: Any) -> MemoryHost:
    """A host that has dialed `fake`, with all that follows from that at once."""
    host = MemoryHost(plan(**options), clock, lambda dial: fake.end(clock))
    host.start()
    return host


# -- a timeout that covers more than connecting -----------------------------------------------


@SCALES
@pytest.mark.parametrize(
    ("steps", "base"),
    [
        pytest.param([], 30.0, id="no answer"),
        pytest.param([Drip(ACCEPT, chunk=20, stop_after=1)], 30.0, id="half an answer"),
        pytest.param([Drip(ACCEPT, chunk=30, stop_after=1)], 30.0, id="half a payload"),
    ],
)
def test_an_agent_waits_for_its_answer_up_to_a_deadline(
    steps: list[Step], base: float, scale: float, joinproto_clock: FakeClock
) -> None:
    fake = FakeController([Expect(Hello), *steps, FOR_EVER])
    host = joined(fake, joinproto_clock, scale=scale)
    host.run()
    assert isinstance(host.error, DeadlinePassed)
    assert str(host.error) == "the controller at controller did not answer the Hello in time"
    assert joinproto_clock.now == whole_seconds(base, scale)
    assert host.link.left.closed


@SCALES
def test_an_agent_waits_for_the_world_as_long_as_it_was_told_and_some_more(
    scale: float, joinproto_clock: FakeClock
) -> None:
    # What Accept announces has been scaled by the controller; so it is not scaled again.
    fake = FakeController([Expect(Hello), Admit(formation_wait_secs=60), FOR_EVER])
    host = joined(fake, joinproto_clock, scale=scale)
    host.run()
    assert isinstance(host.error, DeadlinePassed)
    assert str(host.error) == "the controller at controller did not form the world in time"
    assert joinproto_clock.now == 90.0


@SCALES
def test_an_agent_waits_for_its_hello_to_be_taken_up_to_a_deadline(
    scale: float, joinproto_clock: FakeClock
) -> None:
    fake = FakeController([FOR_EVER])
    host = MemoryHost(plan(scale=scale), joinproto_clock, lambda dial: fake.end(joinproto_clock))
    host.do(host.agent.start(joinproto_clock.now))
    host.link.left.stalled = True
    host.run()
    assert isinstance(host.error, DeadlinePassed)
    assert str(host.error) == "the controller at controller did not take the Hello in time"
    assert joinproto_clock.now == 30.0 * scale


@SCALES
@pytest.mark.parametrize(
    ("said", "base", "reason"),
    [
        pytest.param(b"", 5.0, "no channel magic in time", id="nothing"),
        pytest.param(JOIN_MAGIC[:3], 5.0, "no channel magic in time", id="half a magic"),
        pytest.param(JOIN_MAGIC, 10.0, "no whole Hello in time", id="a magic"),
        pytest.param(JOIN_MAGIC + b"\xc4", 10.0, "no whole Hello in time", id="half a header"),
    ],
)
def test_a_controller_waits_for_a_hello_up_to_a_deadline(
    said: bytes, base: float, reason: str, scale: float, joinproto_clock: FakeClock
) -> None:
    connection, link = dialed(FakeAgent([FOR_EVER], channel=said), joinproto_clock, scale)
    run(link, joinproto_clock, until=lambda: connection.state is ControllerState.CLOSED)
    assert joinproto_clock.now == whole_seconds(base, scale)
    assert link.right.effects == [fx.TurnedAway(reason=reason)]


def dialed(
    agent: FakeAgent, clock: FakeClock, scale: float = 1.0
) -> tuple[ControllerConnection, Link]:
    """A controller's connection that `agent` has dialed."""
    connection = ControllerConnection(Admission(salt=SALT, open=True, scale=scale))
    link = Link(agent.end(clock), End(connection, clock))
    link.right.do(connection.start(clock.now))
    link.settle()
    return connection, link


def run(link: Link, clock: FakeClock, *, until: Callable[[], bool]) -> None:
    """Let time pass from deadline to deadline until the condition holds."""
    while not until():
        due = link.next_timer
        assert due is not None
        clock.advance_to(due)
        link.settle()


# -- something that accepts for a controller that is not there yet ----------------------------


@pytest.mark.parametrize("wires", [(2,), (4, 2)])
@pytest.mark.parametrize("reset", [False, True])
def test_an_agent_outlasts_what_accepts_and_closes_at_once(
    reset: bool, wires: tuple[int, ...], joinproto_clock: FakeClock
) -> None:
    fake = FakeController.admitting()

    def answer(dial: fx.Dial) -> End:
        early = joinproto_clock.now < 5.0
        return (FakeController([AcceptAndClose(reset=reset)]) if early else fake).end(
            joinproto_clock
        )

    host = MemoryHost(plan(wires=wires), joinproto_clock, answer)
    host.start()
    host.run(until=8.0)
    # Neither fatal nor a hot loop: each pause is twice as long as the one before.  An attempt tries
    # every wire, since a close is also how a controller turns another version away.
    attempts = [0.0, 0.5, 1.5, 3.5]
    dials = [(time, wire) for time in attempts for wire in wires]
    assert host.dials == [*dials, (7.5, wires[0])]
    assert host.state is AgentState.SUPERVISING


@pytest.mark.parametrize("wires", [(2,), (4, 2)])
def test_an_agent_gives_up_on_what_never_does_anything_but_close(
    wires: tuple[int, ...], joinproto_clock: FakeClock
) -> None:
    fake = FakeController([AcceptAndClose(times=6 * len(wires))])
    host = joined(fake, joinproto_clock, wires=wires)
    host.run()
    fake.check()
    times = [time for time, wire in host.dials if wire == wires[0]]
    assert times == [0.0, 0.5, 1.5, 3.5, 7.5, 15.5]
    assert isinstance(host.error, LinkLost)
    assert "closed before any answer to Hello" in str(host.error)
    assert "salt" not in str(host.error)


def test_two_salts_that_differ_are_thought_of(joinproto_clock: FakeClock) -> None:
    fake = FakeController([AcceptAndClose(times=6)])
    host = joined(fake, joinproto_clock, salt=SALT)
    host.run()
    assert "most often means that the two salts differ" in str(host.error)


def test_an_agent_that_was_admitted_does_not_dial_again(joinproto_clock: FakeClock) -> None:
    fake = FakeController([Expect(Hello), Admit(), AcceptAndClose()])
    host = joined(fake, joinproto_clock)
    host.run()
    assert isinstance(host.error, LinkLost)
    assert "before the world formed" in str(host.error)
    assert len(host.dials) == 1


# -- bytes that drip --------------------------------------------------------------------------


def test_an_answer_that_drips_meets_the_deadline_of_one_frame(joinproto_clock: FakeClock) -> None:
    fake = FakeController([Expect(Hello), Drip(ACCEPT, pause=0.9 * 30.0), FOR_EVER])
    host = joined(fake, joinproto_clock)
    host.run()
    assert isinstance(host.error, DeadlinePassed)
    assert joinproto_clock.now == 30.0


@pytest.mark.parametrize(
    ("channel", "step", "dropped_at"),
    [
        pytest.param(b"", Drip(JOIN_MAGIC, pause=0.9 * 5.0), 5.0, id="magic"),
        pytest.param(JOIN_MAGIC, Drip(HELLO, pause=0.9 * 10.0), 10.0, id="hello"),
    ],
)
def test_a_dial_that_drips_meets_the_deadline_of_one_frame(
    channel: bytes, step: Step, dropped_at: float, joinproto_clock: FakeClock
) -> None:
    agent = FakeAgent([step, FOR_EVER], channel=channel)
    connection, link = dialed(agent, joinproto_clock)
    run(link, joinproto_clock, until=lambda: connection.state is ControllerState.CLOSED)
    assert joinproto_clock.now == dropped_at


def test_an_honest_dial_in_single_bytes_is_offered(joinproto_clock: FakeClock) -> None:
    size = len(codec.encode(HELLO, key=SALT, wire=4))
    agent = FakeAgent([Drip(HELLO, pause=0.1 / size), FOR_EVER])
    connection, link = dialed(agent, joinproto_clock)
    run(link, joinproto_clock, until=lambda: connection.state is ControllerState.DECIDING)
    assert joinproto_clock.now < 0.1
    assert link.right.effects == [fx.Offer(hello=HELLO)]


def test_an_honest_answer_in_single_bytes_is_taken(joinproto_clock: FakeClock) -> None:
    fake = FakeController([Expect(Hello), Drip(ACCEPT, pause=0.001), FOR_EVER])
    host = joined(fake, joinproto_clock)
    host.run(until=0.2)
    assert host.state is AgentState.AWAIT_FORMED


# -- dials that fail --------------------------------------------------------------------------

CAUSES = (
    "cannot resolve c: Temporary failure in name resolution",
    "No route to host",
    "Network is unreachable",
    "Connection reset by peer",
    "Connection refused",
    "cannot resolve c: Name or service not known",
)


class Answers:
    """Takes dials as a list says, the last entry for ever: a cause, or None for no answer."""

    def __init__(self, *answers: str | None) -> None:
        self.left = list(answers)

    def __call__(self, dial: fx.Dial) -> End | None:
        answer = self.left.pop(0) if len(self.left) > 1 else self.left[0]
        if answer is not None:
            raise DialFailed(answer)
        return None


def unreachable(clock: FakeClock, *answers: str | None, scale: float = 1.0) -> MemoryHost:
    """A host that has dialed until it gave up."""
    host = MemoryHost(plan(scale=scale), clock, Answers(*answers))
    host.start()
    host.run()
    assert isinstance(host.error, Unreachable)
    return host


@pytest.mark.parametrize("cause", CAUSES)
def test_every_dial_error_may_pass(cause: str, joinproto_clock: FakeClock) -> None:
    fake = FakeController.admitting()

    def answer(dial: fx.Dial) -> End:
        if joinproto_clock.now < 3.0:
            raise DialFailed(cause)
        return fake.end(joinproto_clock)

    host = MemoryHost(plan(), joinproto_clock, answer)
    host.start()
    host.run(until=3.0)
    assert [time for time, _ in host.dials] == [0.5 * n for n in range(7)]
    assert host.state is AgentState.SUPERVISING


@pytest.mark.parametrize("cause", CAUSES)
def test_no_dial_error_is_tried_for_ever(cause: str, joinproto_clock: FakeClock) -> None:
    host = unreachable(joinproto_clock, cause)
    assert len(host.dials) == 60
    assert joinproto_clock.now == 29.5


@SCALES
def test_the_budget_scales_and_the_pause_does_not(scale: float, joinproto_clock: FakeClock) -> None:
    host = unreachable(joinproto_clock, "Connection refused", scale=scale)
    assert len(host.dials) == 60 * scale
    assert joinproto_clock.now == 30.0 * scale - 0.5


@pytest.mark.parametrize(("scale", "attempt"), [(0.1, 1.0), (1.0, 3.0), (2.0, 6.0)])
def test_an_address_that_never_answers_takes_no_longer(
    scale: float, attempt: float, joinproto_clock: FakeClock
) -> None:
    host = unreachable(joinproto_clock, None, scale=scale)
    times = [time for time, _ in host.dials]
    step = attempt + 0.5
    assert times == [step * n for n in range(len(times))]
    # The last attempt may begin just inside the budget.
    assert joinproto_clock.now <= 30.0 * scale + attempt
    assert str(host.error) == "connection timed out"


def test_the_last_cause_is_told(joinproto_clock: FakeClock) -> None:
    host = unreachable(joinproto_clock, *CAUSES, None, "the very last one")
    assert str(host.error) == "the very last one"
    # And the others, as they came, for those who look.
    assert [each.text.partition(";")[0] for each in host.told[:2]] == list(CAUSES[:2])


def test_closed_connections_and_failed_dials_share_one_budget(joinproto_clock: FakeClock) -> None:
    closing = FakeController([AcceptAndClose(times=3), WaitEnd()])

    def answer(dial: fx.Dial) -> End:
        if len(host.dials) % 2:
            raise DialFailed("Connection refused")
        return closing.end(joinproto_clock)

    host = MemoryHost(plan(), joinproto_clock, answer)
    host.start()
    host.run(until=4.5)
    # After each failed dial half a second; after the connections that closed 0.5, 1 and 2.
    assert [time for time, _ in host.dials] == [0.0, 0.5, 1.0, 1.5, 2.5, 3.0]


def test_an_agent_says_hello_again_on_every_connection(joinproto_clock: FakeClock) -> None:
    closing = FakeController([Expect(HELLO), AcceptAndClose(), Expect(HELLO), Say(ACCEPT)])
    host = joined(closing, joinproto_clock)
    host.run(until=1.0)
    closing.check()
    assert host.state is AgentState.AWAIT_FORMED
