"""Every number, length, option and string of every message, spoilt in every way there is.

A message is a list of pieces.  What becomes of it when one is spoilt is known from the piece alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from making import messages as say
from making.payload import Payload
from making.wire import KEY, marked, varint

SPOILT_OPTION = 2
SPOILT_TEXT = 0xFF
"""What no option and no character begins with."""


class Piece(NamedTuple):
    """A part of a payload: a u32, i32, u64, length, count, option, text or raw bytes."""

    sort: str
    name: str
    data: bytes

    @property
    def number(self) -> int:
        return self.data[0]


def _texts(name: str, value: bytes) -> list[Piece]:
    return [Piece("length", name, varint(len(value))), Piece("text", name, value)]


def _hello_pieces(wire: int) -> list[Piece]:
    pieces = [
        Piece("u32", "message", b"\0"),
        *_texts("host", b"ab"),
        Piece("count", "local_devices", b"\2"),
        Piece("raw", "local_devices", b"\3\4"),
        Piece("count", "gpus", b"\2"),
        *_texts("gpus[0]", b"g"),
        *_texts("gpus[1]", b"hi"),
        *_texts("libtorch", b"t"),
        Piece("raw", "dataset_sig", say.SIGNATURE),
    ]
    if wire == 2:
        return pieces
    return [
        *pieces,
        Piece("option", "run_id", b"\1"),
        *_texts("run_id", b"r"),
        Piece("option", "nccl_version", b"\1"),
        *(Piece("u32", f"nccl_version[{at}]", bytes((at + 1,))) for at in range(3)),
        Piece("option", "model_sig", b"\1"),
        Piece("raw", "model_sig", say.SIGNATURE),
    ]


class Message(NamedTuple):
    """A message of which every part is there."""

    name: str
    pieces: list[Piece]
    said: say.Said


def _messages(wire: int) -> list[Message]:
    extra = {"run_id": "r", "nccl": (1, 2, 3), "model": say.SIGNATURE} if wire >= 4 else {}
    hello = say.hello(
        wire,
        host="ab",
        devices=(3, 4),
        gpus=("g", "hi"),
        libtorch="t",
        signature=say.SIGNATURE,
        **extra,  # type: ignore[arg-type]
    )
    if wire >= 4:  # the others are as they were
        return [Message("Hello", _hello_pieces(wire), hello)]
    salt = KEY.hex()
    accept = [
        Piece("u32", "message", b"\1"),
        Piece("count", "ranks", b"\2"),
        Piece("u32", "ranks[0]", b"\6"),
        Piece("u32", "ranks[1]", b"\7"),
        Piece("option", "salt_hex", b"\1"),
        *_texts("salt_hex", salt.encode()),
        Piece("u64", "formation_wait_secs", b"\x3c"),
    ]
    formed = [
        Piece("u32", "message", b"\3"),
        *_texts("envelope_hex", b"7b7d"),
        Piece("option", "relay_spec_hex", b"\1"),
        *_texts("relay_spec_hex", b"00"),
    ]
    exited = [
        Piece("u32", "message", b"\4"),
        Piece("u32", "rank", b"\5"),
        Piece("i32", "code", b"\x11"),
    ]
    return [
        Message("Hello", _hello_pieces(wire), hello),
        Message("Accept", accept, say.accept((6, 7), salt, 60)),
        Message(
            "Reject", [Piece("u32", "message", b"\2"), *_texts("reason", b"no")], say.reject("no")
        ),
        Message("WorldFormed", formed, say.formed("7b7d", "00")),
        Message("RankExited", exited, say.exited(5, -9)),
        Message(
            "Abort", [Piece("u32", "message", b"\5"), *_texts("reason", b"why")], say.abort("why")
        ),
    ]


def sweeps(wire: int) -> Iterator[Payload]:
    """All spoilt messages; of wire 4 only those that wire 2 does not have."""
    for message in _messages(wire):
        assert b"".join(piece.data for piece in message.pieces) == message.said[0]
        yield from _cuts(message, wire)
        first = next((at for at, p in enumerate(message.pieces) if p.name == "run_id"), 0)
        for at in range(first, len(message.pieces)):
            yield from _spoilt(message, at)


def _cuts(message: Message, wire: int) -> Iterator[Payload]:
    """Cut before every piece, and inside those that are longer than a byte."""
    where = 0
    for piece in message.pieces:
        for inside in sorted({0, len(piece.data) // 2, len(piece.data) - 1}):
            end = where + inside
            if end and (
                wire == 2
                or piece.name in ("run_id", "nccl_version", "model_sig")
                or "nccl" in piece.name
            ):
                comment = f"{message.name} cut after {end} bytes, at {piece.name}"
                data = message.said[0][:end]
                yield Payload("cut", comment, data, None, "cut", ("CutShort",), "invalid")
        where += len(piece.data)


def _spoilt(message: Message, at: int) -> Iterator[Payload]:
    piece = message.pieces[at]
    before = b"".join(p.data for p in message.pieces[:at])
    after = b"".join(p.data for p in message.pieces[at + 1 :])
    name = f"{message.name}.{piece.name}"
    if piece.sort in ("u32", "i32", "u64", "length", "count"):
        for marker in (251, 252, 253, 254):
            data = before + marked(marker, piece.number) + after
            yield _widened(message, name, piece, marker, data)
        yield _bad(f"{name} with marker 255", before + b"\xff" + after, "marker", "VarintMarker")
    if piece.sort in ("length", "count"):
        for size in (len(after) + 1, 2**24, 2**40, 2**64 - 1):
            data = before + varint(size) + after
            comment = f"{piece.sort} of {name} says {size}, {len(after)} bytes are left"
            # Published decoders allocate a string before they look for it.
            dies = ("PublishedDecoderDies",) if piece.sort == "length" and size >= 2**40 else ()
            yield _bad(comment, data, "announced", "AnnouncedLength", *dies)
    if piece.sort == "option":
        for first in (SPOILT_OPTION, 255):
            data = before + bytes((first,)) + after
            yield _bad(f"{name}: option byte {first}", data, "badoption", "BadOption")
    if piece.sort == "text":
        data = before + bytes((SPOILT_TEXT,)) + piece.data[1:] + after
        yield _bad(f"{name} begins with a byte that no character has", data, "utf8", "InvalidUtf8")


def _widened(message: Message, name: str, piece: Piece, marker: int, data: bytes) -> Payload:
    """A number in more bytes than it needs: taken as far as its type is wide."""
    length = " length" if piece.sort == "length" else ""
    comment = f"{name}{length} with marker {marker}"
    wide = piece.sort in ("u64", "length", "count")
    if marker < 253 or (marker == 253 and wide):
        return Payload(
            "wide", comment, data, message.said[1], "minimal", ("NonMinimalVarint",), "acceptable"
        )
    return _bad(comment, data, "marker", "VarintMarker")


def _bad(comment: str, data: bytes, clause: str, *flags: str) -> Payload:
    return Payload("spoilt", comment, data, None, clause, flags, "invalid")
