"""Faults of frames and payloads, which either role can have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from joinproto import codec, connection, framing, grammar
from joinproto.errors import DecodeError, Stage
from joinproto.framing import Frame, Framer
from joinproto.grammar import FRAME_MAGIC, JOIN_KIND, KINDS, LARGEST_SHORT, WIRES
from joinproto.keys import OPEN, Salt
from joinproto.limits import HEADER_BYTES, MAX_PAYLOAD_BYTES, SIGNATURE_BYTES, Timer
from joinproto.messages import MESSAGES
from tests.support.mutants.changes import Change, coding, framed, put, reading, together, writing

# -- frames that come in ----------------------------------------------------------------------


class _AnyMagic(Framer):
    def _checked(self, header: Any) -> Any:
        header.magic = FRAME_MAGIC
        return super()._checked(header)


class _AnyVersion(Framer):
    def _checked(self, header: Any) -> Any:
        if header.version not in WIRES:
            header.version = max(self.wires)
        return super()._checked(header)


class _MixedVersions(Framer):
    @property
    def wires(self) -> frozenset[int]:
        return frozenset(WIRES)

    @wires.setter
    def wires(self, value: frozenset[int]) -> None:
        pass


class _AnyKind(Framer):
    def _checked(self, header: Any) -> Any:
        kind, header.kind = header.kind, JOIN_KIND
        header = super()._checked(header)
        header.kind = kind
        return header


class _LateLength(Framer):
    """Refuses a length only when some of the payload is there."""

    def next_frame(self) -> Frame | None:
        if self._header is None and HEADER_BYTES <= self.held < HEADER_BYTES + 64:
            length = int.from_bytes(self._buffer[HEADER_BYTES - 4 : HEADER_BYTES], "little")
            if length > MAX_PAYLOAD_BYTES:
                return None
        return super().next_frame()


class _CleanCut(Framer):
    def end(self) -> None:
        pass


class _StrictCut(Framer):
    def end(self) -> None:
        if self.held:
            raise DecodeError(Stage.TRUNCATED, "the stream ended inside a frame")


class _OnePiece(Framer):
    def feed(self, data: bytes) -> None:
        self._buffer.clear()
        self._header = None
        super().feed(data)


class _OneFrame(Framer):
    """Looks at one frame of what comes at once."""

    _looked = False

    def feed(self, data: bytes) -> None:
        self._looked = False
        super().feed(data)

    def next_frame(self) -> Frame | None:
        if self._looked:
            return None
        self._looked = True
        return super().next_frame()


def _obeyed(kinds: Callable[[int], bool]) -> Change:
    """Frames of these kinds are obeyed like those of the join channel."""
    decoded = connection._Link._decoded

    def obey(self: Any, frame: Frame) -> Any:
        if kinds(frame.kind):
            frame = Frame(wire=frame.wire, kind=JOIN_KIND, tag=frame.tag, payload=frame.payload)
        return decoded(self, frame)

    return put(connection._Link, "_decoded", obey)


def put_off(timer: Timer, seconds: float, link: Any = connection._Link) -> Change:
    """Bytes that come in put off a deadline by so many seconds."""
    receive = link.receive_data

    def received(self: Any, data: bytes, now: float) -> list[Any]:
        timers = self._session._timers
        there = timer in timers
        effects: list[Any] = receive(self, data, now)
        if there and timer in timers:
            timers[timer] += seconds
        return effects

    return put(link, "receive_data", received)


ANY_MAGIC = framed(_AnyMagic)
ANY_VERSION = framed(_AnyVersion)
MIXED = framed(_MixedVersions)
LATE = framed(_LateLength)
ONE_PIECE = framed(_OnePiece)
ONE_FRAME = framed(_OneFrame)
CLEAN_CUT = framed(_CleanCut)
STRICT_CUT = framed(_StrictCut)
CAP_ABOVE = put(framing, "MAX_PAYLOAD_BYTES", MAX_PAYLOAD_BYTES + 1)
CAP_BELOW = put(framing, "MAX_PAYLOAD_BYTES", MAX_PAYLOAD_BYTES - 1)
ANY_KIND = together(framed(_AnyKind), _obeyed(lambda kind: kind not in KINDS))
OTHER_KIND = _obeyed(lambda kind: kind in KINDS)

# -- tags -------------------------------------------------------------------------------------


def tags(holds: Callable[[int, bytes, bytes, Salt], bool]) -> Change:
    """What else of a frame's tag is good enough, beside its being right."""

    def check(kind: int, payload: bytes, tag: bytes, key: Salt) -> None:
        if not holds(kind, payload, tag, key):
            codec.check_tag(kind, payload, tag, key)

    return coding(check_tag=check)


