"""A controller's side of one connection: from the first byte of a dial to its end.

Nothing is ever said to a peer whose frames are not tagged rightly.  What is decided about a host
comes from the window, as `Admit`, `Refuse`, `Dismiss`, `Form` and `AbortRun`.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeAlias

from joinproto import effects as fx
from joinproto.effects import Severity
from joinproto.errors import Stage
from joinproto.inputs import (
    AbortRun,
    Admit,
    Dismiss,
    EndOfStream,
    Expired,
    Flushed,
    Form,
    LinkBroken,
    Refuse,
    Routed,
    Start,
    Undecodable,
)
from joinproto.keys import OPEN, Salt
from joinproto.limits import ABORT_WAIT, HELLO, LINGER, ROUTE, WRITE_STALL, Timer, whole_seconds
from joinproto.messages import MESSAGES, Abort, Accept, Hello, RankExited, Reject, WorldFormed
from joinproto.record import Record, replace
from joinproto.table import Rule, Table


class ControllerState(Enum):
    """Where a controller's side of a connection is."""

    ROUTING = "Routing"
    AWAIT_HELLO = "AwaitHello"
    DECIDING = "Deciding"
    ADMITTED = "Admitted"
    FORMED = "Formed"
    REJECTING = "Rejecting"
    ABORTING = "Aborting"
    CLOSED = "Closed"


class Admission(Record):
    """How hosts are admitted.

    Attributes:
        salt: the session salt.
        open: Hello, Accept and Reject are tagged with zeros, and Accept carries the salt.
        scale: of every network deadline.
    """

    salt: Salt
    open: bool
    scale: float = 1.0


class ControllerContext(Record):
    """What is known of the dialer.

    Attributes:
        admission: how hosts are admitted.
        host: its name, from its Hello.
        ranks: those it was given.
        exited: those whose end it has reported.
    """

    admission: Admission
    host: str = ""
    ranks: tuple[int, ...] = ()
    exited: frozenset[int] = frozenset()


Outcome: TypeAlias = tuple[ControllerContext, tuple[Any, ...]]


def _at(ctx: ControllerContext, now: float, base: float) -> float:
    return now + whole_seconds(base, ctx.admission.scale)


def _calm() -> tuple[Any, ...]:
    timers = (Timer.ROUTE, Timer.HELLO, Timer.WRITE, Timer.LINGER, Timer.ABORT)
    return tuple(fx.ClearTimer(timer=timer) for timer in timers)


def _watch_write(ctx: ControllerContext, now: float) -> fx.SetTimer:
    return fx.SetTimer(timer=Timer.WRITE, at=_at(ctx, now, WRITE_STALL))


# -- before admission -------------------------------------------------------------------------


def _opened(ctx: ControllerContext, given: Start, now: float) -> Outcome:
    return ctx, (
        fx.UseKey(key=OPEN if ctx.admission.open else ctx.admission.salt),
        fx.SetTimer(timer=Timer.ROUTE, at=_at(ctx, now, ROUTE)),
    )


def _is_join(ctx: ControllerContext, given: Routed, now: float) -> bool:
    return given.channel == "join"


def _routed(ctx: ControllerContext, given: Routed, now: float) -> Outcome:
    return ctx, (
        fx.ClearTimer(timer=Timer.ROUTE),
        fx.SetTimer(timer=Timer.HELLO, at=_at(ctx, now, HELLO)),
    )


def _turn_away(ctx: ControllerContext, reason: str) -> Outcome:
    return ctx, (*_calm(), fx.CloseLink(), fx.TurnedAway(reason=reason))


def _is_http(ctx: ControllerContext, given: Routed, now: float) -> bool:
    return given.channel == "http"


def _hand_over(ctx: ControllerContext, given: Routed, now: float) -> Outcome:
    return ctx, (*_calm(), fx.HandOver())


def _not_join(ctx: ControllerContext, given: Routed, now: float) -> Outcome:
    asked = f"the {given.channel} channel" if given.channel else "no channel that is served here"
    return _turn_away(ctx, f"the first bytes ask for {asked}")


