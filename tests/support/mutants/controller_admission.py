"""Faults of a controller in what it takes for a host, and in its answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from joinproto import effects as fx
from joinproto.connection import ControllerConnection
from joinproto.limits import Timer
from joinproto.machines import controller as link
from joinproto.machines.controller import CONTROLLER
from joinproto.machines.controller import ControllerState as S
from joinproto.machines.window import WINDOW, admission, forming
from joinproto.machines.window import context as known
from joinproto.machines.window.config import Check
from joinproto.machines.window.context import References
from joinproto.messages import Accept, Hello
from joinproto.record import replace
from joinproto.table import Rule
from tests.support.mutants import wire
from tests.support.mutants.changes import (
    Act,
    Change,
    acting,
    after,
    asking,
    put,
    table,
)

Effects = tuple[Any, ...]


def never(ctx: Any, given: Any, now: float) -> bool:
    return False


def _always(ctx: Any, given: Any, now: float) -> bool:
    return True


_REFUSAL = admission.refusal


_DISAGREEMENT = admission._disagreement


def _lenient(word: str) -> Change:
    """Hosts that are refused with this word are admitted, unless something else is wrong."""

    def refusal(ctx: Any, hello: Hello) -> str | None:
        reason = _REFUSAL(ctx, hello)
        return None if reason is not None and word in reason else reason

    return put(admission, "refusal", refusal)


def _strict(fault: Callable[[Any, Hello], bool]) -> Change:
    """Some more hosts are refused."""
    return put(
        admission,
        "refusal",
        lambda ctx, hello: "no" if fault(ctx, hello) else _REFUSAL(ctx, hello),
    )


def _unchecked(*checks: Check) -> Change:
    def disagreement(ctx: Any, hello: Hello) -> str | None:
        left = replace(ctx.config, checks=ctx.config.checks - set(checks))
        return _DISAGREEMENT(replace(ctx, config=left), hello)

    return put(admission, "_disagreement", disagreement)


def _any_configured(ctx: Any, hello: Hello) -> str | None:
    return _DISAGREEMENT(replace(ctx, config=replace(ctx.config, dataset_sig=None)), hello)


def _any_first(ctx: Any, hello: Hello) -> str | None:
    return _DISAGREEMENT(replace(ctx, references=replace(ctx.references, dataset_sig=None)), hello)


def _zeros_are_none(ctx: Any, hello: Hello) -> str | None:
    configured = ctx.config.dataset_sig
    expected = ctx.references.dataset_sig if configured is None else configured
    if expected is not None and not any(hello.dataset_sig):
        hello = Hello(**{**vars(hello), "dataset_sig": expected})
    return _DISAGREEMENT(ctx, hello)


def _keeps_refused(ctx: Any, given: Any, now: float) -> Any:
    """What a refused Hello said is what the others must agree with."""
    ctx, effects = admission.refuse(ctx, given, now)
    if ctx.references.wire is None:
        ctx = replace(
            ctx,
            references=References(wire=given.wire, dataset_sig=given.hello.dataset_sig),
        )
    return ctx, effects


def _keeps_lost(ctx: Any, connection: int, now: float) -> Any:
    """What a lost member said is still what the others must agree with."""
    return replace(_WITHOUT(ctx, connection, now), references=ctx.references)


def _keeps_name(ctx: Any, connection: int, now: float) -> Any:
    return replace(_WITHOUT(ctx, connection, now), hosts=ctx.hosts)


def _keeps_ranks(ctx: Any, given: Any, now: float) -> Any:
    """A lost member's ranks still count."""
    before = ctx.joined_ranks
    ctx, effects = forming.retract(ctx, given, now)
    return replace(ctx, joined_ranks=before, world_size=max(ctx.world_size, before)), effects


_WITHOUT = known.without_member


