"""The GPUs of a host as NVML and nvidia-smi report them: both texts read into one form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from joinproto.runtime.probe import Outcome
from joinproto.runtime.probe_child import one_line

UNNAMED = "unknown GPU"
"""Stands for a name that is empty or is not UTF-8: the device counts, whatever it is called."""

_MIB = 1024 * 1024
_MAX_DIGITS = 18
_NOT_KNOWN = (b"[N/A]", b"N/A", b"[Not Supported]", b"Not Supported")
_NONE_FOUND = b"No devices were found"


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device.

    Attributes:
        index: its number in PCI order, which is what the protocol's device ids are.
        name: as the driver gives it.
        memory_mib: whole MiB; None when the device says that it has no memory of its own.
        compute_capability: major and minor; None when not known.
        uuid: such as `GPU-8932f937-…`; None when not known.
    """

    index: int
    name: str
    memory_mib: int | None = None
    compute_capability: tuple[int, int] | None = None
    uuid: str | None = None

    @property
    def label(self) -> str:
        """`NAME (NGB, sm_XY)`, without what is not known; fit for a log line."""
        facts = []
        if self.memory_mib is not None:
            facts.append(f"{self.memory_mib // 1024}GB")
        if self.compute_capability is not None:
            facts.append("sm_{}{}".format(*self.compute_capability))
        name = one_line(self.name) or UNNAMED
        return f"{name} ({', '.join(facts)})" if facts else name


class State(IntEnum):
    """How far an inventory can be trusted, best first."""

    ANSWERED = 0
    ABSENT = 1
    """This host has no such library or program."""
    FAILED = 2
    """There is one, and it says that it cannot tell."""
    BROKEN = 3
    """It crashed or hung."""


@dataclass(frozen=True, slots=True)
class Inventory:
    """What was found out about a host's GPUs.

    Attributes:
        gpus: in order of their index.
        warnings: one line each, for the log.
        lost: index and reason of each device that is there and cannot be used.
        state: whether there was an answer at all.
        trouble: one line that says why not; "" after an answer.
    """

    gpus: tuple[Gpu, ...] = ()
    warnings: tuple[str, ...] = ()
    lost: tuple[tuple[int, str], ...] = ()
    state: State = State.ANSWERED
    trouble: str = ""

    def find(self, index: int) -> Gpu | None:
        """The device with that number, if it was found."""
        return next((gpu for gpu in self.gpus if gpu.index == index), None)


def no_answer(state: State, trouble: str) -> Inventory:
    """An inventory that says only why there is none."""
    return Inventory(state=state, trouble=trouble)


def _whole(gpus: Iterable[Gpu], lost: dict[int, str], warnings: Iterable[str] = ()) -> Inventory:
    ordered = tuple(sorted(gpus, key=lambda gpu: gpu.index))
    return Inventory(ordered, tuple(warnings), tuple(sorted(lost.items())))


def _ended_badly(outcome: Outcome) -> str:
    """Why the process gave no answer that counts, or "" when it ended by itself."""
    if outcome.fault:
        return outcome.fault
    if outcome.code is not None and outcome.code < 0:
        import signal

        return f"crashed ({signal.strsignal(-outcome.code)})"
    return ""


# -- NVML -------------------------------------------------------------------------------------


def read_nvml(outcome: Outcome) -> Inventory:
    """The inventory in a report of `probe_child`."""
    if trouble := _ended_badly(outcome):
        return no_answer(State.BROKEN, trouble)
    gpus: list[Gpu] = []
    lost: dict[int, str] = {}
    for line in outcome.output.decode("utf-8", "replace").split("\n"):
        match line.split("\t", 5):
            case ["gpu", index, total, capability, uuid, name]:
                gpus.append(
                    Gpu(
                        int(index),
                        UNNAMED if name == "-" else name,
                        None if total == "-" else int(total) // _MIB,
                        None if capability == "-" else _capability(capability),
                        None if uuid == "-" else uuid,
                    )
                )
            case ["lost", index, reason]:
                lost[int(index)] = reason
            case ["absent", reason]:
                return no_answer(State.ABSENT, reason)
            case ["failed", reason]:
                return no_answer(State.FAILED, reason)
            case ["end"]:
                return _whole(gpus, lost)
    return no_answer(State.BROKEN, f"ended without an answer (exit code {outcome.code})")


def _capability(text: str) -> tuple[int, int] | None:
    major, _, minor = text.partition(".")
    if len(text) <= _MAX_DIGITS and text.isascii() and major.isdigit() and minor.isdigit():
        return int(major), int(minor)
    return None


# -- nvidia-smi -------------------------------------------------------------------------------


def read_smi(outcome: Outcome) -> Inventory:
    """The inventory in `index, compute_cap, memory.total, name` rows, memory in MiB.

    Lines that are no rows are told: nvidia-smi writes there which device it cannot reach.
    """
    if trouble := _ended_badly(outcome):
        return no_answer(State.BROKEN, trouble)
    gpus: dict[int, Gpu] = {}
    lost: dict[int, str] = {}
    said: list[str] = []
    for line in filter(None, map(bytes.strip, outcome.output.splitlines())):
        fields = [field.strip() for field in line.split(b",", 3)]
        index = _number(fields[0])
        if index is None or len(fields) < 4:
            said.append(one_line(line.decode("utf-8", "replace")))
        elif (gpu := _smi_gpu(index, *fields[1:])) is None:
            lost[index] = one_line(line.decode("utf-8", "replace"))
        else:
            gpus.setdefault(index, gpu)
    if not gpus and not lost and _NONE_FOUND not in outcome.output:
        return no_answer(State.FAILED, said[0] if said else f"exit code {outcome.code}, no output")
    if gpus and outcome.code:
        said.append(f"ended with exit code {outcome.code}; the list may not be whole")
    return _whole(gpus.values(), lost, [f"nvidia-smi: {line}" for line in said] if gpus else ())


def _smi_gpu(index: int, capability: bytes, memory: bytes, name: bytes) -> Gpu | None:
    """The device of a row, or None when it holds an error where a figure should be."""
    mib = _number(memory)
    architecture = _capability(capability.decode("ascii", "replace"))
    if mib is None and memory not in _NOT_KNOWN:
        return None
    if architecture is None and capability not in _NOT_KNOWN:
        return None
    try:
        return Gpu(index, name.decode() or UNNAMED, mib, architecture)
    except UnicodeDecodeError:
        return Gpu(index, UNNAMED, mib, architecture)


def read_smi_uuids(outcome: Outcome) -> dict[int, str]:
    """The UUIDs in `index, uuid` rows; what is no such row is passed over."""
    uuids = {}
    for line in outcome.output.splitlines():
        index, _, uuid = line.partition(b",")
        if (number := _number(index.strip())) is not None and uuid.strip():
            uuids[number] = one_line(uuid.decode("ascii", "replace"))
    return uuids


def _number(text: bytes) -> int | None:
    return int(text) if text.isdigit() and len(text) <= _MAX_DIGITS else None
