"""Whole frames: every payload that has a reason, and every part of the header gone wrong."""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import Any

from making import messages as say
from making.bad_payloads import bad_payloads
from making.book import Book
from making.good_payloads import good_payloads
from making.payload import Payload
from making.sweeps import sweeps
from making.wire import (
    JOIN_KIND,
    KEY,
    LARGEST,
    MAGIC,
    OTHER,
    ZERO,
    frame,
    header,
    tag_of,
)

WIRES = (2, 4)
R5, R5_VALUE = say.RANK_5


def payload_book() -> Book:
    """Payloads without a frame."""
    book = Book("payload", "A payload and the wire version it came in: the message it holds.")
    for wire in WIRES:
        for one in (*good_payloads(wire), *bad_payloads(wire), *sweeps(wire)):
            given = {"wire": wire, "input": one.data}
            _add_payload(book, f"payload-v{wire}-{one.name}", one, given, {})
    return book


def _add_payload(
    book: Book, prefix: str, one: Payload, given: dict[str, Any], then: dict[str, Any]
) -> None:
    bad = one.result == "invalid"
    book.add(
        prefix,
        one.comment,
        clause=one.clause,
        given=given,
        result=one.result,
        stage="payload" if bad else None,
        flags=one.flags,
        then={} if bad else {"value": one.value, **then},
    )


def frame_book() -> Book:
    """The first frame of a stream."""
    book = Book(
        "frame",
        "The bytes of a stream up to its end, the key in force and the one wire version that the"
        " reader speaks: its first frame, of which `consumed` bytes are, and the message it holds.",
    )
    for wire in WIRES:
        for one in (*good_payloads(wire), *bad_payloads(wire)):
            data = frame(one.data, wire=wire)
            given = {"wire": wire, "key": KEY, "input": data}
            _add_payload(book, f"frame-v{wire}-{one.name}", one, given, {"consumed": len(data)})
        _Headers(book, wire).add_all()
    return book


