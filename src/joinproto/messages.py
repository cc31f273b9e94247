"""The six messages of the join channel, complete and checked when they are made.

Source: PROTOCOL.md's table as published by flodl 0.6 to 0.8.  A field that some wire versions do
not carry has a default; which version carries what is said by `grammar.WIRES` alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from joinproto.errors import InvalidMessage
from joinproto.limits import MAX_ITEMS, MAX_PAYLOAD_BYTES, SIGNATURE_BYTES

U8_END = 2**8
U32_END = 2**32
U64_END = 2**64


def _text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidMessage(f"{name} is a str, not {type(value).__name__}")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InvalidMessage(f"{name} holds a lone surrogate, which UTF-8 cannot carry") from None
    if size > MAX_PAYLOAD_BYTES:
        raise InvalidMessage(f"{name} is longer than a payload may be ({MAX_PAYLOAD_BYTES} bytes)")


def _number(name: str, value: object, low: int, end: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidMessage(f"{name} is an int, not {type(value).__name__}")
    if not low <= value < end:
        raise InvalidMessage(f"{name} is {value}, outside {low} to {end - 1}")


def _signature(name: str, value: object) -> None:
    if not isinstance(value, bytes) or len(value) != SIGNATURE_BYTES:
        raise InvalidMessage(f"{name} is {SIGNATURE_BYTES} bytes")


def _sequence(name: str, value: object) -> tuple[object, ...]:
    if not isinstance(value, tuple):
        raise InvalidMessage(f"{name} is a tuple, not {type(value).__name__}")
    if len(value) > MAX_ITEMS:
        raise InvalidMessage(f"{name} has {len(value)} entries, more than {MAX_ITEMS}")
    return value


@dataclass(frozen=True, kw_only=True)
class Hello:
    """Agent → controller: who dials, and what it offers.

    Attributes:
        host: the name under which the host joins.
        local_devices: device numbers, 0 to 255, one rank each.
        gpus: a label for each device; informative.
        libtorch: the build of the library the ranks use; informative but for the GPU vendor.
        dataset_sig: 32 bytes that all hosts of a run share; zeros when none is set.
        run_id: (wire 4) the run that this host was started for.
        nccl_version: (wire 4) major, minor, patch.
        model_sig: (wire 4) 32 bytes.

    Raises:
        InvalidMessage: a value does not fit the wire.
    """

    number: ClassVar[int] = 0

    host: str
    local_devices: tuple[int, ...]
    gpus: tuple[str, ...] = ()
    libtorch: str = ""
    dataset_sig: bytes = bytes(SIGNATURE_BYTES)
    run_id: str | None = None
    nccl_version: tuple[int, int, int] | None = None
    model_sig: bytes | None = None

    def __post_init__(self) -> None:
        _text("host", self.host)
        for device in _sequence("local_devices", self.local_devices):
            _number("local_devices", device, 0, U8_END)
        for label in _sequence("gpus", self.gpus):
            _text("gpus", label)
        _text("libtorch", self.libtorch)
        _signature("dataset_sig", self.dataset_sig)
        if self.run_id is not None:
            _text("run_id", self.run_id)
        if self.nccl_version is not None:
            if len(_sequence("nccl_version", self.nccl_version)) != 3:
                raise InvalidMessage("nccl_version is three numbers")
            for part in self.nccl_version:
                _number("nccl_version", part, 0, U32_END)
        if self.model_sig is not None:
            _signature("model_sig", self.model_sig)


@dataclass(frozen=True, kw_only=True)
class Accept:
    """Controller → agent: admitted, with these global ranks.

    Attributes:
        ranks: one for each device of the Hello, in its order.
        salt_hex: the session salt, under open admission; never shown in a repr.
        formation_wait_secs: seconds (already scaled) that forming the world may still take.

    Raises:
        InvalidMessage: a value does not fit the wire.
    """

    number: ClassVar[int] = 1

    ranks: tuple[int, ...]
    salt_hex: str | None = field(default=None, repr=False)
    formation_wait_secs: int

    def __post_init__(self) -> None:
        for rank in _sequence("ranks", self.ranks):
            _number("ranks", rank, 0, U32_END)
        if self.salt_hex is not None:
            _text("salt_hex", self.salt_hex)
        _number("formation_wait_secs", self.formation_wait_secs, 0, U64_END)


@dataclass(frozen=True, kw_only=True)
class Reject:
    """Controller → agent: turned away; the reason is for people.

    Raises:
        InvalidMessage: the reason does not fit the wire.
    """

    number: ClassVar[int] = 2

    reason: str

    def __post_init__(self) -> None:
        _text("reason", self.reason)


@dataclass(frozen=True, kw_only=True)
class WorldFormed:
    """Controller → agent: the world is complete, start the ranks.

    Attributes:
        envelope_hex: what each rank is handed; hex of JSON in the published form.  It holds the
            session salt, so it is not shown in a repr.
        relay_spec_hex: what the relay is handed; None when no relay is asked for, which an empty
            string does not mean.

    Raises:
        InvalidMessage: a value does not fit the wire.
    """

    number: ClassVar[int] = 3

    envelope_hex: str = field(repr=False)
    relay_spec_hex: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        _text("envelope_hex", self.envelope_hex)
        if self.relay_spec_hex is not None:
            _text("relay_spec_hex", self.relay_spec_hex)


@dataclass(frozen=True, kw_only=True)
class RankExited:
    """Agent → controller: a rank ended.

    Attributes:
        rank: its global number.
        code: its exit code; −N when signal N killed it.

    Raises:
        InvalidMessage: a value does not fit the wire.
    """

    number: ClassVar[int] = 4

    rank: int
    code: int

    def __post_init__(self) -> None:
        _number("rank", self.rank, 0, U32_END)
        _number("code", self.code, -(2**31), 2**31)


@dataclass(frozen=True, kw_only=True)
class Abort:
    """Controller → agent: the run is given up; the reason is for people.

    Raises:
        InvalidMessage: the reason does not fit the wire.
    """

    number: ClassVar[int] = 5

    reason: str

    def __post_init__(self) -> None:
        _text("reason", self.reason)


Message: TypeAlias = Hello | Accept | Reject | WorldFormed | RankExited | Abort

MESSAGES: tuple[type[Message], ...] = (Hello, Accept, Reject, WorldFormed, RankExited, Abort)
"""In the order of their numbers on the wire."""
