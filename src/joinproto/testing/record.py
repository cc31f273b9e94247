"""What a fake takes down of its connections, and how it is told to people."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TypeAlias

from joinproto.codec import Note
from joinproto.errors import DecodeError
from joinproto.messages import Message, RankExited

SHOWN_BYTES = 64

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 2 * SHOWN_BYTES + 2


def short(value: object) -> str:
    """`value` for people: cut where it is long, a message without what it leaves unsaid."""
    if isinstance(value, Message):
        parts = (
            f"{field.name}={short(getattr(value, field.name))}"
            for field in fields(value)
            if field.repr and getattr(value, field.name) != field.default
        )
        return f"{type(value).__name__}({', '.join(parts)})"
    if isinstance(value, bytes):
        more = "…" if len(value) > SHOWN_BYTES else ""
        return f"{len(value)} bytes {value[:SHOWN_BYTES].hex()}{more}"
    return _SHORT.repr(value)


def ending(cause: str) -> str:
    """The end of a connection, for people."""
    return f"a broken connection ({cause})" if cause else "the end of the stream"


@dataclass(frozen=True, kw_only=True, slots=True)
class Dialed:
    """A connection came about; they are numbered from 1."""

    connection: int

    def __str__(self) -> str:
        return f"#{self.connection} connected"


@dataclass(frozen=True, kw_only=True, slots=True)
class Received:
    """A message came in.

    Attributes:
        connection: number of the connection.
        message: what was said.
        wire: in which version.
        notes: what was remarkable about its bytes.
    """

    connection: int
    message: Message
    wire: int
    notes: tuple[Note, ...] = ()

    def __str__(self) -> str:
        return f"#{self.connection} received {short(self.message)} in wire {self.wire}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Unreadable:
    """Bytes came in that are no message."""

    connection: int
    error: DecodeError

    def __str__(self) -> str:
        return f"#{self.connection} received what cannot be read: {self.error}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """The fake sent something: a message, or bytes."""

    connection: int
    what: Message | bytes

    def __str__(self) -> str:
        return f"#{self.connection} sent {short(self.what)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """The peer ended the connection: well (""), or it broke with this cause."""

    connection: int
    cause: str

    def __str__(self) -> str:
        return f"#{self.connection} received {ending(self.cause)}"


Entry: TypeAlias = Dialed | Received | Unreadable | Sent | Ended


def messages_in(record: Iterable[Entry]) -> list[Message]:
    """What was received, in order."""
    return [entry.message for entry in record if isinstance(entry, Received)]


def exits_in(record: Iterable[Entry]) -> dict[int, int]:
    """Rank → code, of every RankExited that was received; the first of each rank counts."""
    told: dict[int, int] = {}
    for message in messages_in(record):
        if isinstance(message, RankExited):
            told.setdefault(message.rank, message.code)
    return told
