from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from joinproto import effects as fx
from joinproto.connection import AgentConnection
from joinproto.errors import (
    Aborted,
    CommandNotFound,
    HelperLost,
    IllegalInput,
    SpawnFailed,
    Unkillable,
)
from joinproto.keys import OPEN
from joinproto.machines.agent import Plan
from joinproto.messages import Abort, Accept, Hello, RankExited, WorldFormed
from joinproto.testing import Behaviour, FakeClock, FakeProcesses
from tests.support.frames import frame_of, read_frames

MakeProcesses = Callable[..., FakeProcesses]

ACCEPT = Accept(ranks=(4, 5), salt_hex=OPEN.hex(), formation_wait_secs=9)


class Host:
    """An agent whose world has formed, with the processes that a test gives it."""

    def __init__(
        self,
        make: MakeProcesses,
        clock: FakeClock,
        behaviours: dict[int | None, Behaviour] | None = None,
        *,
        others: Behaviour | None = None,
        relay: bool = False,
    ) -> None:
        hello = Hello(host="a", local_devices=(0, 1))
        self.clock = clock
        self.agent = AgentConnection(Plan(hello=hello, wires=(2,)))
        options = {} if others is None else {"others": others}
        self.processes = make(self.agent, behaviours, **options)
        self.effects: list[Any] = []
        self.agent.start(clock.now)
        self.agent.connected("controller", clock.now)
        self.agent.data_to_send()
        self.agent.flushed(clock.now)
        formed = WorldFormed(envelope_hex="aa", relay_spec_hex="bb" if relay else None)
        self.receive(ACCEPT, formed)

    def receive(self, *messages: Any) -> None:
        data = b"".join(frame_of(message, wire=2) for message in messages)
        self.take(self.processes.do(self.agent.receive_data(data, self.clock.now)))

    def take(self, effects: list[Any]) -> None:
        self.effects += effects

    def pass_time(self, seconds: float) -> None:
        now = self.clock.advance(seconds)
        self.take(self.processes.do(self.agent.handle_timer(now)))

    @property
    def finish(self) -> fx.Finish | None:
        found = [effect for effect in self.effects if isinstance(effect, fx.Finish)]
        return found[0] if found else None

    @property
    def reports(self) -> list[Any]:
        return read_frames(self.agent.data_to_send())


@pytest.fixture
def host(joinproto_processes: MakeProcesses, joinproto_clock: FakeClock) -> Callable[..., Host]:
    def make(*behaviours: Any, **options: Any) -> Host:
        return Host(joinproto_processes, joinproto_clock, *behaviours, **options)

    return make


def test_they_start_by_themselves_in_order(host: Callable[..., Host]) -> None:
    processes = host(relay=True).processes
    assert list(processes) == [None, 4, 5]
    assert len(processes.running) == len(processes) == 3
    spawns = [processes[rank].spawn for rank in processes]
    assert [(spawn.artifact_hex, spawn.device) for spawn in spawns] == [
        ("bb", None),
        ("aa", 0),
        ("aa", 1),
    ]
    with pytest.raises(KeyError):
        processes[0]
    assert repr(processes[None]) == "<fake process of the relay, running>"
    assert "rank 4" in repr(processes)


def test_they_start_when_told(host: Callable[..., Host]) -> None:
    a = host(others=Behaviour(starts=False))
    assert list(a.processes) == [4, 5]
    assert not a.processes.running
    a.take(a.processes[4].start())
    assert [process.spawn.rank for process in a.processes.running] == [4]


@pytest.mark.parametrize("unkillable", [False, True])
def test_one_that_hangs_while_it_starts_can_be_killed(
    host: Callable[..., Host], unkillable: bool
) -> None:
    a = host({4: Behaviour(starts=False, unkillable=unkillable)})
    a.receive(Abort(reason="enough"))
    assert a.processes[4].signals == []
    a.pass_time(5.0)
    assert a.processes[4].signals == [signal.SIGKILL]
    assert a.processes[4].code == (None if unkillable else -signal.SIGKILL)
    a.pass_time(10.0)
    assert a.finish is not None
    assert type(a.finish.error) is (Unkillable if unkillable else Aborted)


def test_they_end_with_a_code(host: Callable[..., Host]) -> None:
    a = host()
    a.take(a.processes[5].exit(7))
    assert a.reports == [RankExited(rank=5, code=7)]
    assert (a.processes[5].code, repr(a.processes[5])) == (
        7,
        "<fake process of the rank 5, ended with 7>",
    )
    a.take(a.processes.all_exit())
    assert a.reports == [RankExited(rank=4, code=0)]
    assert a.finish == fx.Finish(error=None)
    with pytest.raises(IllegalInput):
        a.processes[5].exit(7)


