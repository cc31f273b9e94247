"""The frame grammar, declared with construct: header, scalars, payloads, one row a wire version.

Scalars are bincode's "standard" configuration: little-endian varints whose first byte is either
the value (0 to 250) or says how wide the value behind it is; strings and sequences carry their
length as a varint; an option is one byte, 0 or 1.  construct's own `VarInt` is LEB128, its `Flag`
takes any byte but zero for true, its `PrefixedArray` allocates before it looks, and its `Optional`
hides a cut-off value, so none of them stands here.

Every parser here reads from a stream that holds one whole payload, so that announced lengths can be
held against the bytes that are left before anything is allocated.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct as Layout
from types import SimpleNamespace
from typing import Any, NamedTuple, NoReturn

from joinproto.lazy import postponed
from joinproto.limits import MAX_ITEMS, SIGNATURE_BYTES, TAG_BYTES

# construct imports a debugger, which costs an agent's start more than all of this file does.
with postponed("pdb"):
    from construct import Bytes, Construct, ConstructError, Container, Int32ul, Struct

# -- the header -------------------------------------------------------------------------------

JOIN_MAGIC = bytes.fromhex("e3170df1")
"""First bytes of a dial to the join channel: 0xF10D17E3, little-endian."""

CHANNEL_MAGICS = {
    bytes.fromhex("e0170df1"): "rendezvous",
    bytes.fromhex("e1170df1"): "data",
    bytes.fromhex("e2170df1"): "control",
    JOIN_MAGIC: "join",
}

HTTP_HEADS = frozenset((b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"OPTI", b"PATC", b"TRAC"))
"""First bytes of a dial that speaks HTTP.  Published controllers know GET and (0.8) POST; the other
methods are routed to the same place, to be told there that they are not allowed."""

FRAME_MAGIC = 0xF10D17C4

JOIN_KIND = 7
KINDS = {
    1: "Control",
    2: "Timing",
    3: "Metrics",
    4: "Reserved4",
    5: "Reserved5",
    6: "Rendezvous",
    JOIN_KIND: "Join",
}


class Fixed(Struct):  # type: ignore[misc]  # construct carries no types
    """Fields of fixed size, read and written in one go: there is a header to every frame.

    What is parsed is as long as the fields are, to the byte.
    """

    def __init__(self, *fields: Any) -> None:
        super().__init__(*fields)
        self.names = [field.name for field in fields]
        codes = ("I" if field.subcon is Int32ul else f"{field.sizeof()}s" for field in fields)
        self._layout = Layout("<" + "".join(codes))

    def parse(self, data: bytes | bytearray) -> Any:
        return Container(zip(self.names, self._layout.unpack(data), strict=True))

    def build(self, obj: Mapping[str, Any]) -> bytes:
        return self._layout.pack(*map(obj.__getitem__, self.names))


Header = Fixed(
    "magic" / Int32ul,
    "version" / Int32ul,
    "tag" / Bytes(TAG_BYTES),
    "kind" / Int32ul,
    "length" / Int32ul,
)

TagPrefix = Fixed("kind" / Int32ul, "length" / Int32ul)
"""What the tag covers in front of the payload; magic and version are outside it."""

# -- scalars ----------------------------------------------------------------------------------

WIDTHS = {251: 2, 252: 4, 253: 8}
"""First byte of a varint → how many bytes of value follow."""

LARGEST_SHORT = 250


class ScalarError(ConstructError):  # type: ignore[misc]  # construct carries no types
    """A scalar that cannot be read: which field, and where in the payload it fails."""

    def __init__(self, message: str, path: str, offset: int) -> None:
        super().__init__(message)
        self.field = path.partition(" -> ")[2].replace(" -> ", ".")
        self.offset = offset


def _left(stream: Any) -> int:
    """Bytes of the payload behind the read position."""
    return len(stream.getbuffer()) - int(stream.tell())


def _refuse(stream: Any, path: str, message: str, start: int | None = None) -> NoReturn:
    raise ScalarError(message, path, stream.tell() if start is None else start)


def _take(stream: Any, size: int, path: str, what: str) -> bytes:
    left = _left(stream)
    if size > left:
        _refuse(stream, path, f"{what} takes {size} bytes, {left} are left")
    data: bytes = stream.read(size)
    return data


class _Scalar(Construct):  # type: ignore[misc]
    """A construct without size that is written by making its bytes."""

    def _build(self, obj: Any, stream: Any, context: Any, path: str) -> Any:
        stream.write(self.bytes_of(obj))
        return obj

    def read(self, stream: Any, notes: list[str]) -> Any:
        """Parse from a stream; `notes` is told of numbers in more bytes than they need.

        `parse_stream` does the same, and more: for fields that refer to others, which no message
        has.
        """
        return self._parse(stream, SimpleNamespace(notes=notes), "(parsing)")

    def bytes_of(self, obj: Any) -> bytes:
        raise NotImplementedError  # pragma: no cover - every subclass has one


class Varint(_Scalar):
    """An unsigned number of at most `width` bytes.

    A value in more bytes than it needs is taken, as published decoders do, and its path is added to
    the list `notes` that parsing was given.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        start = stream.tell()
        first = _take(stream, 1, path, "a number")[0]
        if first <= LARGEST_SHORT:
            return first
        size = WIDTHS.get(first)
        if size is None or size > self.width:
            _refuse(stream, path, f"marker {first} in a number of {8 * self.width} bits", start)
        value = int.from_bytes(_take(stream, size, path, f"a number with marker {first}"), "little")
        if len(self.bytes_of(value)) <= size:
            context.notes.append(path)
        return value

    def bytes_of(self, obj: int) -> bytes:
        if obj <= LARGEST_SHORT:
            return bytes((obj,))
        marker, size = next(pair for pair in WIDTHS.items() if obj < 1 << (8 * pair[1]))
        return bytes((marker,)) + obj.to_bytes(size, "little")


