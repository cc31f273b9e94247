"""The controller's port: opened once, and accepted from whatever dialers and the system do."""

from __future__ import annotations

import errno
import socket
from collections.abc import Callable

from joinproto.errors import ConfigError
from joinproto.runtime.addresses import format_address
from joinproto.runtime.loop import READ, Loop
from joinproto.runtime.timers import Timers

BACKLOG = 4096
ACCEPTS_PER_ROUND = 64
"""So that a flood of dials leaves time for those that are already in."""

ACCEPT_PAUSE = 0.2
"""Seconds without accepting, when the process is out of descriptors."""

WARN_PAUSE = 30.0
"""Seconds in which that is said once: it may go on for as long as somebody wants it to."""

TRANSIENT = (errno.ECONNABORTED, errno.EPROTO, errno.EINTR)
"""This connection is gone before it was taken; the next one may be fine."""


def listen(host: str, port: int) -> socket.socket:
    """A listening, non-blocking socket; port 0 takes a free one.

    Raises:
        ConfigError: the address cannot be bound.
    """
    where = format_address(host, port)
    if not 0 <= port < 2**16:
        # The system would take it modulo 2^16.
        raise ConfigError(f"cannot listen on {where}: a port is a number from 0 to 65535")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"cannot listen on {where}: {_words(error)}") from None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise ConfigError(f"cannot listen on {where}: {_words(error)}") from None
    sock.setblocking(False)
    return sock


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


class Acceptor:
    """Takes the connections that come in on a listening socket.

    Args:
        loop: where it is watched.
        timers: where its pauses end.
        listener: the socket, which it owns from now on.
        take: given each connection.
        relieve: lets go of a connection when the process is out of descriptors; whether it could.
        warn: takes a line for people.
    """

    def __init__(
        self,
        loop: Loop,
        timers: Timers,
        listener: socket.socket,
        *,
        take: Callable[[socket.socket], None],
        relieve: Callable[[], bool],
        warn: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._timers = timers
        self._listener = listener
        self._take = take
        self._relieve = relieve
        self._warn = warn
        self._warn_at = 0.0
        self._stopped = False
        self.port = int(listener.getsockname()[1])

    def start(self) -> None:
        """Begin to accept."""
        self._loop.watch(self._listener.fileno(), READ, self._accept)

    def stop(self) -> None:
        """Accept no more; may be called again."""
        self._stopped = True
        self._loop.forget(self._listener.fileno())
        self._timers.clear(self)

    def close(self) -> None:
        """Let go of the port."""
        self.stop()
        self._listener.close()

    def _accept(self, _: int) -> None:
        for _ in range(ACCEPTS_PER_ROUND):
            if self._stopped:
                return
            try:
                sock, _address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno not in TRANSIENT:
                    self._cannot(error)
                return
            self._take(sock)

    def _cannot(self, error: OSError) -> None:
        # The listener stays ready.  A connection that has not been admitted makes room for the
        # next, which may be an honest one; without any, looking away is what helps.
        relieved = self._relieve()
        now = self._loop.now()
        if now >= self._warn_at:
            self._warn_at = now + WARN_PAUSE
            how = "dropping the oldest that is not admitted" if relieved else "pausing"
            self._warn(f"cannot accept a connection ({_words(error)}); {how}")
        if not relieved:
            self._loop.forget(self._listener.fileno())
            self._timers.set(self, now + ACCEPT_PAUSE, lambda _: self.start())