def _ended_early(ctx: ControllerContext, given: EndOfStream, now: float) -> Outcome:
    return _turn_away(ctx, "closed before Hello")


def _broke_early(ctx: ControllerContext, given: LinkBroken, now: float) -> Outcome:
    return _turn_away(ctx, given.cause)


def _overdue(ctx: ControllerContext, given: Expired, now: float) -> Outcome:
    waited = "channel magic" if given.timer is Timer.ROUTE else "whole Hello"
    return _turn_away(ctx, f"no {waited} in time")


def _offer(ctx: ControllerContext, given: Hello, now: float) -> Outcome:
    return replace(ctx, host=given.host), (
        fx.ClearTimer(timer=Timer.HELLO),
        fx.Offer(hello=given),
    )


def _reject(ctx: ControllerContext, reason: str, now: float) -> Outcome:
    return ctx, (
        *_calm(),
        fx.Send(message=Reject(reason=reason)),
        fx.EndSending(),
        fx.SetTimer(timer=Timer.LINGER, at=now + LINGER * ctx.admission.scale),
        fx.TurnedAway(reason=reason),
    )


def _not_hello(ctx: ControllerContext, given: Any, now: float) -> Outcome:
    name = type(given).__name__
    return _reject(ctx, f"the first message on the join channel is a Hello, not {name}", now)


def _answerable(ctx: ControllerContext, given: Undecodable, now: float) -> bool:
    return given.tagged


def _bad_hello(ctx: ControllerContext, given: Undecodable, now: float) -> Outcome:
    return _reject(ctx, f"not a Hello: {given.error}", now)


def _bad_bytes(ctx: ControllerContext, given: Undecodable, now: float) -> Outcome:
    return _turn_away(ctx, str(given.error))


def _admit(ctx: ControllerContext, given: Admit, now: float) -> Outcome:
    salt = ctx.admission.salt
    accept = Accept(
        ranks=given.ranks,
        salt_hex=salt.hex() if ctx.admission.open else None,
        formation_wait_secs=given.formation_wait_secs,
    )
    return replace(ctx, ranks=given.ranks), (
        fx.Send(message=accept),
        fx.UseKey(key=salt),
        _watch_write(ctx, now),
    )


def _refuse(ctx: ControllerContext, given: Refuse, now: float) -> Outcome:
    return _reject(ctx, given.reason, now)


def _dismiss(ctx: ControllerContext, given: Dismiss, now: float) -> Outcome:
    return _turn_away(ctx, given.reason)


# -- a member ---------------------------------------------------------------------------------


def _form(ctx: ControllerContext, given: Form, now: float) -> Outcome:
    message = WorldFormed(envelope_hex=given.envelope_hex, relay_spec_hex=given.relay_spec_hex)
    return ctx, (fx.Send(message=message), _watch_write(ctx, now))


def _abort(ctx: ControllerContext, given: AbortRun, now: float) -> Outcome:
    return ctx, (
        *_calm(),
        fx.Send(message=Abort(reason=given.reason)),
        fx.SetTimer(timer=Timer.ABORT, at=_at(ctx, now, ABORT_WAIT)),
    )


def _turn_away_aborted(ctx: ControllerContext, given: AbortRun, now: float) -> Outcome:
    return _turn_away(ctx, given.reason)


def _reject_aborted(ctx: ControllerContext, given: AbortRun, now: float) -> Outcome:
    return _reject(ctx, given.reason, now)


def _flushed(ctx: ControllerContext, given: Flushed, now: float) -> Outcome:
    return ctx, (fx.ClearTimer(timer=Timer.WRITE),)


def _lost(ctx: ControllerContext, cause: str) -> Outcome:
    return ctx, (*_calm(), fx.CloseLink(), fx.Lost(cause=cause))


def _member_left(ctx: ControllerContext, given: EndOfStream, now: float) -> Outcome:
    return _lost(ctx, "closed the connection")


def _member_broke(ctx: ControllerContext, given: LinkBroken, now: float) -> Outcome:
    return _lost(ctx, given.cause)


