"""From a formed world to the last rank's end, or to the tearing down of the host."""

from __future__ import annotations

from typing import Any

from joinproto import effects as fx
from joinproto.effects import Severity
from joinproto.errors import (
    Aborted,
    CommandNotFound,
    HelperLost,
    JoinprotoError,
    LinkLost,
    RelayDied,
    SpawnFailed,
    Stage,
    Stopped,
    Unkillable,
)
from joinproto.inputs import (
    ChildDrained,
    ChildExited,
    ChildFailed,
    ChildStuck,
    EndOfStream,
    HelperDied,
    LinkBroken,
    StopRequested,
    Undecodable,
)
from joinproto.machines.agent.context import AgentContext, Outcome, calm, how_lost, say
from joinproto.messages import Abort, RankExited, WorldFormed
from joinproto.record import replace

# -- supervising ------------------------------------------------------------------------------


def formed(ctx: AgentContext, given: WorldFormed, now: float) -> Outcome:
    ctx = replace(ctx, formed=given)
    slots = range(ctx.children)
    relay = "a relay and " if ctx.relays else ""
    return replace(ctx, alive=frozenset(slots), unreported=frozenset(slots)), (
        *calm(),
        say(f"world formed; starting {relay}{len(ctx.ranks)} rank(s)"),
        *(_spawn(ctx, given, slot) for slot in slots),
    )


def _spawn(ctx: AgentContext, given: WorldFormed, slot: int) -> fx.Spawn:
    rank = ctx.rank_of(slot)
    local = None if rank is None else slot - ctx.relays
    return fx.Spawn(
        slot=slot,
        artifact_hex=given.relay_spec_hex or "" if rank is None else given.envelope_hex,
        rank=rank,
        local_rank=local,
        device=None if local is None else ctx.plan.hello.local_devices[local],
        wire=ctx.version,
    )


def nothing(ctx: AgentContext, given: Any, now: float) -> Outcome:
    return ctx, ()


def _tear_down(ctx: AgentContext, error: JoinprotoError, now: float) -> Outcome:
    """Stop every child, for the first reason that comes; later ones are only told."""
    if ctx.failure is not None:
        return ctx, (say(f"also: {error}", Severity.WARNING),)
    text = f"tearing down host {ctx.plan.hello.host!r}: {error}"
    return replace(ctx, failure=error), (
        say(text, Severity.ERROR),
        _force(ctx.plan.grace, now),
    )


def _force(grace: float, now: float) -> fx.StopChildren | fx.KillChildren:
    return fx.StopChildren(deadline=now + grace) if grace else fx.KillChildren()


def spawn_refused(ctx: AgentContext, given: ChildFailed, now: float) -> Outcome:
    kind = CommandNotFound if given.not_found else SpawnFailed
    error = kind(f"{ctx.name_of(given.slot)} could not be started: {given.cause}")
    gone = frozenset((given.slot,))
    ctx = replace(ctx, alive=ctx.alive - gone, unreported=ctx.unreported - gone)
    if ctx.failure is not None:
        # It was asked for before the tearing down began.
        return ctx, ()
    return _tear_down(ctx, error, now)


def child_exited(ctx: AgentContext, given: ChildExited, now: float) -> Outcome:
    ctx = replace(
        ctx,
        alive=ctx.alive - {given.slot},
        codes=(*ctx.codes, (given.slot, given.code)),
    )
    is_relay = ctx.rank_of(given.slot) is None
    if is_relay and given.code and ctx.alive and ctx.failure is None:
        error = RelayDied(f"the relay ended with {given.code} while {len(ctx.alive)} rank(s) ran")
        return _tear_down(ctx, error, now)
    # What left its rank's group or session has no part in the grace, and may hold the rank's pipe.
    torn_down = ctx.failure is not None and not ctx.alive
    return ctx, (fx.SweepHost(),) if torn_down else ()


def child_drained(ctx: AgentContext, given: ChildDrained, now: float) -> Outcome:
    ctx = replace(ctx, unreported=ctx.unreported - {given.slot})
    rank = ctx.rank_of(given.slot)
    if rank is None or not ctx.link:
        return ctx, ()
    code = dict(ctx.codes)[given.slot]
    return ctx, (fx.Send(message=RankExited(rank=rank, code=code)),)


