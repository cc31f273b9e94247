"""The variables that tell a process its role, and the environments of ranks and relay.

A child gets the agent's own environment with its role's variables on top.  What would give it a
second role is taken out, and so is what holds the salt: the agent's spec and `JOINPROTO_SALT`.
(The artifacts hold the session salt too; ranks and relay need it there.)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

AGENT_VARIABLE: Final = "FLODL_INTERNAL_AGENT_JSON"
FULL_CLUSTER_VARIABLE: Final = "FLODL_INTERNAL_FULL_CLUSTER_JSON"
CLUSTER_VARIABLE: Final = "FLODL_INTERNAL_CLUSTER_JSON"
LOCAL_RANK_VARIABLE: Final = "FLODL_INTERNAL_LOCAL_RANK"
RELAY_VARIABLE: Final = "FLODL_INTERNAL_RELAY_JSON"

SALT_VARIABLE: Final = "JOINPROTO_SALT"
"""Ours: the pre-shared salt as 32 hex digits, for the agent and the controller alone."""

NOTIFY_VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")
"""The service manager's, for the agent alone: a child that used them would speak in its name."""


def rank_environment(
    base: Mapping[str, str],
    *,
    envelope_hex: str,
    local_rank: int,
    device: int,
    wire: int,
    extra: Mapping[str, str],
) -> dict[str, str]:
    """The whole environment of one rank.

    Args:
        base: the agent's own environment.
        envelope_hex: the envelope, as it came (wire 2) or localized (wire 4).
        local_rank: the rank's position on this host, from 0.
        device: the id of the one GPU it may see.
        wire: the wire version that the controller answered in.
        extra: laid over everything else, as published agents do.
    """
    # Late: this module's names are among the first things that an agent imports.
    from joinproto.grammar import WIRES

    env = _without(base, AGENT_VARIABLE, FULL_CLUSTER_VARIABLE, SALT_VARIABLE, *NOTIFY_VARIABLES)
    env[CLUSTER_VARIABLE] = envelope_hex
    env[LOCAL_RANK_VARIABLE] = str(local_rank)
    # The default order is by speed, and may differ between drivers: ids would name other cards.
    env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    env["CUDA_VISIBLE_DEVICES"] = str(device)
    if WIRES[wire].localized:
        # HIP prefers its own variable, and counts within what the two lower-level masks leave.
        env["HIP_VISIBLE_DEVICES"] = str(device)
        env.pop("ROCR_VISIBLE_DEVICES", None)
        env.pop("GPU_DEVICE_ORDINAL", None)
    # Ours: a rank writes to a pipe, where Python would hold its lines back by the block.
    env.setdefault("PYTHONUNBUFFERED", "1")
    env.update(extra)
    return env


def relay_environment(
    base: Mapping[str, str], *, relay_hex: str, extra: Mapping[str, str]
) -> dict[str, str]:
    """The whole environment of the relay: `base`, its spec, then `extra` over everything."""
    env = _without(
        base,
        AGENT_VARIABLE,
        FULL_CLUSTER_VARIABLE,
        CLUSTER_VARIABLE,
        LOCAL_RANK_VARIABLE,
        SALT_VARIABLE,
        *NOTIFY_VARIABLES,
    )
    env[RELAY_VARIABLE] = relay_hex
    env.update(extra)
    return env


def _without(base: Mapping[str, str], *names: str) -> dict[str, str]:
    return {name: value for name, value in base.items() if name not in names}
