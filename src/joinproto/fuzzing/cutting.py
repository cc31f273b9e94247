"""Payloads cut by the grammar into their leaves, to be changed and put together again.

Nothing is refused: what the grammar cannot read is a leaf too.
"""

from __future__ import annotations

from collections.abc import Sequence as Many
from contextlib import suppress
from enum import Enum, auto
from functools import lru_cache
from typing import Any, Final, NamedTuple

from joinproto.grammar import (
    LARGEST_SHORT,
    U64,
    WIDTHS,
    WIRES,
    Exactly,
    Fields,
    Octets,
    Option,
    Sequence,
    Signed,
    Text,
    Tuple,
    Varint,
)
from joinproto.limits import MAX_ITEMS, MAX_PAYLOAD_BYTES

LONGEST: Final = 8192
"""Bytes of entries that one change may add."""

MOST_ENTRIES: Final = 64
"""Of one sequence, each on its own; what is behind them stays in one piece."""


class Sort(Enum):
    """What a leaf is."""

    VARIANT = auto()
    NUMBER = auto()
    LENGTH = auto()
    COUNT = auto()
    OPTION = auto()
    BYTES = auto()
    REST = auto()


class Leaf(NamedTuple):
    """A piece of a payload.

    Attributes:
        sort: what it is.
        data: its bytes.
        fill: an example of what an option or a sequence holds.
    """

    sort: Sort
    data: bytes
    fill: bytes = b""

    @property
    def value(self) -> int:
        """The number that it is."""
        return int.from_bytes(self.data[1:] or self.data, "little")


class Cut(NamedTuple):
    """A payload: its leaves, and which of them (from, to) are one field or one entry."""

    leaves: tuple[Leaf, ...]
    spans: tuple[tuple[int, int], ...]


def written(value: int) -> bytes:
    """A number as few bytes as it takes; one that is too large is cut to 64 bits."""
    return U64.bytes_of(value & (2**64 - 1))


def _all_widths(value: int) -> list[bytes]:
    wide = [
        bytes((marker,)) + value.to_bytes(size, "little")
        for marker, size in WIDTHS.items()
        if value < 1 << 8 * size
    ]
    return [bytes((value,)), *wide] if value <= LARGEST_SHORT else wide


_EDGES: Final = (
    *(0, 1, 2, 127, 128, 249, 250, 251, 252, 253, 254, 255, 256),
    *(MAX_ITEMS, MAX_ITEMS + 1, MAX_PAYLOAD_BYTES, MAX_PAYLOAD_BYTES + 1),
    *(2**16 - 1, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**63, 2**64 - 1),
)

NUMBERS: Final = tuple(
    dict.fromkeys(
        [data for edge in _EDGES for data in _all_widths(edge)]
        # Markers that there are none of, and numbers that end too soon.
        + [b"\xfe" + bytes(16), b"\xff", b"\xfb\x01", b"\xfc\x00\x01", b"\xfd" + bytes(7)]
    )
)
"""Numbers at which something changes, in all the widths in which they may be written."""

HUGE: Final = (written(2**40), written(2**64 - 1))
"""Announced lengths that no memory holds."""


# -- examples ---------------------------------------------------------------------------------


def example(scalar: Any) -> bytes:
    """A small legal value of a part of the grammar, as bytes."""
    match scalar:
        case Text():
            return b"\x01a"
        case Octets():
            return b"\x01\x00"
        case Exactly(size=size):
            return bytes(size)
        case Sequence(entry=entry):
            return b"\x01" + example(entry)
        case Option(value=value):
            return b"\x01" + example(value)
        case Tuple(values=parts):
            return b"".join(map(example, parts))
        case Fields(subcons=fields):
            return b"".join(example(field.subcon) for field in fields)
        case _:
            return b"\x01"


SAMPLES: Final = {
    version: tuple(
        bytes((number,)) + example(fields) for number, fields in enumerate(wire.payloads)
    )
    for version, wire in WIRES.items()
}
"""A small legal payload of each message, by wire version."""


# -- cutting ----------------------------------------------------------------------------------


class _Over(Exception):
    """The payload ends before the grammar does, or it cannot be read on."""


class _Cutter:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self.leaves: list[Leaf] = []
        self.spans: list[tuple[int, int]] = []

    def message(self, wire: int) -> None:
        number = self._number(Sort.VARIANT)
        row = WIRES.get(wire)
        if row is None or number >= len(row.payloads):
            raise _Over
        self.scalar(row.payloads[number])

    def rest(self) -> None:
        if self._at < len(self._data):
            self.leaves.append(Leaf(Sort.REST, self._data[self._at :]))

    def scalar(self, scalar: Any) -> None:
        match scalar:
            case Varint() | Signed():
                self._number(Sort.NUMBER)
            case Text() | Octets():
                self._bytes(self._number(Sort.LENGTH))
            case Exactly(size=size):
                self._bytes(size)
            case Sequence(entry=entry):
                self._sequence(entry)
            case Option(value=value):
                self._option(value)
            case Tuple(values=parts):
                self._each(parts)
            case Fields(subcons=fields):
                self._each([field.subcon for field in fields])

    def _each(self, scalars: Many[Any]) -> None:
        for scalar in scalars:
            start = len(self.leaves)
            self.scalar(scalar)
            self.spans.append((start, len(self.leaves)))

    def _sequence(self, entry: Any) -> None:
        count = self._number(Sort.COUNT, example(entry))
        if count > MOST_ENTRIES:
            raise _Over
        self._each([entry] * count)

    def _option(self, value: Any) -> None:
        there = self._take(1)
        self.leaves.append(Leaf(Sort.OPTION, there, example(value)))
        if there == b"\x01":
            self.scalar(value)
        elif there != b"\x00":
            raise _Over

    def _number(self, sort: Sort, fill: bytes = b"") -> int:
        width = WIDTHS.get(self._data[self._at], 0) if self._at < len(self._data) else 0
        leaf = Leaf(sort, self._take(1 + width), fill)
        self.leaves.append(leaf)
        return leaf.value

    def _bytes(self, size: int) -> None:
        self.leaves.append(Leaf(Sort.BYTES, self._take(size)))

    def _take(self, size: int) -> bytes:
        data = self._data[self._at : self._at + size]
        if len(data) < size:
            raise _Over
        self._at += size
        return data


# A corpus is changed over and over: the same payloads come again.
@lru_cache(maxsize=1024)
def dissect(payload: bytes, wire: int) -> Cut:
    """The leaves of a payload; one at least, unless it is empty."""
    cutter = _Cutter(payload)
    with suppress(_Over):
        cutter.message(wire)
    cutter.rest()
    return Cut(tuple(cutter.leaves), tuple(cutter.spans))


def joined(leaves: Many[Leaf]) -> bytes:
    """The payload that leaves make."""
    return b"".join([leaf.data for leaf in leaves])