def _counts_refused(ctx: Any, given: Any, now: float) -> Any:
    """A refused host counts towards the quorum."""
    ctx, effects = admission.refuse(ctx, given, now)
    count = len(given.hello.local_devices)
    return replace(ctx, joined_ranks=ctx.joined_ranks + count, world_size=ctx.world_size + count), (
        *effects,
        fx.Settle(),
    )


def _ranks(by: Callable[[Any, tuple[int, ...]], tuple[int, ...]]) -> Change:
    """Other ranks in Accept and in the window."""

    def admit(ctx: Any, given: Any, now: float) -> Any:
        before = ctx
        ctx, effects = admission.admit(ctx, given, now)
        place = ctx.places[given.connection]
        member = ctx.members[place]
        ranks = by(before, member.ranks)
        members = (
            *ctx.members[:place],
            replace(member, ranks=ranks),
            *ctx.members[place + 1 :],
        )
        return replace(ctx, members=members), tuple(
            replace(each, ranks=ranks) if isinstance(each, fx.AdmitHost) else each
            for each in effects
        )

    return acting(WINDOW, admission.admit, admit)


def _wait(by: Callable[[Any, int], int]) -> Change:
    """Another formation wait in Accept."""

    def edit(ctx: Any, given: Any, now: float, effects: Effects) -> Effects:
        return tuple(
            replace(each, formation_wait_secs=by(ctx, each.formation_wait_secs))
            if isinstance(each, fx.AdmitHost)
            else each
            for each in effects
        )

    return acting(WINDOW, admission.admit, after(admission.admit, edit))


def _accept(edit: Callable[[Any, Accept], Accept]) -> Change:
    def edited(ctx: Any, given: Any, now: float, effects: Effects) -> Effects:
        return tuple(
            fx.Send(message=edit(ctx, each.message))
            if isinstance(each, fx.Send) and isinstance(each.message, Accept)
            else each
            for each in effects
        )

    return acting(CONTROLLER, link._admit, after(link._admit, edited))


def _salted(by: Callable[[Any, str | None], str | None]) -> Change:
    return _accept(
        lambda ctx, accept: Accept(
            ranks=accept.ranks,
            salt_hex=by(ctx, accept.salt_hex),
            formation_wait_secs=accept.formation_wait_secs,
        )
    )


def later(timer: Timer, seconds: float, act: Act) -> Change:
    """A deadline of a connection after so many seconds; 0: never."""

    def edited(ctx: Any, given: Any, now: float, effects: Effects) -> Effects:
        left = tuple(
            each for each in effects if not isinstance(each, fx.SetTimer) or each.timer is not timer
        )
        return (*left, fx.SetTimer(timer=timer, at=now + seconds)) if seconds else left

    return acting(CONTROLLER, act, after(act, edited))


def _reject_and_stay(ctx: Any, reason: str, now: float) -> Any:
    """The connection stays open behind a Reject."""
    ctx, effects = _REJECT(ctx, reason, now)
    return ctx, tuple(each for each in effects if not isinstance(each, fx.EndSending | fx.SetTimer))


_REJECT = link._reject


def _magic_in_one_piece() -> Change:
    receive = ControllerConnection.receive_data

    def received(self: Any, data: bytes, now: float) -> list[Any]:
        return receive(self, data.ljust(4, b"\0") if self.channel is None else data, now)

    return put(ControllerConnection, "receive_data", received)


def _dismissed(ctx: Any, given: Any, now: float) -> Any:
    return link._turn_away(ctx, "dismissed")


def _answered(ctx: Any, given: Any, now: float) -> Any:
    return link._reject(ctx, "this is no channel", now)


def _stays(ctx: Any, given: Any, now: float) -> Any:
    return ctx, link._calm()


def _other_channel(act: Act) -> Change:
    """A dial of a channel that is not served is not closed."""
    return table(
        CONTROLLER,
        [
            Rule(source=rule.source, on=rule.on, target=S.REJECTING, act=act)
            if rule.act is link._not_join
            else rule
            for rule in CONTROLLER.rules
        ],
    )


