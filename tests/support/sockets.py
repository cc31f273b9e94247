"""Plain sockets for tests that speak bytes, not messages."""

from __future__ import annotations

import socket
from contextlib import suppress

from tests.support.python import PATIENCE


def dial(address: tuple[str, int], data: bytes = b"") -> socket.socket:
    """A connection on which `data` has been sent."""
    sock = socket.create_connection(address, timeout=PATIENCE)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with suppress(ConnectionError):  # it may be hung up on before all of it is out
        sock.sendall(data)
    return sock


def answer(sock: socket.socket) -> bytes:
    """All that the other end says until it ends the connection, well or with a reset; closes it."""
    said = b""
    with sock, suppress(ConnectionError):
        while data := sock.recv(65536):
            said += data
    return said
