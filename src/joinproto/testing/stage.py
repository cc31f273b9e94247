"""Where a fake's script is played, over however many connections come about.

The steps of a script (`joinproto.testing.script`) are generators: they yield whenever something has
to happen before they can go on, and are resumed whenever something has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Sequence
from typing import TypeAlias, TypeVar

from joinproto import codec
from joinproto.errors import ConfigError, DecodeError
from joinproto.errors import Stage as ReadStage
from joinproto.framing import Frame
from joinproto.grammar import JOIN_KIND, JOIN_MAGIC, KINDS, WIRES
from joinproto.keys import OPEN, Salt
from joinproto.messages import Accept, Hello, Message
from joinproto.testing.peer import FakeConnection
from joinproto.testing.record import Dialed, Ended, Entry, Received, Sent, Unreadable, ending, short

T = TypeVar("T")
Waiting: TypeAlias = Generator[None, None, T]
"""Something that gives a T in the end, and yields until then."""

SESSION = Salt(b"fake-session-key")
"""The session salt of fake controllers that are given no other."""


class ScriptFailed(AssertionError):
    """The peer did otherwise than the script says; the text shows what, where and what led to it.

    An AssertionError, so that a test that meets one fails.
    """


class Mismatch(Exception):
    """Raised by a step: something else came than was expected."""

    def __init__(self, expected: str, got: str, differs: Sequence[str] = ()) -> None:
        super().__init__(f"expected {expected}, got {got}")
        self.lines = [f"expected: {expected}", f"got:      {got}"]
        self.lines += [f"differs:  {line}" for line in differs]


class PeerEnded(Mismatch):
    """The peer ended the connection between two messages, where another one was expected."""


class Step(ABC):
    """One step of a script."""

    @abstractmethod
    def play(self, stage: Stage) -> Waiting[None]:
        """Do it; yield whenever something must happen first.

        Raises:
            Mismatch: the peer did otherwise.
        """


class Stage:
    """A script being played.

    Args:
        script: the steps, in order.
        dials: the fake is the one that dials: an agent.
        salt: the pre-shared salt; None: open admission.
        session: the session salt that an admitting controller gives out under open admission.
        wires: the versions that are spoken.  A controller hangs up on a Hello in another one, and
            plays on with the next dial; an agent speaks the newest of them.
        channel: what a dial begins with: an agent sends it, a controller reads it.

    Attributes:
        now: the time, as the last call told it.
        record: everything that happened, in order.
        connections: all that came about.
        hello: the last Hello that went over a connection, in either direction.
        ranks: those of the last Accept, likewise.
        address: host and port at which the controller is dialed.
        failure: why the script failed; None: it has not.
        finished: every step is done.
        wake_at: the script waits for this time.
        polling: the script waits for something that nothing announces.
        wants_dial: the script waits for a connection that the fake is to make.
    """

    def __init__(
        self,
        script: Sequence[Step],
        *,
        dials: bool,
        salt: Salt | None = None,
        session: Salt = SESSION,
        wires: frozenset[int] = frozenset(WIRES),
        channel: bytes = JOIN_MAGIC,
    ) -> None:
        self.script = tuple(script)
        self.dials = dials
        self.salt = salt
        self.session = salt or session
        self.wires = wires
        self.channel = channel
        self.now = 0.0
        self.record: list[Entry] = []
        self.connections: list[FakeConnection] = []
        self.hello: Hello | None = None
        self.ranks: tuple[int, ...] = ()
        self.address = ("127.0.0.1", 1)
        self.failure: ScriptFailed | None = None
        self.finished = False
        self.wake_at: float | None = None
        self.polling = False
        self.wants_dial = False
        self._backlog: deque[FakeConnection] = deque()
        self._current: FakeConnection | None = None
        self._position = 0
        self._playing = False
        self._play = self._all_steps()

    # -- what the owner of the links calls ----------------------------------------------------

    def connect(self) -> FakeConnection:
        """A connection has come about; its end is what this returns."""
        number = len(self.connections) + 1
        connection = FakeConnection(self, number, key=self.salt or OPEN)
        if self.dials:
            connection.wire = max(self.wires)
            connection.send(self.channel)
        else:
            connection.channel = self.channel
        self.connections.append(connection)
        self._backlog.append(connection)
        self.wants_dial = False
        self.record.append(Dialed(connection=number))
        if self.failure is not None:
            connection.close()
        return connection

    def advance(self, now: float) -> None:
        """Go on with the script as far as that is possible."""
        self.now = now
        # What a step does may lead back here, when a test carries it out at once.
        if self._playing or self.failure is not None:
            return
        self._playing = True
        try:
            next(self._play)
        except Mismatch as mismatch:
            self._fail(mismatch.lines)
        except Exception as error:
            # A test's own function, or a message that cannot be said; told where it is looked for.
            self._fail([f"{type(error).__name__}: {error}"], error)
        finally:
            self._playing = False

    def give_up(self, why: str) -> None:
        """Have the script fail where it stands, unless it is through."""
        if self.failure is None and not self.finished:
            self._fail([why])

    # -- what the steps use -------------------------------------------------------------------

    def connection(self) -> Waiting[FakeConnection]:
        """The connection that is played on; waits for the next where there is none."""
        while self._current is None or self._current.closed:
            if self._backlog:
                self._current = self._backlog.popleft()
            else:
                self.wants_dial = self.dials
                yield
        return self._current

    def message(self, expected: str) -> Waiting[Received]:
        """The next message.

        Raises:
            PeerEnded: the stream ends first.
            Mismatch: something else came; `expected` names what should have.
        """
        while True:
            connection = yield from self.connection()
            try:
                frame = connection.next_frame()
                got = None if frame is None else self._read(connection, frame)
            except DecodeError as error:
                self.record.append(Unreadable(connection=connection.number, error=error))
                raise Mismatch(expected, f"what cannot be read: {error}") from None
            if got is not None:
                return got
            if frame is None:
                yield from self._wait_for_more(connection, expected)

    def take(self, size: int, expected: str) -> Waiting[bytes]:
        """The next `size` bytes as they came.

        Raises:
            Mismatch: the stream ends before them.
        """
        connection = yield from self.connection()
        while (data := connection.take(size)) is None:
            yield from self._wait_for_more(connection, expected)
        return data

    def send(self, data: bytes, message: Message | None = None) -> Waiting[FakeConnection]:
        """Send bytes, as one piece; `message` is what they say, where they say one."""
        connection = yield from self.connection()
        connection.send(data)
        self.sent(connection, data if message is None else message)
        return connection

    def sent(self, connection: FakeConnection, what: Message | bytes) -> None:
        """Take down what was sent."""
        self.record.append(Sent(connection=connection.number, what=what))
        if not isinstance(what, bytes):
            self._passed(connection, what)

    def pause(self, seconds: float) -> Waiting[None]:
        """Let time pass."""
        self.wake_at = self.now + seconds
        while self.now < self.wake_at:
            yield
        self.wake_at = None

    def until(self, condition: Callable[[], bool]) -> Waiting[None]:
        """Wait for something that nothing announces."""
        self.polling = True
        while not condition():
            yield
        self.polling = False

    def wire_of(self, connection: FakeConnection) -> int:
        """The version to speak: that of the peer once it is known, else the newest."""
        return max(self.wires) if connection.wire is None else connection.wire

    # -- inside -------------------------------------------------------------------------------

    def _all_steps(self) -> Waiting[None]:
        for position, step in enumerate(self.script):
            self._position = position
            yield from step.play(self)
        self.finished = True
        while True:
            for connection in self.connections:
                self._overhear(connection)
            yield

    def _wait_for_more(self, connection: FakeConnection, expected: str) -> Waiting[None]:
        if connection.ended is None:
            yield
            return
        end = ending(connection.ended)
        self.record.append(Ended(connection=connection.number, cause=connection.ended))
        if connection.left:
            raise Mismatch(expected, f"{end} after {short(connection.left)}")
        raise PeerEnded(expected, end)

    def _read(self, connection: FakeConnection, frame: Frame) -> Received | None:
        """The message in a frame; None: the connection was hung up on for its version."""
        if connection.wire is None and not self.dials and frame.wire not in self.wires:
            error = DecodeError(ReadStage.VERSION, f"a Hello in wire {frame.wire}; hung up")
            self.record.append(Unreadable(connection=connection.number, error=error))
            connection.close()
            return None
        if frame.wire != (connection.wire or frame.wire):
            text = f"wire {frame.wire} on a connection that speaks wire {connection.wire}"
            raise DecodeError(ReadStage.VERSION, text)
        connection.wire = frame.wire
        self._check_tag(connection, frame)
        if frame.kind != JOIN_KIND:
            raise DecodeError(ReadStage.KIND, f"a frame of kind {KINDS[frame.kind]}")
        decoded = codec.decode_payload(frame.payload, wire=frame.wire)
        received = Received(
            connection=connection.number,
            message=decoded.message,
            wire=frame.wire,
            notes=decoded.notes,
        )
        self.record.append(received)
        self._passed(connection, decoded.message)
        return received

    def _check_tag(self, connection: FakeConnection, frame: Frame) -> None:
        kind, payload, tag = frame.kind, frame.payload, frame.tag
        keys = {"zeros": OPEN, "the pre-shared salt": self.salt, "the session salt": self.session}
        if not codec.tag_matches(kind, payload, tag, connection.key):
            due = next((name for name, key in keys.items() if key == connection.key), "another key")
            for name, key in keys.items():
                if key is not None and codec.tag_matches(kind, payload, tag, key):
                    text = f"a frame tagged with {name}, where {due} must be used"
                    raise DecodeError(ReadStage.TAG, text)
        codec.check_tag(kind, payload, tag, connection.key)

    def _passed(self, connection: FakeConnection, message: Message) -> None:
        """Take from a message that went by what later ones depend on."""
        if isinstance(message, Hello):
            self.hello = message
        elif isinstance(message, Accept):
            self.ranks = message.ranks
            if self.salt is None and message.salt_hex is not None:
                try:
                    connection.key = Salt.from_hex(message.salt_hex)
                except ConfigError:
                    return  # a script may well send one that is none

    def _overhear(self, connection: FakeConnection) -> None:
        """Take down what comes without anybody expecting it."""
        try:
            while (frame := connection.next_frame()) is not None:
                self._read(connection, frame)
        except DecodeError as error:
            self.record.append(Unreadable(connection=connection.number, error=error))
            connection.drop()
        if connection.ended is not None and not connection.closed:
            self.record.append(Ended(connection=connection.number, cause=connection.ended))
            connection.close()

    def _fail(self, lines: Sequence[str], cause: Exception | None = None) -> None:
        # An empty script fails only before it was looked at for the first time.
        step = str(self.script[self._position]) if self.script else "nothing to do"
        where = f"step {self._position + 1} of {len(self.script)}, {step}"
        story = [f"  {entry}" for entry in self.record] or ["  nothing happened"]
        indented = (f"  {line}" for line in lines)
        text = "\n".join([f"{where}, did not come true", *indented, "so far:", *story])
        self.failure = ScriptFailed(text)
        self.failure.__cause__ = cause
        # The peer is not left waiting for a script that has stopped.
        for connection in self.connections:
            connection.close()
