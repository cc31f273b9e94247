"""One attempt to connect: every address of a name, within one time limit."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from joinproto.runtime.addresses import format_address
from joinproto.runtime.loop import READ, WRITE, Loop

STAGGER = 0.25
"""Seconds after which the next address is tried beside one that has not answered (RFC 8305)."""

Address: TypeAlias = tuple[int, tuple[Any, ...]]
Resolve: TypeAlias = Callable[[str, int], list[Address]]


def resolve(host: str, port: int) -> list[Address]:
    """Every TCP address of `host`, in the order of preference.

    Raises:
        OSError: the name cannot be resolved.
        ValueError: it can be no host name.
    """
    if "\0" in host:
        # The system would look up what stands in front of it.
        raise ValueError(f"a NUL in the host name {host!r}")
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(int(family), address) for family, _, _, _, address in found]


def _numeric(host: str, port: int) -> list[Address] | None:
    """The address that `host` is, without asking anybody; None when it is a name."""
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, ValueError):
            # No such address, or (a NUL in it, say) none that could be.
            continue
        return [(family, (host, port))]
    return None


class Dialer:
    """One attempt.

    Args:
        loop: where it is watched.
        host: name or numeric address.
        port: TCP port.
        done: called once, with the connected socket and "", or with None and the cause.
        resolver: turns a name into addresses; runs beside the loop, so it may block.
    """

    def __init__(
        self,
        loop: Loop,
        host: str,
        port: int,
        done: Callable[[socket.socket | None, str], None],
        *,
        resolver: Resolve = resolve,
    ) -> None:
        self._loop = loop
        self._host, self._port = host, port
        self._done = done
        self._resolver = resolver
        self._pending: dict[int, socket.socket] = {}
        self._addresses: Iterator[Address] = iter(())
        self._cause = "no address answered"
        self._stagger_at: float | None = None
        self._deadline = 0.0
        self._lookup: _Lookup | None = None
        self._over = False

    def start(self, timeout: float) -> None:
        """Begin; `done` is called within `timeout` seconds, perhaps before this returns."""
        self._deadline = self._loop.now() + timeout
        numeric = _numeric(self._host, self._port)
        if numeric is not None:
            self._resolved(numeric)
        else:
            self._look_up()

    @property
    def next_timer(self) -> float | None:
        """When `handle_timer` wants to be called; None: it is over."""
        if self._over:
            return None
        return self._deadline if self._stagger_at is None else min(self._deadline, self._stagger_at)

    def handle_timer(self, now: float) -> None:
        """Give up at the deadline, or try a further address beside the ones that are silent."""
        if self._over:
            return
        if now >= self._deadline:
            waited = "resolve the name" if self._lookup is not None else "connect"
            self._finish(None, f"timed out trying to {waited}")
        elif self._stagger_at is not None and now >= self._stagger_at:
            self._next()

    def cancel(self) -> None:
        """Drop the attempt; `done` is not called."""
        self._over = True
        self._release()

    # -- inside -------------------------------------------------------------------------------

    def _look_up(self) -> None:
        try:
            self._lookup = _Lookup(self._loop, self._host, self._port, self._resolver)
        except OSError as error:
            self._finish(None, f"cannot resolve {self._host}: {error.strerror}")
            return
        self._lookup.start(self._resolved, self._failed_lookup)

    def _resolved(self, addresses: list[Address]) -> None:
        self._lookup = None
        self._addresses = iter(addresses)
        self._next()

    def _failed_lookup(self, cause: str) -> None:
        self._lookup = None
        self._finish(None, cause)

    def _next(self) -> None:
        """Try the next address; at the end of the list, wait for those under way."""
        self._stagger_at = None
        for family, address in self._addresses:
            if self._try(family, address):
                if not self._over:
                    self._stagger_at = self._loop.now() + STAGGER
                return
        if not self._pending:
            self._finish(None, self._cause)

    def _try(self, family: int, address: tuple[Any, ...]) -> bool:
        try:
            sock = socket.socket(family, socket.SOCK_STREAM)
        except OSError as error:
            self._note(error.errno or 0)
            return False
        sock.setblocking(False)
        code = sock.connect_ex(address)
        if code == 0:
            self._finish(sock, "")
        elif code == errno.EINPROGRESS:
            self._pending[sock.fileno()] = sock
            self._loop.watch(sock.fileno(), WRITE, lambda _: self._ready(sock))
        else:
            self._note(code)
            sock.close()
            return False
        return True

    def _ready(self, sock: socket.socket) -> None:
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        self._loop.forget(sock.fileno())
        del self._pending[sock.fileno()]
        if code == 0:
            self._finish(sock, "")
            return
        self._note(code)
        sock.close()
        self._next()

    def _note(self, code: int) -> None:
        self._cause = os.strerror(code)

    def _finish(self, sock: socket.socket | None, cause: str) -> None:
        self._over = True
        self._release()
        where = format_address(self._host, self._port)
        self._done(sock, "" if sock is not None else f"cannot connect to {where}: {cause}")

    def _release(self) -> None:
        if self._lookup is not None:
            self._lookup.abandon()
            self._lookup = None
        for fd, sock in self._pending.items():
            self._loop.forget(fd)
            sock.close()
        self._pending.clear()


class _Lookup:
    """A name being resolved on a thread of its own, since the system's resolver blocks."""

    def __init__(self, loop: Loop, host: str, port: int, resolver: Resolve) -> None:
        self._loop = loop
        self._read, self._write = os.pipe()
        self._host, self._port, self._resolver = host, port, resolver
        self._addresses: list[Address] = []
        self._error = ""

    def start(
        self, resolved: Callable[[list[Address]], None], failed: Callable[[str], None]
    ) -> None:
        """Begin; one of the two is called on the loop, unless the lookup is abandoned."""
        import threading

        def answered(_: int) -> None:
            self.abandon()
            if self._error:
                failed(self._error)
            else:
                resolved(self._addresses)

        self._loop.watch(self._read, READ, answered)
        try:
            threading.Thread(target=self._run, name="joinproto-resolver", daemon=True).start()
        except RuntimeError as error:
            # Too many threads; told like any other answer.
            self._error = f"cannot resolve {self._host}: {error}"
            os.close(self._write)

    def abandon(self) -> None:
        """Stop listening; the thread ends by itself and nobody hears of it."""
        self._loop.forget(self._read)
        os.close(self._read)

    def _run(self) -> None:
        try:
            self._addresses = self._resolver(self._host, self._port)
        except OSError as error:
            self._error = f"cannot resolve {self._host}: {error.strerror or error}"
        except ValueError:
            # It cannot be written as IDNA, say.
            self._error = f"cannot resolve {self._host!r}: it is no host name"
        finally:
            # Closing the writing end is the answer: it wakes the loop, and cannot fail.
            os.close(self._write)
