"""`joinproto decode`: what frames hold.

Reads hex, one frame a line, or with `--raw` the bytes of one direction of a connection, and says
for each frame what it is, or at which step of reading it was refused.

A frame's key is the salt that was given, else zeros, which tag Hello, Accept and Reject under open
admission.  An Accept under zeros that carries a salt makes that salt the key of what follows.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any, BinaryIO, Final

from joinproto.codec import Decoded, decode_payload, tag_matches
from joinproto.errors import ConfigError, DecodeError, Stage
from joinproto.framing import Frame, Framer
from joinproto.grammar import CHANNEL_MAGICS, JOIN_KIND, KINDS, WIRES
from joinproto.keys import OPEN, Salt
from joinproto.limits import HEADER_BYTES, MAX_PAYLOAD_BYTES
from joinproto.messages import Accept, Hello, Message, Reject
from joinproto.runtime.salts import read_salt_file

CHUNK_BYTES: Final = 64 * 1024
MAGIC_BYTES: Final = 4

LINE_BYTES: Final = 2 * (2 * HEADER_BYTES + MAX_PAYLOAD_BYTES)
"""The longest line of hex that is read: the largest frame, and room for what leads or follows."""

BEFORE_SESSION: Final = (Hello, Accept, Reject)
"""The messages that zeros may tag."""

UNREADABLE: Final = frozenset({Stage.MAGIC, Stage.VERSION, Stage.KIND, Stage.LENGTH})
"""Stages after which nobody knows where the next frame begins."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--salt-file", metavar="FILE", help="the pre-shared or session salt, 32 hex digits"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="one JSON object a line, with salts and artifacts, which the text form leaves out",
    )
    parser.add_argument(
        "--raw",
        metavar="FILE",
        help="read one direction of a connection as captured, instead of hex lines on stdin; "
        "- is stdin",
    )


def run(args: argparse.Namespace) -> int:
    """Decode; 0 when all of it could be, else 1."""
    keys = Keys(_salt(args.salt_file))
    show = as_json if args.json else as_text
    code = 0
    for item in _items(args.raw, keys):
        print(show(item), flush=True)
        if item.error is not None:
            code = 1
    return code


# -- keys -------------------------------------------------------------------------------------


class Keys:
    """The keys that frames may be tagged with.

    Args:
        salt: the pre-shared or session salt, when it is known.
    """

    def __init__(self, salt: Salt | None = None) -> None:
        self._known = {"zeros": OPEN} if salt is None else {"salt": salt, "zeros": OPEN}

    def decode(self, frame: Frame) -> tuple[str, Decoded | None]:
        """The name of the key of `frame`, and its message (None on another channel).

        Raises:
            DecodeError: at stage tag or payload.
        """
        name = self._key_of(frame)
        if frame.kind != JOIN_KIND:
            self._check_use(name, None)
            return name, None
        decoded = decode_payload(frame.payload, wire=frame.wire)
        self._check_use(name, decoded.message)
        self._learn(name, decoded.message)
        return name, decoded

    def _key_of(self, frame: Frame) -> str:
        for name, key in self._known.items():
            if tag_matches(frame.kind, frame.payload, frame.tag, key):
                return name
        raise DecodeError(Stage.TAG, f"not tagged with {self._tried()}, or changed on its way")

    def _tried(self) -> str:
        names = {"salt": "the salt", "zeros": "zeros", "session": "the session salt of the Accept"}
        without = "" if "salt" in self._known else " (no salt was given)"
        return " or ".join(names[name] for name in self._known) + without

    def _check_use(self, name: str, message: Message | None) -> None:
        """Refuse zeros where, with the salt known, only the salt will do."""
        if name == "zeros" and "salt" in self._known and not isinstance(message, BEFORE_SESSION):
            raise DecodeError(
                Stage.TAG, "tagged with zeros, which serve Hello, Accept and Reject alone"
            )

    def _learn(self, name: str, message: Message) -> None:
        if name == "zeros" and isinstance(message, Accept) and message.salt_hex is not None:
            try:
                self._known["session"] = Salt.from_hex(message.salt_hex)
            except ConfigError:
                return  # any text is legal on the wire; what it would tag stays unread


