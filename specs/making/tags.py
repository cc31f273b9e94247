"""Tags alone: which bytes they are made of, and with what."""

from __future__ import annotations

import hashlib
import hmac
import struct

from making import messages as say
from making.book import Book
from making.wire import JOIN_KIND, KEY, MIB, OTHER, ZERO, tag_of

R5 = say.RANK_5[0]

SIZES = (0, 1, 2, 8, 47, 48, 55, 56, 63, 64, 65, 119, 120, 128, 250, 251, 4096, 65535)
"""Kind and length come first, so SHA-256's blocks of 64 bytes end 8 bytes early."""


def tag_book() -> Book:
    """Key, kind, payload and tag: whether they belong together."""
    book = Book("tag", "A key, a kind, a payload and a tag: whether the tag is theirs.")
    for size in SIZES:
        _good(book, "size", f"{size} bytes of payload", b"\x5a" * size)
    _good(book, "size", "1 MiB of payload", b"\x5a" * MIB, "LargePayload")
    for kind in (*range(1, JOIN_KIND), 0, 8, 256, 2**32 - 1):
        _good(
            book,
            "kind",
            f"kind {kind}: whether it is known is not the tag's business",
            R5,
            kind=kind,
        )
    for name, key in (
        ("zeros, as under open admission", ZERO),
        ("255s", b"\xff" * 16),
        ("another salt", OTHER),
        ("a single bit", bytes(15) + b"\1"),
    ):
        flags = ("OpenAdmission",) if key == ZERO else ()
        _good(book, "key", f"key of {name}", R5, *flags, key=key)
    _bad_ones(book)
    return book


def _good(
    book: Book,
    part: str,
    comment: str,
    payload: bytes,
    *flags: str,
    key: bytes = KEY,
    kind: int = JOIN_KIND,
) -> None:
    given = {"key": key, "kind": kind, "input": payload}
    given["tag"] = tag_of(payload, key=key, kind=kind)
    book.add(f"tag-{part}", comment, clause="tag", given=given, flags=flags)


def _bad_ones(book: Book) -> None:
    prefix = struct.pack("<II", JOIN_KIND, len(R5))
    right = tag_of(R5)
    for comment, tag, flag in (
        ("made with the zero key", tag_of(R5, key=ZERO), "WrongKey"),
        ("made with another salt", tag_of(R5, key=OTHER), "WrongKey"),
        ("made with the salt backwards", tag_of(R5, key=KEY[::-1]), "WrongKey"),
        ("made with the first 15 bytes of the salt", tag_of(R5, key=KEY[:15]), "WrongKey"),
        ("of kind 1", tag_of(R5, kind=1), "WrongTag"),
        ("of another payload", tag_of(say.exited(4, 0)[0]), "WrongTag"),
        ("of the payload and a byte", tag_of(R5 + b"\0"), "WrongTag"),
        ("of the payload less a byte", tag_of(R5[:-1]), "WrongTag"),
        ("of the payload alone", hmac.digest(KEY, R5, "sha256")[:8], "WrongTag"),
        (
            "of the kind alone before the payload",
            hmac.digest(KEY, prefix[:4] + R5, "sha256")[:8],
            "WrongTag",
        ),
        (
            "of kind and length behind the payload",
            hmac.digest(KEY, R5 + prefix, "sha256")[:8],
            "WrongTag",
        ),
        (
            "of kind and length in big-endian",
            hmac.digest(KEY, struct.pack(">II", 7, 3) + R5, "sha256")[:8],
            "WrongTag",
        ),
        (
            "of a length in eight bytes",
            hmac.digest(KEY, struct.pack("<IQ", 7, 3) + R5, "sha256")[:8],
            "WrongTag",
        ),
        ("the digest's last 8 bytes", hmac.digest(KEY, prefix + R5, "sha256")[-8:], "WrongTag"),
        ("the tag backwards", right[::-1], "WrongTag"),
        ("SHA-1 in place of SHA-256", hmac.digest(KEY, prefix + R5, "sha1")[:8], "WrongTag"),
        ("SHA-512 in place of SHA-256", hmac.digest(KEY, prefix + R5, "sha512")[:8], "WrongTag"),
        ("SHA-256 without HMAC", hashlib.sha256(KEY + prefix + R5).digest()[:8], "WrongTag"),
        ("zeros", bytes(8), "WrongTag"),
        ("255s", b"\xff" * 8, "WrongTag"),
        ("right but for its last byte", right[:7] + bytes((right[7] ^ 0x80,)), "BitFlip"),
        ("right but for its first byte", bytes((right[0] ^ 1,)) + right[1:], "BitFlip"),
    ):
        book.add(
            "tag-wrong",
            comment,
            clause="tag",
            given={"key": KEY, "kind": JOIN_KIND, "input": R5, "tag": tag},
            result="invalid",
            stage="tag",
            flags=(flag,),
        )
