"""Faults of a controller in the forming of its world, and from then on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from joinproto import effects as fx
from joinproto.errors import Stage
from joinproto.inputs import EndOfStream, Expired, LinkBroken, Settled, Undecodable
from joinproto.limits import Timer
from joinproto.machines import controller as link
from joinproto.machines.controller import CONTROLLER
from joinproto.machines.controller import ControllerState as S
from joinproto.machines.window import WINDOW, admission, ending, forming
from joinproto.machines.window import WindowState as W
from joinproto.machines.window.config import WindowConfig
from joinproto.machines.window.context import WindowContext
from joinproto.messages import RankExited
from joinproto.record import replace
from joinproto.runtime import artifacts
from joinproto.runtime.board import EXIT_CODES
from joinproto.runtime.hexjson import write_hex
from joinproto.table import Rule
from tests.support.mutants.changes import (
    Act,
    Change,
    acting,
    after,
    asking,
    cell,
    put,
    table,
    together,
    without,
)
from tests.support.mutants.controller_admission import Effects, later, never


def _window_property(name: str, by: Callable[[Any], Any]) -> Change:
    return put(WindowContext, name, property(by))


def _config_property(name: str, by: Callable[[Any], Any]) -> Change:
    return put(WindowConfig, name, property(by))


def _target_as_quorum(ctx: Any) -> bool:
    return bool(ctx.joined_ranks >= ctx.config.min_ranks and ctx.whole)


def _below_quorum(ctx: Any) -> bool:
    return bool(ctx.joined_ranks and ctx.whole)


def _with_hole(ctx: Any) -> bool:
    return bool(ctx.joined_ranks >= ctx.config.min_ranks)


def _complete_with_hole(ctx: Any) -> bool:
    target = ctx.config.target_ranks
    return target is not None and ctx.joined_ranks >= target


def _formed_only(by: Callable[[Any, Any], bool]) -> Change:
    """WorldFormed goes to those members alone for whom `by` (envelope, context) holds."""
    return acting(CONTROLLER, link._form, _form_if(by))


def _form_if(by: Callable[[Any, Any], bool]) -> Act:
    def form(ctx: Any, given: Any, now: float) -> Any:
        return link._form(ctx, given, now) if by(ctx, given) else (ctx, ())

    return form


def _form_effects(edit: Callable[[Effects], Effects]) -> Change:
    return acting(
        CONTROLLER,
        link._form,
        after(link._form, lambda ctx, given, now, effects: edit(effects)),
    )


def _artifact(edit: Callable[[dict[str, Any]], Any]) -> Change:
    """Envelopes (which have a worker) and relay specs (which have not) with other content."""
    write = write_hex

    def changed(value: Any) -> str:
        edit(value)
        return write(value)

    return put(artifacts, "write_hex", changed)


def _envelope(edit: Callable[[dict[str, Any]], Any]) -> Change:
    return _artifact(lambda value: edit(value) if "worker" in value else None)


def _form_with_relay(ctx: Any, given: Any, now: float) -> Any:
    return link._form(ctx, replace(given, relay_spec_hex=given.relay_spec_hex or ""), now)


def _closed(ctx: Any, given: Any, now: float) -> Any:
    return link._lost(ctx, "odd")


def _any_rank(ctx: Any, given: Any, now: float) -> bool:
    return given.rank not in ctx.exited


def _tag_or_payload(ctx: Any, given: Undecodable, now: float) -> bool:
    return given.error.stage in (Stage.PAYLOAD, Stage.TAG)


def _any_failure(ctx: Any, given: Any, now: float) -> bool:
    return given.code != 0 and not ending.known(ctx, given, now)


def _any_loss(ctx: Any, given: Any, now: float) -> bool:
    member = ctx.member(given.connection)
    return member is not None and ending._running(ctx, member) > 0


def _all_lost(ctx: Any, member: Any) -> int:
    """The end of a member's connection is always a loss."""
    return len(member.ranks) if ctx.formed else 0


def _never_lost(ctx: Any, member: Any) -> int:
    return 0


def silent(act: Act) -> Act:
    """`act` without its Abort."""
    return without(act, fx.AbortAll)


