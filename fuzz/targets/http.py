"""http: the controller's HTTP side, one connection, without a socket.

A case is a script; its first bytes are what came before the connection was handed over, so a method
stands there.  Settings: bit 0 a token is needed, bit 1 the other end is on another machine, bit 2
there is no state yet.

Invariant: whatever arrives and whenever, nothing is raised; what is sent is what h11 takes for
answers, with a status that is known here; nothing is sent once the connection is closed; the run is
started by nothing but an answer of 200 to a POST, and never from another machine without the token;
no token shows; once the other end is gone or its time is over, nothing of the connection is left.

Exceptions allowed: none.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Final, cast

import h11

from joinproto.fuzzing.pieces import BYTES, FRAME, Step, read_script
from joinproto.runtime.access import Access
from joinproto.runtime.loop import READ, WRITE, Loop
from joinproto.runtime.timers import Timers
from joinproto.runtime.web import Web
from tests.support.served import FakeBoard

TOKEN: Final = "token-of-the-controller"
STATUSES: Final = frozenset((200, 400, 401, 403, 404, 405, 408, 409, 413, 431, 501, 503))
FD: Final = 7
"""What the socket says its descriptor is; nobody opens it."""


def check(data: bytes) -> None:
    """Raises `AssertionError`, or whatever the connection raised, where the invariant is broken."""
    settings, steps = read_script(data)
    run = _Run(settings)
    for step in steps:
        run.step(step)
    run.wind_up()
    run.answers()


class _Loop:
    """Stands in for `Loop`: one socket, and time that passes when a script says so."""

    def __init__(self) -> None:
        self.time = 100.0
        self.events = 0
        self.callback: Callable[[int], None] | None = None

    def now(self) -> float:
        return self.time

    def watch(self, fd: int, events: int, callback: Callable[[int], None]) -> None:
        assert self.callback is None, "watched twice"
        self.events, self.callback = events, callback

    def change(self, fd: int, events: int) -> None:
        assert self.callback is not None, "not watched"
        self.events = events

    def forget(self, fd: int) -> None:
        self.callback = None

    def watches(self, fd: int) -> bool:
        return self.callback is not None

    def ready(self, events: int) -> None:
        if self.callback is not None and (events := events & self.events):
            self.callback(events)


class _Socket:
    """Stands in for a connected socket: what is sent is kept, what arrives is put in."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.coming: list[bytes] = []
        self.ended = self.broken = self.closed = self.shut = False
        self.sent = bytearray()
        self.room = 1 << 30

    def setblocking(self, blocking: bool) -> None:
        assert not blocking

    def fileno(self) -> int:
        return FD

    def getpeername(self) -> tuple[str, int]:
        return self.peer, 1

    def recv(self, size: int) -> bytes:
        assert not self.closed, "read after the end"
        if self.coming:
            return self.coming.pop(0)
        if self.broken:
            raise ConnectionResetError(104, "reset")
        if not self.ended:
            raise BlockingIOError
        return b""

    def send(self, data: bytes) -> int:
        assert not self.closed, "sent on a closed connection"
        assert not self.shut, "sent after the end"
        if self.broken:
            raise BrokenPipeError(32, "gone")
        count = min(self.room, len(data))
        if not count:
            raise BlockingIOError
        self.room -= count
        self.sent += data[:count]
        return count

    def shutdown(self, how: int) -> None:
        self.shut |= how in (socket.SHUT_WR, socket.SHUT_RDWR)

    def close(self) -> None:
        self.closed = True


class _Run:
    def __init__(self, settings: int) -> None:
        self.loop, self.timers, self.board = _Loop(), Timers(), FakeBoard()
        if settings & 4:
            self.board.state = None
        self.far = bool(settings & 2)
        self.sock = _Socket("192.0.2.1" if self.far else "127.0.0.1")
        access = Access(open=not settings & 1, token=TOKEN if settings & 1 else None)
        self.web = Web(cast(Loop, self.loop), self.timers, self.board, access)
        self.said = b""
        self.taken = False

    def step(self, step: Step) -> None:
        if step.op not in (BYTES, FRAME):
            ACTS[(step.op - 2) % len(ACTS)](self, step.argument)
        elif not self.taken:
            self.taken = True
            self.said = step.data
            self.web.take(cast(socket.socket, self.sock), step.data, self.sock.peer)
        elif step.data and not (self.sock.ended or self.sock.closed):
            self.said += step.data
            self.sock.coming.append(step.data)
            self.loop.ready(READ)

    # -- acts ---------------------------------------------------------------------------------

    def eof(self, argument: int) -> None:
        self.sock.ended = True
        self.loop.ready(READ)

    def broken(self, argument: int) -> None:
        self.sock.broken = True
        self.loop.ready(READ)

    def stall(self, argument: int) -> None:
        self.sock.room = argument

    def read_on(self, argument: int) -> None:
        self.sock.room += argument * argument
        self.loop.ready(WRITE)

    def pass_time(self, argument: int) -> None:
        self.loop.time += argument / 8
        self.timers.run(self.loop.time)

    def change(self, argument: int) -> None:
        self.board.version += 1
        self.web.changed()

    def finish(self, argument: int) -> None:
        self.web.close(final=bool(argument % 2))

    # -- what holds ---------------------------------------------------------------------------

    def wind_up(self) -> None:
        """The other end takes all that there is and goes."""
        self.read_on(1 << 15)
        self.sock.ended = True
        for _ in range(8):
            self.loop.ready(READ | WRITE)
            self.pass_time(8 * 60)
        assert self.web.open_connections == 0, "a connection never ends"
        assert not self.taken or self.sock.closed, "a socket was left open"

    def answers(self) -> None:
        sent = bytes(self.sock.sent)
        assert TOKEN.encode() not in sent or TOKEN.encode() in self.said, "the token shows"
        statuses = _statuses(sent)
        assert set(statuses) <= STATUSES, statuses
        if self.board.armed_by:
            assert b"POST" in self.said, "started without a POST"
            known = TOKEN.encode() in self.said
            assert known or not self.far, "started from another machine"


def _statuses(sent: bytes) -> list[int]:
    """The statuses of all answers, as a client reads them."""
    found = []
    while sent:
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method="GET", target="/", headers=[("Host", "x")]))
        client.send(h11.EndOfMessage())
        # One to HEAD has no body, whatever its length says, and the client does not know.
        head, end, rest = sent.partition(b"\r\n\r\n")
        if not end:
            break  # it was cut off when the other end went
        client.receive_data(head + end)
        response: Any = client.next_event()
        assert isinstance(response, h11.Response), "no answer"
        found.append(response.status_code)
        start = rest.find(b"HTTP/1.1 ")
        sent = rest[start:] if start >= 0 else b""
    return found


ACTS: Final[tuple[Callable[[_Run, int], None], ...]] = (
    _Run.eof,
    _Run.broken,
    _Run.stall,
    _Run.read_on,
    _Run.pass_time,
    _Run.change,
    _Run.finish,
)
"""Steps 2, 3, … of a script, and over again."""
