"""Faults of an agent from the world's formation on, those of its reports included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from joinproto import effects as fx
from joinproto.errors import Stage, Stopped
from joinproto.inputs import (
    ChildDrained,
    EndOfStream,
    LinkBroken,
    StopRequested,
    Undecodable,
)
from joinproto.machines.agent import AGENT, supervising
from joinproto.machines.agent import AgentState as S
from joinproto.machines.agent.context import AgentContext
from joinproto.messages import Abort, RankExited, WorldFormed
from joinproto.record import replace
from tests.support.mutants.agent_joining import Effects, said
from tests.support.mutants.changes import (
    Act,
    Change,
    acting,
    after,
    asking,
    cell,
    nothing,
    put,
    together,
    without,
)


def _report(edit: Callable[[Any, RankExited], Any]) -> Change:
    """Reports said otherwise."""
    return _drained(said(edit))


def _drained(edit: Callable[..., Effects]) -> Change:
    """What is done when a child is through, in all three rows of it."""
    changed = after(supervising.child_drained, edit)
    return together(
        put(supervising, "child_drained", changed),
        acting(AGENT, supervising.child_drained, changed),
    )


def _code(by: Callable[[int], int]) -> Change:
    return _report(lambda ctx, message: RankExited(rank=message.rank, code=by(message.code)))


def _one_rank(ctx: Any, given: WorldFormed, now: float) -> Any:
    """Relay and first rank alone."""
    ctx, effects = supervising.formed(ctx, given, now)
    slots = frozenset(range(ctx.relays + 1))
    started = tuple(
        each for each in effects if not isinstance(each, fx.Spawn) or each.slot in slots
    )
    return replace(ctx, alive=slots, unreported=slots), started


def _all_at_the_end(ctx: Any, given: ChildDrained, now: float, effects: Effects) -> Effects:
    if ctx.unreported or not ctx.link:
        return ()
    ranks = [(ctx.rank_of(slot), code) for slot, code in ctx.codes]
    return tuple(
        fx.Send(message=RankExited(rank=rank, code=code))
        for rank, code in ranks
        if rank is not None
    )


def _for_relay(ctx: Any, given: ChildDrained, now: float, effects: Effects) -> Effects:
    if ctx.rank_of(given.slot) is None and ctx.link:
        code = dict(ctx.codes)[given.slot]
        return (fx.Send(message=RankExited(rank=ctx.ranks[0], code=code)),)
    return effects


def _failed_rank(ctx: Any, given: Any, now: float) -> Any:
    """A rank that fails takes the others along."""
    ctx, effects = supervising.child_exited(ctx, given, now)
    if given.code and ctx.alive:
        ctx, more = supervising._tear_down(ctx, Stopped("rank", 0), now)
        return ctx, (*effects, *more)
    return ctx, effects


def _relay_code(ok: bool) -> Act:
    """The relay's end is judged by another code."""

    def exited(ctx: Any, given: Any, now: float) -> Any:
        if ctx.rank_of(given.slot) is not None:
            return supervising.child_exited(ctx, given, now)
        judged = replace(given, code=0 if ok else 1)
        ctx, effects = supervising.child_exited(ctx, judged, now)
        return ctx, effects

    return exited


def _degraded(ctx: Any, given: Any, now: float) -> Any:
    """Ranks that failed make the agent fail."""
    ctx, effects = supervising.finish_well(ctx, given, now)
    if not ctx.failed_ranks:
        return ctx, effects
    error = Stopped("a rank failed", 0)
    return ctx, (*effects[:-1], fx.Finish(error=error))


def _torn_down_well(ctx: Any, given: Any, now: float) -> Any:
    """A host that was torn down ends as if all were well."""
    ctx, effects = supervising.finish_ill(ctx, given, now)
    return ctx, (*effects[:-1], fx.Finish(error=None))


def _again(ctx: Any, given: WorldFormed, now: float) -> Any:
    """A second WorldFormed tears the host down."""
    return supervising._tear_down(ctx, Stopped("WorldFormed", 0), now)


def _strange(ctx: Any, given: Any, now: float) -> Any:
    """A message but WorldFormed that means nothing tears the host down."""
    if isinstance(given, WorldFormed):
        return supervising.tell_strange(ctx, given, now)
    return _again(ctx, given, now)


def _silent_lost(ctx: Any, given: Any, now: float) -> Any:
    return replace(ctx, link=False), (fx.CloseLink(),)


def _abort_and_go(ctx: Any, given: Abort, now: float) -> Any:
    """After an Abort nothing is reported any more."""
    ctx, effects = supervising.aborted(ctx, given, now)
    return replace(ctx, link=False), effects


def _strict_payload(ctx: Any, given: Undecodable, now: float) -> bool:
    return False


def _any_bytes(ctx: Any, given: Undecodable, now: float) -> bool:
    return given.error.stage in (Stage.PAYLOAD, Stage.TAG)


RUNNING: dict[str, Change] = {
    "reported-twice": _report(lambda ctx, message: (message, message)),
    "reported-late": _drained(_all_at_the_end),
    "relay-reported": _drained(_for_relay),
    "local-number": _report(
        lambda ctx, message: RankExited(rank=ctx.ranks.index(message.rank), code=message.code)
    ),
    "code-minus-one": _code(lambda code: max(code, -1)),
    "code-positive": _code(abs),
    "code-shell": _code(lambda code: 128 - code if code < 0 else code),
    "code-low": _code(lambda code: code - 256 if code > 127 else code),
    "no-relay": put(AgentContext, "relays", property(lambda ctx: 0)),
    "one-rank": acting(AGENT, supervising.formed, _one_rank),
    "formed-again": cell(AGENT, S.SUPERVISING, WorldFormed, (S.SUPERVISING, _again)),
    "strange-fatal": acting(AGENT, supervising.tell_strange, _strange),
    "garbled-fatal": asking(AGENT, supervising.only_payload, _strict_payload),
    "bad-tag-ignored": asking(AGENT, supervising.only_payload, _any_bytes),
    "abort-ignored": cell(AGENT, S.SUPERVISING, Abort),
    "abort-unreported": acting(AGENT, supervising.aborted, _abort_and_go),
    "end-ignored": cell(AGENT, S.SUPERVISING, EndOfStream, (S.SUPERVISING, _silent_lost)),
    "break-ignored": cell(AGENT, S.SUPERVISING, LinkBroken, (S.SUPERVISING, _silent_lost)),
    "relay-death-ignored": acting(AGENT, supervising.child_exited, _relay_code(ok=True)),
    "relay-end-fatal": acting(AGENT, supervising.child_exited, _relay_code(ok=False)),
    "rank-failure-fatal": acting(AGENT, supervising.child_exited, _failed_rank),
    "never-closes": acting(
        AGENT,
        supervising.finish_well,
        without(supervising.finish_well, fx.CloseLink, fx.Finish),
    ),
    "degraded-fatal": acting(AGENT, supervising.finish_well, _degraded),
    "torn-down-well": acting(AGENT, supervising.finish_ill, _torn_down_well),
    "stop-ignored": cell(AGENT, S.SUPERVISING, StopRequested),
    "no-kill": put(supervising, "_force", lambda grace, now: fx.StopChildren(deadline=now + 1000)),
    "no-hurry": acting(AGENT, supervising.hurry, nothing),
    "no-grace": put(supervising, "_force", lambda grace, now: fx.KillChildren()),
}
