"""The agent's machine as a whole: every cell of its table, and what holds on every way through."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from joinproto import effects as fx
from joinproto.errors import Aborted, DecodeError, HelperLost, LinkLost, RelayDied, Stage
from joinproto.inputs import (
    ChildDrained,
    ChildExited,
    ChildFailed,
    ChildStarted,
    ChildStuck,
    Connected,
    ConnectFailed,
    EndOfStream,
    Expired,
    Flushed,
    HelperDied,
    LinkBroken,
    Start,
    StopRequested,
    Undecodable,
)
from joinproto.keys import Salt
from joinproto.limits import Timer
from joinproto.machines.agent import AGENT, AgentContext, AgentState, Plan
from joinproto.messages import Abort, Accept, Hello, RankExited, Reject, WorldFormed
from joinproto.session import Session
from tests.support.machines import at, check

S = AgentState
SALT = Salt(bytes(range(16)))
HELLO = Hello(host="h", local_devices=(4, 7))
ACCEPT = Accept(ranks=(2, 3), salt_hex=SALT.hex(), formation_wait_secs=60)
FORMED = WorldFormed(envelope_hex="aa", relay_spec_hex="bb")

PLANS = [
    Plan(hello=HELLO, wires=(4, 2)),
    Plan(hello=HELLO, wires=(2,), salt=SALT),
    Plan(hello=HELLO, wires=(4,), grace=0),
]


def undecodable(stage: Stage) -> Undecodable:
    return Undecodable(error=DecodeError(stage, "why"), tagged=stage is Stage.PAYLOAD)


MESSAGES = (
    HELLO,
    ACCEPT,
    Accept(ranks=(2, 3), formation_wait_secs=60),  # no salt
    Accept(ranks=(2, 3), salt_hex="zz", formation_wait_secs=60),
    Accept(ranks=(2,), salt_hex=SALT.hex(), formation_wait_secs=60),  # a rank too few
    Accept(ranks=(2, 3), salt_hex=SALT.hex(), formation_wait_secs=2**64 - 1),
    Reject(reason="no"),
    FORMED,
    WorldFormed(envelope_hex=""),
    RankExited(rank=2, code=0),
    Abort(reason="no"),
)
LINK = (
    Flushed(),
    EndOfStream(),
    LinkBroken(cause="reset"),
    *map(undecodable, (Stage.MAGIC, Stage.TRUNCATED, Stage.TAG, Stage.PAYLOAD)),
)


@dataclass
class World:
    """An agent's machine, and around it what only ever does what can happen."""

    session: Session[AgentContext]
    now: float = 1000.0
    dialing: bool = False
    linked: bool = False
    torn: bool = False
    processes: dict[int, str] = field(default_factory=dict)
    reports: Counter[int] = field(default_factory=Counter)
    finished: list[Any] = field(default_factory=list)

    def give(self, given: Any) -> list[Any]:
        before = self.session.context
        effects = self.session.step(given, self.now)
        if isinstance(given, ChildDrained):
            self._check_report(given.slot, before, effects)
        self._carry_out(effects)
        return effects

    def pass_time(self) -> list[Any]:
        at = self.session.next_timer
        assert at is not None
        self.now = at
        effects = self.session.expire(self.now)
        self._carry_out(effects)
        return effects

    def _check_report(self, slot: int, before: AgentContext, effects: list[Any]) -> None:
        rank = before.rank_of(slot)
        told = [e.message for e in effects if isinstance(e, fx.Send)]
        code = dict(before.codes)[slot]
        due = [RankExited(rank=rank, code=code)] if rank is not None and self.linked else []
        assert told == due

    def _carry_out(self, effects: list[Any]) -> None:
        assert not (effects and self.finished), "something came after Finish"
        stood = self.linked
        for effect in effects:
            match effect:
                case fx.Dial():
                    assert not self.dialing
                    assert not self.linked
                    self.dialing = True
                case fx.CloseLink():
                    self.dialing = self.linked = False
                case fx.Spawn():
                    self._check_spawn(effect)
                    self.processes[effect.slot] = "starting"
                case fx.StopChildren() | fx.KillChildren():
                    self.torn = True
                case fx.Send(message=RankExited(rank=rank)):
                    assert self.linked
                    self.reports[rank] += 1
                case fx.Finish(error=error):
                    self.finished.append(error)
                    # A link that ends behind the last exit takes what is unreported with it.
                    assert error or not stood or self.reports == {2: 1, 3: 1}
        self._check()

    def _check_spawn(self, spawn: fx.Spawn) -> None:
        assert not self.torn, "a child was asked for although the host is torn down"
        assert spawn.slot == len(self.processes)
        ctx = self.session.context
        assert spawn.wire == ctx.version
        local = spawn.slot - ctx.relays
        if local < 0:
            assert (spawn.rank, spawn.local_rank, spawn.device) == (None, None, None)
        else:
            device = HELLO.local_devices[local]
            assert (spawn.rank, spawn.local_rank, spawn.device) == (ctx.ranks[local], local, device)

    def _check(self) -> None:
        ctx = self.session.context
        assert ctx.link == self.linked
        assert max(self.reports.values(), default=0) <= 1
        assert bool(self.finished) == self.session.final
        assert len(self.finished) <= 1
        if self.finished:
            (error,) = self.finished
            assert (error is None) == (self.session.state is S.DONE)
            assert not self.linked
            assert set(self.processes.values()) <= {"gone", "stuck"}

    # -- what can happen now ------------------------------------------------------------------

    def moves(self) -> list[Callable[[], Any]]:
        state, ctx = self.session.state, self.session.context
        found: list[Callable[[], Any]] = [
            partial(self.give, StopRequested(reason="T", number=15)),
            partial(self.give, HelperDied(cause="killed")),
        ]
        if state is S.DIALING and not self.dialing and self.session.next_timer is None:
            return [partial(self.give, Start())]
        if self.dialing:
            found += [self._connect, self._fail]
        if self.linked:
            found += [partial(self._receive, given) for given in (*LINK, *MESSAGES)]
            # Lucky ways through are rare by chance, so they stand here more than once.
            lucky = {S.HELLO: Flushed(), S.AWAIT_ACCEPT: ACCEPT, S.AWAIT_FORMED: FORMED}
            found += [partial(self._receive, lucky[s]) for s in [state] * 40 if s in lucky]
        if self.session.next_timer is not None:
            found.append(self.pass_time)
        for slot in sorted(ctx.unreported):
            found += self._child_moves(slot)
        return found

    def _connect(self) -> None:
        self.dialing, self.linked = False, True
        self.give(Connected(peer="c"))

    def _fail(self) -> None:
        self.dialing = False
        self.give(ConnectFailed(cause="refused"))

    def _receive(self, given: Any) -> None:
        self.give(given)

    def _child_moves(self, slot: int) -> Iterator[Callable[[], Any]]:
        match self.processes[slot]:
            case "starting":
                yield partial(self._child, slot, "running", ChildStarted(slot=slot))
                yield partial(self._child, slot, "gone", ChildFailed(slot=slot, cause="EAGAIN"))
                if self.torn:
                    yield partial(self._child, slot, "stuck", ChildStuck(slot=slot))
            case "running":
                for code in (0, 7, -9):
                    yield partial(self._child, slot, "ended", ChildExited(slot=slot, code=code))
                if self.torn:
                    yield partial(self._child, slot, "stuck", ChildStuck(slot=slot))
            case "ended":
                yield partial(self._child, slot, "gone", ChildDrained(slot=slot))

    def _child(self, slot: int, phase: str, given: Any) -> None:
        self.processes[slot] = phase
        self.give(given)

    def samples(self) -> Iterator[Any]:
        """One of every input that can be given in some state, and all that can be in this one."""
        yield from (Start(), Connected(peer="c"), ConnectFailed(cause="refused"))
        yield from (*LINK, *MESSAGES)
        yield StopRequested(reason="SIGTERM", number=15)
        yield HelperDied(cause="killed")
        yield from (Expired(timer=timer) for timer in self.session._timers or [Timer.REDIAL])
        slots = sorted(self.session.context.unreported) or [0]
        for slot in slots:
            yield ChildStarted(slot=slot)
            yield ChildFailed(slot=slot, cause="EAGAIN", not_found=bool(slot))
            yield from (ChildExited(slot=slot, code=code) for code in (0, 7))
            yield ChildStuck(slot=slot)
            if self.processes.get(slot, "ended") in ("ended", "gone"):
                yield ChildDrained(slot=slot)

    def check_all(self) -> set[tuple[Any, type]]:
        """Hold every input against the table where the machine now is; the pairs that were."""
        session, seen = self.session, set()
        for given in self.samples():
            check(AGENT, session.state, session.context, given, self.now)
            seen.add((session.state, type(given)))
        return seen


