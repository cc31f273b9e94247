"""codec: a stream of frames of one wire version, read to the message.

Invariant: a tag is taken when, and only when, it was made with the key, as told by a second reading
of what a tag is.  What a payload decodes to encodes to the same value, and to the same bytes where
nothing was remarkable about them; where something was, to other and fewer bytes.  An error names
the field and a byte inside the payload.  No salt shows in a message's repr.

Exceptions allowed: `DecodeError`, of the framer at a stage before the tag, of the codec at `tag`
and at `payload`: its one way of refusing what a peer sent.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator
from dataclasses import replace

from joinproto.codec import check_tag, decode_payload, encode_payload, fitted
from joinproto.errors import DecodeError, Stage
from joinproto.framing import Frame, Framer
from joinproto.keys import OPEN
from joinproto.limits import TAG_BYTES
from joinproto.messages import MESSAGES, Accept, Message

_NAMES = ("message", *(message.__name__ for message in MESSAGES))


def check(data: bytes, wire: int) -> None:
    """Raises `AssertionError` where the invariant is broken."""
    for frame in _frames(data, wire):
        if _tag_is_taken(frame):
            check_payload(frame.payload, wire)


def check_payload(payload: bytes, wire: int) -> Message | None:
    """The same for a payload alone; the message that it holds, None where it holds none."""
    try:
        decoded = decode_payload(payload, wire=wire)
    except DecodeError as error:
        assert error.stage is Stage.PAYLOAD, error.stage
        assert error.offset is not None, "an error without a place"
        assert 0 <= error.offset <= len(payload), "a place outside the payload"
        assert error.field.partition(".")[0] in _NAMES, error.field
        return None
    message = decoded.message
    again = encode_payload(message, wire=wire)
    if decoded.notes:
        assert len(again) < len(payload), f"{decoded.notes} of bytes that were as they should be"
        assert decode_payload(again, wire=wire).message == message, "it does not encode to itself"
    else:
        assert again == payload, "it encodes to other bytes"
    assert fitted(message, wire=wire) == message
    if isinstance(message, Accept):
        assert repr(message) == repr(replace(message, salt_hex=None)), "a salt shows"
    return message


def _frames(data: bytes, wire: int) -> Iterator[Frame]:
    framer = Framer(wires=frozenset((wire,)))
    framer.feed(data)
    try:
        while (frame := framer.next_frame()) is not None:
            yield frame
        framer.end()
    except DecodeError as error:
        assert error.stage not in (Stage.TAG, Stage.PAYLOAD), error.stage


def _tag_is_taken(frame: Frame) -> bool:
    covered = frame.kind.to_bytes(4, "little") + len(frame.payload).to_bytes(4, "little")
    mac = hmac.new(OPEN.raw, covered + frame.payload, hashlib.sha256).digest()
    right = mac[:TAG_BYTES] == frame.tag
    try:
        check_tag(frame.kind, frame.payload, frame.tag, OPEN)
    except DecodeError as error:
        assert error.stage is Stage.TAG, error.stage
        assert mac[:TAG_BYTES].hex() not in str(error), "the right tag is told"
        assert not right, "a right tag was refused"
        return False
    assert right, "a wrong tag was taken"
    return True
