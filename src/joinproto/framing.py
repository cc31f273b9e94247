"""Cuts frames from a stream of bytes, however it is split.

A frame is refused at its header: by magic, version, kind and length, in this order, before a byte
of its payload is waited for.
"""

from __future__ import annotations

from typing import Any, ClassVar

from joinproto.errors import DecodeError, Stage
from joinproto.grammar import FRAME_MAGIC, KINDS, WIRES, Header
from joinproto.limits import HEADER_BYTES, MAX_PAYLOAD_BYTES
from joinproto.record import Record


class Frame(Record):
    """One frame, whole, its tag not yet looked at.

    Attributes:
        wire: version in its header.
        kind: number of the channel it belongs to.
        tag: 8 bytes.
        payload: the bytes behind the header; they may hold the session salt, so they are not
            shown in a repr.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"payload"})

    wire: int
    kind: int
    tag: bytes
    payload: bytes

    @property
    def size(self) -> int:
        """Bytes that the frame took in the stream."""
        return HEADER_BYTES + len(self.payload)


class Framer:
    """Takes bytes in, gives frames out.

    Attributes:
        wires: the versions that are taken; all that are known unless narrowed.
    """

    def __init__(self, *, wires: frozenset[int] = frozenset(WIRES)) -> None:
        self.wires = wires
        self._buffer = bytearray()
        self._header: Any = None

    def feed(self, data: bytes) -> None:
        """Add what came in; call `next_frame` until it gives None."""
        self._buffer += data

    @property
    def held(self) -> int:
        """Bytes that wait for the rest of their frame."""
        return len(self._buffer)

    def next_frame(self) -> Frame | None:
        """The next whole frame; None when more bytes are needed.

        Raises:
            DecodeError: at stage magic, version, kind or length; the stream is of no further use.
        """
        if self._header is None:
            if len(self._buffer) < HEADER_BYTES:
                return None
            self._header = self._checked(Header.parse(self._buffer[:HEADER_BYTES]))
        header = self._header
        end = HEADER_BYTES + header.length
        if len(self._buffer) < end:
            return None
        payload = bytes(memoryview(self._buffer)[HEADER_BYTES:end])
        del self._buffer[:end]
        self._header = None
        return Frame(wire=header.version, kind=header.kind, tag=header.tag, payload=payload)

    def _checked(self, header: Any) -> Any:
        if header.magic != FRAME_MAGIC:
            raise DecodeError(Stage.MAGIC, f"0x{header.magic:08X} is not a frame's magic")
        if header.version not in self.wires:
            known = ", ".join(map(str, sorted(self.wires)))
            raise DecodeError(Stage.VERSION, f"wire version {header.version}, spoken here: {known}")
        if header.kind not in KINDS:
            raise DecodeError(Stage.KIND, f"kind {header.kind} is not one of 1 to {max(KINDS)}")
        if header.length > MAX_PAYLOAD_BYTES:
            raise DecodeError(
                Stage.LENGTH, f"payload of {header.length} bytes, more than {MAX_PAYLOAD_BYTES}"
            )
        return header

    def end(self) -> None:
        """Say that no more bytes come; call it when `next_frame` gave None.

        An end inside a header is a clean end of stream: a peer that never sent a whole header has
        said nothing.

        Raises:
            DecodeError: at stage truncated: the stream ended inside a payload.
        """
        if self._header is not None:
            there = len(self._buffer) - HEADER_BYTES
            raise DecodeError(
                Stage.TRUNCATED,
                f"the stream ended after {there} of {self._header.length} payload bytes",
            )
