"""A TCP connection on the loop: bytes out in order, bytes in as they come."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Protocol

from joinproto.limits import KEEPALIVE
from joinproto.runtime.addresses import format_address
from joinproto.runtime.loop import ENDED, READ, WRITE, Loop

CHUNK = 65536


class Receiver(Protocol):
    """What a `Stream` tells its owner."""

    def stream_data(self, data: bytes) -> None:
        """Bytes came in."""

    def stream_eof(self) -> None:
        """The other end will send no more."""

    def stream_broken(self, cause: str) -> None:
        """The connection failed."""

    def stream_flushed(self) -> None:
        """Everything that was to be sent is with the system."""


def peer_of(sock: socket.socket) -> tuple[str, int]:
    """Numeric host and port of the other end."""
    host, port = sock.getpeername()[:2]
    return str(host), int(port)


def configure(sock: socket.socket, scale: float) -> None:
    """No delay for small frames, and a peer host that vanishes is noticed in bounded time."""
    total = max(4, round(KEEPALIVE * scale))
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    # Idle for half of the time, then three probes in the other half.
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, max(1, total // 2))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, max(1, total // 6))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, total * 1000)


class _Nobody:
    """Hears what comes of a connection that its owner has closed."""

    def stream_data(self, data: bytes) -> None:
        """Too late."""

    def stream_eof(self) -> None:
        """Expected."""

    def stream_broken(self, cause: str) -> None:
        """What was still to be sent is lost; nobody waits for it."""

    def stream_flushed(self) -> None:
        """It closes now."""


_NOBODY = _Nobody()


class Stream:
    """One connected, non-blocking socket.

    Args:
        loop: where it is watched.
        sock: the socket, which it owns from now on.
        receiver: who is told what comes of it.
    """

    def __init__(self, loop: Loop, sock: socket.socket, receiver: Receiver) -> None:
        self._loop = loop
        self._sock = sock
        self._receiver = receiver
        self._out = bytearray()
        self._events = READ
        self._ended = False
        self._then: Callable[[], None] | None = None
        self._failure: OSError | None = None
        self.closed = False
        self.peer_host, self.peer_port = peer_of(sock)
        loop.watch(sock.fileno(), READ, self._ready)

    @property
    def peer(self) -> str:
        """The other end's numeric address."""
        return format_address(self.peer_host, self.peer_port)

    @property
    def local_host(self) -> str:
        """This end's numeric address."""
        return str(self._sock.getsockname()[0])

    def send(self, data: bytes) -> None:
        """Queue bytes, and hand over what the system takes at once.

        `stream_flushed` may be called before this returns; `stream_broken` never is.
        """
        if self.closed or self._failure is not None or not data:
            return
        self._out += data
        self._write()

    def end_sending(self) -> None:
        """Close this direction once everything is sent; go on reading."""
        self._after(lambda: self._shut(socket.SHUT_WR))

    def close(self) -> None:
        """Close once everything is sent; nothing more is told."""
        self._receiver = _NOBODY
        self._after(self._close)

    def abort(self) -> None:
        """Close at once; what is not sent is lost."""
        self._out.clear()
        self._close()

    def detach(self) -> socket.socket:
        """Give the socket away, blocking again; the stream is of no further use."""
        self._loop.forget(self._sock.fileno())
        self.closed = True
        self._sock.setblocking(True)
        return self._sock

    # -- inside -------------------------------------------------------------------------------

    def _after(self, then: Callable[[], None]) -> None:
        if self.closed or self._then == self._close:
            return
        if self._out:
            self._then = then
        else:
            then()

    def _shut(self, how: int) -> None:
        try:
            self._sock.shutdown(how)
        except OSError:
            # The other end was quicker; reading will tell.
            return

    def _close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self._loop.forget(self._sock.fileno())
        self._shut(socket.SHUT_RDWR)
        self._sock.close()

    def _ready(self, events: int) -> None:
        if events & WRITE:
            self._write()
        if self.closed or not events & (READ | ENDED):
            return
        if self._ended and self._failure is None:
            # A hang-up cannot be unsubscribed from; there is nothing more to hear.
            self._loop.forget(self._sock.fileno())
        else:
            self._read()

    def _read(self) -> None:
        try:
            data = self._sock.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError as error:
            self._broken(self._failure or error)
            return
        if data:
            self._receiver.stream_data(data)
            return
        if self._failure is not None:
            self._broken(self._failure)
            return
        # Said once; an ended direction would be ready for ever.
        self._ended = True
        self._watch(self._events & ~READ)
        self._receiver.stream_eof()

    def _write(self) -> None:
        had = bool(self._out)
        try:
            while self._out:
                del self._out[: self._sock.send(self._out)]
        except BlockingIOError:
            self._watch(self._events | WRITE)
            return
        except OSError as error:
            self._fail(error)
            return
        if self._events & WRITE:
            self._watch(self._events & ~WRITE)
        if had:
            self._sent()

    def _sent(self) -> None:
        then, self._then = self._then, None
        if then is not None:
            then()
        if not self.closed:
            self._receiver.stream_flushed()

    def _fail(self, error: OSError) -> None:
        """Send no more; what the other end said before it went is read first, on the loop."""
        self._failure = error
        self._out.clear()
        # Makes the socket ready, whatever the error was.
        self._shut(socket.SHUT_RDWR)
        self._watch(READ)

    def _broken(self, error: OSError) -> None:
        self.abort()
        self._receiver.stream_broken(error.strerror or str(error))

    def _watch(self, events: int) -> None:
        fd = self._sock.fileno()
        if not self._loop.watches(fd):
            # Forgotten at a hang-up, and sending has failed since.
            self._loop.watch(fd, events, self._ready)
        elif events != self._events:
            self._loop.change(fd, events)
        self._events = events
