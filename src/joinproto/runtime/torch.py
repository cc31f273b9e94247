"""The variables that torch.distributed starts from, taken from the formed world."""

from __future__ import annotations

from typing import Any, TypeGuard

from joinproto.errors import ArtifactError
from joinproto.record import Record
from joinproto.runtime.hexjson import decode_hex, read_value

MASTER_PORT = 29500
"""The default of torch's own launcher."""


class TorchSettings(Record):
    """That ranks run torch.distributed, and what a controller that does not say it is to be
    replaced by.

    Attributes:
        master_addr: address of rank 0's host; None: the envelope says it.
        master_port: a free port there; None: the envelope says it.
    """

    master_addr: str | None = None
    master_port: int | None = None


def torch_environment(
    envelope_hex: str, *, local_rank: int, settings: TorchSettings
) -> dict[str, str]:
    """RANK, WORLD_SIZE and the like for one rank.

    Args:
        envelope_hex: the envelope of the formed world.
        local_rank: the rank's position on this host.
        settings: what wins over the envelope.

    Raises:
        ArtifactError: the envelope cannot be read, or neither it nor the settings name the master.
    """
    envelope = _read(envelope_hex)
    ranks = _ranks(envelope)
    size = _number(envelope, "world_size")
    addr = settings.master_addr or envelope.get("master_addr")
    port = settings.master_port or envelope.get("master_port")
    if not isinstance(addr, str) or not addr or not _is_number(port) or not port:
        raise ArtifactError(
            "the controller does not say where rank 0 listens; give --master-addr and --master-port"
        )
    if local_rank >= len(ranks):
        raise ArtifactError(f"the envelope names {len(ranks)} rank(s) for this host, not more")
    found = {
        "RANK": str(ranks[local_rank]),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(len(ranks)),
        "MASTER_ADDR": addr,
        "MASTER_PORT": str(port),
    }
    group = _group(envelope, ranks, size)
    return found if group is None else {**found, "GROUP_RANK": str(group)}


def _group(envelope: dict[str, Any], ranks: list[int], size: int) -> int | None:
    """The host's number; of a published controller only known where all hosts are alike."""
    said = envelope.get("group_rank")
    if _is_number(said):
        return said
    alike = envelope.get("num_workers") == size / len(ranks) and ranks[0] % len(ranks) == 0
    return ranks[0] // len(ranks) if alike else None


def _read(envelope_hex: str) -> dict[str, Any]:
    try:
        return _object(read_value(decode_hex(envelope_hex)), "the envelope")
    except ValueError as error:
        raise ArtifactError(f"the envelope cannot be read: {error}") from None


def _object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ArtifactError(f"{name} is no JSON object")
    return value


def _number(envelope: dict[str, Any], name: str) -> int:
    value = envelope.get(name)
    if not _is_number(value):
        raise ArtifactError(f"the envelope's {name} is no number")
    return value


def _is_number(value: Any) -> TypeGuard[int]:
    # For Python, true is one too.
    return type(value) is int


def _ranks(envelope: dict[str, Any]) -> list[int]:
    worker = _object(envelope.get("worker"), "the envelope's worker")
    ranks = worker.get("ranks")
    if not isinstance(ranks, list) or not ranks or not all(map(_is_number, ranks)):
        raise ArtifactError("the envelope's worker.ranks is no list of numbers")
    return ranks