def test_they_end_as_soon_as_they_have_started(host: Callable[..., Host]) -> None:
    a = host(others=Behaviour(exits=-11))
    assert a.reports == [RankExited(rank=4, code=-11), RankExited(rank=5, code=-11)]
    assert a.finish == fx.Finish(error=None)


@pytest.mark.parametrize(
    ("behaviour", "error"),
    [
        (Behaviour(cannot_start="no memory"), SpawnFailed),
        (Behaviour(cannot_start="not there", not_found=True), CommandNotFound),
    ],
)
def test_they_cannot_be_started(
    host: Callable[..., Host], behaviour: Behaviour, error: type
) -> None:
    a = host({5: behaviour})
    assert a.finish is not None
    assert type(a.finish.error) is error
    assert a.processes[4].signals == [signal.SIGTERM]
    assert a.processes[4].code == -signal.SIGTERM


def test_they_fail_to_start_when_told(host: Callable[..., Host]) -> None:
    a = host({4: Behaviour(starts=False)})
    a.take(a.processes[4].fail("no memory"))
    assert a.finish is not None
    assert isinstance(a.finish.error, SpawnFailed)


def test_all_but_some_end(host: Callable[..., Host]) -> None:
    a = host(relay=True)
    a.take(a.processes.all_exit(3, but=[None]))
    assert [process.spawn.rank for process in a.processes.running] == [None]


def test_they_ignore_sigterm(host: Callable[..., Host]) -> None:
    a = host({4: Behaviour(ignores_sigterm=True)})
    a.receive(Abort(reason="enough"))
    assert (a.processes[4].code, a.processes[5].code) == (None, -signal.SIGTERM)
    a.pass_time(5.0)
    assert a.processes[4].signals == [signal.SIGTERM, signal.SIGKILL]
    assert a.processes[4].code == -signal.SIGKILL
    assert a.finish is not None
    assert isinstance(a.finish.error, Aborted)


def test_they_cannot_be_killed(host: Callable[..., Host]) -> None:
    a = host({4: Behaviour(unkillable=True)})
    a.receive(Abort(reason="enough"))
    a.pass_time(5.0)
    in_between = a.finish
    a.pass_time(10.0)
    assert in_between is None
    assert a.finish is not None
    assert isinstance(a.finish.error, Unkillable)
    assert a.processes[4].running


def test_their_output_outlives_them(host: Callable[..., Host]) -> None:
    a = host({4: Behaviour(holds_output=True)})
    a.take(a.processes[4].exit(0))
    assert a.reports == []
    a.take(a.processes[4].end_output())
    assert a.reports == [RankExited(rank=4, code=0)]


def test_their_output_outlives_its_time(host: Callable[..., Host]) -> None:
    a = host({4: Behaviour(holds_output=True)})
    a.take(a.processes[4].exit(0))
    a.pass_time(2.0)
    assert a.reports == [RankExited(rank=4, code=0)]


def test_a_sweep_ends_what_holds_their_output(host: Callable[..., Host]) -> None:
    a = host(others=Behaviour(holds_output=True))
    a.take(a.processes[4].exit(0))
    sweeps = [(a.processes.sweeps, a.processes[4].output_open)]
    a.receive(Abort(reason="enough"))
    sweeps.append((a.processes.sweeps, a.processes[4].output_open))
    assert sweeps == [(0, True), (1, False)]
    assert a.finish is not None
    assert isinstance(a.finish.error, Aborted)


def test_a_helper_that_dies_takes_all_with_it(host: Callable[..., Host]) -> None:
    a = host({5: Behaviour(starts=False)})
    a.take(a.processes.helper_dies("it is gone"))
    assert a.processes[4].code == -signal.SIGKILL
    assert a.finish is not None
    assert isinstance(a.finish.error, HelperLost)
    assert a.finish.error.args == ("it is gone",)


def test_effects_that_are_no_processes_business_are_left(
    joinproto_processes: MakeProcesses,
) -> None:
    agent = AgentConnection(Plan(hello=Hello(host="a", local_devices=(0,)), wires=(2,)))
    left = [fx.CloseLink(), fx.Finish(error=None)]
    assert joinproto_processes(agent).do(left) == left
