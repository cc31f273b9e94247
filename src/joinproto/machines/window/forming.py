"""When a window forms its world, and when it fails."""

from __future__ import annotations

from typing import Any

from joinproto import effects as fx
from joinproto.effects import Severity
from joinproto.inputs import (
    DialTurnedAway,
    Expired,
    GiveUp,
    MemberLost,
    Start,
    StartGiven,
    StopRequested,
)
from joinproto.limits import Timer
from joinproto.machines.window.config import StartMode
from joinproto.machines.window.context import Outcome, WindowContext, without_member
from joinproto.record import replace


def open_window(ctx: WindowContext, given: Start, now: float) -> Outcome:
    return replace(ctx, opened_at=now), (
        fx.SetTimer(timer=Timer.WINDOW, at=now + ctx.config.window),
        fx.SetTimer(timer=Timer.CAP, at=now + ctx.config.cap),
    )


# -- formed -----------------------------------------------------------------------------------


def complete(ctx: WindowContext, given: Any, now: float) -> bool:
    return ctx.complete


def started(ctx: WindowContext, given: Any, now: float) -> bool:
    return ctx.armed and ctx.startable


def quorum_by_clock(ctx: WindowContext, given: Any, now: float) -> bool:
    return ctx.quorate and ctx.config.start_mode is not StartMode.MANUAL


def form(ctx: WindowContext, given: Any, now: float) -> Outcome:
    if ctx.complete:
        reason = "target reached"
    elif ctx.armed:
        reason = "the operator gave the start"
    else:
        reason = "quorum holds and the join timeout has passed"
    return replace(ctx, formed=True, closed_at=ctx.since_opened(now)), (
        *_calm(),
        fx.FormWorld(reason=reason),
    )


def _calm() -> tuple[Any, ...]:
    return fx.ClearTimer(timer=Timer.WINDOW), fx.ClearTimer(timer=Timer.CAP)


# -- the operator -----------------------------------------------------------------------------


def why_no_start(ctx: WindowContext, *, open: bool) -> str | None:
    """Why the operator cannot give the start; None: it can be given.

    Args:
        ctx: what the window knows.
        open: the window is open.
    """
    if ctx.config.start_mode is StartMode.AUTO:
        return "start mode is auto: the clock and the target close this window"
    if not open:
        return "the window is not open"
    return None if ctx.quorate else _lacking(ctx)


def startable(ctx: WindowContext, given: StartGiven, now: float) -> bool:
    return ctx.startable


def arm(ctx: WindowContext, given: StartGiven, now: float) -> Outcome:
    text = f"start given by {given.by}, with {ctx.joined_ranks} rank(s) in"
    return replace(ctx, armed=True), (fx.Tell(severity=Severity.INFO, text=text), fx.Settle())


# -- waiting on -------------------------------------------------------------------------------


def wait_on(ctx: WindowContext, given: Expired, now: float) -> Outcome:
    lacking = "the start was not given" if ctx.quorate else _lacking(ctx)
    text = f"join timeout passed and {lacking}; waiting on"
    return ctx, (fx.Tell(severity=Severity.WARNING, text=text),)


def _lacking(ctx: WindowContext) -> str:
    """Why this window cannot form a world."""
    need, have = ctx.config.min_ranks, ctx.joined_ranks
    if have < need:
        return f"{have} of at least {need} rank(s) have joined"
    return "ranks of a lost host stand vacant"


def retract(ctx: WindowContext, given: MemberLost, now: float) -> Outcome:
    """Take an admission back.

    That can make a world whole: blocks that stood vacant in front of it go with it.
    """
    if given.connection not in ctx.places:
        return ctx, ()
    return without_member(ctx, given.connection, now), (fx.Settle(),)


# -- failed -----------------------------------------------------------------------------------


def give_up(ctx: WindowContext, reason: str, now: float) -> Outcome:
    closed = ctx.since_opened(now) if ctx.closed_at is None else ctx.closed_at
    return replace(ctx, failure=reason, closed_at=closed), (*_calm(), fx.AbortAll(reason=reason))


def cap_reached(ctx: WindowContext, given: Expired, now: float) -> Outcome:
    after = f"after {ctx.config.cap:g} s"
    if ctx.quorate:
        return give_up(ctx, f"the start was not given {after}", now)
    return give_up(ctx, f"quorum not met: {_lacking(ctx)} {after}", now)


def stop(ctx: WindowContext, given: StopRequested | GiveUp, now: float) -> Outcome:
    stopped = isinstance(given, StopRequested)
    reason = f"the controller was stopped ({given.reason})" if stopped else given.reason
    return give_up(ctx, reason, now)


def too_many(ctx: WindowContext, given: DialTurnedAway, now: float) -> bool:
    most = ctx.config.max_rejected
    return most is not None and ctx.turned_away >= most


def count_dial(ctx: WindowContext, given: DialTurnedAway, now: float) -> Outcome:
    return replace(ctx, turned_away=ctx.turned_away + 1), ()


def give_up_on_dials(ctx: WindowContext, given: DialTurnedAway, now: float) -> Outcome:
    ctx, _ = count_dial(ctx, given, now)
    text = f"{ctx.turned_away} dials were turned away, more than {ctx.config.max_rejected}"
    return give_up(ctx, text, now)


def nobody_there(ctx: WindowContext, given: Any, now: float) -> bool:
    return not ctx.places


def crowded_alone(ctx: WindowContext, given: DialTurnedAway, now: float) -> bool:
    return nobody_there(ctx, given, now) and too_many(ctx, given, now)


def fail_alone(ctx: WindowContext, given: Any, now: float) -> Outcome:
    """Fail with nobody there whose end would have to be waited for."""
    if isinstance(given, DialTurnedAway):
        ctx, effects = give_up_on_dials(ctx, given, now)
    elif isinstance(given, Expired):
        ctx, effects = cap_reached(ctx, given, now)
    else:
        ctx, effects = stop(ctx, given, now)
    return ctx, (*effects, fx.RunEnded())