class Signed(_Scalar):
    """An i32: zigzag, then a varint u32."""

    def _parse(self, stream: Any, context: Any, path: str) -> int:
        raw: int = U32._parse(stream, context, path)
        return (raw >> 1) ^ -(raw & 1)

    def bytes_of(self, obj: int) -> bytes:
        return U32.bytes_of((obj << 1) ^ (obj >> 31))


class Text(_Scalar):
    """A UTF-8 string behind its length in bytes."""

    def _parse(self, stream: Any, context: Any, path: str) -> str:
        size: int = U64._parse(stream, context, path)
        start = stream.tell()
        data = _take(stream, size, path, "a string")
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            _refuse(stream, path, "a string that is not UTF-8", start + error.start)

    def bytes_of(self, obj: str) -> bytes:
        data = obj.encode()
        return U64.bytes_of(len(data)) + data


class Octets(_Scalar):
    """A sequence of u8: a length, then the bytes as they are."""

    def _parse(self, stream: Any, context: Any, path: str) -> tuple[int, ...]:
        size = _count(stream, context, path)
        return tuple(_take(stream, size, path, "a list of bytes"))

    def bytes_of(self, obj: tuple[int, ...]) -> bytes:
        return U64.bytes_of(len(obj)) + bytes(obj)


class Exactly(_Scalar):
    """A fixed number of bytes, without a length."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def _parse(self, stream: Any, context: Any, path: str) -> bytes:
        return _take(stream, self.size, path, "a byte array")

    def bytes_of(self, obj: bytes) -> bytes:
        return obj


def _count(stream: Any, context: Any, path: str) -> int:
    """The announced number of entries; refused when the bytes left cannot hold one byte each."""
    start = stream.tell()
    count: int = U64._parse(stream, context, path)
    left = _left(stream)
    if count > left:
        _refuse(stream, path, f"{count} entries announced, {left} bytes are left", start)
    if count > MAX_ITEMS:
        _refuse(stream, path, f"{count} entries, more than {MAX_ITEMS}", start)
    return count


class Sequence(_Scalar):
    """Entries of one kind behind their count."""

    def __init__(self, entry: _Scalar) -> None:
        super().__init__()
        self.entry = entry

    def _parse(self, stream: Any, context: Any, path: str) -> tuple[Any, ...]:
        return tuple(
            self.entry._parse(stream, context, f"{path}[{index}]")
            for index in range(_count(stream, context, path))
        )

    def bytes_of(self, obj: tuple[Any, ...]) -> bytes:
        return U64.bytes_of(len(obj)) + b"".join(map(self.entry.bytes_of, obj))


class Option(_Scalar):
    """Nothing (0) or a value (1); any other first byte is an error."""

    def __init__(self, value: _Scalar) -> None:
        super().__init__()
        self.value = value

    def _parse(self, stream: Any, context: Any, path: str) -> Any:
        start = stream.tell()
        there = _take(stream, 1, path, "an option")[0]
        if there > 1:
            _refuse(stream, path, f"option byte {there}, which is neither 0 nor 1", start)
        return self.value._parse(stream, context, path) if there else None

    def bytes_of(self, obj: Any) -> bytes:
        return b"\x00" if obj is None else b"\x01" + self.value.bytes_of(obj)


class Tuple(_Scalar):
    """Values one behind the other, without a count."""

    def __init__(self, *values: _Scalar) -> None:
        super().__init__()
        self.values = values

    def _parse(self, stream: Any, context: Any, path: str) -> tuple[Any, ...]:
        return tuple(value._parse(stream, context, path) for value in self.values)

    def bytes_of(self, obj: tuple[Any, ...]) -> bytes:
        return b"".join(value.bytes_of(part) for value, part in zip(self.values, obj, strict=True))


class Fields(_Scalar):
    """Named values one behind the other: the payload of a message behind its number."""

    def __init__(self, *fields: Any) -> None:
        super().__init__()
        self.subcons = fields
        self.names = tuple(field.name for field in fields)
        self._scalars = tuple((field.name, field.subcon) for field in fields)

    def _parse(self, stream: Any, context: Any, path: str) -> dict[str, Any]:
        return {
            name: scalar._parse(stream, context, f"{path} -> {name}")
            for name, scalar in self._scalars
        }

    def bytes_of(self, obj: Any) -> bytes:
        """The bytes of an object that has the fields as attributes."""
        return b"".join(scalar.bytes_of(getattr(obj, name)) for name, scalar in self._scalars)


U32 = Varint(4)
U64 = Varint(8)
I32 = Signed()
STR = Text()
SIGNATURE = Exactly(SIGNATURE_BYTES)

# -- payloads ---------------------------------------------------------------------------------

HELLO = Fields(
    "host" / STR,
    "local_devices" / Octets(),
    "gpus" / Sequence(STR),
    "libtorch" / STR,
    "dataset_sig" / SIGNATURE,
)
HELLO_4 = Fields(
    *HELLO.subcons,
    "run_id" / Option(STR),
    "nccl_version" / Option(Tuple(U32, U32, U32)),
    "model_sig" / Option(SIGNATURE),
)
ACCEPT = Fields(
    "ranks" / Sequence(U32),
    "salt_hex" / Option(STR),
    "formation_wait_secs" / U64,
)
REJECT = Fields("reason" / STR)
WORLD_FORMED = Fields("envelope_hex" / STR, "relay_spec_hex" / Option(STR))
RANK_EXITED = Fields("rank" / U32, "code" / I32)
ABORT = Fields("reason" / STR)


class Wire(NamedTuple):
    """A version of the wire.

    Attributes:
        version: the number in the frame header.
        payloads: the payload of each message, by its number.
        localized: an agent rewrites the artifacts to the address it dialed, and gives its ranks
            the environment of the publication that brought this version.
    """

    version: int
    payloads: tuple[Fields, ...]
    localized: bool = False


WIRES = {
    wire.version: wire
    for wire in (
        Wire(2, (HELLO, ACCEPT, REJECT, WORLD_FORMED, RANK_EXITED, ABORT)),
        Wire(4, (HELLO_4, ACCEPT, REJECT, WORLD_FORMED, RANK_EXITED, ABORT), localized=True),
    )
}
"""The versions that are spoken.  A new one is a row here and a vector file, nothing else."""
