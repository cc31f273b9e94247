"""A fake's end of one connection: bytes, frames and pieces to send, without I/O and clock."""

from __future__ import annotations

import math
from collections import deque
from typing import TYPE_CHECKING, Any

from joinproto import effects as fx
from joinproto.errors import DecodeError, Stage
from joinproto.framing import Frame, Framer
from joinproto.keys import Salt
from joinproto.limits import HEADER_BYTES
from joinproto.testing.link import ResetLink

if TYPE_CHECKING:
    from joinproto.testing import stage as stages

_LENGTH = slice(HEADER_BYTES - 4, HEADER_BYTES)
"""Where a header says how long the payload is."""


class FakeConnection:
    """One connection of a fake; it is driven like those of `joinproto.connection`.

    Attributes:
        number: from 1, in the order in which they came about.
        received: every byte that came in.
        key: what frames of both directions are tagged with.
        wire: the version that the peer speaks; None: it has said nothing yet.
        channel: the bytes that must come before the first frame.
        ended: how the peer ended it: well (""), or with a cause; None: it has not.
        closed: the fake has done with it.
    """

    def __init__(self, stage: stages.Stage, number: int, *, key: Salt) -> None:
        self.number = number
        self.received = bytearray()
        self.key = key
        self.wire: int | None = None
        self.channel = b""
        self.ended: str | None = None
        self.closed = False
        self._stage = stage
        self._inbox = bytearray()
        self._need = HEADER_BYTES
        self._out: deque[bytes] = deque()
        self._given = False
        self._effects: list[Any] = []

    # -- what the owner of the link calls -----------------------------------------------------

    def receive_data(self, data: bytes, now: float) -> list[Any]:
        """Take bytes that came in."""
        self.received += data
        self._inbox += data
        return self._go_on(now)

    def receive_eof(self, now: float) -> list[Any]:
        """Take the end of the stream."""
        return self.link_broken("", now)

    def link_broken(self, cause: str, now: float) -> list[Any]:
        """Take the failure of the connection."""
        if self.ended is None:
            self.ended = cause
        return self._go_on(now)

    def data_to_send(self) -> bytes:
        """Give the next piece to send, once; pieces are to go out one by one."""
        # A script may wait for something that only the test can see: let it look again.
        self._stage.advance(self._stage.now)
        if not self._out:
            return b""
        self._given = True
        return self._out.popleft()

    def flushed(self, now: float) -> list[Any]:
        """Take that the last piece is out."""
        self._given = False
        return self._go_on(now)

    @property
    def next_timer(self) -> float | None:
        """When `handle_timer` wants to be called; at once, where another call has left effects."""
        return -math.inf if self._effects else self._stage.wake_at

    def handle_timer(self, now: float) -> list[Any]:
        """Go on with a script that waited for this time."""
        return self._go_on(now)

    # -- what the steps use -------------------------------------------------------------------

    @property
    def unsent(self) -> bool:
        """Something waits to be sent, or to be said to have been."""
        return self._given or bool(self._out)

    @property
    def left(self) -> bytes:
        """What came in and was not read."""
        return bytes(self._inbox)

    def send(self, data: bytes) -> None:
        """Queue one piece."""
        if data:
            self._out.append(data)

    def half_close(self) -> None:
        """Send no more."""
        self._effects.append(fx.EndSending())

    def close(self) -> None:
        """Close once everything is sent."""
        self._end(fx.CloseLink())

    def reset(self) -> None:
        """Break the connection."""
        self._end(ResetLink())

    def take(self, size: int) -> bytes | None:
        """The next `size` bytes as they came; None: they are not there yet."""
        # Whoever reads bytes reads the channel magic too.
        self.channel = b""
        if len(self._inbox) < size:
            return None
        data = bytes(self._inbox[:size])
        del self._inbox[:size]
        return data

    def drop(self) -> None:
        """Forget what came in and was not read."""
        self._inbox.clear()
        self._need = HEADER_BYTES

    def next_frame(self) -> Frame | None:
        """The next whole frame, its tag not yet looked at; None: it is not there yet.

        Raises:
            DecodeError: these bytes are no frame, or the dial does not begin as it must.
        """
        if not self._opened() or len(self._inbox) < self._need:
            return None
        framer = Framer()
        framer.feed(bytes(self._inbox))
        frame = framer.next_frame()
        if frame is None:
            # Not to be looked at again for every byte that comes.
            self._need = HEADER_BYTES + int.from_bytes(self._inbox[_LENGTH], "little")
            return None
        self._need = HEADER_BYTES
        del self._inbox[: frame.size]
        return frame

    # -- inside -------------------------------------------------------------------------------

    def _opened(self) -> bool:
        """Whether the channel magic has come, where one must."""
        size = len(self.channel)
        if size and len(self._inbox) >= size:
            magic = bytes(self._inbox[:size])
            if magic != self.channel:
                text = f"a dial begins with {self.channel.hex()}, this one with {magic.hex()}"
                raise DecodeError(Stage.MAGIC, text)
            del self._inbox[:size]
            self.channel = b""
        return not self.channel

    def _end(self, effect: object) -> None:
        if not self.closed:
            self.closed = True
            self._effects.append(effect)

    def _go_on(self, now: float) -> list[Any]:
        self._stage.advance(now)
        effects, self._effects = self._effects, []
        return effects
