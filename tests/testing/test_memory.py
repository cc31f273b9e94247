from __future__ import annotations

import pytest

from joinproto import effects as fx
from joinproto.errors import Aborted, DeadlinePassed, Rejected, Stopped, Unreachable
from joinproto.machines.agent import AgentState, Plan
from joinproto.messages import Abort, Hello, Reject, WorldFormed
from joinproto.testing import (
    Admit,
    Behaviour,
    Close,
    DialFailed,
    End,
    Expect,
    ExpectExits,
    FakeClock,
    FakeController,
    MemoryHost,
    Pause,
    Say,
    Until,
    WaitEnd,
)

HELLO = Hello(host="a", local_devices=(0, 1))
PLAN = Plan(hello=HELLO, wires=(4, 2))


def host_of(
    fake: FakeController, clock: FakeClock, behaviours: dict[int | None, Behaviour] | None = None
) -> MemoryHost:
    host = MemoryHost(PLAN, clock, lambda dial: fake.end(clock), behaviours)
    host.start()
    return host


def test_a_host_from_its_dial_to_its_end(joinproto_clock: FakeClock) -> None:
    fake = FakeController.admitting(relay=True, codes={1: 7})
    host = host_of(fake, joinproto_clock)
    states = [host.state]
    for rank, code in ((0, 0), (1, 7), (None, 0)):
        host.exit(rank, code)
    assert [*states, host.state] == [AgentState.SUPERVISING, AgentState.DONE]
    assert (host.finished, host.error) == (True, None)
    assert host.told[-1].text == "host 'a' finished DEGRADED: 1 of 2 rank(s) failed"
    fake.check()


def test_a_host_that_is_turned_away(joinproto_clock: FakeClock) -> None:
    fake = FakeController([Expect(Hello), Say(Reject(reason="full")), WaitEnd()])
    host = host_of(fake, joinproto_clock)
    assert isinstance(host.error, Rejected)
    fake.check()


def test_a_host_that_finds_the_right_wire(joinproto_clock: FakeClock) -> None:
    script = [Expect(Hello), Admit(), Say(WorldFormed(envelope_hex="00")), ExpectExits()]
    fake = FakeController(script, wires=[2])
    host = host_of(fake, joinproto_clock)
    host.do(host.processes.all_exit())
    host.settle()
    assert host.dials == [(0.0, 4), (0.0, 2)]
    assert len(host.links) == 2
    fake.check()


def test_time_goes_from_deadline_to_deadline(joinproto_clock: FakeClock) -> None:
    fake = FakeController([Expect(Hello), Pause(600.0)])
    host = host_of(fake, joinproto_clock)
    host.run()
    assert isinstance(host.error, DeadlinePassed)
    assert joinproto_clock.now == 30.0


def test_time_stops_where_it_is_told_to(joinproto_clock: FakeClock) -> None:
    fake = FakeController([Expect(Hello), Pause(4.0), Admit()])
    host = host_of(fake, joinproto_clock)
    host.run(until=3.5)
    states = [host.state]
    host.run(until=60.0)
    assert [*states, host.state] == [AgentState.AWAIT_ACCEPT, AgentState.AWAIT_FORMED]
    assert joinproto_clock.now == 60.0
    fake.check()


def test_a_script_that_waits_for_the_test(joinproto_clock: FakeClock) -> None:
    ready: list[bool] = []
    script = [Expect(Hello), Admit(), Until(lambda: ready), Say(Abort(reason="x")), WaitEnd()]
    fake = FakeController(script)
    host = host_of(fake, joinproto_clock)
    finished = [host.finished]
    ready.append(True)
    host.settle()
    assert [*finished, host.finished] == [False, True]
    assert isinstance(host.error, Aborted)
    fake.check()


def test_a_dial_that_fails(joinproto_clock: FakeClock) -> None:
    answers: list[End | None] = []

    def answer(dial: fx.Dial) -> End | None:
        if not answers:
            raise DialFailed("no route to host")
        return answers[0]

    host = MemoryHost(PLAN, joinproto_clock, answer)
    host.start()
    host.run(until=1.2)
    assert [time for time, _ in host.dials] == [0.0, 0.5, 1.0]
    fake = FakeController([Expect(Hello), Say(Reject(reason="x"))])
    answers.append(fake.end(joinproto_clock))
    host.run()
    assert isinstance(host.error, Rejected)
    assert len(host.links) == 1


def test_a_dial_that_nobody_answers(joinproto_clock: FakeClock) -> None:
    host = MemoryHost(PLAN, joinproto_clock, lambda dial: None)
    host.start()
    assert host.next_timer == 3.0
    host.run()
    assert isinstance(host.error, Unreachable)
    assert host.dials[:2] == [(0.0, 4), (3.5, 4)]
    assert joinproto_clock.now <= 33.0


def test_a_link_that_ends_tells_the_far_end(joinproto_clock: FakeClock) -> None:
    # The far end of an old link learns of its end although a new link stands already.
    fake = FakeController([Expect(Hello), Close(), Expect(Hello), Close(), Expect(Hello)])
    host = host_of(fake, joinproto_clock)
    host.run(until=1.0)
    fake.check()
    assert [link.left.closed for link in host.links] == [True, True, False]


def test_a_host_that_is_stopped(joinproto_clock: FakeClock) -> None:
    fake = FakeController.admitting(codes={0: -15, 1: -9})
    host = host_of(fake, joinproto_clock, {1: Behaviour(ignores_sigterm=True)})
    host.stop()
    finished = [host.finished]
    host.run()
    assert [*finished, host.finished] == [False, True]
    assert isinstance(host.error, Stopped)
    assert joinproto_clock.now == 5.0
    fake.check()


def test_a_host_that_never_ends_is_told(
    joinproto_clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("joinproto.testing.memory.STEPS", 4)
    host = MemoryHost(PLAN, joinproto_clock, lambda dial: None)
    host.start()
    with pytest.raises(RuntimeError, match="never ends"):
        host.run()
