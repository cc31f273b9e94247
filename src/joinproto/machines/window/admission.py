"""Who is admitted, with which ranks, and what the others are told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from joinproto import effects as fx
from joinproto.inputs import Offered
from joinproto.limits import MAX_DEVICES, MAX_HOST_CHARACTERS
from joinproto.machines.window.config import Check
from joinproto.machines.window.context import Member, Outcome, WindowContext, said, with_member
from joinproto.messages import Hello

SHOWN_BYTES = 4
SHOWN_CHARACTERS = 16


def refusal(ctx: WindowContext, hello: Hello) -> str | None:
    """Why this host may not join, in the order in which it is asked; None: it may."""
    devices = hello.local_devices
    if not hello.host.strip():
        return "the host name is blank"
    if len(hello.host) > MAX_HOST_CHARACTERS:
        return f"the host name has {len(hello.host)} characters, more than {MAX_HOST_CHARACTERS}"
    if not devices:
        return "no devices are offered; a host without ranks has no place in a world"
    if len(devices) > MAX_DEVICES:
        return f"{len(devices)} devices are offered, more than {MAX_DEVICES}"
    if len(set(devices)) < len(devices):
        twice = next(device for device in devices if devices.count(device) > 1)
        return f"device {twice} is offered twice"
    if hello.host in ctx.hosts:
        return (
            f"host {hello.host!r} has joined already; if that was an earlier start of this "
            "worker, its connection still stands"
        )
    return _disagreement(ctx, hello)


def _disagreement(ctx: WindowContext, hello: Hello) -> str | None:
    configured = ctx.config.dataset_sig
    expected = ctx.references.dataset_sig if configured is None else configured
    if expected is not None and hello.dataset_sig != expected:
        return (
            f"dataset signature {_signature(hello.dataset_sig)} differs from this run's "
            f"{_signature(expected)}"
        )
    for check, value in said(hello).items():
        agreed = ctx.references.agreed.get(check)
        if check in ctx.config.checks and None not in (value, agreed) and value != agreed:
            name, show = _SHOWN[check]
            return f"{name} {show(value)} differs from this run's {show(agreed)}"
    return None


def _signature(value: bytes) -> str:
    return f"{value[:SHOWN_BYTES].hex()}…"


def _run_id(value: str) -> str:
    return repr(value if len(value) <= SHOWN_CHARACTERS else f"{value[:SHOWN_CHARACTERS]}…")


def _version(value: tuple[int, int]) -> str:
    return f"{value[0]}.{value[1]}"


_SHOWN: dict[Check, tuple[str, Callable[[Any], str]]] = {
    Check.VENDOR: ("GPU vendor", str),
    Check.RUN_ID: ("run id", _run_id),
    Check.NCCL: ("NCCL version", _version),
    Check.MODEL_SIG: ("model signature", _signature),
}


def _wire_refusal(ctx: WindowContext, wire: int) -> str | None:
    fixed = ctx.references.wire
    if ctx.config.mixed_wires or fixed is None or fixed == wire:
        return None
    return f"wire {wire}; this world's first member fixed wire {fixed}"


def wrong_wire(ctx: WindowContext, given: Offered, now: float) -> bool:
    return _wire_refusal(ctx, given.wire) is not None


def dismiss(ctx: WindowContext, given: Offered, now: float) -> Outcome:
    # As published controllers do, so that an agent that tries versions finds its way.
    reason = _wire_refusal(ctx, given.wire) or "wire version"
    return ctx, (fx.DismissHost(connection=given.connection, reason=reason),)


def inadmissible(ctx: WindowContext, given: Offered, now: float) -> bool:
    return refusal(ctx, given.hello) is not None


def refuse(ctx: WindowContext, given: Offered, now: float) -> Outcome:
    reason = refusal(ctx, given.hello) or "refused"
    return ctx, (fx.RefuseHost(connection=given.connection, reason=reason),)


def admit(ctx: WindowContext, given: Offered, now: float) -> Outcome:
    """Admit; whether that makes a world is looked at once the Accept has been written."""
    place = _vacancy(ctx, given.hello)
    if place is None:
        first, place = ctx.world_size, len(ctx.members)
        ranks = tuple(range(first, first + len(given.hello.local_devices)))
    else:
        ranks = ctx.members[place].ranks
    member = Member(
        connection=given.connection,
        hello=given.hello,
        wire=given.wire,
        ranks=ranks,
        joined_at=ctx.since_opened(now),
        peer=given.peer,
    )
    left = ctx.config.cap - ctx.since_opened(now)
    return with_member(ctx, member, place), (
        fx.AdmitHost(
            connection=given.connection,
            ranks=ranks,
            formation_wait_secs=max(0, int(left)),
        ),
        fx.Settle(),
    )


def _vacancy(ctx: WindowContext, hello: Hello) -> int | None:
    """Index of the vacant block that this host takes: its own, or the first of its size."""
    if ctx.whole:
        return None
    fitting = [
        (member.host != hello.host, index)
        for index, member in enumerate(ctx.members)
        if member.connection is None and len(member.ranks) == len(hello.local_devices)
    ]
    return min(fitting)[1] if fitting else None


def refuse_late(ctx: WindowContext, given: Offered, now: float) -> Outcome:
    reason = "the world has formed already; a host that comes later cannot join this run"
    return ctx, (fx.RefuseHost(connection=given.connection, reason=reason),)


def refuse_ended(ctx: WindowContext, given: Offered, now: float) -> Outcome:
    reason = f"the run is over: {ctx.failure}" if ctx.failure else "the run is over"
    return ctx, (fx.RefuseHost(connection=given.connection, reason=reason),)
