"""Plays a fake's script over real sockets on loopback, on a thread of its own."""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from contextlib import suppress
from typing import Any

from joinproto import effects as fx
from joinproto.testing.link import ResetLink
from joinproto.testing.peer import FakeConnection
from joinproto.testing.stage import Stage

CHUNK = 65536

LOOK_AGAIN = 0.005
"""Seconds; how often a script that waits for something unannounced looks for it."""

PATIENCE = 5.0
"""Seconds; how much longer than its script a thread may take to end."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class _Socket:
    """A connection of the fake on a socket."""

    def __init__(self, sock: socket.socket, connection: FakeConnection) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock = sock
        self.connection = connection
        self.closed = False
        self._out = b""
        self._then: list[Any] = []
        self._reading = True
        self._mute = False

    @property
    def wants_write(self) -> bool:
        """Something could not be sent yet."""
        return bool(self._out)

    @property
    def wants_read(self) -> bool:
        """The peer has not ended the stream."""
        return self._reading

    def pump(self, now: float) -> bool:
        """Send what can be sent; returns whether that was anything."""
        moved = False
        while not self.closed and not self._mute and self._next_piece():
            try:
                self._out = self._out[self.sock.send(self._out) :]
            except BlockingIOError:
                return moved
            except OSError as error:
                self._broken(error, now)
                return True
            moved = True
            if not self._out:
                self.do(self.connection.flushed(now))
        return self._finish() or moved

    def read(self, now: float) -> None:
        """Take what has come."""
        try:
            data = self.sock.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError as error:
            self._broken(error, now)
            return
        if data:
            # What comes for a connection that the fake has closed is drained, so that the peer
            # reads an end of stream and not a reset.
            if not self.connection.closed:
                self.do(self.connection.receive_data(data, now))
            return
        self._reading = False
        self.do(self.connection.receive_eof(now))
        if self._mute and self.connection.closed:
            self.close()

    def do(self, effects: list[Any]) -> None:
        """Carry out what the connection wants once everything is sent, or a reset at once."""
        for effect in effects:
            if isinstance(effect, ResetLink):
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                self.close()
            else:
                self._then.append(effect)

    def close(self) -> None:
        """Let go of the socket."""
        self.closed = True
        self.sock.close()

    def _next_piece(self) -> bytes:
        if not self._out:
            self._out = self.connection.data_to_send()
        return self._out

    def _finish(self) -> bool:
        """Do what was to be done once everything is sent."""
        if self.closed or self._out or not self._then:
            return False
        then, self._then = self._then, []
        if not self._mute:
            self._mute = True
            with suppress(OSError):  # the peer was quicker; reading tells
                self.sock.shutdown(socket.SHUT_WR)
        if not self._reading and any(isinstance(effect, fx.CloseLink) for effect in then):
            self.close()
        return True

    def _broken(self, error: OSError, now: float) -> None:
        self.close()
        self.do(self.connection.link_broken(error.strerror or str(error), now))


class Player:
    """Plays a stage until it is closed, and goes on listening when the script is through.

    Args:
        stage: what to play.
        timeout: seconds, from the start, within which the script must be through.
        listener: where dials come in; None: the stage dials its own address.
    """

    def __init__(self, stage: Stage, timeout: float, listener: socket.socket | None = None) -> None:
        self.stage = stage
        self.over = threading.Event()
        """Set when the script is through or has failed."""
        self._timeout = timeout
        self._listener = listener
        self._sockets: list[_Socket] = []
        self._stopping = False
        self._wake, self._woken = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="joinproto-fake", daemon=True)
        self._deadline = time.monotonic() + timeout
        self._thread.start()

    def wait(self) -> None:
        """Return when the script is through, has failed or is out of time."""
        self.over.wait(max(0.0, self._deadline - time.monotonic()) + PATIENCE)

    def close(self) -> None:
        """End the thread and close everything; may be called again."""
        self._stopping = True
        with suppress(OSError):  # closed before
            self._wake.send(b"x")
        self._thread.join(PATIENCE)
        self._wake.close()

    # -- on the thread ------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
        except Exception as error:
            self.stage.give_up(f"the fake itself failed: {error!r}")
            raise
        finally:
            self._close_all()
            self.over.set()

    def _turn(self) -> None:
        now = time.monotonic()
        self.stage.advance(now)
        if now >= self._deadline:
            self.stage.give_up(f"nothing more came in {self._timeout:g} s")
        while any(sock.pump(now) for sock in self._sockets):
            pass
        for sock in self._sockets:
            due = sock.connection.next_timer
            if due is not None and due <= now:
                sock.do(sock.connection.handle_timer(now))
                sock.pump(now)
        self._sockets = [sock for sock in self._sockets if not sock.closed]
        if self.stage.finished or self.stage.failure is not None:
            self.over.set()
        if self.stage.wants_dial:
            self._dial()
        else:
            self._wait(now)

    def _wait(self, now: float) -> None:
        poll = select.poll()
        poll.register(self._woken, select.POLLIN)
        if self._listener is not None:
            poll.register(self._listener, select.POLLIN)
        for sock in self._sockets:
            events = select.POLLIN if sock.wants_read else 0
            events |= select.POLLOUT if sock.wants_write else 0
            if events:
                # Registered for nothing, a connection that has ended both ways is ready for ever.
                poll.register(sock.sock, events)
        patience = self._patience(now)
        ready = {fd for fd, _ in poll.poll(None if patience is None else patience * 1000)}
        now = time.monotonic()
        for sock in self._sockets:
            if sock.sock.fileno() in ready:
                sock.read(now)
        if self._listener is not None and self._listener.fileno() in ready:
            self._accept(self._listener)

    def _patience(self, now: float) -> float | None:
        """Seconds until there is something to do although nothing comes; None: never."""
        if self.over.is_set():
            return None
        due = self._deadline if self.stage.wake_at is None else self.stage.wake_at
        limit = LOOK_AGAIN if self.stage.polling else self._timeout
        return max(0.0, min(due, self._deadline, now + limit) - now)

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):  # the dialer has gone again
            sock, _ = listener.accept()
            self._sockets.append(_Socket(sock, self.stage.connect()))

    def _dial(self) -> None:
        try:
            sock = socket.create_connection(self.stage.address, timeout=self._timeout)
        except ConnectionResetError as error:
            # It came about, and was broken before this was looked at.
            self.stage.connect().link_broken(os.strerror(error.errno or 0), time.monotonic())
            return
        except OSError as error:
            self.stage.give_up(f"cannot connect: {error.strerror or error}")
            return
        self._sockets.append(_Socket(sock, self.stage.connect()))

    def _close_all(self) -> None:
        for sock in self._sockets:
            sock.close()
        if self._listener is not None:
            self._listener.close()
        self._woken.close()