ADMISSION: dict[str, Change] = {
    "magic-in-one-piece": _magic_in_one_piece(),
    "other-channel-open": _other_channel(_stays),
    "other-channel-answered": _other_channel(_answered),
    "bad-tag-answered": asking(CONTROLLER, link._answerable, _always),
    "garbled-unanswered": asking(CONTROLLER, link._answerable, never),
    "no-hello-unanswered": acting(CONTROLLER, link._not_hello, _dismissed),
    "answers-in-oldest": put(ControllerConnection, "wire", property(lambda self: 2)),
    "hello-never-due": later(Timer.HELLO, 0, link._routed),
    "hello-unscaled": later(Timer.HELLO, 10, link._routed),
    "hello-early": later(Timer.HELLO, 0.5, link._routed),
    "hello-put-off": wire.put_off(Timer.HELLO, 1.0),
    "route-never-due": later(Timer.ROUTE, 0, link._opened),
    "route-unscaled": later(Timer.ROUTE, 5, link._opened),
    "route-early": later(Timer.ROUTE, 0.5, link._opened),
    "route-put-off": wire.put_off(Timer.ROUTE, 1.0, ControllerConnection),
    "blank-host": _lenient("host name is blank"),
    "many-devices": _lenient("devices are offered, more than"),
    "few-devices": put(admission, "MAX_DEVICES", 255),
    "device-twice": _lenient("is offered twice"),
    "host-twice": _lenient("has joined already"),
    "other-dataset": put(admission, "_disagreement", _any_first),
    "other-configured": put(admission, "_disagreement", _any_configured),
    "zero-dataset": put(admission, "_disagreement", _zeros_are_none),
    "refused-dataset": acting(WINDOW, admission.refuse, _keeps_refused),
    "lost-dataset": put(forming, "without_member", _keeps_lost),
    "other-vendor": _unchecked(Check.VENDOR),
    "other-run": _unchecked(Check.RUN_ID),
    "other-nccl": _unchecked(Check.NCCL),
    "other-model": _unchecked(Check.MODEL_SIG),
    "missing-run": _strict(
        lambda ctx, hello: hello.run_id is None and Check.RUN_ID in ctx.references.agreed
    ),
    "labels-counted": _strict(
        lambda ctx, hello: len(hello.gpus) not in (0, len(hello.local_devices))
    ),
    "labels-needed": _strict(
        lambda ctx, hello: not hello.gpus and max(hello.local_devices, default=0) > 7
    ),
    "lost-name": put(forming, "without_member", _keeps_name),
    "lost-ranks": acting(WINDOW, forming.retract, _keeps_ranks),
    "lost-place": put(admission, "_vacancy", lambda ctx, hello: None),
    "refused-counts": acting(WINDOW, admission.refuse, _counts_refused),
    "reject-open": put(link, "_reject", _reject_and_stay),
    "mixed-world": asking(WINDOW, admission.wrong_wire, never),
    "ranks-with-gap": _ranks(lambda ctx, ranks: tuple(rank + len(ctx.members) for rank in ranks)),
    "ranks-given-twice": _ranks(lambda ctx, ranks: tuple(range(len(ranks)))),
    "ranks-backwards": _ranks(lambda ctx, ranks: ranks[::-1]),
    "rank-missing": _ranks(lambda ctx, ranks: ranks[:-1] if len(ranks) > 1 else ranks),
    "no-salt": _salted(lambda ctx, salt: None),
    "salt-shown": _salted(lambda ctx, salt: ctx.admission.salt.hex()),
    "wait-unscaled": _wait(lambda ctx, wait: int(wait / ctx.config.scale)),
    "wait-whole": _wait(lambda ctx, wait: int(ctx.config.cap)),
    "wait-zero": _wait(lambda ctx, wait: 0),
}