def untagged(number: int) -> Change:
    """The tag of messages of this number is not looked at."""
    return tags(lambda kind, payload, tag, key: payload[:1] == bytes((number,)))


SHORT_TAG = tags(lambda kind, payload, tag, key: codec.tag_of(kind, payload, key)[:7] == tag[:7])
ZERO_KEY = tags(lambda kind, payload, tag, key: codec.tag_matches(kind, payload, tag, OPEN))

# -- payloads that come in --------------------------------------------------------------------


def _big_endian(self: Any, stream: Any, context: Any, path: str) -> int:
    start = stream.tell()
    value = _VARINT(self, stream, context, path)
    data = stream.getbuffer()[start : stream.tell()]
    return int.from_bytes(data[1:], "big") if data[0] == 252 else value


def _any_marker(self: Any, stream: Any, context: Any, path: str) -> int:
    first = stream.getbuffer()[stream.tell()] if grammar._left(stream) else 0
    if first < 253 or (first == 253 and self.width == 8):
        return _VARINT(self, stream, context, path)
    data = grammar._take(stream, 9, path, "a number")
    width: int = self.width
    return int.from_bytes(data[1:], "little") % (1 << (8 * width))


def _any_option(self: Any, stream: Any, context: Any, path: str) -> Any:
    there = grammar._take(stream, 1, path, "an option")[0]
    return self.value._parse(stream, context, path) if there else None


def _any_text(self: Any, stream: Any, context: Any, path: str) -> str:
    size: int = grammar.U64._parse(stream, context, path)
    return grammar._take(stream, size, path, "a string").decode(errors="replace")


def _text_of_characters(self: Any, stream: Any, context: Any, path: str) -> str:
    start = stream.tell()
    size: int = grammar.U64._parse(stream, context, path)
    text = bytes(stream.getbuffer()[stream.tell() :]).decode(errors="surrogateescape")[:size]
    data = text.encode(errors="surrogateescape")
    if len(text) < size or (not data.isascii() and text != data.decode(errors="replace")):
        stream.seek(start)
        return _TEXT(self, stream, context, path)
    stream.seek(len(data), 1)
    return text


def _no_empty_text(self: Any, stream: Any, context: Any, path: str) -> str:
    start = stream.tell()
    return _TEXT(self, stream, context, path) or grammar._refuse(stream, path, "empty", start)


def _varints(self: Any, stream: Any, context: Any, path: str) -> tuple[int, ...]:
    count = grammar._count(stream, context, path)
    return tuple(grammar.U32._parse(stream, context, path) % 256 for _ in range(count))


def _what_is_left(stream: Any, size: int, path: str, what: str) -> bytes:
    data = bytes(stream.read(min(size, grammar._left(stream))))
    return data.ljust(size, b"\0") if size <= SIGNATURE_BYTES else data


def _long_text(self: Any, stream: Any, context: Any, path: str) -> str:
    start = stream.tell()
    size: int = grammar.U64._parse(stream, context, path)
    if size <= grammar._left(stream):
        stream.seek(start)
        return _TEXT(self, stream, context, path)
    return bytes(stream.read()).decode()


_VARINT = grammar.Varint._parse
_TEXT = grammar.Text._parse

BIG_ENDIAN = reading(put(grammar.Varint, "_parse", _big_endian))
ANY_MARKER = reading(put(grammar.Varint, "_parse", _any_marker))
ANY_OPTION = reading(put(grammar.Option, "_parse", _any_option))
ANY_TEXT = reading(put(grammar.Text, "_parse", _any_text))
CHARACTERS_READ = reading(put(grammar.Text, "_parse", _text_of_characters))
NO_EMPTY_TEXT = reading(put(grammar.Text, "_parse", _no_empty_text))
LONG_TEXT = reading(put(grammar.Text, "_parse", _long_text))
OCTETS_READ_AS_NUMBERS = reading(put(grammar.Octets, "_parse", _varints))
SHORT_PAYLOAD = reading(put(grammar, "_take", _what_is_left))


def any_number(number: int) -> Change:
    """A message number that there is not is taken for this one."""

    def decode(payload: bytes, *, wire: int) -> codec.Decoded:
        if payload and len(MESSAGES) <= payload[0] <= LARGEST_SHORT:
            payload = bytes((number,)) + payload[1:]
        return codec.decode_payload(payload, wire=wire)

    return coding(decode_payload=decode)


# -- payloads that go out ---------------------------------------------------------------------


def _long_form(self: Any, obj: int) -> bytes:
    return b"\xfb" + obj.to_bytes(2, "little") if obj <= 250 else _NUMBER_BYTES(self, obj)


def _plain(self: Any, obj: int) -> bytes:
    return grammar.U32.bytes_of(obj % (1 << 32))


def _characters(self: Any, obj: str) -> bytes:
    return grammar.U64.bytes_of(len(obj)) + obj.encode()


