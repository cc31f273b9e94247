"""Who follows a run as it goes: each change once, and no more of them than can be afforded."""

from __future__ import annotations

from collections.abc import Callable

from joinproto.runtime.http import HttpConnection
from joinproto.runtime.loop import Loop
from joinproto.runtime.rendering import Rendering
from joinproto.runtime.timers import Timers

APART = 0.1
"""Seconds between two states at least."""

KEEPALIVE = 15.0
"""Seconds between two signs of life; what lies between drops connections that seem dead."""

RETRY = b"retry: 1000\n"
COMMENT = b": still here\n\n"


class Subscribers:
    """The streams of server-sent events.

    One that is slow to read gets the newest state when it has read what it was sent, and those in
    between never: no more than one state waits for it.

    Args:
        loop: has the clock.
        timers: has the deadlines.
        rendering: makes the event of the state as it is now; raises LookupError before there is
            one.
    """

    def __init__(self, loop: Loop, timers: Timers, rendering: Rendering) -> None:
        self._loop = loop
        self._timers = timers
        self._rendering = rendering
        self._streams: dict[HttpConnection, bool] = {}
        self._waiting = False

    def __len__(self) -> int:
        return len(self._streams)

    def add(self, connection: HttpConnection) -> None:
        """A new one, which hears the state at once."""
        if not self._streams:
            self._stay_alive(self._loop.now())
        self._streams[connection] = False
        connection.eased = self._ease
        connection.send(RETRY + self._rendering.recent())

    def remove(self, connection: HttpConnection) -> None:
        """It is gone; one that never was there is fine too."""
        self._streams.pop(connection, None)
        if not self._streams:
            self.close()

    def changed(self) -> None:
        """The state changed: soon, all hear of it."""
        if self._streams and not self._waiting:
            self._waiting = True
            apart = max(APART, self._rendering.apart)
            at = max(self._loop.now(), self._rendering.made_at + apart)
            self._timers.set((self, "tell"), at, self._tell)

    def close(self) -> None:
        """Tell nothing more."""
        self._waiting = False
        self._timers.clear((self, "tell"))
        self._timers.clear((self, "alive"))

    # -- inside -------------------------------------------------------------------------------

    def _tell(self, now: float) -> None:
        self._waiting = False
        event = self._rendering.fresh()
        self._each(lambda connection: connection.send(event), missed=True)

    def _stay_alive(self, now: float) -> None:
        self._timers.set((self, "alive"), now + KEEPALIVE, self._stay_alive)
        self._each(lambda connection: connection.send(COMMENT), missed=False)

    def _each(self, send: Callable[[HttpConnection], None], *, missed: bool) -> None:
        for connection in list(self._streams):
            if connection.eager:
                send(connection)
            elif missed:
                self._streams[connection] = True

    def _ease(self, connection: HttpConnection) -> None:
        """It has read what it was sent."""
        if self._streams.get(connection):
            self._streams[connection] = False
            connection.send(self._rendering.last)
