"""The join window, and what becomes of the world that it forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from joinproto import effects as fx
from joinproto.inputs import (
    DialTurnedAway,
    Expired,
    MemberLost,
    Offered,
    RankReported,
    Settled,
    Start,
    StartGiven,
)
from joinproto.limits import Timer
from joinproto.machines.window import (
    WINDOW,
    StartMode,
    WindowState,
)
from tests.support.machines import check
from tests.support.window import (
    GIVE_UP,
    SIG,
    STOP,
    Window,
    hello,
)

S = WindowState


# -- every way --------------------------------------------------------------------------------

CONFIGS: list[dict[str, Any]] = [
    {"min_ranks": 2},
    {"min_ranks": 3, "target_ranks": 5},
    {"min_ranks": 4, "target_ranks": 4, "mixed_wires": True},
    {"min_ranks": 2, "target_ranks": 6, "local_hosts": frozenset("ab")},
    {"min_ranks": 3, "join_timeout": 60, "max_join_timeout": 60},
    {"min_ranks": 2, "start_mode": StartMode.MANUAL, "max_failures": 0},
    {"min_ranks": 2, "target_ranks": 5, "start_mode": StartMode.HYBRID, "max_rejected": 2},
    {"min_ranks": 2, "target_ranks": 3, "local_hosts": frozenset("abc"), "max_failures": 1},
]


class World:
    """A window, and around it what only ever does what can happen."""

    def __init__(self, **config: Any) -> None:
        self.window = Window(**config)
        self.connections = 0
        self.standing: dict[int, str] = {}  # connection → host, of those that were admitted
        self.answers: dict[int, str] = {}
        self.formations = self.aborts = self.ends = 0
        self.ranks: dict[int, tuple[int, ...]] = {}

    def moves(self) -> Iterator[Callable[[], None]]:
        for host, devices in (("a", 1), ("b", 1), ("c", 2), ("d", 3), ("e", 2), ("", 1)):
            yield partial(self.offer, host, devices)
        yield partial(self.offer, "f", 1, wire=4)
        yield partial(self.offer, "g", 1, dataset_sig=SIG)
        yield from (partial(self.lose, connection) for connection in self.standing)
        yield from (partial(self.lose, connection) for connection in self.standing)
        if self.window.next_timer is not None:
            yield self.wait
        if self.window.context.formed:
            ranks = sorted(rank for ranks in self.ranks.values() for rank in ranks)
            yield from (partial(self.report, rank) for rank in ranks)
        yield self.stop
        for given in (GIVE_UP, StartGiven(by="here"), DialTurnedAway()):
            yield partial(self.give, given)

    def give(self, given: Any) -> None:
        self.note(self.window.give(given))

    def offer(self, host: str, devices: int, wire: int = 2, **more: Any) -> None:
        self.connections += 1
        before = set(self.answers)
        self.note(self.window.offer(self.connections, host, devices, wire, **more))
        assert set(self.answers) - before == {self.connections}, "an offer has one answer"

    def lose(self, connection: int) -> None:
        del self.standing[connection]
        if not self.window.context.formed:
            del self.ranks[connection]
        self.note(self.window.lose(connection))

    def report(self, rank: int) -> None:
        self.note(self.window.report(rank, 1, connection=None))

    def stop(self) -> None:
        self.note(self.window.give(STOP))

    def wait(self) -> None:
        at = self.window.next_timer
        assert at is not None
        self.note(self.window.wait(at - self.window.now))

    def note(self, effects: list[Any]) -> None:
        for effect in effects:
            match effect:
                case fx.AdmitHost(connection=connection, ranks=ranks):
                    assert not self.window.context.failure
                    self.answers[connection] = "admitted"
                    host = next(m.host for m in self.window.context.members if m.ranks == ranks)
                    assert host not in self.standing.values(), "a host that is in already"
                    self.standing[connection] = host
                    self.ranks[connection] = ranks
                case fx.RefuseHost(connection=connection) | fx.DismissHost(connection=connection):
                    self.answers[connection] = "turned away"
                case fx.FormWorld():
                    self.formations += 1
                    self.check_world()
                case fx.AbortAll():
                    self.aborts += 1
                case fx.RunEnded():
                    self.ends += 1
        self.check()

    def check(self) -> None:
        ctx = self.window.context
        given = [rank for ranks in self.ranks.values() for rank in ranks]
        assert len(set(given)) == len(given), "a rank was given twice"
        assert {m.connection for m in ctx.present} == set(self.standing)
        assert self.formations == ctx.formed <= 1
        assert self.aborts == (ctx.failure is not None) <= 1
        assert self.ends == self.window.final <= 1
        if self.window.final:
            assert not self.standing, "somebody was never told the end"
            assert (self.window.state is S.DONE) == (ctx.failure is None)

    def check_world(self) -> None:
        """At formation: quorum, ranks from 0 without a gap, one version and one data set."""
        ctx, config = self.window.context, self.window.context.config
        ranks = [rank for member in ctx.members for rank in member.ranks]
        assert ranks == list(range(len(ranks)))
        assert sorted(rank for given in self.ranks.values() for rank in given) == ranks
        assert len(ranks) >= config.min_ranks
        assert all(member.connection in self.standing for member in ctx.members)
        for member in ctx.members:
            assert member.connection is not None
            assert self.ranks[member.connection] == member.ranks
        assert len({member.host for member in ctx.members}) == len(ctx.members)
        assert config.mixed_wires or len({member.wire for member in ctx.members}) == 1
        assert len({member.hello.dataset_sig for member in ctx.members}) == 1

    def samples(self) -> Iterator[Any]:
        yield from (Start(), STOP, GIVE_UP, Settled(), StartGiven(by="here"), DialTurnedAway())
        yield from (Expired(timer=t) for t in self.window._timers or [Timer.WINDOW])
        for wire in (2, 4):
            for host, devices in (("a", 1), ("n", 1), ("n", 2), ("n", 9), ("", 1), ("n", 0)):
                offered = hello(host, devices)
                yield Offered(connection=self.connections + 1, hello=offered, wire=wire)
        for connection in self.standing or [99]:
            yield MemberLost(connection=connection, cause="reset")
        for rank in range(4):
            yield RankReported(connection=None, rank=rank, code=0)

    def check_all(self) -> set[tuple[Any, type]]:
        window = self.window
        for given in self.samples():
            check(WINDOW, window.state, window.context, given, window.now)
        return {(window.state, on) for on in map(type, self.samples())}


@examples(st.sampled_from(CONFIGS), st.lists(st.integers(0, 10**6), max_size=40))
def test_what_holds_on_every_way(config: dict[str, Any], choices: list[int]) -> None:
    world = World(**config)
    for choice in choices:
        moves = list(world.moves())
        moves[choice % len(moves)]()
    # Whatever has happened, a run ends when it is stopped and every link has ended.
    world.stop()
    for connection in list(world.standing):
        world.lose(connection)
    assert world.window.final


@pytest.mark.slow
@examples(st.sampled_from(CONFIGS), st.lists(st.integers(0, 10**6), max_size=20))
def test_every_cell_from_wherever_it_can_be_reached(
    config: dict[str, Any], choices: list[int]
) -> None:
    world = World(**config)
    for choice in choices:
        moves = list(world.moves())
        moves[choice % len(moves)]()
    world.check_all()


@examples(
    st.lists(st.tuples(st.booleans(), st.integers(1, 3), st.integers(0, 10)), max_size=20),
    st.integers(1, 8),
)
def test_a_whole_world_of_the_target_is_never_left_waiting(
    events: list[tuple[bool, int, int]], target: int
) -> None:
    world = World(min_ranks=target, target_ranks=target)
    for number, (joins, devices, which) in enumerate(events):
        if joins:
            world.offer(f"h{number}", devices)
        elif world.standing and not world.window.context.formed:
            world.lose(sorted(world.standing)[which % len(world.standing)])
        ctx = world.window.context
        assert ctx.formed == (ctx.whole and ctx.joined_ranks >= target)
        if ctx.formed:
            return


def test_every_cell_of_the_table() -> None:
    seen = set()
    world = World(min_ranks=2, join_timeout=10)
    seen |= world.check_all()  # waiting
    world.wait()
    seen |= world.check_all()  # overtime
    world.stop()
    seen |= world.check_all()  # failed
    for last in (World.stop, lambda world: world.lose(1)):
        world = World(target_ranks=1)
        world.offer("a", 1)
        seen |= world.check_all()  # formed
        last(world)
        seen |= world.check_all()  # ending, done
    assert seen == {(state, on) for state in WINDOW.states for on in WINDOW.inputs}
