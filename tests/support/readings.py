"""What a reader without a key makes of the vectors' bytes: such as specs/joinproto.* tell of.

It takes every wire version and any tag, and says of a frame of another kind only that it is one.
The vectors are of readers that have a key and speak one version; where those two differ, the codec
is asked instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from joinproto.codec import Note, decode_payload, encode_frame
from joinproto.errors import DecodeError, Stage
from joinproto.framing import Framer
from joinproto.grammar import JOIN_KIND, WIRES
from joinproto.keys import Salt
from joinproto.messages import Message
from tests.support.cases import cases, data_of, message_of

KEY = Salt(bytes(range(16)))


@dataclass(frozen=True, kw_only=True)
class Reading:
    """A stream of one frame, and what is to be made of it.

    Attributes:
        name: of the vector.
        data: the bytes, up to the end of the stream.
        stage: where the frame is refused.
        is_whole: there is a frame that is not refused.
        message: what it says; None as well for a frame of another kind.
        notes: what is remarkable about it.
    """

    name: str
    data: bytes
    stage: Stage | None = None
    is_whole: bool = False
    message: Message | None = None
    notes: tuple[Note, ...] = ()


def _read(name: str, data: bytes) -> Reading:
    framer = Framer()
    framer.feed(data)
    try:
        frame = framer.next_frame()
        if frame is None:
            framer.end()
            return Reading(name=name, data=data)
        data = data[: frame.size]  # what lies behind is another reading
        if frame.kind != JOIN_KIND:
            return Reading(name=name, data=data, is_whole=True)
        found = decode_payload(frame.payload, wire=frame.wire)
    except DecodeError as error:
        return Reading(name=name, data=data, stage=error.stage)
    return Reading(name=name, data=data, is_whole=True, message=found.message, notes=found.notes)


def _check(reading: Reading, case: dict[str, Any]) -> None:
    """That the reading is the vector's, as far as one without a key can know."""
    if case["result"] != "invalid":
        value = case["value"]
        assert reading.message == (None if value is None else message_of(value)), reading.name
        return
    stage = Stage(case["stage"])
    other_wire = stage is Stage.VERSION and int.from_bytes(reading.data[4:8], "little") in WIRES
    other_kind = "OtherKind" in case["flags"]
    if other_kind:
        assert (reading.stage, reading.message) == (None, None), reading.name
    elif stage is not Stage.TAG and not other_wire:
        assert reading.stage is stage, reading.name


def load() -> list[Reading]:
    """Readings of all vectors that are one frame, or a payload that is made one."""
    found = []
    for case in cases("frame"):
        found.append(_read(case["id"], data_of(case["input"])))
        _check(found[-1], case)
    for case in cases("payload"):
        payload = data_of(case["input"])
        found.append(_read(case["id"], encode_frame(payload, key=KEY, wire=case["wire"])))
        _check(found[-1], case)
    return found
