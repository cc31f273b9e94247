"""One child process: wanted, there and read are three things, and its end is told once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from joinproto import effects as fx
from joinproto.inputs import (
    ChildExited,
    ChildFailed,
    ChildStarted,
    Expired,
    KillChild,
    OutputEnded,
    StopChild,
)
from joinproto.limits import Timer
from joinproto.machines.child import CHILD, ChildContext, ChildState
from joinproto.session import Session
from tests.support.machines import at, check

S = ChildState
NOW = 100.0
STARTED = ChildStarted(slot=3)
STOP = StopChild(deadline=NOW + 5)


def child(*inputs: Any, scale: float = 1.0) -> Session[ChildContext]:
    """The child in slot 3, after these."""
    session = Session(CHILD, ChildContext(slot=3, scale=scale))
    for given in inputs:
        session.step(given, NOW)
    return session


def exited(code: int) -> ChildExited:
    return ChildExited(slot=3, code=code)


class TestEnding:
    def test_its_exit_is_told_at_once_and_its_output_waited_for(self) -> None:
        it = child(STARTED)
        assert it.step(exited(3), NOW) == [fx.TellExited(code=3)]
        assert at(it, S.DRAINING)
        assert it.step(OutputEnded(), NOW) == [fx.TellDrained()]
        assert at(it, S.GONE)

    def test_output_may_end_first(self) -> None:
        it = child(STARTED, OutputEnded())
        assert at(it, S.RUNNING)
        assert it.step(exited(0), NOW) == [fx.TellExited(code=0), fx.TellDrained()]
        assert at(it, S.GONE)

    @pytest.mark.parametrize("scale", [1.0, 0.5])
    def test_a_grandchild_that_holds_the_pipe_is_waited_for_no_longer_than_the_bound(
        self, scale: float
    ) -> None:
        it = child(STARTED, exited(3), scale=scale)
        assert it.next_timer == NOW + 2 * scale
        assert it.expire(NOW + 2 * scale) == [fx.TellDrained()]
        assert at(it, S.GONE)
        assert it.step(OutputEnded(), NOW + 600) == []  # at last; nobody waits for it any more

    def test_one_that_never_started_has_nothing_to_tell(self) -> None:
        it = child()
        assert it.step(ChildFailed(slot=3, cause="EAGAIN"), NOW) == []
        assert at(it, S.GONE)

    @pytest.mark.parametrize("given", [STOP, KillChild()])
    @pytest.mark.parametrize("way", [(exited(0),), (exited(0), OutputEnded())])
    def test_one_that_is_reaped_is_never_signalled(self, way: tuple[Any, ...], given: Any) -> None:
        it = child(STARTED, *way)
        before = it.state
        assert it.step(given, NOW) == []
        assert it.state is before


class TestStopping:
    def test_politely_first_and_by_force_at_the_deadline(self) -> None:
        it = child(STARTED)
        assert it.step(STOP, NOW) == [fx.Terminate(slot=3)]
        assert it.next_timer == NOW + 5
        assert it.expire(NOW + 4.9) == []
        assert it.expire(NOW + 5) == [fx.Kill(slot=3)]
        assert at(it, S.KILLING)

    def test_one_that_obeys_is_not_killed(self) -> None:
        it = child(STARTED, STOP)
        assert it.step(exited(-15), NOW + 1) == [fx.TellExited(code=-15)]
        assert it.next_timer == NOW + 1 + 2  # what is left to wait for is its output
        assert fx.Kill(slot=3) not in it.expire(NOW + 600)

    def test_the_deadline_is_everybodys_and_is_not_moved(self) -> None:
        it = child(STARTED, STOP)
        assert it.step(StopChild(deadline=NOW + 50), NOW) == []
        assert it.next_timer == NOW + 5

    @pytest.mark.parametrize("way", [(STARTED,), (STARTED, STOP)])
    def test_it_can_be_killed_at_once(self, way: tuple[Any, ...]) -> None:
        it = child(*way)
        assert it.step(KillChild(), NOW) == [fx.Kill(slot=3)]
        assert at(it, S.KILLING)
        assert it.next_timer == NOW + 10  # the grace is over

    def test_what_survives_a_kill_is_told_after_a_bounded_wait(self) -> None:
        it = child(STARTED, KillChild())
        assert it.expire(NOW + 9.9) == []
        assert it.expire(NOW + 10) == [fx.TellStuck()]
        assert at(it, S.STUCK)
        for given in (exited(-9), OutputEnded(), STOP, KillChild()):
            assert it.step(given, NOW + 20) == []

    def test_one_that_dies_of_it_ends_like_any_other(self) -> None:
        it = child(STARTED, STOP, KillChild())
        assert it.step(exited(-9), NOW) == [fx.TellExited(code=-9)]
        assert it.step(OutputEnded(), NOW) == [fx.TellDrained()]

    @pytest.mark.parametrize("way", [(STARTED, STOP), (STARTED, KillChild())])
    def test_output_that_ends_meanwhile_is_remembered(self, way: tuple[Any, ...]) -> None:
        it = child(*way, OutputEnded())
        assert it.step(exited(-9), NOW) == [fx.TellExited(code=-9), fx.TellDrained()]

    def test_it_is_killed_once_however_often_that_is_asked(self) -> None:
        it = child(STARTED, KillChild())
        assert it.step(KillChild(), NOW + 1) == it.step(STOP, NOW + 1) == []
        assert it.next_timer == NOW + 10


class TestWhileItStarts:
    """What is no program yet hears no SIGTERM, and may hang; SIGKILL ends it all the same."""

    def test_a_stop_takes_effect_when_it_has_started(self) -> None:
        it = child()
        assert it.step(STOP, NOW) == []
        assert at(it, S.STARTING)
        assert it.step(STARTED, NOW + 1) == [fx.Terminate(slot=3)]
        assert (it.state, it.next_timer) == (S.STOPPING, NOW + 5)

    def test_one_that_does_not_get_there_is_killed_at_the_deadline(self) -> None:
        it = child(STOP)
        assert it.expire(NOW + 5) == [fx.Kill(slot=3)]
        assert at(it, S.KILLING)

    @pytest.mark.parametrize("way", [(), (STOP,)])
    def test_it_can_be_killed_at_once(self, way: tuple[Any, ...]) -> None:
        it = child(*way)
        assert it.step(KillChild(), NOW) == [fx.Kill(slot=3)]
        assert at(it, S.KILLING)
        assert it.next_timer == NOW + 10

    def test_a_start_that_is_told_behind_the_kill_changes_nothing(self) -> None:
        it = child(KillChild())
        assert it.step(STARTED, NOW + 1) == []
        assert it.next_timer == NOW + 10
        assert it.step(exited(-9), NOW + 1) == [fx.TellExited(code=-9)]

    @pytest.mark.parametrize("way", [(STOP,), (KillChild(),), (STOP, KillChild())])
    def test_one_that_was_to_end_and_never_started_is_gone(self, way: tuple[Any, ...]) -> None:
        it = child(*way, ChildFailed(slot=3, cause="torn down"))
        assert at(it, S.GONE)
        assert it.next_timer is None

    @pytest.mark.parametrize("late", [STARTED, ChildFailed(slot=3, cause="EIO")])
    def test_one_that_survives_a_kill_is_told_and_then_left(self, late: Any) -> None:
        it = child(KillChild())
        assert it.expire(NOW + 10) == [fx.TellStuck()]
        assert it.step(late, NOW + 20) == []
        assert at(it, S.STUCK)


# -- every way --------------------------------------------------------------------------------


class World:
    """A child's machine, and around it what only ever does what can happen."""

    def __init__(self) -> None:
        self.session = child()
        self.now = NOW
        self.phase = "starting"
        self.reading = True
        self.log: list[Any] = []

    def moves(self) -> Iterator[Callable[[], None]]:
        yield partial(self.give, StopChild(deadline=self.now + 5))
        yield partial(self.give, KillChild())
        if self.session.next_timer is not None:
            yield self.wait
        if self.phase == "starting":
            yield partial(self.become, "running", STARTED)
            yield partial(self.become, "gone", ChildFailed(slot=3, cause="EAGAIN"))
        if self.phase == "running":
            yield partial(self.become, "gone", exited(1))
        if self.reading and self.phase != "starting":
            yield self.end_output

    def give(self, given: Any) -> None:
        self.note(self.session.step(given, self.now))

    def become(self, phase: str, given: Any) -> None:
        self.phase = phase
        self.give(given)

    def end_output(self) -> None:
        self.reading = False
        self.give(OutputEnded())

    def wait(self) -> None:
        assert self.session.next_timer is not None
        self.now = max(self.now, self.session.next_timer)
        self.note(self.session.expire(self.now))

    def note(self, effects: list[Any]) -> None:
        for effect in effects:
            if isinstance(effect, fx.Terminate):
                assert self.phase == "running", "a word to what hears none"
            if isinstance(effect, fx.Kill):
                assert self.phase != "gone", "a signal to what is not there"
        self.log += effects
        names = [type(effect).__name__ for effect in self.log]
        assert all(names.count(name) <= 1 for name in names), names
        order = ["Terminate", "Kill", "TellExited", "TellDrained"]
        assert [n for n in names if n in order] == [n for n in order if n in names]
        assert not ("TellStuck" in names and "TellDrained" in names)

    def samples(self) -> Iterator[Any]:
        yield from (STARTED, ChildFailed(slot=3, cause=""), exited(0), OutputEnded())
        yield from (StopChild(deadline=self.now + 1), KillChild())
        yield from (Expired(timer=timer) for timer in self.session._timers or [Timer.GRACE])

    def check_all(self) -> set[tuple[Any, type]]:
        session = self.session
        for given in self.samples():
            check(CHILD, session.state, session.context, given, self.now)
        return {(session.state, on) for on in map(type, self.samples())}


@examples(st.lists(st.integers(0, 10**6), max_size=12))
def test_what_holds_on_every_way(choices: list[int]) -> None:
    world = World()
    for choice in choices:
        moves = list(world.moves())
        moves[choice % len(moves)]()
    world.check_all()
    # Whatever has happened, one that is killed and reaped ends, and that is told.
    world.give(KillChild())
    if world.phase == "starting":
        world.become("running", STARTED)
    if world.phase == "running":
        world.become("gone", exited(-9))
    while world.session.next_timer is not None:
        world.wait()
    assert world.session.final


def test_every_cell_of_the_table() -> None:
    to = {
        S.STARTING: (),
        S.RUNNING: (STARTED,),
        S.STOPPING: (STARTED, STOP),
        S.KILLING: (STARTED, KillChild()),
        S.DRAINING: (STARTED, exited(0)),
        S.GONE: (STARTED, OutputEnded(), exited(0)),
    }
    seen = set()
    for state, way in to.items():
        world = World()
        world.session = child(*way)
        assert world.session.state is state
        seen |= world.check_all()
    world.session = child(STARTED, KillChild())
    world.session.expire(NOW + 10)
    seen |= world.check_all()
    assert seen == {(state, on) for state in CHILD.states for on in CHILD.inputs}
