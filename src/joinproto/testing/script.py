"""The steps that a fake's script is made of.

A step that needs a connection waits for one where there is none: a fake controller for the next
dial, a fake agent for its own.  So what stands behind a `Close` happens on the next connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeAlias

from joinproto import codec
from joinproto.errors import InvalidMessage
from joinproto.grammar import JOIN_KIND, WIRES
from joinproto.keys import Salt
from joinproto.limits import HEADER_BYTES, TAG_BYTES
from joinproto.messages import Accept, Message, RankExited
from joinproto.testing.peer import FakeConnection
from joinproto.testing.record import short
from joinproto.testing.stage import Mismatch, PeerEnded, Stage, Step, Waiting

Sayable: TypeAlias = Message | bytes | Callable[[Stage], Message]
"""A message, the payload of one as bytes, or what makes a message of what has happened so far."""

FORMATION_WAIT = 60
"""Seconds; what a fake controller announces when the script does not say."""

# -- what must come ---------------------------------------------------------------------------


@dataclass(frozen=True, init=False)
class Expect(Step):
    """The next message must be this one.

    Args:
        message: a whole message, or the class of one.
        values: fields that it must have; a function stands for any value for which it is true.
    """

    message: Message | type[Message]
    values: Mapping[str, Any]

    def __init__(self, message: Message | type[Message], /, **values: Any) -> None:
        kind = message if isinstance(message, type) else type(message)
        if strange := values.keys() - {each.name for each in fields(kind)}:
            raise TypeError(f"{kind.__name__} has no field {', '.join(sorted(strange))}")
        object.__setattr__(self, "message", message)
        object.__setattr__(self, "values", values)

    def __str__(self) -> str:
        return f"Expect({self.wanted})"

    @property
    def wanted(self) -> str:
        """What it must be, for people."""
        if not isinstance(self.message, type):
            return short(self.message)
        given = (f"{name}={_told(value)}" for name, value in self.values.items())
        return f"{self.message.__name__}({', '.join(given)})"

    def play(self, stage: Stage) -> Waiting[None]:
        """Wait for the message and look at it."""
        got = (yield from stage.message(self.wanted)).message
        kind = self.message if isinstance(self.message, type) else type(self.message)
        if type(got) is not kind:
            raise Mismatch(self.wanted, short(got))
        wanted = dict(self.values)
        if not isinstance(self.message, type):
            wanted |= {each.name: getattr(self.message, each.name) for each in fields(kind)}
        if differs := _differences(wanted, got):
            raise Mismatch(self.wanted, short(got), differs)


def _told(value: object) -> str:
    return getattr(value, "__name__", "…") if callable(value) else short(value)


def _differences(wanted: Mapping[str, Any], got: Message) -> list[str]:
    """How the fields of a message differ from those wanted, one line each."""
    found = []
    for name, value in wanted.items():
        actual = getattr(got, name)
        if not (value(actual) if callable(value) else actual == value):
            found.append(f"{name}: expected {_told(value)}, got {short(actual)}")
    return found


@dataclass(frozen=True)
class ExpectExits(Step):
    """Every rank of the last Accept must be told to have ended, once each, in any order.

    Attributes:
        codes: rank → code that it must be; other ranks may end with any.
    """

    codes: Mapping[int, int] = field(default_factory=dict)

    def play(self, stage: Stage) -> Waiting[None]:
        """Wait for the reports."""
        missing = set(stage.ranks)
        while missing:
            wanted = f"RankExited of {' or '.join(f'rank {rank}' for rank in sorted(missing))}"
            got = (yield from stage.message(wanted)).message
            if not isinstance(got, RankExited) or got.rank not in missing:
                raise Mismatch(wanted, short(got))
            code = self.codes.get(got.rank, got.code)
            if got.code != code:
                differs = f"code: expected {code}, got {got.code}"
                raise Mismatch(f"rank {got.rank} to end with {code}", short(got), [differs])
            missing.remove(got.rank)


@dataclass(frozen=True)
class ExpectBytes(Step):
    """The next bytes must be these, whatever they mean; the first ones are the channel magic."""

    data: bytes

    def __str__(self) -> str:
        return f"ExpectBytes({short(self.data)})"

    def play(self, stage: Stage) -> Waiting[None]:
        """Wait for as many bytes, and look at them."""
        got = yield from stage.take(len(self.data), short(self.data))
        if got != self.data:
            at = next(i for i, (a, b) in enumerate(zip(got, self.data, strict=True)) if a != b)
            differs = f"byte {at}: expected {self.data[at]:02x}, got {got[at]:02x}"
            raise Mismatch(short(self.data), short(got), [differs])


@dataclass(frozen=True)
class WaitEnd(Step):
    """The peer must end the connection, well or by breaking it, and send nothing before that."""

    def play(self, stage: Stage) -> Waiting[None]:
        """Wait for the end, and close the fake's own end too."""
        connection = yield from stage.connection()
        try:
            got = yield from stage.message("the end of the stream")
        except PeerEnded:
            connection.close()
            return
        raise Mismatch("the end of the stream", short(got.message))