# -- reading ----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Why something could not be read: as in `DecodeError`, with stage `hex` for lines that are
    not hex."""

    stage: str
    detail: str
    field: str = ""
    offset: int | None = None


@dataclass(frozen=True, kw_only=True)
class Item:
    """What stands at one place of the input: a frame, something unreadable, or the end.

    Attributes:
        line: the line it was on; None in a stream.
        at: its first byte, from the start of the stream or line.
        size: bytes it took, a channel magic in front of it included; of the end of a stream, the
            bytes of a header that it cut off.
        channel: the channel whose magic stood in front of it; else "".
        frame: the frame, when it could be read.
        key: which key it is tagged with.
        decoded: its message, on the join channel.
        error: why it could not be read.
    """

    line: int | None = None
    at: int = 0
    size: int = 0
    channel: str = ""
    frame: Frame | None = None
    key: str = ""
    decoded: Decoded | None = None
    error: Fault | None = None


class Stream:
    """One direction of a connection, from its first byte.

    Attributes:
        readable: further frames can be found in it.
    """

    def __init__(self, keys: Keys, line: int | None = None) -> None:
        self.readable = True
        self._keys = keys
        self._line = line
        self._framer = Framer()
        self._head = b""
        self._channel: str | None = None
        self._fed = 0
        self._start = 0

    def feed(self, data: bytes) -> None:
        """Add bytes; call `next_item` until it gives None."""
        self._fed += len(data)
        if self._channel is not None:
            self._framer.feed(data)
            return
        self._head += data
        if len(self._head) >= MAGIC_BYTES:
            self._channel = CHANNEL_MAGICS.get(self._head[:MAGIC_BYTES], "")
            self._framer.feed(self._head[MAGIC_BYTES if self._channel else 0 :])

    def next_item(self) -> Item | None:
        """The next frame, or why there is none; None when more bytes are needed."""
        if not self.readable:
            return None
        try:
            frame = self._framer.next_frame()
        except DecodeError as error:
            self.readable = False
            return self._item(error=_fault(error))
        if frame is None:
            return None
        try:
            key, decoded = self._keys.decode(frame)
        except DecodeError as error:
            return self._item(size_of=frame, error=_fault(error))
        return self._item(size_of=frame, frame=frame, key=key, decoded=decoded)

    def end(self) -> Item:
        """What the end of the stream means here; call it when `next_item` gave None."""
        self.readable = False
        try:
            self._framer.end()
        except DecodeError as error:
            return self._item(error=_fault(error))
        cut = self._framer.held if self._channel is not None else len(self._head)
        return replace(self._item(), size=cut)

    def _item(self, *, size_of: Frame | None = None, **known: Any) -> Item:
        """An item at the read position, or of the frame that ends there."""
        end = self._fed - self._framer.held if self._channel is not None else 0
        start, self._start = self._start, end
        channel = self._channel if start == 0 else ""
        at = end - size_of.size if size_of is not None else end
        return Item(line=self._line, at=at, size=end - start, channel=channel or "", **known)


def _fault(error: DecodeError) -> Fault:
    return Fault(
        stage=error.stage.value, detail=error.detail, field=error.field, offset=error.offset
    )


def _items(raw: str | None, keys: Keys) -> Iterator[Item]:
    if raw is None:
        return _read_lines(_stdin(), keys)
    if raw == "-":
        return _read_stream(_stdin(), keys)
    return _read_file(raw, keys)


def _read_file(path: str, keys: Keys) -> Iterator[Item]:
    try:
        source = open(path, "rb")  # noqa: SIM115 - what fails here is to be told apart from reading
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise ConfigError(f"{path!r} cannot be read: {reason}") from None
    with source:
        yield from _read_stream(source, keys)


def _read_stream(source: BinaryIO, keys: Keys) -> Iterator[Item]:
    """The frames of a stream up to its end, or up to what makes the rest unreadable."""
    stream = Stream(keys)
    # read1, since a capture that still grows gives what it has.
    while data := source.read1(CHUNK_BYTES):  # type: ignore[attr-defined]  # BinaryIO lacks it
        stream.feed(data)
        while (item := stream.next_item()) is not None:
            yield item
        if not stream.readable:
            return
    yield stream.end()


def _read_lines(source: BinaryIO, keys: Keys) -> Iterator[Item]:
    number = 0
    while line := source.readline(LINE_BYTES + 1):
        number += 1
        if len(line) > LINE_BYTES and not line.endswith(b"\n"):
            _skip_line(source)
            fault = Fault(stage="hex", detail=f"a line of more than {LINE_BYTES} bytes")
            yield Item(line=number, error=fault)
        else:
            yield _read_line(line, number, keys)


def _skip_line(source: BinaryIO) -> None:
    while (part := source.readline(CHUNK_BYTES)) and not part.endswith(b"\n"):
        pass


def _read_line(line: bytes, number: int, keys: Keys) -> Item:
    """The first frame on a line; what stands behind it is not looked at."""
    if (strange := re.search(rb"[^0-9A-Fa-f\s]", line)) is not None:
        detail = f"byte 0x{line[strange.start()]:02x} in column {strange.start() + 1} is no digit"
        return Item(line=number, error=Fault(stage="hex", detail=detail))
    digits = b"".join(line.split())
    if len(digits) % 2:
        detail = f"an odd number of digits ({len(digits)})"
        return Item(line=number, error=Fault(stage="hex", detail=detail))
    stream = Stream(keys, number)
    stream.feed(bytes.fromhex(digits.decode()))
    return stream.next_item() or stream.end()


def _stdin() -> BinaryIO:
    if sys.stdin is None:
        raise ConfigError("standard input is closed")
    return sys.stdin.buffer


def _salt(path: str | None) -> Salt | None:
    if path is None:
        return None
    salt, warning = read_salt_file(path)
    if warning is not None:
        print(f"joinproto decode: {warning}", file=sys.stderr)
    return salt


# -- JSON -------------------------------------------------------------------------------------


def as_json(item: Item) -> str:
    """One line of JSON (ASCII) that holds all that is known of the item."""
    return json.dumps(({"channel": item.channel} if item.channel else {}) | _body(item))


def _body(item: Item) -> dict[str, Any]:
    if item.error is not None:
        place = {} if item.line is not None else {"at": item.at}
        return {"error": _error_body(item.error), **place}
    if item.frame is None:
        return {"end_of_stream": True}
    decoded = item.decoded
    message = {} if decoded is None else {"message": message_body(decoded.message, item.frame.wire)}
    return {
        "wire": item.frame.wire,
        "kind": KINDS[item.frame.kind],
        "key": item.key,
        **message,
        "notes": _notes(item),
        "consumed": item.size,
    }


def _error_body(fault: Fault) -> dict[str, Any]:
    body: dict[str, Any] = {"stage": fault.stage, "detail": fault.detail}
    if fault.offset is not None:
        body |= {"field": fault.field, "offset": fault.offset}
    return body


def message_body(message: Message, wire: int) -> dict[str, Any]:
    """The message as JSON values: its type, then its fields in that version, bytes as hex."""
    carried = (field.name for field in WIRES[wire].payloads[message.number].subcons)
    values = {name: getattr(message, name) for name in carried}
    return {
        "type": type(message).__name__,
        **{name: v.hex() if isinstance(v, bytes) else v for name, v in values.items()},
    }


def _notes(item: Item) -> list[str]:
    return [] if item.decoded is None else [note.value for note in item.decoded.notes]


# -- text -------------------------------------------------------------------------------------


def as_text(item: Item) -> str:
    """The item for people: a line, and one more for each field of a message.

    Salts, and artifacts (which hold them), are left out: this is what ends up in bug reports.
    """
    where = f"line {item.line}" if item.line is not None else f"byte {item.at}"
    channel = f", first on the {item.channel} channel" if item.channel else ""
    return "\n".join((f"{where}: {_headline(item)}{channel}", *_field_lines(item)))


def _headline(item: Item) -> str:
    if (fault := item.error) is not None:
        place = f" in {fault.field} at byte {fault.offset} of the payload" if fault.field else ""
        return f"error at stage {fault.stage}: {fault.detail}{place}"
    if item.frame is None:
        return "end of stream" + (f", {item.size} bytes into a header" if item.size else "")
    kind = KINDS[item.frame.kind]
    name = f"{kind} frame" if item.decoded is None else type(item.decoded.message).__name__
    facts = (f"wire {item.frame.wire}", f"key {item.key}", f"{item.size} bytes", *_notes(item))
    return f"{name} ({', '.join(facts)})"


def _field_lines(item: Item) -> Iterator[str]:
    if item.frame is None or item.decoded is None:
        return
    message = item.decoded.message
    secret = {field.name for field in fields(message) if not field.repr}
    values = message_body(message, item.frame.wire)
    del values["type"]
    width = max(map(len, values))
    for name, value in values.items():
        yield f"    {name:{width}}  {_shown(value, hidden=name in secret)}"


def _shown(value: Any, *, hidden: bool) -> str:
    if value is None:
        return "none"
    if hidden:
        return f"({len(value)} characters, shown with --json)"
    # repr, since a reason or a name may hold what would move a terminal's cursor.
    return repr(list(value) if isinstance(value, tuple) else value)
