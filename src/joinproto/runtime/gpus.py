"""The GPUs that this host offers, found without touching CUDA.

NVML is asked first and nvidia-smi behind it, each in a process of its own and with one deadline for
both (see `probe`).  Device ids are numbers in PCI order, which is the order of both and the one in
which ranks are pinned.

A device that cannot be asked is left out with a warning, and the others keep their numbers.  A
library that crashes or hangs is no answer: with devices named the agent goes on without labels,
otherwise it refuses.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from joinproto.errors import ConfigError, HostError
from joinproto.limits import MAX_DEVICES
from joinproto.runtime.inventory import (
    Gpu,
    Inventory,
    State,
    no_answer,
    read_nvml,
    read_smi,
    read_smi_uuids,
)
from joinproto.runtime.mask import MASK_VARIABLE, shown, visible_gpus
from joinproto.runtime.probe import Outcome, Probe

__all__ = [
    "Detection",
    "Devices",
    "Gpu",
    "Inventory",
    "State",
    "choose",
    "detect",
    "label",
    "resolve",
]

_SMI: Final = "nvidia-smi"
_SMI_DEVICES: Final = (
    "--query-gpu=index,compute_cap,memory.total,name",
    "--format=csv,noheader,nounits",
)
_SMI_UUIDS: Final = ("--query-gpu=index,uuid", "--format=csv,noheader")
_NAME_THEM: Final = "name the devices to do without (--devices or local_devices)"
_TOLD: Final = 3


# -- asking -----------------------------------------------------------------------------------


class Detection:
    """A detection under way.  NVML is being asked from the moment this object is made, so that the
    caller can do other things meanwhile; `result` waits.

    Args:
        environ: for PATH, CUDA_VISIBLE_DEVICES and what nvidia-smi is to see.  (NVML itself sees
            this process's own environment.)
        timeout: seconds for everything, already scaled.
    """

    def __init__(self, environ: Mapping[str, str], *, timeout: float) -> None:
        self._environ = environ
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        self._inventory: Inventory | None = None
        self._nvml: Probe | Inventory
        try:
            self._nvml = Probe("nvml", environ=environ)
        except OSError as error:
            self._nvml = _not_started(error)

    def result(self) -> Inventory:
        """Wait for the answer; the same one each time.  Raises nothing of its own."""
        if self._inventory is None:
            self._inventory = self._ask()
        return self._inventory

    def close(self) -> None:
        """Give up: end what is under way.  Needless after `result`, and harmless."""
        if isinstance(self._nvml, Probe):
            self._nvml.close()
        if self._inventory is None:
            self._inventory = no_answer(State.FAILED, "given up")

    def _ask(self) -> Inventory:
        nvml = self._nvml
        if isinstance(nvml, Probe):
            nvml = read_nvml(nvml.outcome(self._deadline, allowed=self._timeout))
        if nvml.state is State.ANSWERED:
            return nvml
        if time.monotonic() >= self._deadline:
            return replace(nvml, trouble=f"NVML: {nvml.trouble}")
        smi = self._ask_smi()
        if smi.state is not State.ANSWERED:
            trouble = f"NVML: {nvml.trouble}; {_SMI}: {smi.trouble}"
            return no_answer(max(nvml.state, smi.state), trouble)
        if nvml.state is State.ABSENT:
            return smi
        note = f"NVML: {nvml.trouble}; asked {_SMI} instead"
        return replace(smi, warnings=(note, *smi.warnings))

    def _ask_smi(self) -> Inventory:
        program = _find_program(_SMI, self._environ)
        if program is None:
            return no_answer(State.ABSENT, "not in PATH")
        try:
            found = read_smi(self._run([program, *_SMI_DEVICES]))
            if found.gpus and "GPU-" in self._environ.get(MASK_VARIABLE, ""):
                uuids = read_smi_uuids(self._run([program, *_SMI_UUIDS]))
                named = tuple(replace(gpu, uuid=uuids.get(gpu.index)) for gpu in found.gpus)
                found = replace(found, gpus=named)
            return found
        except OSError as error:
            return _not_started(error)

    def _run(self, argv: Sequence[str]) -> Outcome:
        probe = Probe("execute", argv, environ=self._environ)
        return probe.outcome(self._deadline, allowed=self._timeout)


def detect(environ: Mapping[str, str], *, timeout: float) -> Inventory:
    """Every NVIDIA GPU of this host, CUDA_VISIBLE_DEVICES aside.

    Never raises for what it finds: a host without GPUs or with broken ones is an `Inventory` that
    says so.

    Args:
        environ: see `Detection`.
        timeout: seconds, already scaled.
    """
    return Detection(environ, timeout=timeout).result()


def _not_started(error: OSError) -> Inventory:
    return no_answer(State.FAILED, f"no process to ask in: {error.strerror}")


def _find_program(name: str, environ: Mapping[str, str]) -> str | None:
    for folder in environ.get("PATH", os.defpath).split(os.pathsep):
        path = os.path.join(folder, name)
        # Not in the current folder, which anyone may have filled.
        if os.path.isabs(folder) and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


# -- choosing ---------------------------------------------------------------------------------


class Devices(NamedTuple):
    """What a host offers: ids and labels of equal length, in order, and lines for the log."""

    ids: tuple[int, ...]
    labels: tuple[str, ...]
    warnings: tuple[str, ...]


def label(device_id: int, inventory: Inventory) -> str:
    """The label of a device for the Hello; `cuda:ID` when it was not found."""
    gpu = inventory.find(device_id)
    return f"cuda:{device_id}" if gpu is None else gpu.label


def resolve(
    requested: Sequence[int] | None,
    environ: Mapping[str, str],
    *,
    timeout: float,
    detection: Detection | None = None,
) -> Devices:
    """The devices to offer: those requested, or every GPU that CUDA_VISIBLE_DEVICES leaves.

    Args:
        requested: device ids, 0 to 255, taken as they are, found or not; None for all.
        environ: see `Detection`.
        timeout: seconds, already scaled.
        detection: one already under way for the same `environ`; `timeout` was given to it then.

    Raises:
        ConfigError: none was requested and none found (fault `no-devices`).
        HostError: none was requested and the detection crashed or ran out of time.
    """
    inventory = (detection or Detection(environ, timeout=timeout)).result()
    return choose(requested, inventory, environ)


def choose(
    requested: Sequence[int] | None, inventory: Inventory, environ: Mapping[str, str]
) -> Devices:
    """`resolve` with the detection done."""
    if requested is None:
        ids, warnings = _all_visible(inventory, environ)
    else:
        ids, warnings = tuple(requested), _doubts(requested, inventory)
    return Devices(ids, tuple(label(number, inventory) for number in ids), warnings)


def _doubts(requested: Sequence[int], inventory: Inventory) -> tuple[str, ...]:
    """What speaks against the devices requested.  A host without NVIDIA's software says nothing."""
    if inventory.state is State.ABSENT:
        return ()
    if inventory.state is not State.ANSWERED:
        return (f"the GPUs could not be examined ({inventory.trouble})",)
    lost = dict(inventory.lost)
    doubts = list(inventory.warnings)
    for number in dict.fromkeys(requested):
        if number in lost:
            doubts.append(f"GPU {number} was requested and cannot be used: {lost[number]}")
        elif inventory.find(number) is None:
            there = ", ".join(str(gpu.index) for gpu in inventory.gpus) or "none"
            doubts.append(f"GPU {number} was requested and not found (found: {there})")
    return tuple(doubts)


def _all_visible(
    inventory: Inventory, environ: Mapping[str, str]
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    if inventory.state is State.BROKEN:
        raise HostError(f"cannot tell which GPUs there are ({inventory.trouble}); {_NAME_THEM}")
    warnings = [*inventory.warnings, *_left_out(inventory)]
    visible, remarks = visible_gpus(inventory, environ.get(MASK_VARIABLE))
    ids = tuple(gpu.index for gpu in visible if gpu.index < MAX_DEVICES)
    if len(ids) < len(visible):
        beyond = len(visible) - len(ids)
        remarks += (f"{beyond} GPUs with numbers above {MAX_DEVICES - 1} are left out",)
    if not ids:
        reasons = "; ".join([_why_none(inventory, environ), *remarks])
        raise ConfigError(f"{reasons}; {_NAME_THEM}", fault="no-devices")
    return ids, (*warnings, *remarks)


def _left_out(inventory: Inventory) -> list[str]:
    return [f"GPU {index} is left out: {reason}" for index, reason in inventory.lost]


def _why_none(inventory: Inventory, environ: Mapping[str, str]) -> str:
    if inventory.state is not State.ANSWERED:
        return f"no GPU found ({inventory.trouble})"
    if inventory.gpus and MASK_VARIABLE in environ:
        return (
            f"no GPU left: {shown(environ[MASK_VARIABLE])} hides all {len(inventory.gpus)} of them"
        )
    if inventory.lost:
        told = _left_out(inventory)[:_TOLD]
        more = len(inventory.lost) - len(told)
        return "; ".join(["no usable GPU", *told, *([f"and {more} more"] if more else [])])
    return "no GPU found"
