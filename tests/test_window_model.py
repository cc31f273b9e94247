"""A model check: every order of everything that can happen to a small world.

Three hosts dial, each is lost at any time, deadlines pass, the operator gives the start, ranks end:
all of it in every order, breadth first, until no new situation comes up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from joinproto import effects as fx
from joinproto.inputs import Expired, MemberLost, Offered, RankReported, Settled, Start, StartGiven
from joinproto.limits import Timer
from joinproto.machines.window import (
    WINDOW,
    StartMode,
    WindowConfig,
    WindowContext,
    WindowState,
)
from joinproto.record import Record, replace
from tests.support.window import STOP, hello

HOSTS = {"a": 1, "b": 2, "c": 1}
OPEN = (WindowState.WAITING, WindowState.OVERTIME)


class Situation(Record):
    """A window, and what those around it have seen.

    Attributes:
        state: where the window is.
        context: what it knows.
        standing: host → the ranks it was told, of those whose link stands.
        unsettled: the window asked to be come back to.
        told: Abort was said to everybody.
        formed: how often it formed.
        ended: how often it was over.
    """

    state: WindowState
    context: WindowContext
    standing: tuple[tuple[str, tuple[int, ...]], ...] = ()
    unsettled: bool = False
    told: bool = False
    formed: int = 0
    ended: int = 0


def connection(host: str) -> int:
    return 1 + list(HOSTS).index(host)


def inputs(at: Situation) -> Iterator[Any]:
    """Everything that can happen next."""
    if at.unsettled:
        yield Settled()
    standing = dict(at.standing)
    for host, devices in HOSTS.items():
        if host not in standing:
            yield Offered(connection=connection(host), hello=hello(host, devices), wire=2)
        else:
            yield MemberLost(connection=connection(host), cause="reset")
    if at.state is WindowState.WAITING:
        yield Expired(timer=Timer.WINDOW)
    if at.state is WindowState.OVERTIME:
        yield Expired(timer=Timer.CAP)
    yield StartGiven(by="here")
    if at.context.formed:
        for _, ranks in at.standing:
            yield from (RankReported(connection=None, rank=rank, code=1) for rank in ranks)
    yield STOP


def after(at: Situation, given: Any) -> Situation:
    """The situation once this has happened and everything the window wanted is done."""
    model = SimpleNamespace(state=at.state, context=at.context)
    done = WINDOW.step(model, given, 0.0)
    standing = dict(at.standing)
    if isinstance(given, MemberLost):
        del standing[list(HOSTS)[given.connection - 1]]
    unsettled = at.unsettled and not isinstance(given, Settled)
    now = replace(at, state=model.state, context=model.context, unsettled=unsettled)
    for effect in done:
        match effect:
            case fx.AdmitHost(connection=number, ranks=ranks):
                standing[list(HOSTS)[number - 1]] = ranks
            case fx.Settle():
                now = replace(now, unsettled=True)
            case fx.FormWorld():
                check_formed(model.context, standing)
                now = replace(now, formed=now.formed + 1)
            case fx.AbortAll():
                assert not now.told
                now = replace(now, told=True)
            case fx.RunEnded():
                now = replace(now, ended=now.ended + 1)
    return replace(now, standing=tuple(sorted(standing.items())))


def check_formed(context: WindowContext, standing: dict[str, tuple[int, ...]]) -> None:
    ranks = sorted(rank for given in standing.values() for rank in given)
    assert ranks == list(range(len(ranks))), "a world with a hole, or a rank twice"
    assert len(ranks) >= context.config.min_ranks, "a world without quorum"
    assert len(ranks) == context.world_size


def check(at: Situation) -> None:
    given = [rank for _, ranks in at.standing for rank in ranks]
    assert len(set(given)) == len(given), "a rank was given twice"
    assert at.formed <= 1
    assert at.formed == at.context.formed
    assert at.ended == (at.state in WINDOW.final) <= 1
    assert at.told == (at.context.failure is not None)
    if at.ended:
        assert not at.standing, "somebody was never told the end"
    if at.state in OPEN and not at.unsettled and not at.context.armed:
        assert not at.context.complete, "a complete world is left waiting"


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        {"min_ranks": 2},
        {"min_ranks": 2, "target_ranks": 3},
        {"min_ranks": 3, "start_mode": StartMode.MANUAL},
        {"min_ranks": 2, "target_ranks": 4, "start_mode": StartMode.HYBRID, "max_failures": 0},
    ],
    ids=["quorum", "target", "manual", "hybrid"],
)
def test_every_order_of_everything(config: dict[str, Any]) -> None:
    model = SimpleNamespace(
        state=WINDOW.initial, context=WindowContext(config=WindowConfig(**config))
    )
    WINDOW.step(model, Start(), 0.0)
    first = Situation(state=model.state, context=model.context)
    seen, todo = {key(first)}, deque([first])
    reached = set()
    while todo:
        at = todo.popleft()
        check(at)
        reached.add(at.state)
        for given in inputs(at):
            then = after(at, given)
            if (name := key(then)) not in seen:
                seen.add(name)
                todo.append(then)
    assert reached == set(WindowState)


def key(at: Situation) -> tuple[Any, ...]:
    """What tells one situation from another, times and the order of reports left out."""
    context = at.context
    members = tuple((m.host, m.ranks, m.connection is None) for m in context.members)
    return (
        *(at.state, at.standing, at.unsettled, at.told, at.formed, at.ended, members),
        *(frozenset(context.ends), frozenset(context.lost), context.armed),
    )
