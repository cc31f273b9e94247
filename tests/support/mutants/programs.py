"""Faults that only real programs show: environments, files, signals, HTTP."""

from __future__ import annotations

from typing import Any

from joinproto.conformance.verdicts import Verdict
from joinproto.inputs import ConnectFailed, StopRequested
from joinproto.machines.agent import AGENT, joining
from joinproto.machines.agent import AgentState as S
from joinproto.machines.agent.context import AgentContext
from joinproto.machines.window import WINDOW, WindowConfig, forming
from joinproto.runtime import artifacts, board, environment, scale, spec
from tests.support.mutants.changes import Change, Mutant, acting, asking, cell, put
from tests.support.mutants.controller import silent


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


def _mutant(
    role: str,
    name: str,
    what: str,
    change: Change,
    named: str,
    *related: str,
    verdict: Verdict = Verdict.FAIL,
) -> Mutant:
    return Mutant(
        name=name,
        role=role,
        what=what,
        change=change,
        named=named,
        related=related,
        verdict=verdict,
        real=True,
    )


PROGRAM_MUTANTS = (
    _mutant(
        "agent",
        "second-role",
        "An agent starts although its environment gives it another role.",
        put(spec, "_OTHER_ROLES", ()),
        "spec/role-relay-json",
        "spec/role-*",
    ),
    _mutant(
        "agent",
        "device-by-place",
        "A rank gets its place on the host for its device.",
        _by_place(),
        "spawning/device",
        "spawning/hip-in-wire-4",
    ),
    _mutant(
        "agent",
        "spec-left",
        "Children find the agent's own spec in their environment.",
        put(environment, "_without", lambda base, *names: dict(base)),
        "spawning/no-spec-for-children",
        "secrets/environment",
        "spawning/relay-is-no-rank",
    ),
    _mutant(
        "agent",
        "not-localized",
        "The envelope is handed on in wire 4 as it came.",
        put(artifacts, "localize_envelope", lambda text, **values: text),
        "spawning/controller-in-envelope",
        "spawning/data-of-this-host",
        "spawning/envelope-*",
    ),
    _mutant(
        "agent",
        "stop-while-waiting",
        "SIGTERM is ignored between Accept and WorldFormed.",
        cell(AGENT, S.AWAIT_FORMED, StopRequested),
        "joining/sigterm-before-the-world",
        "joining/sigint-before-the-world",
    ),
    _mutant(
        "agent",
        "one-dial",
        "A dial that is refused ends the agent.",
        cell(AGENT, S.DIALING, ConnectFailed, (S.ABORTED, joining.give_up)),
        "dialing/refused-then-taken",
        "dialing/*",
        "joining/sigterm-while-dialing",
    ),
    _mutant(
        "agent",
        "relay-when-empty",
        "An empty relay spec is taken for none.",
        put(
            AgentContext,
            "relays",
            property(lambda ctx: int(bool(ctx.formed and ctx.formed.relay_spec_hex))),
        ),
        "spawning/relay-with-empty-spec",
        "spawning/relay-*",
    ),
    _mutant(
        "controller",
        "scale-ignored",
        "Deadlines are not scaled.",
        put(scale, "parse_scale", lambda text: 1.0),
        "timing/scaled",
        "timing/*",
    ),
    _mutant(
        "controller",
        "members-without-labels",
        "The state tells no labels of devices.",
        _unlabelled(),
        "status/members",
        "status/state-members",
    ),
    _mutant(
        "controller",
        "any-numbers",
        "A quorum of 0, or one above the target, is taken.",
        put(WindowConfig, "_check_ranks", lambda self: None),
        "window/zero-quorum",
        "window/target-below-quorum",
        "window/manual-with-target",
    ),
    _mutant(
        "controller",
        "manual-by-clock",
        "In start mode manual the clock forms the world as well.",
        asking(WINDOW, forming.quorum_by_clock, lambda ctx, given, now: ctx.quorate),
        "window/manual-waits",
        "window/manual-*",
    ),
    _mutant(
        "controller",
        "silent-end",
        "SIGTERM sends no Abort.",
        acting(WINDOW, forming.stop, silent(forming.stop)),
        "ending/term-while-running",
        "ending/*-while-*",
        "ending/last-words",
        verdict=Verdict.NON_STRICT,
    ),
)
