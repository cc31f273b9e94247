"""Dials and joins: what an agent does until its world has formed, on the loop."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

from joinproto import effects as fx
from joinproto.connection import AgentConnection
from joinproto.effects import Severity
from joinproto.errors import JoinprotoError
from joinproto.machines.agent import Plan
from joinproto.runtime import addresses
from joinproto.runtime.dial import Dialer
from joinproto.runtime.loop import Loop
from joinproto.runtime.stream import Stream, configure


class Joiner:
    """Dials, joins and waits for the world: an agent up to its first `Spawn`.

    Args:
        loop: the loop it runs on.
        plan: what the agent sets out to do.
        controller: host and port, as configured.
        say: takes lines for people.
    """

    def __init__(
        self,
        loop: Loop,
        plan: Plan,
        controller: tuple[str, int],
        say: Callable[[Severity, str], None],
    ) -> None:
        self.loop = loop
        self.connection = AgentConnection(plan)
        self.error: JoinprotoError | None = None
        self.finished = False
        self.spawns: list[fx.Spawn] = []
        self._controller = controller
        self._say = say
        self._dialer: Dialer | None = None
        self._stream: Stream | None = None
        self._leaving: Stream | None = None
        self._warned: set[str] = set()

    def join(self) -> None:
        """Run until the world has formed or there is none; `error` says why."""
        self.begin()
        while not (self.finished or self.spawns):
            self.loop.run_once(self.next_timer)
            self.handle_timer(self.loop.now())

    def begin(self) -> None:
        """Start dialing."""
        self.carry_out(self.connection.start(self.loop.now()))

    @property
    def next_timer(self) -> float | None:
        """When `handle_timer` wants to be called; None: not at all."""
        dialing = None if self._dialer is None else self._dialer.next_timer
        times = (self.connection.next_timer, dialing)
        return min((time for time in times if time is not None), default=None)

    def handle_timer(self, now: float) -> None:
        """Let every deadline that has come expire."""
        if self._dialer is not None:
            self._dialer.handle_timer(now)
        self.carry_out(self.connection.handle_timer(now))

    def detach(self) -> socket.socket:
        """Give the link away."""
        assert self._stream is not None
        return self._stream.detach()

    def close(self) -> None:
        """Let go of the link and of any attempt to make one."""
        if self._dialer is not None:
            self._dialer.cancel()
            self._dialer = None
        if self._stream is not None:
            self._stream.close()

    def abandon(self) -> None:
        """Let go of a link that is closed and has not taken its last words yet."""
        if self._leaving is not None:
            self._leaving.abort()

    # -- what the link tells ------------------------------------------------------------------

    def stream_data(self, data: bytes) -> None:
        """Bytes came in."""
        self.carry_out(self.connection.receive_data(data, self.loop.now()))

    def stream_eof(self) -> None:
        """The controller will send no more."""
        self.carry_out(self.connection.receive_eof(self.loop.now()))

    def stream_broken(self, cause: str) -> None:
        """The connection failed."""
        self.carry_out(self.connection.link_broken(cause, self.loop.now()))

    def stream_flushed(self) -> None:
        """Everything that was to be sent is with the system."""
        self.carry_out(self.connection.flushed(self.loop.now()))

    # -- effects ------------------------------------------------------------------------------

    def carry_out(self, effects: list[Any]) -> None:
        """Do what the machine wants, in order."""
        for effect in effects:
            self.one(effect)
        data = self.connection.data_to_send()
        if data and self._stream is not None:
            self._stream.send(data)

    def one(self, effect: Any) -> None:
        """Do one thing."""
        match effect:
            case fx.Dial(timeout=timeout):
                self._dialer = Dialer(self.loop, *self._controller, self._dialed)
                self._dialer.start(timeout)
            case fx.Tell(severity=severity, text=text):
                self._say(severity, text)
            case fx.CloseLink():
                self._flush_and_close()
            case fx.Spawn():
                self.spawns.append(effect)
            case fx.Finish(error=error):
                self.error = error
                self.finished = True
            case _:
                raise NotImplementedError(type(effect).__name__)

    def _flush_and_close(self) -> None:
        data = self.connection.data_to_send()
        if data and self._stream is not None:
            self._stream.send(data)
        self.close()
        self._leaving, self._stream = self._stream, None

    def _dialed(self, sock: socket.socket | None, cause: str) -> None:
        self._dialer = None
        now = self.loop.now()
        if sock is None:
            self.carry_out(self.connection.connect_failed(cause, now))
            return
        try:
            configure(sock, self.connection.context.plan.scale)
            self._stream = Stream(self.loop, sock, self)
        except OSError as error:
            # Reset between the connect and here.
            sock.close()
            self.carry_out(self.connection.connect_failed(error.strerror or str(error), now))
            return
        self._warn_cleartext(self._stream.peer_host)
        self.carry_out(self.connection.connected(self._stream.peer, now))

    def _warn_cleartext(self, host: str) -> None:
        warning = addresses.cleartext_warning(host)
        if warning is not None and host not in self._warned:
            self._warned.add(host)
            self._say(Severity.WARNING, warning)
