"""What cases are made of: streams of frames, and scripts.

What has a state is given a *script*, in a format that byte mutators can work on too, since any
bytes are one:

    script = settings, *step         settings: one byte, of which the target makes what it likes
    step   = op, argument            op 2 to 255: an act of the target's, with one byte
           | op, length, data        op 0: data arrives as it is, in one piece;
                                     op 1: data is a payload that the target puts behind a header,
                                     tagged with the key in force

`length` is two bytes, little-endian.  What is missing at the end is taken for zeros and nothing.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from joinproto.grammar import FRAME_MAGIC, JOIN_KIND
from joinproto.keys import Salt
from joinproto.limits import HEADER_BYTES, TAG_BYTES

SESSION: Final = Salt(bytes(range(16)))
"""The session salt, and the pre-shared one, of everything in process."""

MAGIC: Final = FRAME_MAGIC.to_bytes(4, "little")

_HEADER: Final = Struct("<4sI8sII")
_COVERED: Final = Struct("<II")


class Unit(NamedTuple):
    """A whole frame of a stream, or (with no header) bytes that are none."""

    header: bytes
    body: bytes


class Step(NamedTuple):
    """One step of a script."""

    op: int
    argument: int = 0
    data: bytes = b""


BYTES: Final = 0
FRAME: Final = 1


# -- streams ----------------------------------------------------------------------------------


def signed(payload: bytes, key: bytes, wire: int, kind: int = JOIN_KIND) -> Unit:
    """A frame with a valid tag.  Not by the codec: what is tested does not make its own cases."""
    covered = _COVERED.pack(kind & 0xFFFFFFFF, len(payload)) + payload
    tag = hmac.digest(key, covered, "sha256")[:TAG_BYTES]
    return Unit(_HEADER.pack(MAGIC, wire, tag, kind, len(payload)), payload)


def units(data: bytes) -> list[Unit]:
    """A stream cut into whole frames and what is none; together they are `data` again."""
    found: list[Unit] = []
    at = 0
    while at < len(data):
        end = _end_of_frame(data, at)
        if end:
            found.append(Unit(data[at : at + HEADER_BYTES], data[at + HEADER_BYTES : end]))
        else:
            end = data.find(MAGIC, at + 1)
            end = len(data) if end < 0 else end
            found.append(Unit(b"", data[at:end]))
        at = end
    return found


def _end_of_frame(data: bytes, at: int) -> int:
    """Where the frame that begins at `at` ends; 0: there is no whole one."""
    start = at + HEADER_BYTES
    if not data.startswith(MAGIC, at) or start > len(data):
        return 0
    end = start + int.from_bytes(data[start - 4 : start], "little")
    return end if end <= len(data) else 0


def stream_of(parts: Sequence[Unit]) -> bytes:
    """The bytes of a stream."""
    return b"".join([piece for part in parts for piece in part])


# -- scripts ----------------------------------------------------------------------------------


def read_script(data: bytes) -> tuple[int, list[Step]]:
    """The settings and the steps of a script, which any bytes are."""
    steps: list[Step] = []
    at = 1
    while at < len(data):
        op = data[at]
        if op in (BYTES, FRAME):
            start = at + 3
            end = start + int.from_bytes(data[at + 1 : start], "little")
            steps.append(Step(op, data=data[start:end]))
            at = end
        else:
            steps.append(Step(op, data[at + 1] if at + 1 < len(data) else 0))
            at += 2
    return (data[0] if data else 0), steps


def write_script(settings: int, steps: Sequence[Step]) -> bytes:
    """The bytes of a script.  What is too long for its length is cut."""
    parts = [bytes((settings,))]
    for op, argument, data in steps:
        if op in (BYTES, FRAME):
            data = data[:0xFFFF]
            parts.append(bytes((op,)) + len(data).to_bytes(2, "little") + data)
        else:
            parts.append(bytes((op, argument)))
    return b"".join(parts)
