"""Frames ↔ messages.  The only place that sees an error of construct."""

from __future__ import annotations

import hmac
from dataclasses import fields
from enum import StrEnum
from functools import cache
from io import BytesIO
from typing import Any

from nacl.bindings import sodium_memcmp

from joinproto.errors import DecodeError, InvalidMessage, Stage
from joinproto.grammar import (
    FRAME_MAGIC,
    JOIN_KIND,
    U32,
    WIRES,
    Fields,
    Header,
    ScalarError,
    TagPrefix,
)
from joinproto.keys import Salt
from joinproto.limits import MAX_PAYLOAD_BYTES, TAG_BYTES
from joinproto.messages import MESSAGES, Message
from joinproto.record import Record


class Note(StrEnum):
    """What a decoder takes although no encoder writes it."""

    NON_MINIMAL_VARINT = "non-minimal-varint"
    TRAILING_BYTES = "trailing-bytes"


class Decoded(Record):
    """A message and what was remarkable about its bytes."""

    message: Message
    notes: tuple[Note, ...] = ()


def tag_of(kind: int, payload: bytes, key: Salt) -> bytes:
    """The authentication tag: the first 8 bytes of HMAC-SHA256 over kind, length and payload."""
    covered = TagPrefix.build({"kind": kind, "length": len(payload)}) + payload
    return hmac.digest(key.raw, covered, "sha256")[:TAG_BYTES]


def tag_matches(kind: int, payload: bytes, tag: bytes, key: Salt) -> bool:
    """Whether `tag` was made with `key`, compared in constant time."""
    return sodium_memcmp(tag_of(kind, payload, key), tag)


def encode_frame(payload: bytes, *, key: Salt, wire: int, kind: int = JOIN_KIND) -> bytes:
    """Put a header with a valid tag in front of `payload`, whatever the payload is."""
    header: bytes = Header.build(
        {
            "magic": FRAME_MAGIC,
            "version": wire,
            "tag": tag_of(kind, payload, key),
            "kind": kind,
            "length": len(payload),
        }
    )
    return header + payload


def encode_payload(message: Message, *, wire: int) -> bytes:
    """The bytes of `message` in wire version `wire`.

    Raises:
        InvalidMessage: that version has no room for a field that is set, or is not known.
    """
    for name in _unsayable(wire, message.number):
        if getattr(message, name) is not None:
            raise InvalidMessage(f"{name} cannot be said in wire {wire}")
    return U32.bytes_of(message.number) + _payload(wire, message.number).bytes_of(message)


def fitted(message: Message, *, wire: int) -> Message:
    """`message` without what wire version `wire` cannot say."""
    if all(getattr(message, name) is None for name in _unsayable(wire, message.number)):
        return message
    names = _payload(wire, message.number).names
    said: dict[str, Any] = {name: getattr(message, name) for name in names}
    return type(message)(**said)


def encode(message: Message, *, key: Salt, wire: int) -> bytes:
    """The whole frame that carries `message`.

    Raises:
        InvalidMessage: the version does not carry a field that is set, or is not known, or the
            payload is larger than 16 MiB.
    """
    payload = encode_payload(message, wire=wire)
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise InvalidMessage(
            f"{type(message).__name__} takes {len(payload)} bytes, more than {MAX_PAYLOAD_BYTES}"
        )
    return encode_frame(payload, key=key, wire=wire)


def decode_payload(payload: bytes, *, wire: int) -> Decoded:
    """The message in `payload`.

    Raises:
        DecodeError: at stage payload, with the field's path and the byte offset.
        InvalidMessage: the version is not known.
    """
    stream = BytesIO(payload)
    notes: list[str] = []
    kind = "message"
    try:
        number = U32.read(stream, notes)
        if number >= len(MESSAGES):
            raise DecodeError(
                Stage.PAYLOAD, f"variant {number} is no message", field=kind, offset=0
            )
        kind = MESSAGES[number].__name__
        values = _payload(wire, number).read(stream, notes)
    except ScalarError as error:
        path = f"{kind}.{error.field}" if error.field else kind
        raise DecodeError(Stage.PAYLOAD, str(error), field=path, offset=error.offset) from None
    message = MESSAGES[number](**values)
    found = [Note.NON_MINIMAL_VARINT] if notes else []
    if stream.tell() < len(payload):
        found.append(Note.TRAILING_BYTES)
    return Decoded(message=message, notes=tuple(found))


def check_tag(kind: int, payload: bytes, tag: bytes, key: Salt) -> None:
    """Refuse a frame whose tag was not made with `key`.

    Raises:
        DecodeError: at stage tag; the right tag is not told.
    """
    if not tag_matches(kind, payload, tag, key):
        raise DecodeError(Stage.TAG, "the frame was not tagged with this key, or was changed")


def _payload(wire: int, number: int) -> Fields:
    if wire not in WIRES:
        raise InvalidMessage(f"wire version {wire} is not known; spoken here: {sorted(WIRES)}")
    return WIRES[wire].payloads[number]


@cache
def _unsayable(wire: int, number: int) -> tuple[str, ...]:
    """The fields of a message that the version does not carry."""
    names = _payload(wire, number).names
    return tuple(field.name for field in fields(MESSAGES[number]) if field.name not in names)