class _Headers:
    """Headers of one wire version."""

    def __init__(self, book: Book, wire: int) -> None:
        self.book = book
        self.wire = wire
        self.good = frame(R5, wire=wire)

    def add_all(self) -> None:
        self.ends()
        self.magics()
        self.versions()
        self.kinds()
        self.lengths()
        self.tags()
        self.orders()
        self.keys()
        self.bits()

    def bad(
        self, part: str, comment: str, data: bytes, stage: str, *flags: str, clause: str = ""
    ) -> None:
        self.book.add(
            f"frame-v{self.wire}-{part}",
            comment,
            clause=clause or part,
            given={"wire": self.wire, "key": KEY, "input": data},
            result="invalid",
            stage=stage,
            flags=flags,
        )

    def good_one(
        self, part: str, comment: str, data: bytes, size: int, *flags: str, key: bytes = KEY
    ) -> None:
        self.book.add(
            f"frame-v{self.wire}-{part}",
            comment,
            clause=part,
            given={"wire": self.wire, "key": key, "input": data},
            flags=flags,
            then={"value": R5_VALUE if size else None, "consumed": size},
        )

    def ends(self) -> None:
        for there in range(24):
            comment = f"{there} of 24 header bytes, then the end of the stream"
            self.good_one("eof", comment, self.good[:there], 0, "EndOfStream")
        for there in (24, 25, 26):
            comment = f"the stream ends after {there - 24} of 3 payload bytes"
            self.bad("truncated", comment, self.good[:there], "truncated")
        size = len(self.good)
        self.good_one(
            "behind", "a second frame is left in the stream", self.good * 2, size, "MoreBytes"
        )
        self.good_one(
            "behind", "three bytes are left in the stream", self.good + b"xyz", size, "MoreBytes"
        )
        self.good_one(
            "behind",
            "a broken frame is left in the stream",
            self.good + bytes(30),
            size,
            "MoreBytes",
        )

    def magics(self) -> None:
        self.bad(
            "magic", "big-endian", struct.pack(">I", MAGIC) + self.good[4:], "magic", "WrongMagic"
        )
        for name, magic in (
            ("of a channel: the first bytes of a dial, not of a frame", 0xF10D17E3),
            ("of a rank's handshake", 0xF10D17C2),
            ("of its answer", 0xF10D17C3),
            ("of zero", 0),
        ):
            data = struct.pack("<I", magic) + self.good[4:]
            self.bad("magic", name, data, "magic", "WrongMagic")
        http = b"HTTP/1.1 400 Bad Request\r\n\r\n"
        self.bad("magic", "a web server answers", http, "magic", "WrongMagic")
        tls = bytes.fromhex("160301020001000001fc0303") + bytes(40)
        self.bad("magic", "a TLS client asks", tls, "magic", "WrongMagic")

    def versions(self) -> None:
        others = [version for version in (0, 1, 2, 3, 4, 5, 6, 255, 2**16) if version != self.wire]
        for version in others:
            data = frame(R5, wire=version)
            self.bad("version", f"version {version}", data, "version", "UnknownVersion")
        for version in (0, 2**32 - 1):
            data = header(wire=version, length=0)
            self.bad(
                "version", f"version {version}, an empty payload", data, "version", "UnknownVersion"
            )
        swapped = header(wire=self.wire << 24, length=3, tag=tag_of(R5)) + R5
        self.bad("version", "big-endian", swapped, "version", "UnknownVersion")

    def kinds(self) -> None:
        for kind in range(1, JOIN_KIND):
            data = frame(R5, wire=self.wire, kind=kind)
            comment = f"kind {kind}: another channel's frame, rightly tagged"
            self.bad("kind", comment, data, "kind", "OtherKind", clause="kind otherkind")
        for kind in (0, 8, 9, 255, 256 + 7, 2**31 + 7, 2**32 - 1):
            data = frame(R5, wire=self.wire, kind=kind)
            self.bad("kind", f"kind {kind}", data, "kind", "UnknownKind")

    def lengths(self) -> None:
        for name, length in (
            ("one more than 16 MiB", LARGEST + 1),
            ("2^31", 2**31),
            ("2^32-1", 2**32 - 1),
        ):
            comment = f"{name}, nothing behind it: refused without waiting for it"
            data = header(wire=self.wire, length=length)
            self.bad("length", comment, data, "length", "AnnouncedLength", "NoWayBack")
        comment = "exactly 16 MiB is legal, and nothing behind it is a stream cut short"
        data = header(wire=self.wire, length=LARGEST)
        self.bad("length", comment, data, "truncated", clause="length truncated")
        large = header(wire=self.wire, length=LARGEST, tag=bytes(8)) + bytes(LARGEST)
        self.bad(
            "length",
            "16 MiB of zeros under a wrong tag",
            large,
            "tag",
            "WrongTag",
            "LargePayload",
            clause="length tag",
        )

    def tags(self) -> None:
        tag = tag_of(R5)
        prefix = struct.pack("<II", JOIN_KIND, len(R5))
        for name, wrong in (
            ("zeros", bytes(8)),
            ("reversed", tag[::-1]),
            ("made of the payload alone", hmac.digest(KEY, R5, "sha256")[:8]),
            ("made with the zero key", tag_of(R5, key=ZERO)),
            ("made with another salt", tag_of(R5, key=OTHER)),
            ("made of the header too", hmac.digest(KEY, self.good[:8] + prefix + R5, "sha256")[:8]),
            (
                "made of the length before the kind",
                hmac.digest(KEY, prefix[4:] + prefix[:4] + R5, "sha256")[:8],
            ),
            ("the last 8 bytes of the digest", hmac.digest(KEY, prefix + R5, "sha256")[-8:]),
            ("without HMAC", hashlib.sha256(KEY + prefix + R5).digest()[:8]),
            ("made with the salt's hex digits", tag_of(R5, key=KEY.hex().encode())),
        ):
            data = header(wire=self.wire, length=len(R5), tag=wrong) + R5
            key = ("WrongKey",) if "salt" in name or "zero key" in name else ()
            self.bad("tag", name, data, "tag", "WrongTag", *key)
        changed = header(wire=self.wire, length=3, tag=tag, kind=1) + R5
        self.bad("tag", "kind changed after tagging", changed, "tag", "WrongTag")
        shorter = header(wire=self.wire, length=2, tag=tag) + R5
        self.bad("tag", "length shortened after tagging", shorter, "tag", "WrongTag")
        longer = header(wire=self.wire, length=4, tag=tag) + R5 + b"\0"
        self.bad("tag", "length grown after tagging, and a byte put in", longer, "tag", "WrongTag")
        self.bad(
            "tag", "payload changed after tagging", self.good[:25] + b"\4\0", "tag", "WrongTag"
        )

    def orders(self) -> None:
        wire, most = self.wire, 2**32 - 1
        for comment, data, stage in (
            ("magic before length", header(magic=1, wire=wire, length=most), "magic"),
            ("magic before version", header(magic=1, wire=99, length=0), "magic"),
            ("magic before kind", header(magic=1, wire=wire, kind=99, length=0), "magic"),
            ("version before kind", header(wire=99, kind=99, length=0), "version"),
            ("version before length", header(wire=99, length=most), "version"),
            ("kind before length", header(wire=wire, kind=99, length=most), "kind"),
            (
                "length before the end of the stream",
                header(wire=wire, length=LARGEST + 1),
                "length",
            ),
            ("the payload's end before the tag", header(wire=wire, length=2) + b"\4", "truncated"),
            ("the tag before the payload", header(wire=wire, length=1) + b"\xff", "tag"),
            (
                "the tag before another channel's kind",
                header(wire=wire, kind=1, length=3) + R5,
                "tag",
            ),
        ):
            self.bad("order", comment, data, stage, "OrderOfChecks")
        data = frame(b"\xff", wire=wire, kind=1)
        self.bad(
            "order",
            "another channel's kind before the payload",
            data,
            "kind",
            "OrderOfChecks",
            "OtherKind",
        )

    def keys(self) -> None:
        for name, key in (("zeros", ZERO), ("255s", b"\xff" * 16), ("another salt", OTHER)):
            data = frame(R5, wire=self.wire, key=key)
            flags = ("OpenAdmission",) if key == ZERO else ()
            self.good_one(
                "key", f"tagged with {name}, and read so", data, len(data), *flags, key=key
            )
            self.bad("key", f"tagged with {name}, read with the salt", data, "tag", "WrongKey")

    def bits(self) -> None:
        """Each bit of the header turned over."""
        for at in range(24 * 8):
            data = bytearray(self.good)
            data[at // 8] ^= 1 << at % 8
            stage = _stage_of(at)
            comment = f"bit {at % 8} of header byte {at // 8}"
            self.bad("bit", comment, bytes(data), stage, "BitFlip", clause=stage)


def _stage_of(bit: int) -> str:
    """Where a frame of kind 7 and length 3 is refused with that bit of its header turned over."""
    byte, place = divmod(bit, 8)
    if byte < 8:
        return "magic" if byte < 4 else "version"
    if byte < 16:
        return "tag"
    if byte < 20:
        # 6, 5 and 3 are kinds too, of other channels; only the tag tells.
        return "tag" if byte == 16 and place < 3 else "kind"
    if byte == 23:
        return "length"
    # 2 and 1 bytes are there; 7 and more are not.
    return "tag" if byte == 20 and place < 2 else "truncated"
