"""The messages at their edges, each with the reason for trying it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from making import messages as say
from making.payload import Payload, taken
from making.wire import KEY, LARGEST, MIB, zigzag


def good_payloads(wire: int) -> Iterator[Payload]:
    """All of them, as `wire` has it."""
    yield from _hello(wire)
    if wire >= 4:
        yield from _hello_4(wire)
    yield from _accept()
    yield from _others()
    yield from _exited()
    yield from _large(wire)


def _hello(wire: int) -> Iterator[Payload]:
    def good(comment: str, clause: str, **fields: Any) -> Payload:
        return taken("hello", comment, say.hello(wire, **fields), f"hello {clause}")

    yield good("two devices, every field of use", "string")
    yield good(
        "empty host and no devices: legal on the wire, the window turns it away",
        "sequence",
        host="",
        devices=(),
        gpus=(),
        libtorch="",
    )
    yield good(
        "non-ASCII host, one character of 4 bytes: lengths count bytes", "string", host="höst-🚀"
    )
    yield good("string of 250 bytes: the longest one-byte length", "varint", libtorch="a" * 250)
    yield good("string of 251 bytes: the shortest three-byte length", "varint", libtorch="a" * 251)
    yield good(
        "string of 65535 bytes: the longest three-byte length", "varint", libtorch="b" * 65535
    )
    yield good(
        "string of 65536 bytes: the shortest five-byte length", "varint", libtorch="b" * 65536
    )
    yield good(
        "devices 0 to 255: raw bytes, not varints",
        "bytes",
        devices=range(256),
        gpus=(),
    )
    yield good(
        "device ids 250, 251 and 255 in a byte each", "bytes", devices=(250, 251, 255), gpus="xxx"
    )
    yield good("a dataset signature: 32 bytes without a length", "bytes", signature=say.SIGNATURE)
    yield good("more labels than devices: the wire does not compare them", "sequence", gpus="aaaaa")
    yield good(
        "labels with a newline and a NUL: strings hold any character",
        "string",
        gpus=("a\nb", "c\0d"),
    )
    yield good(
        "a device twice: the wire does not compare them", "bytes", devices=(3, 3), gpus=("", "")
    )
    yield good("no labels at all", "sequence", gpus=())
    yield good("a signature of 255s", "bytes", signature=b"\xff" * 32)
    yield good("251 labels: a three-byte count", "varint", gpus=("g",) * 251)
    yield good("host of blanks: legal on the wire, the window turns it away", "string", host="  ")
    yield good("byte order mark and last code point", "string", host="\ufeff\U0010ffff")


def _hello_4(wire: int) -> Iterator[Payload]:
    def good(comment: str, clause: str, **fields: Any) -> Payload:
        return taken("hello", comment, say.hello(wire, **fields), f"hello4 {clause}")

    yield good("a run id", "option", run_id="cafe0123")
    yield good("an empty run id is not an absent one", "option", run_id="")
    yield good("NCCL version 2.27.3", "option", nccl=(2, 27, 3))
    yield good("NCCL version at varint edges", "varint", nccl=(250, 251, 65536))
    yield good("a model signature", "option bytes", model=say.SIGNATURE)
    yield good(
        "run id, NCCL version and model signature",
        "option",
        run_id="r",
        nccl=(0, 0, 2**32 - 1),
        model=say.SIGNATURE,
    )
    yield good("NCCL version and no run id: each option says for itself", "option", nccl=(0, 0, 0))
    yield good("run id and model signature, no NCCL version", "option", run_id="é", model=bytes(32))


def _accept() -> Iterator[Payload]:
    def good(comment: str, clause: str, *flags: str, **fields: Any) -> Payload:
        given = {"ranks": (0,), "salt": None, "wait": 1} | fields
        return taken("accept", comment, say.accept(**given), f"accept {clause}", *flags)

    yield good(
        "under open admission", "option", "OpenAdmission", ranks=(3, 4), salt=KEY.hex(), wait=60
    )
    yield good("under a pre-shared salt", "option", "PreShared", wait=600)
    yield good("no ranks", "sequence", ranks=(), wait=0)
    yield good(
        "ranks at every edge of varints: varints, unlike devices",
        "varint sequence",
        ranks=(0, 250, 251, 65535, 65536, 2**32 - 1),
    )
    yield good("a wait of 250 s: the largest byte", "varint", wait=250)
    yield good("a wait of 251 s: the smallest u16", "varint", wait=251)
    yield good("a wait of 65535 s: the largest u16", "varint", wait=65535)
    yield good("a wait of 65536 s: the smallest u32", "varint", wait=65536)
    yield good("a wait of 2^32-1 s: the largest u32", "varint", wait=2**32 - 1)
    yield good("a wait of 2^32 s: the smallest u64", "varint", wait=2**32)
    yield good(
        "a wait of 2^53+1 s: what a double cannot hold", "varint", "LargeInteger", wait=2**53 + 1
    )
    yield good("a wait of 2^64-1 s", "varint", "LargeInteger", wait=2**64 - 1)
    yield good("a salt_hex that is no salt: a string to the wire", "string", salt="zz")
    yield good("an empty salt_hex is not an absent one", "option", salt="")
    yield good("256 ranks", "sequence", ranks=range(256), wait=0)
    yield good("ranks that are neither sorted nor unique", "sequence", ranks=(9, 1, 9))


def _others() -> Iterator[Payload]:
    for name, message in (("reject", say.reject), ("abort", say.abort)):
        yield taken(name, "without words", message(""), f"{name} string")
        yield taken(
            name,
            "newline and ESC: shown to people only escaped",
            message("a\n\x1b[31mb"),
            f"{name} string",
        )
        yield taken(name, "251 bytes: a three-byte length", message("r" * 251), f"{name} varint")
    yield taken(
        "reject", "with a reason", say.reject("dataset signature mismatch"), "reject string"
    )
    yield taken("abort", "with a reason", say.abort("quorum not met"), "abort string")
    yield taken("formed", "with a relay", say.formed("7b7d", "7b7d"), "formed option", "Relay")
    yield taken("formed", "no relay", say.formed("7b7d", None), "formed option")
    yield taken("formed", "empty envelope", say.formed("", None), "formed string")
    yield taken(
        "formed",
        "an empty relay spec is not an absent one: a relay is asked for",
        say.formed("", ""),
        "formed option",
        "Relay",
    )
    yield taken("formed", "envelope of 600 digits", say.formed("ab" * 300, None), "formed varint")
    yield taken(
        "formed",
        "text that is not hex: a string to the wire",
        say.formed("{}", "x y"),
        "formed string",
        "Relay",
    )


def _exited() -> Iterator[Payload]:
    codes = (
        0,
        1,
        -1,
        2,
        -2,
        -9,
        -15,
        124,
        125,
        -125,
        126,
        -126,
        127,
        255,
        32767,
        32768,
        -32768,
        -32769,
    )
    for code in (*codes, 2**31 - 1, -(2**31)):
        comment = f"code {code}: zigzag {zigzag(code)}"
        yield taken(
            "exited", comment, say.exited(7 if code not in (126, 127) else 1, code), "exited signed"
        )
    for code in (-9, -15, 1):
        yield taken("exited", f"code {code} of rank 3", say.exited(3, code), "exited signed")
    for rank in (0, 250, 251, 65535, 65536, 2**32 - 1):
        yield taken("exited", f"rank {rank}", say.exited(rank, 0), "exited varint")


def _large(wire: int) -> Iterator[Payload]:
    if wire == 2:
        room = LARGEST - 6  # one byte says which message, five how long its text is
        yield taken(
            "abort",
            "exactly 16 MiB of payload",
            say.abort("a" * room),
            "abort large",
            "LargePayload",
        )
    yield taken(
        "formed",
        "an envelope of 1 MiB",
        say.formed("0" * MIB, None),
        "formed string",
        "LargePayload",
    )