@dataclass(frozen=True)
class Drain(Step):
    """Take down whatever comes until the peer ends the connection."""

    def play(self, stage: Stage) -> Waiting[None]:
        """Wait for the end, and close the fake's own end too."""
        connection = yield from stage.connection()
        while True:
            try:
                yield from stage.message("anything")
            except PeerEnded:
                break
            except Mismatch:
                connection.drop()
        connection.close()


# -- what is sent -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Say(Step):
    """Send a message in one frame; whatever is not given is as the protocol has it.

    Attributes:
        message: what to say.
        key: what the tag is made with; else the join key up to Accept, then the session salt.
        wire: the version in the header; else the peer's.
        kind: the number of the channel in the header.
        tag: 8 bytes in place of the right tag.
        length: in place of the payload's length, in the header alone.
    """

    message: Sayable
    key: Salt | None = None
    wire: int | None = None
    kind: int = JOIN_KIND
    tag: bytes | None = None
    length: int | None = None

    def __post_init__(self) -> None:
        if self.tag is not None and len(self.tag) != TAG_BYTES:
            raise InvalidMessage(f"a tag is {TAG_BYTES} bytes, not {len(self.tag)}")

    def __str__(self) -> str:
        return f"Say({_told(self.message)})"

    def play(self, stage: Stage) -> Waiting[None]:
        """Send it as one piece."""
        connection = yield from stage.connection()
        message = self.message(stage) if callable(self.message) else self.message
        frame = self.frame(message, stage, connection)
        yield from stage.send(frame, None if isinstance(message, bytes) else message)

    def frame(self, message: Message | bytes, stage: Stage, connection: FakeConnection) -> bytes:
        """The bytes that go out.

        Raises:
            InvalidMessage: the wire version cannot say that.
        """
        spoken = stage.wire_of(connection)
        wire = spoken if self.wire is None else self.wire
        if isinstance(message, bytes):
            payload = message
        else:
            # A header may name a version that nobody speaks; the payload needs one that is spoken.
            payload = codec.encode_payload(message, wire=wire if wire in WIRES else spoken)
        key = connection.key if self.key is None else self.key
        frame = bytearray(codec.encode_frame(payload, key=key, wire=wire, kind=self.kind))
        if self.tag is not None:
            frame[8:16] = self.tag
        if self.length is not None:
            frame[HEADER_BYTES - 4 : HEADER_BYTES] = self.length.to_bytes(4, "little")
        return bytes(frame)


@dataclass(frozen=True)
class Admit(Step):
    """Say Accept as a controller does: under open admission with the session salt in it.

    Attributes:
        ranks: one for each device; None: 0, 1, 2, … for as many as the Hello offered.
        formation_wait_secs: whole seconds.
    """

    ranks: tuple[int, ...] | None = None
    formation_wait_secs: int = FORMATION_WAIT

    def play(self, stage: Stage) -> Waiting[None]:
        """Send it."""
        yield from Say(self._accept).play(stage)

    def _accept(self, stage: Stage) -> Message:
        offered = () if stage.hello is None else stage.hello.local_devices
        return Accept(
            ranks=tuple(range(len(offered))) if self.ranks is None else self.ranks,
            salt_hex=stage.session.hex() if stage.salt is None else None,
            formation_wait_secs=self.formation_wait_secs,
        )


@dataclass(frozen=True)
class ReportExits(Step):
    """Say RankExited for every rank of the last Accept.

    Attributes:
        codes: rank → code; other ranks end with 0.
    """

    codes: Mapping[int, int] = field(default_factory=dict)

    def play(self, stage: Stage) -> Waiting[None]:
        """Send them, one by one."""
        for rank in stage.ranks:
            yield from Say(RankExited(rank=rank, code=self.codes.get(rank, 0))).play(stage)


