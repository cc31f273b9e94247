"""The six messages as payloads, each with the value that it stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from making.wire import option, text, varint, zigzag

Said = tuple[bytes, dict[str, Any]]
"""A payload, and the message that it is."""

GPUS = ("NVIDIA H100 (79GB, sm_90)", "cuda:1")
SIGNATURE = bytes(range(32))


def hello(
    wire: int,
    *,
    host: str = "worker-x",
    devices: Sequence[int] = (0, 1),
    gpus: Sequence[str] = GPUS,
    libtorch: str = "builds/test",
    signature: bytes = bytes(32),
    run_id: str | None = None,
    nccl: Sequence[int] | None = None,
    model: bytes | None = None,
) -> Said:
    """What an agent says first; the last three fields exist from wire 4 on."""
    payload = (
        b"\0"
        + text(host)
        + varint(len(devices))
        + bytes(devices)
        + varint(len(gpus))
        + b"".join(map(text, gpus))
        + text(libtorch)
        + signature
    )
    value: dict[str, Any] = {
        "type": "Hello",
        "host": host,
        "local_devices": list(devices),
        "gpus": list(gpus),
        "libtorch": libtorch,
        "dataset_sig": signature.hex(),
    }
    if wire == 2:
        return payload, value
    payload += option(None if run_id is None else text(run_id))
    payload += option(None if nccl is None else b"".join(map(varint, nccl)))
    payload += option(model)
    value["run_id"] = run_id
    value["nccl_version"] = None if nccl is None else list(nccl)
    value["model_sig"] = None if model is None else model.hex()
    return payload, value


def accept(ranks: Sequence[int], salt: str | None, wait: int) -> Said:
    """A host is in."""
    payload = (
        b"\1"
        + varint(len(ranks))
        + b"".join(map(varint, ranks))
        + option(None if salt is None else text(salt))
        + varint(wait)
    )
    return payload, {
        "type": "Accept",
        "ranks": list(ranks),
        "salt_hex": salt,
        "formation_wait_secs": wait,
    }


def reject(reason: str) -> Said:
    """A host is not in."""
    return b"\2" + text(reason), {"type": "Reject", "reason": reason}


def formed(envelope: str, relay: str | None) -> Said:
    """The world is complete."""
    payload = b"\3" + text(envelope) + option(None if relay is None else text(relay))
    return payload, {"type": "WorldFormed", "envelope_hex": envelope, "relay_spec_hex": relay}


def exited(rank: int, code: int) -> Said:
    """A rank ended."""
    payload = b"\4" + varint(rank) + varint(zigzag(code))
    return payload, {"type": "RankExited", "rank": rank, "code": code}


def abort(reason: str) -> Said:
    """The run is given up."""
    return b"\5" + text(reason), {"type": "Abort", "reason": reason}


RANK_5 = exited(5, 0)
"""The shortest message that says something; most headers are tried on it."""
