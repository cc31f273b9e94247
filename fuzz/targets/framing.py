"""framing: any bytes, read as a stream of frames.

Invariant: however the stream is split, the same frames come out of it and it ends in the same way;
the frames and what is held are the bytes that went in, none lost and none twice; nothing is held
of a stream that was refused beyond what came in.

Exceptions allowed: `DecodeError`, at a stage before the tag: a framer's one way of refusing.
"""

from __future__ import annotations

from collections.abc import Iterable

from joinproto.errors import DecodeError, Stage
from joinproto.framing import Frame, Framer
from joinproto.fuzzing.pieces import MAGIC
from joinproto.limits import HEADER_BYTES, MAX_PAYLOAD_BYTES

STAGES = (Stage.MAGIC, Stage.VERSION, Stage.KIND, Stage.LENGTH, Stage.TRUNCATED)
DRIP = 2048
"""So many bytes are fed one by one; the rest in pieces of a size that divides nothing."""


def drip(data: bytes) -> Iterable[bytes]:
    """Byte by byte, and what is longer than that is worth in odd pieces from there on."""
    yield from (data[at : at + 1] for at in range(min(len(data), DRIP)))
    yield from (data[at : at + 997] for at in range(DRIP, len(data), 997))


def check(data: bytes) -> None:
    """Raises `AssertionError` where the invariant is broken."""
    whole = _read([data])
    assert whole == _read(drip(data)), "it matters how the stream is split"
    middle = len(data) // 2
    assert whole == _read([data[:middle], data[middle:]]), "it matters where the stream is split"
    frames, stage, held = whole
    again = b"".join(map(_bytes_of, frames))
    assert data.startswith(again), "the frames are not the bytes that went in"
    if stage in (None, Stage.TRUNCATED):
        assert len(again) + held == len(data), "bytes were lost"


def _read(pieces: Iterable[bytes]) -> tuple[list[Frame], Stage | None, int]:
    """The frames, where the stream was refused, and how much of a good one waits for more."""
    framer = Framer()
    frames: list[Frame] = []
    try:
        for piece in pieces:
            framer.feed(piece)
            while (frame := framer.next_frame()) is not None:
                assert len(frame.payload) <= MAX_PAYLOAD_BYTES
                frames.append(frame)
        held = framer.held
        framer.end()
    except DecodeError as error:
        assert error.stage in STAGES, error.stage
        truncated = error.stage is Stage.TRUNCATED
        return frames, error.stage, framer.held if truncated else 0
    return frames, None, held


def _bytes_of(frame: Frame) -> bytes:
    numbers = (frame.kind.to_bytes(4, "little"), len(frame.payload).to_bytes(4, "little"))
    data = MAGIC + frame.wire.to_bytes(4, "little") + frame.tag + b"".join(numbers) + frame.payload
    assert len(data) == frame.size == HEADER_BYTES + len(frame.payload)
    return data