def _member_stalled(ctx: ControllerContext, given: Expired, now: float) -> Outcome:
    return _lost(ctx, "did not take what was sent to it")


def _member_lingers(ctx: ControllerContext, given: Expired, now: float) -> Outcome:
    return _lost(ctx, "did not end after Abort")


def _only_payload(ctx: ControllerContext, given: Undecodable, now: float) -> bool:
    return given.error.stage is Stage.PAYLOAD


def _ignore_payload(ctx: ControllerContext, given: Undecodable, now: float) -> Outcome:
    return ctx, (_tell(ctx, f"a message that is ignored: {given.error}"),)


def _member_garbled(ctx: ControllerContext, given: Undecodable, now: float) -> Outcome:
    return _lost(ctx, str(given.error))


def _news(ctx: ControllerContext, given: RankExited, now: float) -> bool:
    return given.rank in ctx.ranks and given.rank not in ctx.exited


def _rank_exited(ctx: ControllerContext, given: RankExited, now: float) -> Outcome:
    effect = fx.ReportRank(rank=given.rank, code=given.code)
    return replace(ctx, exited=ctx.exited | {given.rank}), (effect,)


def _no_news(ctx: ControllerContext, given: RankExited, now: float) -> Outcome:
    why = "told before" if given.rank in ctx.exited else "not one of its ranks"
    return ctx, (_tell(ctx, f"the end of rank {given.rank}, which is {why}; ignored"),)


def _strange(ctx: ControllerContext, given: Any, now: float) -> Outcome:
    return ctx, (_tell(ctx, f"{type(given).__name__}, which means nothing here; ignored"),)


def _tell(ctx: ControllerContext, what: str) -> fx.Tell:
    return fx.Tell(severity=Severity.WARNING, text=f"host {ctx.host!r} sent {what}")


def _shut(ctx: ControllerContext, given: Any, now: float) -> Outcome:
    return ctx, (*_calm(), fx.CloseLink())


# -- the table --------------------------------------------------------------------------------

S = ControllerState

_DECISIONS = (Admit, Refuse, Dismiss)
_NO_HELLO = tuple(message for message in MESSAGES if message is not Hello)
_NO_REPORT = tuple(message for message in MESSAGES if message is not RankExited)
_INPUTS = (
    Start,
    Routed,
    *MESSAGES,
    Undecodable,
    EndOfStream,
    LinkBroken,
    Flushed,
    Expired,
    *_DECISIONS,
    Form,
    AbortRun,
)


def _unadmitted(source: ControllerState) -> tuple[Rule[ControllerContext], ...]:
    return (
        Rule(source=source, on=EndOfStream, target=S.CLOSED, act=_ended_early),
        Rule(source=source, on=LinkBroken, target=S.CLOSED, act=_broke_early),
        Rule(source=source, on=Expired, target=S.CLOSED, act=_overdue),
    )


def _member(source: ControllerState) -> tuple[Rule[ControllerContext], ...]:
    return (
        Rule(source=source, on=EndOfStream, target=S.CLOSED, act=_member_left),
        Rule(source=source, on=LinkBroken, target=S.CLOSED, act=_member_broke),
        Rule(source=source, on=Undecodable, when=_only_payload, target=source, act=_ignore_payload),
        Rule(source=source, on=Undecodable, target=S.CLOSED, act=_member_garbled),
        Rule(source=source, on=Flushed, target=source, act=_flushed),
        *(Rule(source=source, on=on, target=source, act=_strange) for on in _NO_REPORT),
    )


def _reports(source: ControllerState) -> tuple[Rule[ControllerContext], ...]:
    return (
        Rule(source=source, on=RankExited, when=_news, target=source, act=_rank_exited),
        Rule(source=source, on=RankExited, target=source, act=_no_news),
    )