def _octets_as_numbers(self: Any, obj: tuple[int, ...]) -> bytes:
    return grammar.U64.bytes_of(len(obj)) + b"".join(map(grammar.U32.bytes_of, obj))


def _option_with_length(self: Any, obj: Any) -> bytes:
    if obj is not None and self.value is grammar.SIGNATURE:
        return b"\x01" + grammar.U64.bytes_of(len(obj)) + bytes(obj)
    return _OPTION_BYTES(self, obj)


_NUMBER_BYTES = grammar.Varint.bytes_of
_OPTION_BYTES = grammar.Option.bytes_of

NO_ZIGZAG = writing(put(grammar.Signed, "bytes_of", _plain))
CHARACTERS_WRITTEN = writing(put(grammar.Text, "bytes_of", _characters))
OCTETS_WRITTEN_AS_NUMBERS = writing(put(grammar.Octets, "bytes_of", _octets_as_numbers))
SIGNATURE_WITH_LENGTH = writing(put(grammar.Option, "bytes_of", _option_with_length))


def _sent(number: int, edit: Callable[[Any, int], bytes]) -> Change:
    """Messages of this number go out with another payload: `edit` gets message and version."""

    def encode(message: Any, *, key: Salt, wire: int) -> bytes:
        if message.number != number:
            return codec.encode(message, key=key, wire=wire)
        return codec.encode_frame(edit(message, wire), key=key, wire=wire)

    return coding(encode=encode)


def trailing(number: int) -> Change:
    """Messages of this number go out with a byte behind their last field."""
    return _sent(number, lambda message, wire: codec.encode_payload(message, wire=wire) + b"\0")


def long_form(number: int) -> Change:
    """Messages of this number go out with their numbers in more bytes than they need."""

    def edit(message: Any, wire: int) -> bytes:
        with put(grammar.Varint, "bytes_of", _long_form)():
            return codec.encode_payload(message, wire=wire)

    return _sent(number, edit)


# -- by role -----------------------------------------------------------------------------------

AGENT_FRAMES: dict[str, Change] = {
    "any-magic": ANY_MAGIC,
    "any-version": ANY_VERSION,
    "mixed-versions": MIXED,
    "any-kind": ANY_KIND,
    "other-kind": OTHER_KIND,
    "cap-above": CAP_ABOVE,
    "cap-below": CAP_BELOW,
    "late-length": LATE,
    "one-piece": ONE_PIECE,
    "one-frame": ONE_FRAME,
    "clean-cut": CLEAN_CUT,
    "strict-cut": STRICT_CUT,
    "short-tag": SHORT_TAG,
    "untagged-accept": untagged(1),
    "untagged-formed": untagged(3),
    "zero-key": ZERO_KEY,
    "big-endian": BIG_ENDIAN,
    "any-marker": ANY_MARKER,
    "any-option": ANY_OPTION,
    "any-text": ANY_TEXT,
    "long-text": LONG_TEXT,
    "no-empty-text": NO_EMPTY_TEXT,
    "short-payload": SHORT_PAYLOAD,
    "no-zigzag": NO_ZIGZAG,
    "characters-written": CHARACTERS_WRITTEN,
    "octets-as-numbers": OCTETS_WRITTEN_AS_NUMBERS,
    "signature-length": SIGNATURE_WITH_LENGTH,
    "trailing-hello": trailing(0),
    "trailing-report": trailing(4),
    "long-hello": long_form(0),
    "long-report": long_form(4),
}
CONTROLLER_FRAMES: dict[str, Change] = {
    "any-magic": ANY_MAGIC,
    "any-version": ANY_VERSION,
    "mixed-versions": MIXED,
    "any-kind": ANY_KIND,
    "other-kind": OTHER_KIND,
    "cap-above": CAP_ABOVE,
    "cap-below": CAP_BELOW,
    "late-length": LATE,
    "one-piece": ONE_PIECE,
    "one-frame": ONE_FRAME,
    "short-tag": SHORT_TAG,
    "untagged-hello": untagged(0),
    "untagged-report": untagged(4),
    "zero-key": ZERO_KEY,
    "big-endian": BIG_ENDIAN,
    "any-marker": ANY_MARKER,
    "any-option": ANY_OPTION,
    "any-text": ANY_TEXT,
    "characters-read": CHARACTERS_READ,
    "short-payload": SHORT_PAYLOAD,
    "octets-as-numbers": OCTETS_READ_AS_NUMBERS,
    "any-number": any_number(0),
    "characters-written": CHARACTERS_WRITTEN,
    "trailing-accept": trailing(1),
    "trailing-reject": trailing(2),
    "trailing-formed": trailing(3),
    "trailing-abort": trailing(5),
    "long-accept": long_form(1),
}
