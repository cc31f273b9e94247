"""From the first dial to a formed world, or to the reason why there is none."""

from __future__ import annotations

from typing import Any

from joinproto import effects as fx
from joinproto.effects import Severity
from joinproto.errors import (
    Aborted,
    ConfigError,
    DeadlinePassed,
    HelperLost,
    JoinprotoError,
    LinkLost,
    ProtocolViolation,
    Rejected,
    Stopped,
    TrustMismatch,
    Unreachable,
)
from joinproto.inputs import (
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
from joinproto.keys import OPEN, Salt
from joinproto.limits import (
    CONNECT_BUDGET,
    CONNECT_PAUSE,
    FORMATION_MARGIN,
    HANGUP_PAUSE,
    JOIN_REPLY,
    WRITE_STALL,
    Timer,
    connect_attempt,
    whole_seconds,
)
from joinproto.machines.agent.context import AgentContext, Outcome, calm, fail, how_lost, say
from joinproto.messages import Abort, Accept, Reject
from joinproto.record import replace

# -- dialing ----------------------------------------------------------------------------------


def _dial(ctx: AgentContext) -> fx.Dial:
    return fx.Dial(timeout=connect_attempt(ctx.plan.scale), wire=ctx.version)


def begin(ctx: AgentContext, given: Start, now: float) -> Outcome:
    ctx = replace(ctx, give_up_at=now + CONNECT_BUDGET * ctx.plan.scale)
    return ctx, (_dial(ctx),)


def redial(ctx: AgentContext, given: Expired, now: float) -> Outcome:
    return ctx, (_dial(ctx),)


def _pause(ctx: AgentContext, given: Any) -> float:
    """Seconds until the next attempt: steady where nobody listens, growing where one hangs up."""
    return CONNECT_PAUSE if isinstance(given, ConnectFailed) else HANGUP_PAUSE * 2**ctx.hangups


def budget_spent(ctx: AgentContext, given: Any, now: float) -> bool:
    return now + _pause(ctx, given) >= ctx.give_up_at


def more_wires(ctx: AgentContext, given: Any, now: float) -> bool:
    return ctx.wire + 1 < len(ctx.plan.wires)


def _attempt_error(ctx: AgentContext, given: Any) -> JoinprotoError:
    if isinstance(given, ConnectFailed):
        return Unreachable(given.cause)
    how = "closed" if isinstance(given, EndOfStream) else f"lost ({given.cause})"
    trust = (
        "; with a pre-shared salt this most often means that the two salts differ"
        if ctx.plan.salt is not None
        else ""
    )
    return LinkLost(f"the connection to {ctx.peer} was {how} before any answer to Hello{trust}")


def pause_and_redial(ctx: AgentContext, given: Any, now: float) -> Outcome:
    pause = _pause(ctx, given)
    text = f"{_attempt_error(ctx, given)}; dialing again in {pause:g} s"
    hangups = ctx.hangups + (not isinstance(given, ConnectFailed))
    return replace(ctx, wire=0, hangups=hangups, link=False), (
        *calm(),
        fx.CloseLink(),
        say(text, Severity.DEBUG),
        fx.SetTimer(timer=Timer.REDIAL, at=now + pause),
    )


def give_up(ctx: AgentContext, given: Any, now: float) -> Outcome:
    return fail(ctx, _attempt_error(ctx, given))


def try_next_wire(ctx: AgentContext, given: Any, now: float) -> Outcome:
    # Published controllers close a dial of another version unanswered, so this close may mean
    # nothing else; the dial in the next version belongs to the same attempt.
    tried, ctx = ctx.version, replace(ctx, wire=ctx.wire + 1, link=False)
    text = f"no answer in wire {tried}; trying wire {ctx.version}"
    return ctx, (*calm(), fx.CloseLink(), say(text, Severity.DEBUG), _dial(ctx))


def greet(ctx: AgentContext, given: Connected, now: float) -> Outcome:
    return replace(ctx, peer=given.peer, link=True), (
        fx.UseKey(key=ctx.plan.salt or OPEN),
        fx.OpenChannel(),
        fx.Send(message=ctx.plan.hello),
        fx.SetTimer(timer=Timer.WRITE, at=now + WRITE_STALL * ctx.plan.scale),
    )


def await_accept(ctx: AgentContext, given: Flushed, now: float) -> Outcome:
    return ctx, (
        *calm(),
        fx.SetTimer(timer=Timer.REPLY, at=now + whole_seconds(JOIN_REPLY, ctx.plan.scale)),
    )


# -- failing before anything runs -------------------------------------------------------------


def stop_early(ctx: AgentContext, given: StopRequested, now: float) -> Outcome:
    return fail(ctx, Stopped(given.reason, given.number))


def helper_lost(ctx: AgentContext, given: HelperDied, now: float) -> Outcome:
    return fail(ctx, HelperLost(given.cause))


def reply_overdue(ctx: AgentContext, given: Expired, now: float) -> Outcome:
    waiting = {
        Timer.WRITE: "take the Hello",
        Timer.REPLY: "answer the Hello",
        Timer.FORMATION: "form the world",
    }
    return fail(
        ctx, DeadlinePassed(f"the controller at {ctx.peer} did not {waiting[given.timer]} in time")
    )


def undecodable(ctx: AgentContext, given: Undecodable, now: float) -> Outcome:
    return fail(ctx, given.error)


def rejected(ctx: AgentContext, given: Reject, now: float) -> Outcome:
    return fail(ctx, Rejected(given.reason))


def unexpected(ctx: AgentContext, given: Any, now: float) -> Outcome:
    expected = "WorldFormed or Abort" if ctx.ranks else "Accept or Reject"
    return fail(ctx, ProtocolViolation(expected, type(given).__name__))


def accepted_early(ctx: AgentContext, given: Accept, now: float) -> Outcome:
    return fail(ctx, ProtocolViolation("the Accept after the whole Hello", "it before its end"))


def aborted_early(ctx: AgentContext, given: Abort, now: float) -> Outcome:
    return fail(ctx, Aborted(given.reason, formed=False))


def lost_early(ctx: AgentContext, given: EndOfStream | LinkBroken, now: float) -> Outcome:
    return fail(ctx, LinkLost(f"{how_lost(ctx, given)} before the world formed"))


# -- admission --------------------------------------------------------------------------------


def _accept_fault(ctx: AgentContext, given: Accept) -> JoinprotoError | None:
    devices = len(ctx.plan.hello.local_devices)
    if len(given.ranks) != devices:
        return ProtocolViolation(f"{devices} ranks, one for each device", f"{len(given.ranks)}")
    if ctx.plan.salt is not None:
        return None
    if given.salt_hex is None:
        return TrustMismatch(
            "controller and worker disagree on the trust mode: this host joins openly, and the "
            "Accept carries no session salt, as under a pre-shared one"
        )
    try:
        Salt.from_hex(given.salt_hex)
    except ConfigError as error:
        return TrustMismatch(f"the session salt in Accept is unusable: {error}")
    return None


def unacceptable(ctx: AgentContext, given: Accept, now: float) -> bool:
    return _accept_fault(ctx, given) is not None


def refuse_accept(ctx: AgentContext, given: Accept, now: float) -> Outcome:
    return fail(ctx, _accept_fault(ctx, given) or TrustMismatch("the Accept is unusable"))


def admitted(ctx: AgentContext, given: Accept, now: float) -> Outcome:
    # Held salt first: under a pre-shared one, what Accept carries is not looked at.
    key = ctx.plan.salt or Salt.from_hex(given.salt_hex or "")
    wait = given.formation_wait_secs + FORMATION_MARGIN
    return replace(ctx, ranks=given.ranks), (
        *calm(),
        fx.UseKey(key=key),
        fx.SetTimer(timer=Timer.FORMATION, at=now + wait),
        say(
            f"joined as rank(s) {', '.join(map(str, given.ranks))}; waiting up to "
            f"{given.formation_wait_secs} s for the world to form"
        ),
    )