def world(plan: Plan = PLANS[0]) -> World:
    return World(Session(AGENT, AgentContext(plan=plan)))


WAY: tuple[Any, ...] = (Start(), Connected(peer="c"), Flushed(), ACCEPT, FORMED)
"""Straight to a world that runs."""


def walked(*inputs: Any, plan: Plan = PLANS[0]) -> World:
    it = world(plan)
    for given in inputs:
        if isinstance(given, Connected):
            it._connect()
        elif isinstance(given, ConnectFailed):
            it._fail()
        elif hasattr(given, "slot"):
            phases = {ChildStarted: "running", ChildExited: "ended"}
            it._child(given.slot, phases.get(type(given), "gone"), given)
        else:
            it.give(given)
    return it


STARTED = [ChildStarted(slot=slot) for slot in range(3)]
ENDED = [ChildExited(slot=slot, code=0) for slot in range(3)]
DRAINED = [ChildDrained(slot=slot) for slot in range(3)]

BEGINNINGS = st.sampled_from([(), (*WAY,), (*WAY, *STARTED)])
"""Where a walk begins: by chance alone, few get as far as a world that runs."""


def test_every_cell_of_the_table() -> None:
    ways: list[tuple[Any, ...]] = [WAY[:length] for length in range(len(WAY) + 1)]
    ways += [(*WAY, STARTED[0], ENDED[0]), (*WAY, *STARTED, *ENDED, *DRAINED)]
    ways += [(Start(), StopRequested(reason="SIGINT", number=2))]
    seen = set().union(*(walked(*way).check_all() for way in ways))
    assert seen == {(state, on) for state in AGENT.states for on in AGENT.inputs}


