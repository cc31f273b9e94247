"""What becomes of a world that has formed, or of what is left of one that has not."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from joinproto import effects as fx
from joinproto.inputs import MemberLost, RankReported
from joinproto.machines.window.context import (
    End,
    Loss,
    Member,
    Outcome,
    WindowContext,
    without_link,
)
from joinproto.machines.window.forming import give_up
from joinproto.record import replace


def nothing(ctx: WindowContext, given: Any, now: float) -> Outcome:
    return ctx, ()


# -- ranks ------------------------------------------------------------------------------------


def known(ctx: WindowContext, given: RankReported, now: float) -> bool:
    """Whether this report says nothing new: of no rank of this world, or of one that has ended."""
    return not 0 <= given.rank < ctx.world_size or given.rank in ctx.ends


def take_down(ctx: WindowContext, given: RankReported, now: float) -> Outcome:
    end = End(code=given.code, at=ctx.since_opened(now))
    ctx = replace(
        ctx,
        ends=MappingProxyType(ctx.ends | {given.rank: end}),
        failed_ranks=ctx.failed_ranks + (given.code != 0),
    )
    return ctx, (fx.RankEnded(rank=given.rank, code=given.code),)


def _too_many(ctx: WindowContext, more: int) -> bool:
    most = ctx.config.max_failures
    return most is not None and more > 0 and ctx.failed_ranks + more > most


def report_ends_run(ctx: WindowContext, given: RankReported, now: float) -> bool:
    # With a link standing, its end is waited for.
    if ctx.places or known(ctx, given, now):
        return False
    return ctx.failure is not None or not _local_ranks_run(ctx, but=given.rank)


def report_too_bad(ctx: WindowContext, given: RankReported, now: float) -> bool:
    return not known(ctx, given, now) and _too_many(ctx, int(given.code != 0))


def report_too_bad_alone(ctx: WindowContext, given: RankReported, now: float) -> bool:
    # Local hosts' links may have ended while their ranks ran: nobody is left to wait for.
    return not ctx.places and report_too_bad(ctx, given, now)


def end_with_report(ctx: WindowContext, given: RankReported, now: float) -> Outcome:
    ctx, effects = take_down(ctx, given, now)
    return ctx, (*effects, fx.RunEnded())


def give_up_on_report(ctx: WindowContext, given: RankReported, now: float) -> Outcome:
    ctx, effects = take_down(ctx, given, now)
    how = f"signal {-given.code}" if given.code < 0 else f"code {given.code}"
    ctx, more = _give_up_on_failures(ctx, f"rank {given.rank} ended with {how}", now)
    return ctx, (*effects, *more)


def fail_on_report(ctx: WindowContext, given: RankReported, now: float) -> Outcome:
    ctx, effects = give_up_on_report(ctx, given, now)
    return ctx, (*effects, fx.RunEnded())


def _give_up_on_failures(ctx: WindowContext, last: str, now: float) -> Outcome:
    most = ctx.config.max_failures
    count = f"; {ctx.failed_ranks} rank(s) failed, more than {most}" if most else ""
    return give_up(ctx, f"{last}{count}", now)


# -- links ------------------------------------------------------------------------------------


def _local_ranks_run(ctx: WindowContext, but: int | None = None) -> bool:
    """Whether the caller has yet to tell the end of a local host's rank, other than `but`."""
    local = ctx.config.local_hosts
    return bool(local) and any(
        rank not in ctx.ends and rank != but
        for member in ctx.members
        if member.host in local
        for rank in member.ranks
    )


def _running(ctx: WindowContext, member: Member) -> int:
    """Ranks that are lost when this member's link ends."""
    if not ctx.formed or member.host in ctx.config.local_hosts:
        return 0
    return sum(rank not in ctx.ends for rank in member.ranks)


def link_ended(ctx: WindowContext, given: MemberLost, now: float) -> Outcome:
    """A member's link after formation: kept in the list, with what its end means."""
    member = ctx.member(given.connection)
    if member is None:
        return ctx, ()
    running = _running(ctx, member)
    ctx = without_link(ctx, given.connection, now)
    if running:
        loss = Loss(cause=given.cause, at=ctx.since_opened(now))
        ctx = replace(
            ctx,
            lost=MappingProxyType(ctx.lost | {member.host: loss}),
            failed_ranks=ctx.failed_ranks + running,
        )
    return ctx, ()


# The conditions count, and build no context that may not come to be.


def _is_last_link(ctx: WindowContext, given: MemberLost) -> bool:
    return len(ctx.places) == 1 and given.connection in ctx.places


def link_ends_run(ctx: WindowContext, given: MemberLost, now: float) -> bool:
    last = _is_last_link(ctx, given)
    return last and (ctx.failure is not None or not _local_ranks_run(ctx))


def link_too_bad(ctx: WindowContext, given: MemberLost, now: float) -> bool:
    member = ctx.member(given.connection)
    return member is not None and _too_many(ctx, _running(ctx, member))


def link_too_bad_alone(ctx: WindowContext, given: MemberLost, now: float) -> bool:
    return _is_last_link(ctx, given) and link_too_bad(ctx, given, now)


def end_with_link(ctx: WindowContext, given: MemberLost, now: float) -> Outcome:
    ctx, _ = link_ended(ctx, given, now)
    return ctx, (fx.RunEnded(),)


def give_up_on_link(ctx: WindowContext, given: MemberLost, now: float) -> Outcome:
    host = _name(ctx.member(given.connection))
    ctx, _ = link_ended(ctx, given, now)
    return _give_up_on_failures(ctx, f"host {host} was lost: {given.cause}", now)


def fail_on_link(ctx: WindowContext, given: MemberLost, now: float) -> Outcome:
    ctx, effects = give_up_on_link(ctx, given, now)
    return ctx, (*effects, fx.RunEnded())


def _name(member: Member | None) -> str:
    return "?" if member is None else repr(member.host)
