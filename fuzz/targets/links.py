"""What the targets with a link share: who holds which key, and how bytes arrive."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Final

from fuzz.targets.framing import drip
from joinproto.codec import check_tag, decode_payload
from joinproto.framing import Framer
from joinproto.fuzzing.pieces import BYTES, SESSION, Step, signed, stream_of
from joinproto.keys import OPEN, Salt
from joinproto.messages import Message

UNKNOWN: Final = Salt(b"nobody else's   ")
"""A pre-shared salt that nothing in a case is tagged with."""


class Trust(Enum):
    """What the other end knows."""

    OPEN = 0
    SHARED = 1
    STRANGER = 2

    @property
    def salt(self) -> Salt | None:
        """The pre-shared salt of the end under test; None: open admission."""
        return (None, SESSION, UNKNOWN)[self.value]

    @property
    def join_key(self) -> Salt:
        """The key of Hello, Accept and Reject."""
        return self.salt or OPEN


def trust_of(settings: int) -> Trust:
    """From the two lowest bits of a script's settings; open admission has two of the four."""
    return Trust(settings % 4 % 3)


def data_of(step: Step, key: Salt, wire: int) -> bytes:
    """What arrives in a step: bytes as they are, or a payload behind a header."""
    if step.op == BYTES:
        return step.data
    return stream_of([signed(step.data, key.raw, wire)])


def pieces_of(data: bytes, *, dripping: bool) -> Iterable[bytes]:
    """How it arrives."""
    return drip(data) if dripping else [data]


def later(now: float, due: float | None, argument: int) -> float:
    """The time after a step in which time passes: to what is due, or (odd) some seconds on."""
    if argument % 2 == 0 and due is not None:
        return max(now, due)
    return now + argument / 4


def messages_of(data: bytes, key: Salt | None, wire: int) -> list[tuple[Message, bytes, bytes]]:
    """The messages in what was sent, each with its payload and its tag; nothing may be left over.

    Raises:
        DecodeError: it was no stream of frames, or not all tagged with `key` (None: with any).
    """
    framer = Framer(wires=frozenset((wire,)))
    framer.feed(data)
    found = []
    while (frame := framer.next_frame()) is not None:
        if key is not None:
            check_tag(frame.kind, frame.payload, frame.tag, key)
        decoded = decode_payload(frame.payload, wire=wire)
        assert not decoded.notes, "a frame that no encoder writes"
        found.append((decoded.message, frame.payload, frame.tag))
    assert framer.held == 0, "half a frame was sent"
    return found
