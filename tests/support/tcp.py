"""Sockets on loopback: connected ones, those that refuse, those that never answer, none at all."""

from __future__ import annotations

import os
import resource
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from joinproto.runtime.loop import Loop
from tests.support.python import PATIENCE

LOOPBACK = "127.0.0.1"


def run_until(loop: Loop, condition: Callable[[], object], what: str) -> None:
    """Run the loop until the condition holds; fail the test when it comes not to hold."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"never came true: {what}"
        loop.run_once(deadline)


@contextmanager
def pair(host: str = LOOPBACK) -> Iterator[tuple[socket.socket, socket.socket]]:
    """A TCP connection: the end that dialed, and the one that was dialed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener:
        dialed = socket.create_connection(listener.getsockname()[:2], timeout=PATIENCE)
        with dialed, listener.accept()[0] as accepted:
            dialed.settimeout(None)
            accepted.settimeout(PATIENCE)
            yield dialed, accepted


@contextmanager
def listening() -> Iterator[int]:
    """A port where somebody listens."""
    with socket.create_server((LOOPBACK, 0)) as listener:
        yield listener.getsockname()[1]


@contextmanager
def refusing(host: str = LOOPBACK) -> Iterator[int]:
    """A port that refuses: it is taken, and nobody listens there."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as taken:
        taken.bind((host, 0))
        yield taken.getsockname()[1]


@contextmanager
def black_hole() -> Iterator[int]:
    """A port that does not answer: as many dials wait to be accepted as the system lets wait."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind((LOOPBACK, 0))
        listener.listen(0)
        # Linux lets one more wait than it was asked to.
        stack.enter_context(socket.create_connection(listener.getsockname(), timeout=PATIENCE))
        yield listener.getsockname()[1]


def reset(sock: socket.socket) -> None:
    """Close a connection in a way that the other end takes for a failure."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


@contextmanager
def no_more_descriptors() -> Iterator[None]:
    """While this lasts, this process can open nothing."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest_free = os.dup(0)
    os.close(lowest_free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest_free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def has_ipv6() -> bool:
    """Whether there is an IPv6 loopback here."""
    with suppress(OSError), socket.socket(socket.AF_INET6) as sock:
        sock.bind(("::1", 0))
        return True
    return False
