"""What the bytes of one direction of a connection hold, piece by piece.

Every frame is shown that can be cut out, whatever its tag: whether that was right, the suite says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from joinproto.codec import decode_payload
from joinproto.errors import DecodeError
from joinproto.framing import Frame, Framer
from joinproto.grammar import CHANNEL_MAGICS, HTTP_HEADS, JOIN_KIND, KINDS

MAGIC_BYTES = 4
HTTP = (*HTTP_HEADS, b"HTTP")

MOST_FRAMES = 20
"""Of one piece."""

MOST_CHARACTERS = 400
"""Of one value."""


class Direction:
    """One direction of a connection, from its first byte."""

    def __init__(self) -> None:
        self._head: bytes | None = b""
        self._framer: Framer | None = Framer()
        self._is_text = False

    def read(self, data: bytes, *, whole: bool = True) -> str:
        """What comes to its end in these bytes, in lines.

        Args:
            data: that came next.
            whole: more did not come with them; else nothing after them can be read.
        """
        lines = list(self._lines(data))
        if not whole:
            self._framer = None
        return "\n".join(lines)

    def _lines(self, data: bytes) -> Iterator[str]:
        if self._head is not None:
            self._head += data
            if len(self._head) < MAGIC_BYTES:
                return
            data, self._head = self._head, None
            if channel := CHANNEL_MAGICS.get(data[:MAGIC_BYTES]):
                yield f"magic of the channel {channel}"
                data = data[MAGIC_BYTES:]
            self._is_text = data.startswith(HTTP)
        if self._is_text:
            yield data.decode(errors="backslashreplace")
        elif self._framer is not None:
            yield from self._frames(self._framer, data)

    def _frames(self, framer: Framer, data: bytes) -> Iterator[str]:
        framer.feed(data)
        count = 0
        try:
            while (frame := framer.next_frame()) is not None:
                count += 1
                if count <= MOST_FRAMES:
                    yield from _shown(frame)
        except DecodeError as error:
            self._framer = None
            yield f"no further frame: {error.detail}"
        if count > MOST_FRAMES:
            yield f"{count - MOST_FRAMES} more frames"


def _shown(frame: Frame) -> Iterator[str]:
    name = KINDS[frame.kind]
    size = len(frame.payload)
    yield f"frame of wire {frame.wire}, kind {frame.kind} ({name}), payload of {size:,} bytes"
    yield f"  tag {frame.tag.hex()}"
    if frame.kind != JOIN_KIND:
        return
    try:
        decoded = decode_payload(frame.payload, wire=frame.wire)
    except DecodeError as error:
        place = f" in {error.field}" if error.field else ""
        yield f"  not to be decoded{place}: {error.detail}"
        return
    yield f"  {type(decoded.message).__name__}"
    for each in fields(decoded.message):
        value = getattr(decoded.message, each.name)
        if value is not None:
            shown = value.hex() if isinstance(value, bytes) else repr(value)
            yield f"    {each.name} = {_clipped(shown)}"
    yield from (f"    {note.value}" for note in decoded.notes)


def _clipped(text: str) -> str:
    left = len(text) - MOST_CHARACTERS
    return f"{text[:MOST_CHARACTERS]}… ({left} more characters)" if left > 0 else text