def _late_admitted(ctx: Any, given: Any, now: float) -> Any:
    ctx, effects = admission.admit(ctx, given, now)
    return ctx, tuple(each for each in effects if not isinstance(each, fx.Settle))


def _late_dismissed(ctx: Any, given: Any, now: float) -> Any:
    return ctx, (fx.DismissHost(connection=given.connection, reason="late"),)


def _exit(**codes: int) -> Change:
    names = {name.replace("_", "-"): code for name, code in codes.items()}
    return lambda: patch.dict(EXIT_CODES, names)


OVERTIME_IGNORED = table(
    WINDOW,
    [
        rule
        for rule in WINDOW.rules
        if not (
            rule.source is W.OVERTIME
            and rule.on is Settled
            and rule.when is forming.quorum_by_clock
        )
    ],
)


CAP_IGNORED = cell(WINDOW, W.OVERTIME, Expired)


STRANGE_FATAL = table(
    CONTROLLER,
    [
        Rule(source=rule.source, on=rule.on, when=rule.when, target=S.CLOSED, act=_closed)
        if rule.act is link._strange and rule.on is not RankExited
        else rule
        for rule in CONTROLLER.rules
    ],
)


RUNNING: dict[str, Change] = {
    "below-quorum": _window_property("quorate", _below_quorum),
    "at-quorum": _window_property("complete", _target_as_quorum),
    "join-timeout-ignored": asking(WINDOW, forming.quorum_by_clock, never),
    "join-timeout-unscaled": _config_property(
        "window", lambda self: min(self.join_timeout, self.cap)
    ),
    "cap-unscaled": _config_property("cap", lambda self: self.max_join_timeout or 600.0),
    "overtime-ignored": OVERTIME_IGNORED,
    "cap-ignored": CAP_IGNORED,
    "cap-silent": together(acting(WINDOW, forming.cap_reached, silent(forming.cap_reached))),
    "cap-well": _exit(window_failed=0),
    "hole-formed": together(
        _window_property("quorate", _with_hole),
        _window_property("complete", _complete_with_hole),
    ),
    "formed-to-one": _formed_only(lambda ctx, given: 0 in ctx.ranks),
    "world-size": _envelope(lambda value: value.update(world_size=len(value["worker"]["ranks"]))),
    "num-workers": _envelope(lambda value: value.update(num_workers=1)),
    "envelope-host": _envelope(lambda value: value["worker"].update(host="worker")),
    "envelope-ranks": _envelope(
        lambda value: value["worker"].update(ranks=list(range(value["world_size"])))
    ),
    "envelope-devices": _envelope(
        lambda value: value["worker"].update(
            local_devices=list(range(len(value["worker"]["ranks"])))
        )
    ),
    "envelope-salt": _envelope(lambda value: value.pop("salt")),
    "relay-unasked": acting(CONTROLLER, link._form, _form_with_relay),
    "relay-ranks": _artifact(lambda value: value.pop("ranks", None)),
    "late-admitted": acting(WINDOW, admission.refuse_late, _late_admitted),
    "late-dismissed": acting(WINDOW, admission.refuse_late, _late_dismissed),
    "half-closes-first": _form_effects(lambda effects: (*effects, fx.EndSending())),
    "failure-aborts": asking(WINDOW, ending.report_too_bad, _any_failure),
    "loss-aborts": asking(WINDOW, ending.link_too_bad, _any_loss),
    "end-is-loss": put(ending, "_running", _all_lost),
    "loss-is-end": put(ending, "_running", _never_lost),
    "failed-well": _exit(failed=0),
    "other-rank": asking(CONTROLLER, link._news, _any_rank),
    "strange-fatal": STRANGE_FATAL,
    "garbled-fatal": asking(CONTROLLER, link._only_payload, never),
    "bad-frame-ignored": asking(CONTROLLER, link._only_payload, _tag_or_payload),
    "break-ignored": cell(CONTROLLER, S.FORMED, LinkBroken),
    "end-ignored": cell(CONTROLLER, S.FORMED, EndOfStream),
    "abort-closes": acting(
        CONTROLLER,
        link._abort,
        after(link._abort, lambda ctx, given, now, effects: (*effects, fx.CloseLink())),
    ),
    "abort-stays": later(Timer.ABORT, 0, link._abort),
}
