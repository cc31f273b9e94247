"""What a formed world hands each host: the envelope for its ranks, the spec for its relay.

Both are hex of JSON.  The controller writes them; a wire 4 agent writes its own view of the
controller's address into them (under wire 2 they pass untouched, and nothing here is called).
Read and written as flodl 0.7 and 0.8 do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from joinproto.errors import ArtifactError
from joinproto.keys import Salt
from joinproto.runtime.hexjson import (
    Field,
    array,
    boolean,
    decode_hex,
    read_record,
    read_value,
    string,
    whole,
    write_hex,
)

FRAME_CEILING_BYTES: Final = 2**30
"""What published controllers announce when no model says otherwise; only a relay's own limit."""

_RELAY_FIELDS: Final = (
    Field("host", string),
    Field("controller_host", string),
    Field("controller_port", whole(2**16 - 1)),
    Field("ranks", array(whole(2**32 - 1))),
    Field("salt_hex", string),
    Field("world_size", whole(2**64 - 1)),
    Field("data_channel", boolean),
    Field("frame_ceiling_bytes", whole(2**64 - 1), 0),
)


def build_envelope(
    *,
    controller_host: str,
    controller_port: int,
    world_size: int,
    num_workers: int,
    host: str,
    ranks: Sequence[int],
    local_devices: Sequence[int],
    salt: Salt,
    group_rank: int | None = None,
    master: tuple[str, int] | None = None,
) -> str:
    """The envelope of a host that no configuration names, as hex.

    Published ranks refuse an envelope with a blank controller host, without ranks, or with
    another number of devices than of ranks.

    Args:
        controller_host: the address as this host is to dial it.
        controller_port: 1 to 65535.
        world_size: ranks in the world.
        num_workers: hosts in the world.
        host: the name it joined under.
        ranks: its global rank numbers.
        local_devices: its device ids, one for each rank.
        salt: the session salt.
        group_rank: (ours) the host's number in the world; None: not said.
        master: (ours) where rank 0 can be reached by all others; None: not said.
    """
    ours: dict[str, object] = {} if group_rank is None else {"group_rank": group_rank}
    if master is not None:
        ours |= {"master_addr": master[0], "master_port": master[1]}
    return write_hex(
        {
            "controller": {"host": controller_host, "port": controller_port},
            "world_size": world_size,
            "num_workers": num_workers,
            "worker": {
                "host": host,
                "ranks": list(ranks),
                "local_devices": list(local_devices),
                "nccl_socket_ifname": "",
                "path": "",
            },
            "salt": salt.hex(),
            **ours,
        }
    )


def build_relay_spec(
    *,
    controller_host: str,
    controller_port: int,
    world_size: int,
    host: str,
    ranks: Sequence[int],
    salt: Salt,
) -> str:
    """The spec of one host's relay, as hex; arguments as for `build_envelope`.

    `data_channel` is false: this controller carries no tensors, and a relay told otherwise would
    wait for ranks on a channel that none of them dials.
    """
    return write_hex(
        {
            "host": host,
            "controller_host": controller_host,
            "controller_port": controller_port,
            "ranks": list(ranks),
            "salt_hex": salt.hex(),
            "world_size": world_size,
            "data_channel": False,
            "frame_ceiling_bytes": FRAME_CEILING_BYTES,
        }
    )


def localize_envelope(
    envelope_hex: str,
    *,
    host: str,
    port: int,
    data_path: str | None,
    gpu_ram_share: float | None,
) -> str:
    """The envelope with what only this host knows; everything else in it stays.

    Args:
        envelope_hex: as it came.
        host: the controller's host as configured, which the join has proved to work.
        port: the controller's port likewise.
        data_path: goes into `worker`; None leaves what is there.
        gpu_ram_share: the same.

    Raises:
        ArtifactError: it cannot be read, has no controller object, or has no worker object where
            one is needed.
    """
    try:
        envelope = read_value(decode_hex(envelope_hex))
        _object(envelope, "controller").update(host=host, port=port)
        local = {"data_path": data_path, "gpu_ram_share": gpu_ram_share}
        known = {name: value for name, value in local.items() if value is not None}
        if known:
            _object(envelope, "worker").update(known)
        return write_hex(envelope)
    except ValueError as error:
        raise ArtifactError(f"the envelope from the controller is unusable: {error}") from None


def localize_relay(relay_hex: str, *, host: str, port: int) -> str:
    """The relay spec with the controller's address as this host dialed it.

    Fields that flodl 0.8 does not know are dropped, as its own agent drops them.

    Raises:
        ArtifactError: it cannot be read, or a field is missing or of another type.
    """
    try:
        spec = read_record(decode_hex(relay_hex), _RELAY_FIELDS)
        return write_hex(spec | {"controller_host": host, "controller_port": port})
    except ValueError as error:
        raise ArtifactError(f"the relay spec from the controller is unusable: {error}") from None


def _object(envelope: Any, name: str) -> dict[str, Any]:
    found = envelope.get(name) if isinstance(envelope, dict) else None
    if not isinstance(found, dict):
        raise ValueError(f"it has no {name} object")
    return found
