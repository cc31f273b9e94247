"""CUDA_VISIBLE_DEVICES: which of a host's GPUs a CUDA program would see, and in what order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from joinproto.runtime.inventory import Gpu, Inventory

MASK_VARIABLE: Final = "CUDA_VISIBLE_DEVICES"


def visible_gpus(inventory: Inventory, mask: str | None) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    """The devices that CUDA would see, in its order, and what is to be said about the others.

    As NVIDIA's CUDA programming guide has it: numbers as nvidia-smi counts, or UUIDs of which the
    first characters do; the first entry that names no device ends the list.  An entry that names a
    device twice empties it.  One that names a lost device is passed over, not to lose the rest.
    """
    if mask is None or not inventory.gpus:
        return inventory.gpus, ()
    chosen: list[Gpu] = []
    for entry in (part.strip() for part in mask.split(",")):
        gpu = _named(entry, inventory.gpus)
        if gpu is None and _may_be_lost(entry, inventory):
            continue
        if gpu is None:
            return tuple(chosen), _remark(entry, mask)
        if gpu in chosen:
            return (), (f"{shown(mask)} names GPU {gpu.index} twice, which CUDA takes as none",)
        chosen.append(gpu)
    return tuple(chosen), ()


def _named(entry: str, gpus: Sequence[Gpu]) -> Gpu | None:
    """The one device that an entry names."""
    if entry.startswith("GPU-"):
        found = [gpu for gpu in gpus if gpu.uuid is not None and gpu.uuid.startswith(entry)]
    else:
        found = [gpu for gpu in gpus if str(gpu.index) == _digits(entry)]
    return found[0] if len(found) == 1 else None


def _may_be_lost(entry: str, inventory: Inventory) -> bool:
    """Whether an entry that names no device may mean a lost one, whose UUID is not known."""
    if entry.startswith("GPU-"):
        return bool(inventory.lost)
    return any(str(index) == _digits(entry) for index, _ in inventory.lost)


def _digits(entry: str) -> str:
    """An entry as numbers are written here: CUDA reads 01 as 1."""
    return (entry.lstrip("0") or "0") if entry.startswith("0") else entry


def _remark(entry: str, mask: str) -> tuple[str, ...]:
    if entry.startswith("MIG-"):
        # The wire has room for a whole device's number only, and a rank pinned by it may land in
        # another slice than the one that was given.
        return (f"{shown(mask)} names a MIG slice, and only whole GPUs can be offered",)
    if entry in ("", "-1", "NoDevFiles"):
        return ()  # the usual ways to say: no more
    return (f"{shown(mask)}: no one GPU is {entry[:80]!r}; CUDA ignores it and what follows",)


def shown(value: str) -> str:
    """The variable and its value, as far as a log line needs it."""
    return f"{MASK_VARIABLE}={value[:80]!r}"
