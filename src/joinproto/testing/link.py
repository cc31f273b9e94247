"""An in-memory link between two ends that do no I/O; nothing moves on it unless a test says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from joinproto import effects as fx
from joinproto.connection import AgentConnection, ControllerConnection
from joinproto.testing.clock import FakeClock

STEPS = 1_000_000
"""How often `settle` goes around before it holds that two ends will never come to rest."""

RESET = "connection reset by peer"


class SansIO(Protocol):
    """What may sit at an end: bytes and times in, bytes and effects out.

    `joinproto.connection.AgentConnection` and `ControllerConnection` do, and so do both fakes.
    """

    def receive_data(self, data: bytes, now: float) -> list[Any]:
        """Take bytes that came in."""

    def receive_eof(self, now: float) -> list[Any]:
        """Take the end of the stream."""

    def link_broken(self, cause: str, now: float) -> list[Any]:
        """Take the failure of the connection."""

    def data_to_send(self) -> bytes:
        """Give the bytes that are to go out, once."""

    def flushed(self, now: float) -> list[Any]:
        """Take that what `data_to_send` gave is out."""

    @property
    def next_timer(self) -> float | None:
        """When `handle_timer` wants to be called."""

    def handle_timer(self, now: float) -> list[Any]:
        """Let every deadline that has come expire."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ResetLink:
    """An effect that only fakes have: break the connection, with what is under way on it."""


class End:
    """One end of a `Link`.

    Args:
        connection: what sits at it.
        clock: where it takes the time from.
        carry_out: takes each effect that does not concern the link; kept in `effects` when None.

    Attributes:
        effects: what the connection wanted done besides, in order.
        chunk: the most bytes that it receives at once; None: all that is there.
        held: nothing reaches it.
        stalled: nothing is taken from it; the system's buffers are full.
        closed: its connection wants no more of the link.
        other: the far end, once there is a link.
    """

    def __init__(
        self,
        connection: SansIO,
        clock: FakeClock,
        carry_out: Callable[[Any], None] | None = None,
    ) -> None:
        self.connection = connection
        self.clock = clock
        self.effects: list[Any] = []
        self.chunk: int | None = None
        self.held = False
        self.stalled = False
        self.closed = False
        self.other: End | None = None
        self._carry_out = carry_out or self.effects.append
        self._coming = bytearray()
        self._ending: str | None = None
        self._deaf = False
        self._mute = False

    @property
    def coming(self) -> bytes:
        """What is on its way to this end."""
        return bytes(self._coming)

    @property
    def next_timer(self) -> float | None:
        """When something at this end is due; None: nothing is, or it wants no more of the link."""
        return None if self.closed else self.connection.next_timer

    def do(self, effects: Sequence[Any]) -> None:
        """Carry out effects, those of calls that the test made itself included."""
        for effect in effects:
            match effect:
                case fx.CloseLink():
                    self._close()
                case fx.HandOver():
                    # Nobody speaks HTTP here.
                    self._close()
                    self._carry_out(effect)
                case fx.EndSending():
                    self._end_sending()
                case ResetLink():
                    self._reset()
                case _:
                    self._carry_out(effect)

    def deliver(self, size: int | None = None) -> bool:
        """Let at most `size` bytes (None: all) of what is on its way arrive, as one chunk.

        The end of the stream, or its failure, arrives when no bytes are left before it.  Returns
        whether anything arrived.
        """
        if self.closed or self._deaf:
            return False
        if self._coming:
            chunk = bytes(self._coming[:size])
            del self._coming[:size]
            self.do(self.connection.receive_data(chunk, self.clock.now))
            return True
        if self._ending is None:
            return False
        self._deaf = True
        self.do(self._ended(self._ending))
        return True

    def send(self) -> bool:
        """Put on its way what the connection has to send; returns whether there was anything."""
        if self.closed or self.stalled or not self._take():
            return False
        self.do(self.connection.flushed(self.clock.now))
        return True

    def step(self) -> bool:
        """Let this end do whatever it now can; returns whether there was anything."""
        moved = self.send()
        due = self.next_timer
        if due is not None and due <= self.clock.now:
            self.do(self.connection.handle_timer(self.clock.now))
            moved = True
        if not self.held:
            moved |= self.deliver(self.chunk)
        return moved

    def end_stream(self, cause: str = "") -> None:
        """Have the stream to this end finish behind what is on its way.

        With a `cause` the link is broken instead, and what is on its way is gone.
        """
        if cause:
            self._coming.clear()
        if cause or self._ending is None:
            self._ending = cause

    # -- inside -------------------------------------------------------------------------------

    def _ended(self, ending: str) -> list[Any]:
        if ending:
            return self.connection.link_broken(ending, self.clock.now)
        return self.connection.receive_eof(self.clock.now)

    def _take(self) -> bool:
        data = self.connection.data_to_send()
        other = self.other
        if not data or other is None or self._mute:
            return bool(data)
        if other.closed:
            # As TCP has it: what arrives where nobody listens any more is answered by a reset.
            self.end_stream(RESET)
        elif other._ending is None:
            other._coming += data
        return True

    def _end_sending(self) -> None:
        while self._take():
            pass
        self._mute = True
        if self.other is not None:
            self.other.end_stream()

    def _close(self) -> None:
        if not self.closed:
            self._end_sending()
            self.closed = True

    def _reset(self) -> None:
        self.closed = True
        if self.other is not None:
            self.other.end_stream(RESET)


class Link:
    """Two ends, and what is under way between them.

    Args:
        left: one end.
        right: the other.
    """

    def __init__(self, left: End, right: End) -> None:
        self.left, self.right = left, right
        left.other, right.other = right, left

    @classmethod
    def between(
        cls, agent: AgentConnection, controller: ControllerConnection, clock: FakeClock
    ) -> Link:
        """A link on which `agent` (already started, at the left) has just dialed `controller`."""
        link = cls(End(agent, clock), End(controller, clock))
        link.right.do(controller.start(clock.now))
        link.left.do(agent.connected("controller", clock.now))
        return link

    @property
    def next_timer(self) -> float | None:
        """When something at either end is due; None: nothing is."""
        times = (end.next_timer for end in (self.left, self.right))
        return min((time for time in times if time is not None), default=None)

    def settle(self) -> bool:
        """Let everything happen that can without time passing; returns whether anything did.

        Raises:
            RuntimeError: the two ends never come to rest.
        """
        for turn in range(STEPS):
            # Both, whatever the first did: neither may starve the other.
            if not self.left.step() | self.right.step():
                return turn > 0
        raise RuntimeError("the two ends of the link never come to rest")

    def lose(self) -> None:
        """Let the link go silent, as when a cable is pulled: from now on nothing reaches either."""
        self.left.held = self.right.held = True

    def reset(self, cause: str = RESET) -> None:
        """Break the link for both ends; what is under way is gone."""
        self.left.end_stream(cause)
        self.right.end_stream(cause)

    def eof(self) -> None:
        """End the stream for both ends, as something in between that hangs up does."""
        self.left.end_stream()
        self.right.end_stream()
