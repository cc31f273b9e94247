"""Faults that only real programs show: environments, signals, HTTP."""

from __future__ import annotations

from typing import Any

from joinproto.inputs import ConnectFailed, StopRequested
from joinproto.machines.agent import AGENT, joining
from joinproto.machines.agent import AgentState as S
from joinproto.machines.agent.context import AgentContext
from joinproto.machines.window import WINDOW, WindowConfig, forming
from joinproto.runtime import artifacts, board, environment, scale, spec
from tests.support.mutants.changes import Change, acting, asking, cell, put
from tests.support.mutants.controller_running import silent


def _by_place() -> Change:
    """A rank's device is its place on the host."""
    made = environment.rank_environment

    def changed(base: Any, **values: Any) -> dict[str, str]:
        return made(base, **{**values, "device": values["local_rank"]})

    return put(environment, "rank_environment", changed)


def _unlabelled() -> Change:
    """The members in the state have no labels."""
    published = board._published

    def changed(member: Any) -> dict[str, Any]:
        return {**published(member), "gpus": []}

    return put(board, "_published", changed)


AGENT_PROGRAMS: dict[str, Change] = {
    "second-role": put(spec, "_OTHER_ROLES", ()),
    "device-by-place": _by_place(),
    "spec-left": put(environment, "_without", lambda base, *names: dict(base)),
    "not-localized": put(artifacts, "localize_envelope", lambda text, **values: text),
    "stop-while-waiting": cell(AGENT, S.AWAIT_FORMED, StopRequested),
    "one-dial": cell(AGENT, S.DIALING, ConnectFailed, (S.ABORTED, joining.give_up)),
    "relay-when-empty": put(
        AgentContext,
        "relays",
        property(lambda ctx: int(bool(ctx.formed and ctx.formed.relay_spec_hex))),
    ),
}

CONTROLLER_PROGRAMS: dict[str, Change] = {
    "scale-ignored": put(scale, "parse_scale", lambda text: 1.0),
    "members-without-labels": _unlabelled(),
    "any-numbers": put(WindowConfig, "_check_ranks", lambda self: None),
    "manual-by-clock": asking(WINDOW, forming.quorum_by_clock, lambda ctx, given, now: ctx.quorate),
    "silent-end": acting(WINDOW, forming.stop, silent(forming.stop)),
}