@dataclass(frozen=True)
class SendBytes(Step):
    """Send these bytes as they are, as one piece."""

    data: bytes

    def __str__(self) -> str:
        return f"SendBytes({short(self.data)})"

    def play(self, stage: Stage) -> Waiting[None]:
        """Send them."""
        yield from stage.send(self.data)


@dataclass(frozen=True)
class Drip(Step):
    """Send bytes, or a message, in small pieces, each on its own.

    Attributes:
        what: bytes as they are, or a message to put in a frame.
        chunk: bytes in a piece.
        pause: seconds between two pieces.
        stop_after: pieces after which nothing more is sent of it; None: all of them are.
    """

    what: bytes | Message
    chunk: int = 1
    pause: float = 0.0
    stop_after: int | None = None

    def __str__(self) -> str:
        return f"Drip({short(self.what)}, chunk={self.chunk}, pause={self.pause:g})"

    def play(self, stage: Stage) -> Waiting[None]:
        """Send piece by piece."""
        connection = yield from stage.connection()
        what = self.what
        data = what if isinstance(what, bytes) else Say(what).frame(what, stage, connection)
        pieces = [data[start : start + self.chunk] for start in range(0, len(data), self.chunk)]
        for piece in pieces[: self.stop_after]:
            yield from self._one(piece, connection, stage)
        whole = self.stop_after is None or self.stop_after >= len(pieces)
        stage.sent(connection, what if whole else b"".join(pieces[: self.stop_after]))

    def _one(self, piece: bytes, connection: FakeConnection, stage: Stage) -> Waiting[None]:
        connection.send(piece)
        # A peer that has hung up takes no more.
        while connection.unsent and connection.ended is None:
            yield
        if self.pause:
            yield from stage.pause(self.pause)


# -- the connection ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Close(Step):
    """Close the connection once everything is sent."""

    def play(self, stage: Stage) -> Waiting[None]:
        """Close it."""
        (yield from stage.connection()).close()


@dataclass(frozen=True)
class HalfClose(Step):
    """Send no more, once everything is sent, and go on reading."""

    def play(self, stage: Stage) -> Waiting[None]:
        """Close the direction."""
        (yield from stage.connection()).half_close()


@dataclass(frozen=True)
class Reset(Step):
    """Break the connection with a reset."""

    def play(self, stage: Stage) -> Waiting[None]:
        """Break it."""
        (yield from stage.connection()).reset()


@dataclass(frozen=True)
class AcceptAndClose(Step):
    """Close as many connections, one after the other, as soon as they come about.

    Attributes:
        times: how many.
        reset: with a reset rather than an end of stream.
    """

    times: int = 1
    reset: bool = False

    def play(self, stage: Stage) -> Waiting[None]:
        """Close them."""
        step: Step = Reset() if self.reset else Close()
        for _ in range(self.times):
            yield from step.play(stage)


# -- the script itself ------------------------------------------------------------------------


@dataclass(frozen=True)
class UseKey(Step):
    """From here on, expect and make tags with this key."""

    key: Salt

    def play(self, stage: Stage) -> Waiting[None]:
        """Put it in force on this connection."""
        (yield from stage.connection()).key = self.key


@dataclass(frozen=True)
class Pause(Step):
    """Do nothing for that many seconds."""

    seconds: float

    def play(self, stage: Stage) -> Waiting[None]:
        """Wait."""
        yield from stage.pause(self.seconds)


@dataclass(frozen=True)
class Until(Step):
    """Wait until `condition()` is true, such as the `is_set` of a `threading.Event`."""

    condition: Callable[[], object]

    def __str__(self) -> str:
        return f"Until({_told(self.condition)})"

    def play(self, stage: Stage) -> Waiting[None]:
        """Ask again whenever something has happened, and every few milliseconds on a socket."""
        yield from stage.until(lambda: bool(self.condition()))


@dataclass(frozen=True)
class Call(Step):
    """Call a function, such as the `set` of a `threading.Event`; an exception fails the script."""

    function: Callable[[], object]

    def __str__(self) -> str:
        return f"Call({_told(self.function)})"

    def play(self, stage: Stage) -> Waiting[None]:
        """Call it."""
        self.function()
        yield from ()
