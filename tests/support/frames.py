"""Messages as the bytes of whole frames, and back, for tests that speak with one end."""

from __future__ import annotations

from joinproto import codec
from joinproto.framing import Framer
from joinproto.keys import OPEN, Salt
from joinproto.messages import Message


def frame_of(message: Message, *, key: Salt = OPEN, wire: int = 2) -> bytes:
    """The frame that says `message`."""
    return codec.encode(message, key=key, wire=wire)


def read_frames(data: bytes, *, key: Salt = OPEN) -> list[Message]:
    """What whole frames, all tagged with `key`, say; anything else fails the test."""
    framer = Framer()
    framer.feed(data)
    messages = []
    while (frame := framer.next_frame()) is not None:
        codec.check_tag(frame.kind, frame.payload, frame.tag, key)
        messages.append(codec.decode_payload(frame.payload, wire=frame.wire).message)
    assert not framer.held
    return messages
