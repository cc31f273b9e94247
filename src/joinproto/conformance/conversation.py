"""One connection of a case, as the suite sees it: bytes in both directions, read with its keys."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from joinproto import codec
from joinproto.errors import DecodeError, Stage
from joinproto.framing import Frame, Framer
from joinproto.grammar import JOIN_KIND, JOIN_MAGIC, KINDS
from joinproto.keys import OPEN, Salt
from joinproto.limits import HEADER_BYTES
from joinproto.messages import Accept, Hello, Message, Reject

MAX_HELD = 64 * 1024 * 1024
"""Bytes; a target that sends more than a case reads floods."""


@dataclass(frozen=True, kw_only=True)
class Said:
    """The target said a message.

    Attributes:
        at: when its last byte came, in the time of the case.
        message: what it said.
        wire: in which version.
        notes: what was remarkable about its bytes.
    """

    at: float
    message: Message
    wire: int
    notes: tuple[codec.Note, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Garbled:
    """The target sent bytes that are no message, or none that may stand there."""

    at: float
    error: DecodeError


@dataclass(frozen=True, kw_only=True)
class Over:
    """The target ended the connection: `how` is fin or rst."""

    at: float
    how: str


@dataclass(frozen=True, kw_only=True)
class Raw:
    """Bytes on a connection that is not read as frames."""

    at: float
    data: bytes


Event: TypeAlias = Said | Garbled | Over | Raw


class Conversation:
    """What came in on one connection, to be taken one event at a time.

    Args:
        name: of the connection in the case.
        join_key: with which Hello, Accept and Reject are tagged.
        session_key: with which the others are.
        dialed: the target dialed it, so that it must begin with the channel magic.
        raw: it is not read as frames.

    Attributes:
        wire: the version of the target's last frame; None: there was none yet.
        ended: how and when the target ended it; None: it has not.
        closed: the suite has closed or reset it.
        half_closed: the suite sends no more.
        received: bytes that came in so far.
        sent: bytes that went out so far.
    """

    def __init__(
        self, name: str, *, join_key: Salt, session_key: Salt, dialed: bool, raw: bool = False
    ) -> None:
        self.name = name
        self.join_key = join_key
        self.session_key = session_key
        self.raw = raw
        self.wire: int | None = None
        self.ended: Over | None = None
        self.closed = False
        self.half_closed = False
        self.received = 0
        self.sent = 0
        self._opening = JOIN_MAGIC if dialed and not raw else b""
        self._opened = bytearray()
        self._framer = Framer()
        self._broken = False
        self._told_end = False
        self._raw = bytearray()
        self._last = 0.0

    def feed(self, data: bytes, at: float) -> None:
        """Take bytes that came in."""
        self.received += len(data)
        self._last = at
        if self.raw:
            self._raw += data
            return
        if len(self._opened) < len(self._opening):
            size = len(self._opening) - len(self._opened)
            self._opened += data[:size]
            data = data[size:]
        if not self._broken and self._framer.held < MAX_HELD:
            self._framer.feed(data)

    def end(self, how: str, at: float) -> None:
        """Take the end of the stream (fin), or a reset (rst)."""
        if self.ended is None:
            self.ended = Over(at=at, how=how)

    @property
    def opened(self) -> bool:
        """Whether the target has sent a whole channel magic, where it must."""
        return len(self._opened) == len(self._opening)

    def take(self) -> Event | None:
        """The next thing that the target did on it; None: nothing more yet."""
        if self.raw and self._raw:
            data = bytes(self._raw)
            self._raw.clear()
            return Raw(at=self._last, data=data)
        event = None if self.raw or self._broken else self._next_said()
        if event is not None:
            return event
        if self.ended is None or self._told_end:
            return None
        self._told_end = True
        return self._last_words() or self.ended

    # -- inside -------------------------------------------------------------------------------

    def _next_said(self) -> Said | Garbled | None:
        if not self.opened:
            return None
        if self._opened != self._opening:
            expected, got = self._opening.hex(), self._opened.hex()
            self._opening = bytes(self._opened)
            return self._garbled(
                DecodeError(Stage.MAGIC, f"a dial begins with {expected}, this one with {got}")
            )
        try:
            frame = self._framer.next_frame()
            return None if frame is None else self._read(frame)
        except DecodeError as error:
            return self._garbled(error)

    def _garbled(self, error: DecodeError) -> Garbled:
        # Behind a frame that cannot be cut nothing can be read; behind another the next begins.
        self._broken = error.stage not in (Stage.TAG, Stage.PAYLOAD)
        return Garbled(at=self._last, error=error)

    def _read(self, frame: Frame) -> Said:
        before, self.wire = self.wire, frame.wire
        if before not in (None, frame.wire):
            raise DecodeError(
                Stage.VERSION, f"a frame in wire {frame.wire} behind one in wire {before}"
            )
        if frame.kind != JOIN_KIND:
            kind = KINDS[frame.kind]
            raise DecodeError(Stage.TAG, f"a {kind} frame has no business on the join channel")
        key = self._check(frame)
        decoded = codec.decode_payload(frame.payload, wire=frame.wire)
        message = decoded.message
        due = self.key_of(message)
        if key != due:
            name = type(message).__name__
            raise DecodeError(Stage.TAG, f"{name} must be tagged with the {self._named(due)}")
        if isinstance(message, Accept) and message.salt_hex is not None:
            self._learn(message.salt_hex)
        return Said(at=self._last, message=message, wire=frame.wire, notes=decoded.notes)

    def key_of(self, message: Message) -> Salt:
        """The key that a message is tagged with."""
        if isinstance(message, Hello | Accept | Reject):
            return self.join_key
        return self.session_key

    def _check(self, frame: Frame) -> Salt:
        """The key that a frame was tagged with.

        Raises:
            DecodeError: none of those that are in use.
        """
        for key in (self.join_key, self.session_key):
            if codec.tag_matches(frame.kind, frame.payload, frame.tag, key):
                return key
        raise DecodeError(Stage.TAG, "the frame is tagged with neither join key nor session salt")

    def _named(self, key: Salt) -> str:
        if key == self.session_key:
            return "session salt"
        return "zero key" if key == OPEN else "pre-shared salt"

    def _learn(self, text: str) -> None:
        try:
            self.session_key = Salt.from_hex(text)
        except ValueError as error:
            raise DecodeError(Stage.PAYLOAD, f"Accept.salt_hex: {error}") from None

    def _last_words(self) -> Garbled | None:
        """What is wrong with a stream that ended here."""
        if self.raw or self._broken or self.ended is None or self.ended.how != "fin":
            return None
        held = self._framer.held
        if not held:
            return None
        where = "header" if held < HEADER_BYTES else "payload"
        return Garbled(
            at=self.ended.at,
            error=DecodeError(Stage.TRUNCATED, f"the stream ended inside a frame's {where}"),
        )
