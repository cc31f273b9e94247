"""One dialer of a controller: its socket, its connection, and who it is in the window."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any

from joinproto import effects as fx
from joinproto.connection import ControllerConnection
from joinproto.inputs import Offered, RankReported
from joinproto.runtime.stream import Stream

if TYPE_CHECKING:
    from joinproto.runtime.server import Server


class DialerLink:
    """A connection that was accepted.

    Args:
        server: whose it is.
        number: what the window calls it.
        sock: the socket, which it owns from now on.

    Raises:
        OSError: the dialer is gone.
    """

    def __init__(self, server: Server, number: int, sock: socket.socket) -> None:
        self.number = number
        self.connection = ControllerConnection(server.terms.admission, wires=server.terms.wires)
        self._server = server
        self.stream = Stream(server.loop, sock, self)

    # -- what the stream tells ----------------------------------------------------------------

    def stream_data(self, data: bytes) -> None:
        """Bytes came in."""
        self.do(self.connection.receive_data(data, self._server.loop.now()))
        self._server.holds(self.number, self.connection.held_bytes)

    def stream_eof(self) -> None:
        """The dialer will send no more."""
        self.do(self.connection.receive_eof(self._server.loop.now()))

    def stream_broken(self, cause: str) -> None:
        """The connection failed."""
        self.do(self.connection.link_broken(cause, self._server.loop.now()))

    def stream_flushed(self) -> None:
        """Everything that was to be sent is with the system."""
        self.do(self.connection.flushed(self._server.loop.now()))

    # -- effects ------------------------------------------------------------------------------

    def do(self, effects: list[Any]) -> None:
        """Carry out what the connection's machine wants, bytes first."""
        self._send()
        for effect in effects:
            self._one(effect)
            self._send()
        if not self.stream.closed:
            self._server.timers.set(self.number, self.connection.next_timer, self._due)

    def _due(self, now: float) -> None:
        self.do(self.connection.handle_timer(now))

    def _send(self) -> None:
        data = self.connection.data_to_send()
        if data:
            self.stream.send(data)

    def _one(self, effect: Any) -> None:
        server = self._server
        match effect:
            case fx.Offer(hello=hello):
                wire, peer = self.connection.wire, self.stream.peer
                server.window(Offered(connection=self.number, hello=hello, wire=wire, peer=peer))
            case fx.ReportRank(rank=rank, code=code):
                server.window(RankReported(connection=self.number, rank=rank, code=code))
            case fx.TurnedAway(reason=reason):
                server.turned_away(self, reason)
            case fx.Lost(cause=cause):
                server.member_lost(self.number, cause)
            case fx.EndSending():
                self.stream.end_sending()
            case fx.CloseLink():
                self.stream.close()
                server.forget(self.number)
            case fx.HandOver():
                server.hand_over(self.number)
            case fx.Tell(severity=severity, text=text):
                server.watcher.told(severity, text)
            case _:
                raise NotImplementedError(type(effect).__name__)
