"""Several frames in a row, and the first bytes of a dial."""

from __future__ import annotations

import struct
from typing import Any

from making import messages as say
from making.book import Book
from making.wire import JOIN_MAGIC, KEY, LARGEST, MIB, OTHER, frame, header, marked


def stream_book() -> Book:
    """All frames of a stream under one key."""
    book = Book(
        "stream",
        "The bytes of a stream up to its end, the key of all its frames and the one wire version"
        " that the reader speaks: the messages it holds, in order, and how it ends.  `input` may be"
        " split anywhere.",
    )
    for wire in (2, 4):
        _Streams(book, wire).add_all()
    return book


class _Streams:
    """Streams of one wire version."""

    def __init__(self, book: Book, wire: int) -> None:
        self.book = book
        self.wire = wire
        self.hello = say.hello(wire)
        self.reports = [say.exited(rank, rank % 3 - 1) for rank in range(20)]

    def add(
        self,
        comment: str,
        data: bytes,
        said: list[say.Said],
        *flags: str,
        clause: str,
        result: str = "valid",
        stage: str | None = None,
    ) -> None:
        self.book.add(
            f"stream-v{self.wire}",
            comment,
            clause=clause,
            given={"wire": self.wire, "key": KEY, "input": data},
            result=result,
            stage=stage,
            flags=flags,
            then={"values": [value for _, value in said]},
        )

    def bad(self, comment: str, data: bytes, said: list[say.Said], stage: str, *flags: str) -> None:
        """What is refused behind some messages that are taken."""
        self.add(
            comment, data, said, *flags, clause=f"behind {stage}", result="invalid", stage=stage
        )

    def frames(self, *said: say.Said) -> bytes:
        return b"".join(frame(payload, wire=self.wire) for payload, _ in said)

    def add_all(self) -> None:
        five = say.RANK_5
        all_six = [
            self.hello,
            say.accept((0, 1), None, 60),
            say.reject("no"),
            say.formed("7b7d", None),
            five,
            say.abort("why"),
        ]
        self.add("one message of each sort", self.frames(*all_six), all_six, clause="behind")
        self.add("20 reports in a row", self.frames(*self.reports), self.reports, clause="behind")
        self.add(
            "the same report again: tags do not stop a replay",
            self.frames(five, five),
            [five] * 2,
            clause="behind replay",
        )
        self.add("no bytes", b"", [], "EndOfStream", clause="eof")
        ended = self.frames(five) + self.frames(five)[:23]
        self.add(
            "a report, and a header but for its last byte",
            ended,
            [five],
            "EndOfStream",
            clause="eof behind",
        )
        wide = frame(b"\4" + marked(251, 5) + b"\0\0", wire=self.wire)
        self.add(
            "a report, and the same one oddly put",
            self.frames(five) + wide,
            [five, five],
            "NonMinimalVarint",
            "TrailingBytes",
            clause="minimal trailing",
            result="acceptable",
        )
        large = say.abort("a" * MIB)
        self.add(
            "a report between two messages of 1 MiB",
            self.frames(large, five, large),
            [large, five, large],
            "LargePayload",
            clause="behind",
        )
        self.broken()

    def broken(self) -> None:
        one, two = say.RANK_5, say.exited(6, 1)
        good = self.frames(one)
        self.bad(
            "a report, and a payload cut short", good + self.frames(two)[:-1], [one], "truncated"
        )
        self.bad(
            "a report, and words",
            good + b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
            [one],
            "magic",
            "WrongMagic",
            "NoWayBack",
        )
        self.bad(
            "a report, and the channel magic again",
            good + JOIN_MAGIC + self.frames(two),
            [one],
            "magic",
            "WrongMagic",
            "NoWayBack",
        )
        lost = self.frames(one, two)
        self.bad(
            "a byte is missing between two frames",
            lost[:27] + lost[28:],
            [one],
            "magic",
            "WrongMagic",
            "NoWayBack",
        )
        self.bad(
            "a byte is missing in the first payload", lost[:26] + lost[27:], [], "tag", "WrongTag"
        )
        self.bad(
            "a byte too many between two frames",
            good + b"\0" + self.frames(two),
            [one],
            "magic",
            "WrongMagic",
            "NoWayBack",
        )
        other = 6 - self.wire
        self.bad(
            "the second frame is of another wire version",
            good + frame(two[0], wire=other),
            [one],
            "version",
            "UnknownVersion",
            "NoWayBack",
        )
        self.bad(
            "the second frame has another key",
            good + frame(two[0], wire=self.wire, key=OTHER),
            [one],
            "tag",
            "WrongKey",
        )
        self.bad(
            "the second frame is of another channel",
            good + frame(two[0], wire=self.wire, kind=2),
            [one],
            "kind",
            "OtherKind",
        )
        self.bad(
            "the second frame is too long",
            good + header(wire=self.wire, length=LARGEST + 1),
            [one],
            "length",
            "AnnouncedLength",
            "NoWayBack",
        )
        self.bad(
            "the second frame is no message",
            good + frame(b"\6", wire=self.wire),
            [one],
            "payload",
            "UnknownVariant",
        )
        self.bad(
            "two frames in one: the payload of the second under the tag of the first",
            good[:24] + two[0] + self.frames(two),
            [],
            "tag",
            "WrongTag",
        )


def dial_book() -> Book:
    """The first bytes of a dial."""
    book = Book(
        "dial",
        "The first bytes that come on a connection to the controller's port: the channel that they"
        " ask for; null where that is not known yet.  What lies behind them is the channel's.",
    )

    def add(comment: str, data: bytes, channel: str | None, *flags: str) -> None:
        given: dict[str, Any] = {"input": data}
        book.add(
            "dial", comment, clause="dial", given=given, then={"channel": channel}, flags=flags
        )

    for low, channel in ((0xE0, "rendezvous"), (0xE1, "data"), (0xE2, "control"), (0xE3, "join")):
        magic = struct.pack("<I", 0xF10D1700 | low)
        add(f"the {channel} channel", magic, channel)
        add(f"the {channel} channel, and what follows", magic + bytes(60), channel)
    hello = frame(say.hello(2)[0], wire=2)
    add("the join channel, and a whole Hello", JOIN_MAGIC + hello, "join")
    add("a browser", b"GET / HTTP/1.1\r\n\r\n", "http")
    add("the status", b"GET /state.json HTTP/1.1\r\nHost: c\r\n\r\n", "http")
    add("the start, since flodl 0.8", b"POST /start HTTP/1.1\r\n\r\n", "http")
    for there in range(4):
        add(f"{there} bytes", JOIN_MAGIC[:there], None, "EndOfStream")
    for comment, data in (
        ("the join magic in big-endian", JOIN_MAGIC[::-1]),
        ("a frame without a magic before it", hello),
        ("the next magic that there is none of", struct.pack("<I", 0xF10D17E4)),
        ("zeros", bytes(4)),
        ("lower case", b"get / HTTP/1.1\r\n"),
        ("SSH", b"SSH-2.0-x\r\n"),
        ("TLS", bytes.fromhex("160301020001000001fc0303")),
    ):
        book.add(
            "dial",
            comment,
            clause="dial",
            given={"input": data},
            result="invalid",
            stage="magic",
            flags=("WrongMagic",),
        )
    return book