CONTROLLER = Table[ControllerContext](
    "controller",
    states=ControllerState,
    initial=S.ROUTING,
    final=(S.CLOSED,),
    inputs=_INPUTS,
    rules=(
        Rule(source=S.ROUTING, on=Start, target=S.ROUTING, act=_opened),
        Rule(source=S.ROUTING, on=Routed, when=_is_join, target=S.AWAIT_HELLO, act=_routed),
        Rule(source=S.ROUTING, on=Routed, when=_is_http, target=S.CLOSED, act=_hand_over),
        Rule(source=S.ROUTING, on=Routed, target=S.CLOSED, act=_not_join),
        *_unadmitted(S.ROUTING),
        Rule(source=S.ROUTING, on=AbortRun, target=S.CLOSED, act=_turn_away_aborted),
        Rule(source=S.AWAIT_HELLO, on=Hello, target=S.DECIDING, act=_offer),
        *(
            Rule(source=S.AWAIT_HELLO, on=on, target=S.REJECTING, act=_not_hello)
            for on in _NO_HELLO
        ),
        Rule(
            source=S.AWAIT_HELLO,
            on=Undecodable,
            when=_answerable,
            target=S.REJECTING,
            act=_bad_hello,
        ),
        Rule(source=S.AWAIT_HELLO, on=Undecodable, target=S.CLOSED, act=_bad_bytes),
        *_unadmitted(S.AWAIT_HELLO),
        Rule(source=S.AWAIT_HELLO, on=AbortRun, target=S.CLOSED, act=_turn_away_aborted),
        Rule(source=S.DECIDING, on=Admit, target=S.ADMITTED, act=_admit),
        Rule(source=S.DECIDING, on=Refuse, target=S.REJECTING, act=_refuse),
        Rule(source=S.DECIDING, on=Dismiss, target=S.CLOSED, act=_dismiss),
        Rule(source=S.DECIDING, on=EndOfStream, target=S.CLOSED, act=_ended_early),
        Rule(source=S.DECIDING, on=LinkBroken, target=S.CLOSED, act=_broke_early),
        Rule(source=S.DECIDING, on=AbortRun, target=S.REJECTING, act=_reject_aborted),
        *_member(S.ADMITTED),
        Rule(source=S.ADMITTED, on=RankExited, target=S.ADMITTED, act=_strange),
        Rule(source=S.ADMITTED, on=Form, target=S.FORMED, act=_form),
        Rule(source=S.ADMITTED, on=AbortRun, target=S.ABORTING, act=_abort),
        Rule(source=S.ADMITTED, on=Expired, target=S.CLOSED, act=_member_stalled),
        *_member(S.FORMED),
        *_reports(S.FORMED),
        Rule(source=S.FORMED, on=AbortRun, target=S.ABORTING, act=_abort),
        Rule(source=S.FORMED, on=Expired, target=S.CLOSED, act=_member_stalled),
        *_member(S.ABORTING),
        *_reports(S.ABORTING),
        Rule(source=S.ABORTING, on=Expired, target=S.CLOSED, act=_member_lingers),
        # What a turned-away peer still sends is read and dropped until it has had its Reject.
        Rule(source=S.REJECTING, on=EndOfStream, target=S.CLOSED, act=_shut),
        Rule(source=S.REJECTING, on=LinkBroken, target=S.CLOSED, act=_shut),
        Rule(source=S.REJECTING, on=Expired, target=S.CLOSED, act=_shut),
    ),
    ignored={
        S.AWAIT_HELLO: (Flushed,),
        S.ABORTING: (AbortRun,),
        S.REJECTING: (*MESSAGES, Undecodable, Flushed, AbortRun),
        S.CLOSED: _INPUTS,
    },
    illegal={
        S.ROUTING: (*MESSAGES, Undecodable, Flushed, *_DECISIONS, Form),
        S.AWAIT_HELLO: (Start, Routed, *_DECISIONS, Form),
        # The next frame is not looked at before the decision about the Hello has come.
        S.DECIDING: (Start, Routed, *MESSAGES, Undecodable, Flushed, Expired, Form),
        S.ADMITTED: (Start, Routed, *_DECISIONS),
        S.FORMED: (Start, Routed, *_DECISIONS, Form),
        S.ABORTING: (Start, Routed, *_DECISIONS, Form),
        S.REJECTING: (Start, Routed, *_DECISIONS, Form),
    },
)