def child_stuck(ctx: AgentContext, given: ChildStuck, now: float) -> Outcome:
    gone = frozenset((given.slot,))
    ctx = replace(
        ctx,
        alive=ctx.alive - gone,
        unreported=ctx.unreported - gone,
        stuck=ctx.stuck | gone,
    )
    text = f"{ctx.name_of(given.slot)} is still there after SIGKILL; leaving it"
    return ctx, (say(text, Severity.ERROR),)


def last(ctx: AgentContext, given: Any, now: float) -> bool:
    return ctx.unreported == {given.slot}


def last_and_well(ctx: AgentContext, given: ChildDrained, now: float) -> bool:
    return last(ctx, given, now) and ctx.failure is None and not ctx.stuck


def finish_well(ctx: AgentContext, given: ChildDrained, now: float) -> Outcome:
    ctx, effects = child_drained(ctx, given, now)
    done = (*effects, _verdict(ctx), fx.CloseLink(), fx.Finish(error=None))
    return replace(ctx, link=False), done


def _verdict(ctx: AgentContext) -> fx.Tell:
    host = f"host {ctx.plan.hello.host!r}"
    if ctx.failed_ranks:
        text = f"{host} finished DEGRADED: {ctx.failed_ranks} of {len(ctx.ranks)} rank(s) failed"
        return say(text, Severity.WARNING)
    return say(f"{host} finished cleanly")


def finish_ill(
    ctx: AgentContext, given: ChildDrained | ChildStuck | ChildFailed, now: float
) -> Outcome:
    if isinstance(given, ChildDrained):
        ctx, effects = child_drained(ctx, given, now)
    elif isinstance(given, ChildStuck):
        ctx, effects = child_stuck(ctx, given, now)
    else:
        ctx, effects = spawn_refused(ctx, given, now)
    error = ctx.failure
    if ctx.stuck:
        names = ", ".join(ctx.name_of(slot) for slot in sorted(ctx.stuck))
        error = Unkillable(f"{names} of host {ctx.plan.hello.host!r} could not be killed ({error})")
    done = (*effects, fx.CloseLink(), fx.Finish(error=error))
    return replace(ctx, failure=error, link=False), done


# -- a link while ranks run -------------------------------------------------------------------


def running(ctx: AgentContext, given: Any, now: float) -> bool:
    return bool(ctx.alive)


def aborted(ctx: AgentContext, given: Abort, now: float) -> Outcome:
    return _tear_down(ctx, Aborted(given.reason, formed=True), now)


def lost(ctx: AgentContext, given: EndOfStream | LinkBroken, now: float) -> Outcome:
    ctx = replace(ctx, link=False)
    ctx, effects = _tear_down(ctx, LinkLost(f"{how_lost(ctx, given)} while ranks ran"), now)
    return ctx, (fx.CloseLink(), *effects)


def lost_late(ctx: AgentContext, given: EndOfStream | LinkBroken, now: float) -> Outcome:
    return replace(ctx, link=False), (fx.CloseLink(),)


def only_payload(ctx: AgentContext, given: Undecodable, now: float) -> bool:
    return given.error.stage is Stage.PAYLOAD


def tell_undecodable(ctx: AgentContext, given: Undecodable, now: float) -> Outcome:
    return ctx, (say(f"ignored a message from the controller: {given.error}", Severity.WARNING),)


def broken_by_bytes(ctx: AgentContext, given: Undecodable, now: float) -> Outcome:
    return lost(ctx, LinkBroken(cause=str(given.error)), now)


def broken_late(ctx: AgentContext, given: Undecodable, now: float) -> Outcome:
    return lost_late(ctx, EndOfStream(), now)


def tell_strange(ctx: AgentContext, given: Any, now: float) -> Outcome:
    text = f"ignored {type(given).__name__} from the controller: it means nothing while ranks run"
    return ctx, (say(text, Severity.DEBUG),)


def helper_died(ctx: AgentContext, given: HelperDied, now: float) -> Outcome:
    return _tear_down(ctx, HelperLost(given.cause), now)


def asked_before(ctx: AgentContext, given: StopRequested, now: float) -> bool:
    return ctx.signals > 0


def stop(ctx: AgentContext, given: StopRequested, now: float) -> Outcome:
    ctx = replace(ctx, signals=1)
    return _tear_down(ctx, Stopped(given.reason, given.number), now)


def hurry(ctx: AgentContext, given: StopRequested, now: float) -> Outcome:
    text = f"{given.reason} again: killing what is left"
    return ctx, (say(text, Severity.WARNING), fx.KillChildren())
