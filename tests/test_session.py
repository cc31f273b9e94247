"""session: a running machine keeps its deadlines, on the caller's clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from joinproto.effects import ClearTimer, SetTimer
from joinproto.errors import IllegalInput
from joinproto.inputs import Expired, Start
from joinproto.limits import Timer
from joinproto.session import Session
from joinproto.table import Rule, Table


class State(Enum):
    RUNNING = "Running"
    OVER = "Over"


@dataclass(frozen=True)
class Do:
    """Set these timers (None: clear it)."""

    timers: Mapping[Timer, float | None]


@dataclass(frozen=True)
class End:
    """The last input."""


Outcome = tuple[tuple[Timer, ...], tuple[Any, ...]]


def do(ctx: tuple[Timer, ...], given: Do, now: float) -> Outcome:
    effects = [
        ClearTimer(timer=timer) if at is None else SetTimer(timer=timer, at=at)
        for timer, at in given.timers.items()
    ]
    return ctx, ("before", *effects, "behind")


def expire(ctx: tuple[Timer, ...], given: Expired, now: float) -> Outcome:
    # A redial begins anew, as an agent's does.
    again = [SetTimer(timer=Timer.REDIAL, at=now + 1)] if given.timer is Timer.REDIAL else []
    return (*ctx, given.timer), (given.timer, *again)


def end(ctx: tuple[Timer, ...], given: End, now: float) -> Outcome:
    return ctx, (SetTimer(timer=Timer.GRACE, at=now), "over")


TABLE = Table[tuple[Timer, ...]](
    "clockwork",
    states=State,
    initial=State.RUNNING,
    final=(State.OVER,),
    inputs=(Do, End, Expired, Start),
    rules=(
        Rule(source=State.RUNNING, on=Do, target=State.RUNNING, act=do),
        Rule(source=State.RUNNING, on=Expired, target=State.RUNNING, act=expire),
        Rule(source=State.RUNNING, on=End, target=State.OVER, act=end),
    ),
    ignored={State.OVER: (Do, End, Expired, Start)},
    illegal={State.RUNNING: (Start,)},
)


@pytest.fixture
def session() -> Session[tuple[Timer, ...]]:
    return Session(TABLE, ())


def test_it_begins_where_its_table_does(session: Session[Any]) -> None:
    assert session.state is State.RUNNING
    assert not session.final
    assert session.next_timer is None
    assert session.expire(1e9) == []


def test_timers_are_kept_and_the_other_effects_handed_on(session: Session[Any]) -> None:
    effects = session.step(Do({Timer.REPLY: 30.0, Timer.WRITE: 10.0}), 0.0)
    assert effects == ["before", "behind"]
    assert session.next_timer == 10.0


def test_a_timer_that_is_set_again_has_moved(session: Session[Any]) -> None:
    session.step(Do({Timer.REPLY: 30.0}), 0.0)
    session.step(Do({Timer.REPLY: 50.0}), 0.0)
    assert session.next_timer == 50.0
    assert session.expire(49.9) == []


def test_a_timer_that_is_cleared_never_expires(session: Session[Any]) -> None:
    session.step(Do({Timer.REPLY: 30.0}), 0.0)
    session.step(Do({Timer.REPLY: None, Timer.WRITE: None}), 0.0)  # clearing what is not set
    assert session.next_timer is None
    assert session.expire(100.0) == []


def test_a_timer_expires_at_its_time_and_once(session: Session[Any]) -> None:
    session.step(Do({Timer.REPLY: 30.0}), 0.0)
    assert session.expire(29.999) == []
    assert session.expire(30.0) == [Timer.REPLY]
    assert session.next_timer is None
    assert session.expire(31.0) == []


def test_timers_expire_the_earliest_first(session: Session[Any]) -> None:
    session.step(Do({Timer.REPLY: 3.0, Timer.WRITE: 1.0, Timer.GRACE: 2.0, Timer.KILL: 9.0}), 0.0)
    assert session.expire(5.0) == [Timer.WRITE, Timer.GRACE, Timer.REPLY]
    assert session.next_timer == 9.0


def test_timers_of_one_moment_expire_in_the_order_in_which_they_were_set(
    session: Session[Any],
) -> None:
    session.step(Do({Timer.WINDOW: 5.0, Timer.CAP: 5.0}), 0.0)
    assert session.expire(5.0) == [Timer.WINDOW, Timer.CAP]


def test_a_timer_that_is_set_by_its_own_expiry_waits_for_its_time(session: Session[Any]) -> None:
    session.step(Do({Timer.REDIAL: 1.0}), 0.0)
    assert session.expire(1.5) == [Timer.REDIAL]
    assert session.next_timer == 2.5


def test_an_end_forgets_every_timer(session: Session[Any]) -> None:
    session.step(Do({Timer.REPLY: 30.0}), 0.0)
    assert session.step(End(), 5.0) == ["over"]
    assert session.final
    assert session.next_timer is None
    assert session.expire(1e9) == []


def test_what_cannot_happen_leaves_the_timers(session: Session[Any]) -> None:
    session.step(Do({Timer.REPLY: 30.0}), 0.0)
    with pytest.raises(IllegalInput, match="clockwork machine: Start cannot happen in state Run"):
        session.step(Start(), 1.0)
    assert session.next_timer == 30.0


TIMERS = st.sampled_from([timer for timer in Timer if timer is not Timer.REDIAL])
PLANS = st.dictionaries(TIMERS, st.none() | st.integers(0, 20).map(float), max_size=4)


@examples(st.lists(st.tuples(PLANS, st.integers(0, 5)), max_size=8))
def test_every_deadline_is_met_in_order_and_none_before_its_time(
    plans: list[tuple[dict[Timer, float | None], int]],
) -> None:
    session: Session[tuple[Timer, ...]] = Session(TABLE, ())
    due: dict[Timer, float] = {}
    now = 0.0
    for timers, passes in plans:
        session.step(Do(timers), now)
        due |= {timer: at for timer, at in timers.items() if at is not None}
        due = {timer: at for timer, at in due.items() if timers.get(timer, at) is not None}
        assert session.next_timer == min(due.values(), default=None)
        now += passes
        met = session.expire(now)
        assert sorted(met) == sorted(timer for timer, at in due.items() if at <= now)
        assert [due[timer] for timer in met] == sorted(due[timer] for timer in met)
        due = {timer: at for timer, at in due.items() if at > now}
