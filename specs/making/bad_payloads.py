"""What no encoder writes: what decoders take all the same, and what they refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from making import messages as say
from making.payload import Payload, bad, odd
from making.wire import marked, text, varint

R5 = say.RANK_5


def bad_payloads(wire: int) -> Iterator[Payload]:
    """All of them, as `wire` has it."""
    yield from _variants()
    yield from _numbers()
    yield from _texts()
    yield from _options()
    yield from _counts()
    yield from _other_wire(wire)


def _variants() -> Iterator[Payload]:
    yield bad("variant", "no byte at all", b"", "variant", "CutShort")
    for number in (6, 7, 127, 250):
        yield bad("variant", f"message {number}", bytes((number,)), "variant", "UnknownVariant")
    yield bad(
        "variant", "message 251, in three bytes", b"\xfb\xfb\0\5\0", "variant", "UnknownVariant"
    )
    yield bad("variant", "message 6 in three bytes", b"\xfb\6\0\5\0", "variant", "UnknownVariant")
    yield bad("variant", "message 2^32-1", b"\xfc\xff\xff\xff\xff", "variant", "UnknownVariant")
    yield bad(
        "variant",
        "as a u64: marker 253 on a u32",
        marked(253, 4) + b"\5\0",
        "variant marker",
        "VarintMarker",
    )
    yield bad(
        "variant",
        "as a u128: marker 254",
        marked(254, 4) + b"\5\0",
        "variant marker",
        "VarintMarker",
    )
    yield bad("variant", "marker 255", b"\xff\5\0", "variant marker", "VarintMarker")
    minimal = "NonMinimalVarint"
    yield odd("variant", "in three bytes", marked(251, 4) + b"\5\0", R5, "variant minimal", minimal)
    yield odd("variant", "in five bytes", marked(252, 4) + b"\5\0", R5, "variant minimal", minimal)


def _numbers() -> Iterator[Payload]:
    minimal, marker = "NonMinimalVarint", "VarintMarker"
    yield odd(
        "number", "rank in three bytes", b"\4" + marked(251, 5) + b"\0", R5, "minimal", minimal
    )
    yield odd(
        "number", "rank in five bytes", b"\4" + marked(252, 5) + b"\0", R5, "minimal", minimal
    )
    yield odd(
        "number", "code in three bytes", b"\4\5" + marked(251, 0), R5, "minimal signed", minimal
    )
    yield odd(
        "number", "code in five bytes", b"\4\5" + marked(252, 0), R5, "minimal signed", minimal
    )
    many = say.accept((300,), None, 70000)
    wide = b"\1" + marked(253, 1) + marked(252, 300) + b"\0" + marked(253, 70000)
    yield odd("number", "count, rank and wait all too wide", wide, many, "minimal", minimal)
    yield odd(
        "number",
        "250 in three bytes: one below what needs them",
        b"\4" + marked(251, 250) + b"\0",
        say.exited(250, 0),
        "minimal",
        minimal,
    )
    yield odd(
        "number",
        "65535 in five bytes",
        b"\4" + marked(252, 65535) + b"\0",
        say.exited(65535, 0),
        "minimal",
        minimal,
    )
    last = b"\1\0\0" + marked(253, 2**32 - 1)
    yield odd(
        "number", "2^32-1 in nine bytes", last, say.accept((), None, 2**32 - 1), "minimal", minimal
    )
    yield bad(
        "number",
        "rank as a u64: marker 253 on a u32",
        b"\4" + marked(253, 5) + b"\0",
        "marker",
        marker,
    )
    yield bad(
        "number", "rank as a u128: marker 254", b"\4" + marked(254, 0) + b"\0", "marker", marker
    )
    yield bad("number", "rank with marker 255", b"\4\xff\0", "marker", marker)
    yield bad(
        "number",
        "code as a u64: marker 253 on an i32",
        b"\4\5" + marked(253, 2),
        "marker signed",
        marker,
    )
    yield bad(
        "number",
        "wait as a u128: marker 254 on a u64",
        b"\1\0\0" + marked(254, 1),
        "marker",
        marker,
    )
    yield bad(
        "number",
        "a rank above u32",
        b"\1\1" + marked(253, 2**32) + b"\0\1",
        "marker accept",
        marker,
    )
    cut = "CutShort"
    yield bad("number", "code missing", b"\4\5", "cut exited", cut)
    yield bad("number", "code cut inside its varint", b"\4\5\xfb\1", "cut exited", cut)
    yield bad("number", "marker 253 and seven bytes", b"\1\0\0\xfd" + bytes(7), "cut accept", cut)
    yield bad("number", "Accept cut behind its ranks", b"\1\1\0", "cut accept", cut)
    more = "TrailingBytes"
    yield odd("trailing", "one byte behind the value", R5[0] + b"\0", R5, "trailing", more)
    yield odd("trailing", "100 bytes behind the value", R5[0] + bytes(100), R5, "trailing", more)
    yield odd(
        "trailing",
        "another message behind the value: it is not read",
        R5[0] + say.abort("x")[0],
        R5,
        "trailing",
        more,
    )
    yield odd(
        "trailing",
        "a broken number behind the value: it is not read",
        R5[0] + b"\xff\xfe",
        R5,
        "trailing",
        more,
    )
    yield odd(
        "trailing",
        "a wide number, and a byte behind the value",
        b"\4\5" + marked(251, 0) + b"\0",
        R5,
        "trailing minimal",
        more,
        minimal,
    )


def _texts() -> Iterator[Payload]:
    spoilt = (
        ("bytes that begin no character", b"\xff\xfe"),
        ("a surrogate", b"\xed\xa0\x80"),
        ("an overlong form", b"\xc0\xaf"),
        ("a code point above U+10FFFF", b"\xf4\x90\x80\x80"),
        ("a character that is cut", b"a\xc3"),
        ("a continuation byte alone", b"\x80"),
    )
    for comment, data in spoilt:
        yield bad(
            "text", f"Abort.reason holds {comment}", b"\5" + text(data), "utf8 abort", "InvalidUtf8"
        )
    for comment, data in spoilt[:3]:
        yield bad(
            "text",
            f"Reject.reason holds {comment}",
            b"\2" + text(data),
            "utf8 reject",
            "InvalidUtf8",
        )
    yield bad("text", "Hello.host is not UTF-8", b"\0" + text(b"\xff"), "utf8 hello", "InvalidUtf8")
    yield bad(
        "text",
        "the second label is not UTF-8",
        b"\0\1h\0\2\1g\1\xc3\1l" + bytes(35),
        "utf8 hello",
        "InvalidUtf8",
    )
    yield bad(
        "text",
        "Accept.salt_hex is not UTF-8",
        b"\1\0\1" + text(b"\xe9") + b"\1",
        "utf8 accept",
        "InvalidUtf8",
    )
    yield bad(
        "text",
        "the envelope is not UTF-8",
        b"\3" + text(b"\xc3(") + b"\0",
        "utf8 formed",
        "InvalidUtf8",
    )
    yield bad(
        "text",
        "the relay spec is not UTF-8",
        b"\3\0\1" + text(b"\xf8"),
        "utf8 formed",
        "InvalidUtf8",
    )
    yield bad("text", "shorter than announced", b"\5\5ab", "announced abort", "AnnouncedLength")


def _options() -> Iterator[Payload]:
    for first in (2, 3, 127, 128, 251, 255):
        yield bad(
            "option",
            f"relay option {first}",
            b"\3\0" + bytes((first, 0)),
            "badoption formed",
            "BadOption",
        )
        yield bad(
            "option",
            f"salt option {first}",
            b"\1\0" + bytes((first, 0, 1)),
            "badoption accept",
            "BadOption",
        )
    yield bad("option", "1 and no value", b"\3\0\1", "cut formed", "CutShort")
    yield bad("option", "missing", b"\3\0", "cut formed", "CutShort")
    yield bad("option", "missing in Accept", b"\1\0", "cut accept", "CutShort")


def _counts() -> Iterator[Payload]:
    huge = (
        (2**16, "2^16"),
        (2**32, "2^32"),
        (2**40, "2^40"),
        (2**63, "2^63"),
        (2**64 - 1, "2^64-1"),
    )
    # Published decoders allocate a string before they look for it, and a sequence as it comes.
    fatal = (2**40, 2**63, 2**64 - 1)
    for size, name in huge:
        dies = ("PublishedDecoderDies",) if size in fatal else ()
        flags = ("AnnouncedLength", *dies)
        yield bad(
            "announced",
            f"a reason of {name} bytes",
            b"\5" + varint(size),
            "announced abort",
            *flags,
        )
        flags = ("AnnouncedLength",)
        yield bad("announced", f"{name} ranks", b"\1" + varint(size), "announced accept", *flags)
        yield bad(
            "announced", f"{name} labels", b"\0\1h\1\0" + varint(size), "announced hello", *flags
        )
        yield bad(
            "announced", f"{name} devices", b"\0\1h" + varint(size), "announced hello", *flags
        )
    flags = ("AnnouncedLength",)
    yield bad("announced", "5 devices and none there", b"\0\1h\5\0", "announced hello", *flags)
    yield bad(
        "announced",
        "255 labels and none there",
        b"\0\1h\1\0" + varint(255),
        "announced hello",
        *flags,
    )
    short = b"\0\1h\1\0\1\1g\1l" + bytes(31)
    yield bad("announced", "a signature of 31 bytes", short, "cut hello", "CutShort")


def _other_wire(wire: int) -> Iterator[Payload]:
    fields: dict[str, Any] = {"host": "h", "devices": (0,), "gpus": ("g",), "libtorch": "l"}
    old, value = say.hello(2, **fields)
    new, value_4 = say.hello(4, **fields, run_id="r", nccl=(2, 27, 3), model=say.SIGNATURE)
    if wire == 2:
        yield Payload("wire", "a Hello of wire 2", old, value, "hello")
        yield odd(
            "wire",
            "a Hello of wire 4: its new fields are bytes behind the value",
            new,
            (old, value),
            "hello trailing",
            "OtherWire",
            "TrailingBytes",
        )
    else:
        yield bad(
            "wire",
            "a Hello of wire 2: its options are missing",
            old,
            "hello4 cut",
            "OtherWire",
            "CutShort",
        )
        yield Payload("wire", "a Hello of wire 4", new, value_4, "hello4")
