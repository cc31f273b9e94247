"""A run over HTTP with its clients, all on one loop that a test steps by hand."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import h11

from joinproto.runtime.access import Access
from joinproto.runtime.exchange import Request
from joinproto.runtime.loop import READ, Loop
from joinproto.runtime.timers import Timers
from joinproto.runtime.web import Web
from tests.support.python import PATIENCE

OPEN = Access(open=True)


def request(
    path: str = "/",
    *,
    method: str = "GET",
    token: str | None = None,
    peer_host: str = "127.0.0.1",
    **headers: str,
) -> Request:
    """A request that came in, for those who look at it; `x_y` is the header `x-y`."""
    return Request(
        method=method,
        path=path,
        query={} if token is None else {"token": [token]},
        headers={name.replace("_", "-"): value for name, value in headers.items()},
        peer_host=peer_host,
    )


def asking(target: str = "/state.json", *headers: str, method: str = "GET") -> bytes:
    """The bytes of a request of HTTP/1.1 to localhost."""
    lines = (f"{method} {target} HTTP/1.1", "Host: localhost", *headers, "", "")
    return "\r\n".join(lines).encode("latin-1")


class FakeBoard:
    """A run that a test makes up."""

    def __init__(self) -> None:
        self.version = 1
        self.state: dict[str, Any] | None = {
            "phase": "waiting",
            "joined_ranks": 0,
            "joined_hosts": 0,
            "min_rank_start": 2,
            "target_ranks": None,
            "window_remaining_secs": 7,
            "members": [],
        }
        self.more: dict[str, Any] = {"turned_away": 0, "unadmitted": 0}
        self.why_not: str | None = None
        self.armed_by: list[str] = []

    def published(self) -> dict[str, Any]:
        """The state."""
        if self.state is None:
            raise LookupError
        return self.state

    def detail(self) -> dict[str, Any]:
        """The state and more."""
        return {**self.published(), **self.more}

    def arm(self, peer: str) -> str | None:
        """Says what the test wants."""
        self.armed_by.append(peer)
        return self.why_not


class Answered:
    """One answer: `headers` has its names in lower case."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body


class Client:
    """The other end of a connection; it reads whatever comes, unless it is told not to."""

    def __init__(self, served: Served, sock: socket.socket) -> None:
        self._served = served
        self._sock = sock
        self.said = bytearray()
        self.ended = False
        self.was_reset = False
        self.read_on()

    def read_on(self) -> None:
        """Read from now on."""
        self._served.loop.watch(self._sock.fileno(), READ, self._ready)

    def stall(self) -> None:
        """Read no more."""
        self._served.loop.forget(self._sock.fileno())

    def send(self, data: bytes) -> None:
        """Say something."""
        with suppress(ConnectionError):  # the end comes first
            self._sock.sendall(data)

    def end(self) -> None:
        """Say that there is no more to come."""
        self._sock.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Hang up."""
        self.stall()
        self._sock.close()

    def wait(self, text: bytes) -> None:
        """Step until this was said."""
        self._served.until(lambda: text in self.said)

    def wait_end(self) -> bytes:
        """Step until the other end has ended the connection; what it has said."""
        self._served.until(lambda: self.ended)
        return bytes(self.said)

    def ask(self, data: bytes) -> Answered:
        """Ask, and step until the whole answer is there; what was said before is dropped."""
        self.said.clear()
        self.send(data)
        return self.answer(data)

    def answer(self, data: bytes) -> Answered:
        """Step until the whole answer to this request is there."""
        method = data.partition(b" ")[0].decode("ascii", "replace")
        found: list[Answered] = []

        def whole() -> bool:
            answer = read_answer(bytes(self.said), method, ended=self.ended)
            found.extend([] if answer is None else [answer])
            return bool(found)

        self._served.until(whole)
        return found[0]

    def _ready(self, events: int) -> None:
        try:
            data = self._sock.recv(1 << 20)
        except ConnectionError:
            self.was_reset = True
            data = b""
        self.said += data
        if not data:
            self.ended = True
            self.stall()


def read_answer(said: bytes, method: str = "GET", *, ended: bool) -> Answered | None:
    """The answer to a request of that method; None: it is not whole."""
    reader = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    reader.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
    reader.send(h11.EndOfMessage())
    if said:
        reader.receive_data(said)
    if ended:
        reader.receive_data(b"")
    answer, body = None, b""
    while not isinstance(event := reader.next_event(), h11.EndOfMessage):
        if event is h11.NEED_DATA or event is h11.PAUSED:
            return None
        if isinstance(event, h11.Response):
            answer = event
        elif isinstance(event, h11.Data):
            body += event.data
    assert answer is not None
    headers = {name.decode(): value.decode() for name, value in answer.headers}
    return Answered(answer.status_code, headers, body)


class Served:
    """The loop; `web` serves what `board` shows."""

    def __init__(self, access: Access) -> None:
        self.loop = Loop()
        self.timers = Timers()
        self.board = FakeBoard()
        self.web = Web(self.loop, self.timers, self.board, access)
        self._clients: list[Client] = []

    def dial(self, data: bytes, *, peer_host: str = "127.0.0.1") -> Client:
        """A connection handed over with `data` as what has come on it already."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            mine = socket.create_connection(listener.getsockname(), timeout=PATIENCE)
            theirs, _ = listener.accept()
        client = Client(self, mine)
        self._clients.append(client)
        self.web.take(theirs, data, peer_host)
        return client

    def ask(self, data: bytes, *, peer_host: str = "127.0.0.1") -> Answered:
        """The answer on a connection of its own."""
        client = self.dial(data, peer_host=peer_host)
        try:
            return client.answer(data)
        finally:
            client.close()

    def until(self, condition: Callable[[], bool]) -> None:
        """Step until this holds."""
        deadline = time.monotonic() + PATIENCE
        while not condition():
            assert time.monotonic() < deadline, "it never came to that"
            due = self.timers.next
            self.loop.run_once(deadline if due is None else min(due, deadline))
            self.timers.run(self.loop.now())

    def later(self, seconds: float) -> None:
        """Let every deadline come that lies within so many seconds."""
        self.timers.run(self.loop.now() + seconds)

    def close(self) -> None:
        """Close everything."""
        self.web.close(final=False)
        for client in self._clients:
            client.close()
        self.loop.close()


@contextmanager
def served(access: Access = OPEN) -> Iterator[Served]:
    """A run over HTTP."""
    it = Served(access)
    try:
        yield it
    finally:
        it.close()
