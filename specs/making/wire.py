"""The bytes of the protocol, put together by hand.

Nothing here comes from `joinproto`: the vectors are to judge its codec, so they are made without.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import struct
from collections.abc import Callable
from typing import Any, AnyStr

KEY = bytes(range(16))
"""The salt that frames are tagged with where nothing else is said."""

ZERO = bytes(16)
"""The key of Hello, Accept and Reject under open admission."""

OTHER = bytes(range(16, 32))
"""A salt that the reader does not have."""

MAGIC = 0xF10D17C4
JOIN_MAGIC = struct.pack("<I", 0xF10D17E3)
JOIN_KIND = 7
MIB = 1024 * 1024
LARGEST = 16 * MIB

RUN = re.compile(rb"(.)\1{255}", re.DOTALL)
TEXT_RUN = re.compile(r"(.)\1{255}", re.DOTALL)
"""Where something begins that is written as a repetition: a run of one byte or character."""


def tag_of(payload: bytes, *, key: bytes = KEY, kind: int = JOIN_KIND) -> bytes:
    """The 8 bytes that authenticate a frame."""
    covered = struct.pack("<II", kind, len(payload)) + payload
    return hmac.digest(key, covered, hashlib.sha256)[:8]


def header(
    *,
    wire: int,
    length: int,
    tag: bytes = bytes(8),
    kind: int = JOIN_KIND,
    magic: int = MAGIC,
) -> bytes:
    """24 bytes, whatever they say."""
    return struct.pack("<II8sII", magic, wire, tag, kind, length)


def frame(payload: bytes, *, wire: int, key: bytes = KEY, kind: int = JOIN_KIND) -> bytes:
    """A whole frame, rightly tagged."""
    tag = tag_of(payload, key=key, kind=kind)
    return header(wire=wire, length=len(payload), tag=tag, kind=kind) + payload


def marked(marker: int, value: int) -> bytes:
    """A varint whose first byte is `marker`, whether the value needs it or not."""
    size = {251: 2, 252: 4, 253: 8, 254: 16}[marker]
    return bytes((marker,)) + value.to_bytes(size, "little")


def varint(value: int) -> bytes:
    """A number in as few bytes as it needs."""
    if value < 251:
        return bytes((value,))
    for marker, bits in ((251, 16), (252, 32)):
        if value < 1 << bits:
            return marked(marker, value)
    return marked(253, value)


def zigzag(value: int) -> int:
    """The unsigned number that stands for a signed one."""
    return 2 * value if value >= 0 else -2 * value - 1


def text(value: str | bytes) -> bytes:
    """A string behind its length."""
    data = value.encode() if isinstance(value, str) else value
    return varint(len(data)) + data


def option(value: bytes | None) -> bytes:
    """Nothing, or what is already written as bytes."""
    return b"\0" if value is None else b"\1" + value


# -- how bytes and texts stand in a vector ----------------------------------------------------


def written(data: bytes) -> str | list[Any]:
    """`data` as hex; with long runs, a list of hex and of repetitions."""
    return _pieces(data, RUN, bytes.hex)


def written_value(value: dict[str, Any]) -> dict[str, Any]:
    """A message or spec with its long texts as lists of pieces and repetitions."""
    return {
        name: _pieces(field, TEXT_RUN, str) if isinstance(field, str) else field
        for name, field in value.items()
    }


def _pieces(
    data: AnyStr, run: re.Pattern[AnyStr], shown: Callable[[AnyStr], str]
) -> str | list[Any]:
    parts: list[Any] = []
    done = 0
    while found := run.search(data, done):
        if found.start() > done:
            parts.append(shown(data[done : found.start()]))
        # A pattern that takes a run of millions to its end takes seconds.
        rest = data[found.start() :]
        times = len(rest) - len(rest.lstrip(found[1]))
        parts.append({"repeat": shown(found[1]), "times": times})
        done = found.start() + times
    if done < len(data) or not parts:
        parts.append(shown(data[done:]))
    return parts if done else parts[0]
