"""Faults of an agent up to the world's formation, those of its Hello included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from joinproto import effects as fx
from joinproto.errors import ConfigError
from joinproto.inputs import (
    ConnectFailed,
    EndOfStream,
    LinkBroken,
    Undecodable,
)
from joinproto.keys import OPEN, Salt
from joinproto.limits import Timer
from joinproto.machines.agent import AGENT, joining, supervising
from joinproto.machines.agent import AgentState as S
from joinproto.machines.agent.context import AgentContext
from joinproto.messages import Abort, Accept, Hello, RankExited, Reject, WorldFormed
from joinproto.record import replace
from joinproto.table import Rule
from tests.support.mutants import wire
from tests.support.mutants.changes import (
    Act,
    Change,
    acting,
    after,
    asking,
    cell,
    nothing,
    put,
    table,
    together,
)

Effects = tuple[Any, ...]


def said(edit: Callable[[Any, Any], Any]) -> Callable[..., Effects]:
    """Effects with their messages edited: `edit` gets context and message, gives one or more."""

    def edited(ctx: Any, given: Any, now: float, effects: Effects) -> Effects:
        out: list[Any] = []
        for effect in effects:
            if isinstance(effect, fx.Send):
                messages = edit(ctx, effect.message)
                messages = messages if isinstance(messages, tuple) else (messages,)
                out += [fx.Send(message=each) for each in messages]
            else:
                out.append(effect)
        return tuple(out)

    return edited


def _hello(**edits: Callable[[Any], Any]) -> Change:
    """A Hello with some fields said otherwise."""

    def edit(ctx: Any, message: Hello) -> Hello:
        values = {**vars(message)}
        return Hello(**values | {name: by(values[name]) for name, by in edits.items()})

    return acting(AGENT, joining.greet, after(joining.greet, said(edit)))


def _timer(act: Act, timer: Timer, at: Callable[[Any, Any, float], float | None]) -> Change:
    """A deadline at another time; None: none at all."""

    def edited(ctx: Any, given: Any, now: float, effects: Effects) -> Effects:
        out = [
            each for each in effects if not isinstance(each, fx.SetTimer) or each.timer is not timer
        ]
        due = at(ctx, given, now)
        return (*out, *(() if due is None else (fx.SetTimer(timer=timer, at=due),)))

    return acting(AGENT, act, after(act, edited))


def _reply(seconds: float | None) -> Change:
    return _timer(
        joining.await_accept,
        Timer.REPLY,
        lambda ctx, given, now: None if seconds is None else now + seconds,
    )


def _formation(seconds: Callable[[Any, int], float | None]) -> Change:
    def at(ctx: Any, given: Accept, now: float) -> float | None:
        wait = seconds(ctx, given.formation_wait_secs)
        return None if wait is None else now + wait

    return _timer(joining.admitted, Timer.FORMATION, at)


def _accept_again(ctx: Any, given: Accept, now: float) -> Any:
    return replace(ctx, ranks=given.ranks), ()


def _formed_unasked(ctx: Any, given: WorldFormed, now: float) -> Any:
    ranks = tuple(range(len(ctx.plan.hello.local_devices)))
    return supervising.formed(replace(ctx, ranks=ranks), given, now)


def _ends_well(ctx: Any, given: Any, now: float) -> Any:
    return replace(ctx, link=False), (fx.CloseLink(), fx.Finish(error=None))


def _redials(ctx: Any, given: Any, now: float) -> Any:
    return joining.pause_and_redial(ctx, EndOfStream(), now)


def _any_ranks(ctx: Any, given: Accept) -> Any:
    if len(given.ranks) == len(ctx.plan.hello.local_devices):
        return _FAULT(ctx, given)
    return None


def _spare_ranks(ctx: Any, given: Accept) -> Any:
    return _any_ranks(ctx, given) if len(given.ranks) > _devices(ctx) else _FAULT(ctx, given)


def _devices(ctx: Any) -> int:
    return len(ctx.plan.hello.local_devices)


def _no_salt(ctx: Any, given: Accept) -> Any:
    if given.salt_hex is None and len(given.ranks) == _devices(ctx):
        return None
    return _FAULT(ctx, given)


def _cut_to_devices(act: Act) -> Act:
    def cut(ctx: Any, given: Accept, now: float) -> Any:
        ranks = (*given.ranks, *range(_devices(ctx)))[: _devices(ctx)]
        given = Accept(
            ranks=ranks, salt_hex=given.salt_hex, formation_wait_secs=given.formation_wait_secs
        )
        return act(ctx, given, now)

    return cut


def _given_salt(ctx: Any, given: Accept, now: float) -> Any:
    """The salt of Accept, also where another is held."""
    ctx, effects = joining.admitted(ctx, given, now)
    try:
        key = Salt.from_hex(given.salt_hex or "")
    except ConfigError:
        return ctx, effects
    return ctx, (*effects, fx.UseKey(key=key))


def _open_salt(ctx: Any, given: Accept, now: float) -> Any:
    """Zeros where Accept has no salt."""
    if given.salt_hex is None and ctx.plan.salt is None:
        salted = Accept(
            ranks=given.ranks,
            salt_hex=OPEN.hex(),
            formation_wait_secs=given.formation_wait_secs,
        )
        return joining.admitted(ctx, salted, now)
    return joining.admitted(ctx, given, now)


def _spawns_early(ctx: Any, given: Accept, now: float) -> Any:
    ctx, effects = joining.admitted(ctx, given, now)
    ctx, more = supervising.formed(ctx, WorldFormed(envelope_hex="7b7d"), now)
    return ctx, (*effects, *more)


_ADMITTED = next(rule for rule in AGENT.rules if rule.act is joining.admitted)


SPAWNS_EARLY = table(
    AGENT,
    [
        part
        for rule in AGENT.rules
        for part in (
            (
                Rule(
                    source=rule.source,
                    on=rule.on,
                    when=lambda ctx, given, now: True,
                    target=S.SUPERVISING,
                    act=_spawns_early,
                ),
                rule,
            )
            if rule is _ADMITTED
            else (rule,)
        )
    ],
)


def _undecoded(state: S) -> Change:
    """A payload that cannot be decoded is ignored there."""
    ignoring = Rule(
        source=state, on=Undecodable, when=supervising.only_payload, target=state, act=nothing
    )
    return table(AGENT, [ignoring, *AGENT.rules])


_FAULT = joining._accept_fault


JOINING: dict[str, Change] = {
    "host-lowered": _hello(host=str.lower),
    "devices-sorted": _hello(local_devices=lambda devices: tuple(sorted(devices))),
    "no-labels": _hello(gpus=lambda gpus: ()),
    "no-libtorch": _hello(libtorch=lambda text: ""),
    "no-dataset": _hello(dataset_sig=lambda sig: bytes(32)),
    "no-run-id": _hello(run_id=lambda text: None),
    "no-model": _hello(model_sig=lambda sig: None),
    "reply-never": _reply(None),
    "reply-unscaled": _reply(30.0),
    "reply-early": _reply(1.5),
    "reply-put-off": wire.put_off(Timer.REPLY, 1.0),
    "formation-never": _formation(lambda ctx, wait: None),
    "formation-scaled": _formation(lambda ctx, wait: wait + 30 * ctx.plan.scale),
    "formation-wait-scaled": _formation(lambda ctx, wait: wait * ctx.plan.scale + 30),
    "formation-margin-only": _formation(lambda ctx, wait: 30),
    "formation-put-off": wire.put_off(Timer.FORMATION, 10.0),
    "oldest-first": put(
        AgentContext, "version", property(lambda ctx: ctx.plan.wires[::-1][ctx.wire])
    ),
    "no-second-attempt": asking(
        AGENT,
        joining.budget_spent,
        lambda ctx, given, now: (
            not isinstance(given, ConnectFailed) or joining.budget_spent(ctx, given, now)
        ),
    ),
    "hammering": put(
        joining, "_pause", lambda ctx, given: 0.5 if isinstance(given, ConnectFailed) else 0.01
    ),
    "steady-pause": put(joining, "_pause", lambda ctx, given: 0.5),
    "accept-twice": cell(AGENT, S.AWAIT_FORMED, Accept, (S.AWAIT_FORMED, _accept_again)),
    "second-accept-ignored": cell(AGENT, S.AWAIT_FORMED, Accept),
    "formed-unasked": cell(AGENT, S.AWAIT_ACCEPT, WorldFormed, (S.SUPERVISING, _formed_unasked)),
    "formed-ignored": cell(AGENT, S.AWAIT_ACCEPT, WorldFormed),
    "hello-ignored": cell(AGENT, S.AWAIT_ACCEPT, Hello),
    "report-ignored": cell(AGENT, S.AWAIT_FORMED, RankExited),
    "reject-late-ignored": cell(AGENT, S.AWAIT_FORMED, Reject),
    "reject-retried": cell(AGENT, S.AWAIT_ACCEPT, Reject, (S.DIALING, _redials)),
    "reject-well": cell(AGENT, S.AWAIT_ACCEPT, Reject, (S.DONE, _ends_well)),
    "any-ranks": together(
        put(joining, "_accept_fault", _any_ranks),
        acting(AGENT, joining.admitted, _cut_to_devices(joining.admitted)),
    ),
    "more-ranks": together(
        put(joining, "_accept_fault", _spare_ranks),
        acting(AGENT, joining.admitted, _cut_to_devices(joining.admitted)),
    ),
    "no-salt": together(
        put(joining, "_accept_fault", _no_salt), acting(AGENT, joining.admitted, _open_salt)
    ),
    "given-salt": acting(AGENT, joining.admitted, _given_salt),
    "abort-early-ignored": cell(AGENT, S.AWAIT_FORMED, Abort),
    "end-early-ignored": cell(AGENT, S.AWAIT_FORMED, EndOfStream),
    "break-early-ignored": cell(AGENT, S.AWAIT_FORMED, LinkBroken),
    "garbled-early-ignored": _undecoded(S.AWAIT_FORMED),
    "garbled-answer-ignored": _undecoded(S.AWAIT_ACCEPT),
    "spawns-early": SPAWNS_EARLY,
}