@pytest.mark.slow
@examples(BEGINNINGS, st.sampled_from(PLANS), st.lists(st.integers(0, 10**6), max_size=30))
def test_every_cell_from_wherever_it_can_be_reached(
    way: tuple[Any, ...], plan: Plan, choices: list[int]
) -> None:
    it = walked(*way, plan=plan)
    for choice in choices:
        moves = it.moves()
        moves[choice % len(moves)]()
    it.check_all()


@examples(BEGINNINGS, st.sampled_from(PLANS), st.lists(st.integers(0, 10**6), max_size=60))
def test_what_holds_on_every_way(way: tuple[Any, ...], plan: Plan, choices: list[int]) -> None:
    it = walked(*way, plan=plan)
    for choice in choices:
        if it.session.final:
            break
        moves = it.moves()
        moves[choice % len(moves)]()
    end(it)


def end(it: World) -> None:
    """Whatever has happened, an agent that is told to stop ends when its children do."""
    if it.session.final:
        return
    it.give(StopRequested(reason="SIGTERM", number=15))
    while not it.session.final:
        slot = min(it.session.context.unreported)
        phase = it.processes[slot]
        given, after = {
            "starting": (ChildStarted(slot=slot), "running"),
            "running": (ChildExited(slot=slot, code=-15), "ended"),
            "ended": (ChildDrained(slot=slot), "gone"),
        }[phase]
        it._child(slot, after, given)


class TestTheWaysThrough:
    def test_a_run_that_ends_well(self) -> None:
        it = walked(*WAY, *STARTED, *ENDED, *DRAINED)
        assert at(it.session, S.DONE)
        assert it.finished == [None]

    def test_ranks_that_end_while_others_are_started(self) -> None:
        it = walked(*WAY, STARTED[0], STARTED[1], ENDED[1], DRAINED[1])
        assert at(it.session, S.SUPERVISING)
        assert sorted(it.processes) == [0, 1, 2]
        assert it.reports == {2: 1}

    @pytest.mark.parametrize(
        ("given", "error"),
        [
            (Abort(reason="why"), Aborted),
            (EndOfStream(), LinkLost),
            (LinkBroken(cause="reset"), LinkLost),
            (undecodable(Stage.TAG), LinkLost),
            (ChildExited(slot=0, code=1), RelayDied),
            (HelperDied(cause="killed"), HelperLost),
        ],
    )
    def test_a_host_that_is_torn_down(self, given: Any, error: type[Exception]) -> None:
        it = walked(*WAY, *STARTED, given)
        assert at(it.session, S.SUPERVISING)  # until everything is reaped
        assert it.torn
        end(it)
        assert at(it.session, S.ABORTED)
        assert isinstance(it.finished[0], error)

    def test_a_stop_between_two_spawns(self) -> None:
        it = walked(*WAY, STARTED[0], StopRequested(reason="SIGTERM", number=15), STARTED[1])
        failed = ChildFailed(slot=2, cause="the host is being torn down")
        it._child(2, "gone", failed)
        end(it)
        assert str(it.finished[0]) == "stopped by SIGTERM"
