"""stream: bytes in order whatever the other end does, every end told once, and nothing twice."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from joinproto.limits import KEEPALIVE
from joinproto.runtime.loop import READ, WRITE, Loop
from joinproto.runtime.stream import Stream, configure, peer_of
from tests.support.python import PATIENCE
from tests.support.tcp import LOOPBACK, has_ipv6, pair, reset, run_until

PATTERN = bytes(range(251)) * 4177
"""A million bytes whose place shows; more than the buffers of both ends take below."""

Event = tuple[str, bytes | str]


class CountingLoop(Loop):
    """A loop that knows how often it called back, and can be made to err."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.callbacks: dict[int, Callable[[int], None]] = {}

    def watch(self, fd: int, events: int, callback: Callable[[int], None]) -> None:
        def count(ready: int) -> None:
            self.calls += 1
            callback(ready)

        self.callbacks[fd] = callback
        super().watch(fd, events, count)

    def rounds(self, number: int = 10) -> int:
        """How often it calls back in so many rounds in which nothing happens."""
        before = self.calls
        for _ in range(number):
            self.run_once(self.now())
        return self.calls - before


class End:
    """One end of a connection as a stream, and the other one as a plain socket."""

    def __init__(self, ours: socket.socket, theirs: socket.socket) -> None:
        self.loop = CountingLoop()
        self.theirs = theirs
        self.ours = ours
        self.told: list[Event] = []
        self.on: dict[str, Callable[[], object]] = {}
        ours.setblocking(False)
        self.stream = Stream(self.loop, ours, self)

    def stream_data(self, data: bytes) -> None:
        self._note("data", data)

    def stream_eof(self) -> None:
        self._note("eof", "")

    def stream_broken(self, cause: str) -> None:
        assert self.stream.closed
        self._note("broken", cause)

    def stream_flushed(self) -> None:
        self._note("flushed", "")

    def _note(self, name: str, what: bytes | str) -> None:
        self.told.append((name, what))
        self.on.get(name, int)()

    def names(self) -> list[str]:
        """What has been told, by name, data in a row counting once."""
        names = [name for name, _ in self.told]
        return [
            name
            for at, name in enumerate(names)
            if name != "data" or names[at - 1 : at] != ["data"]
        ]

    def data(self) -> bytes:
        """The bytes that came in."""
        return b"".join(what for name, what in self.told if isinstance(what, bytes))

    def until(self, *names: str) -> None:
        """Run until exactly this has been told."""
        run_until(self.loop, lambda: len(self.names()) >= len(names), f"told {names}")
        assert self.names() == [*names]

    def fill(self) -> bytes:
        """Send more than both ends' buffers take; what was sent."""
        self.stream.send(PATTERN)
        assert self.told == []
        return PATTERN

    def receive(self, size: int) -> bytes:
        """What the other end gets, which reads slowly; at most `size` bytes, fewer at an end."""
        got = bytearray()
        deadline = self.loop.now() + PATIENCE
        self.theirs.setblocking(False)
        while len(got) < size:
            assert self.loop.now() < deadline, f"{len(got)} of {size} bytes came"
            try:
                piece = self.theirs.recv(min(5000, size - len(got)))
            except BlockingIOError:
                self.loop.run_once(self.loop.now() + 0.001)
                continue
            if not piece:
                break
            got += piece
        self.theirs.settimeout(PATIENCE)
        return bytes(got)


@pytest.fixture
def end() -> Iterator[End]:
    with pair() as (ours, theirs):
        # Much smaller ones have TCP wait for its timers.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65536)
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        end = End(ours, theirs)
        yield end
        end.loop.close()


# -- set-up -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scale", "idle", "between", "in_all"),
    [(1.0, KEEPALIVE / 2, KEEPALIVE / 6, KEEPALIVE), (0.1, 2, 1, 4), (1000.0, 15000, 5000, 30000)],
)
def test_a_vanished_peer_is_noticed(
    scale: float, idle: float, between: float, in_all: float
) -> None:
    with pair() as (sock, _):
        configure(sock, scale)
        tcp = {
            option: sock.getsockopt(socket.IPPROTO_TCP, option)
            for option in (
                socket.TCP_NODELAY,
                socket.TCP_KEEPIDLE,
                socket.TCP_KEEPINTVL,
                socket.TCP_KEEPCNT,
                socket.TCP_USER_TIMEOUT,
            )
        }
        assert list(tcp.values()) == [1, idle, between, 3, in_all * 1000]
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert not sock.getblocking()


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        (LOOPBACK, LOOPBACK),
        pytest.param(
            "::1",
            "[::1]",
            marks=pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback"),
        ),
    ],
)
def test_who_is_at_the_ends(host: str, shown: str) -> None:
    with pair(host) as (ours, theirs):
        end = End(ours, theirs)
        port = theirs.getsockname()[1]
        assert peer_of(ours) == (host, port)
        assert (end.stream.peer_host, end.stream.peer_port) == (host, port)
        assert end.stream.peer == f"{shown}:{port}"
        assert end.stream.local_host == host
        end.loop.close()


def test_a_socket_that_is_not_connected(loop: Loop) -> None:
    with socket.socket() as sock:
        with pytest.raises(OSError, match="not connected"):
            Stream(loop, sock, pytest.fail)  # type: ignore[arg-type]
        assert not loop.watches(sock.fileno())


# -- out --------------------------------------------------------------------------------------


def test_what_fits_is_with_the_system_at_once(end: End) -> None:
    end.stream.send(b"one")
    end.stream.send(b"two")
    assert end.told == [("flushed", "")] * 2
    assert end.receive(6) == b"onetwo"


def test_nothing_is_nothing(end: End) -> None:
    end.stream.send(b"")
    assert end.told == []


def test_a_slow_reader_gets_all_in_order(end: End) -> None:
    sent = end.fill()
    for piece in (b"a", b"b" * 100_000, b"c"):
        end.stream.send(piece)
        sent += piece
    assert end.receive(len(sent)) == sent
    # Once, at the end of all of it.
    end.until("flushed")
    assert end.loop.rounds() == 0


def test_a_reader_that_stalls_costs_nothing(end: End) -> None:
    end.fill()
    end.loop.rounds()
    assert end.loop.rounds() == 0
    assert end.told == []


def test_what_a_flush_leads_to_is_sent_behind_it(end: End) -> None:
    def flushed() -> None:
        if end.names() == ["flushed"]:
            end.stream.send(b"next")

    end.on["flushed"] = flushed
    sent = end.fill()
    assert end.receive(len(sent) + 4) == sent + b"next"
    assert end.names() == ["flushed", "flushed"]


def test_ready_for_what_has_been_sent_already(end: End) -> None:
    """Another callback of the same round has sent it: there is nothing to tell."""
    end.loop.callbacks[end.ours.fileno()](WRITE)
    assert end.told == []


# -- in ---------------------------------------------------------------------------------------


def test_bytes_as_they_come(end: End) -> None:
    end.theirs.sendall(b"one")
    end.until("data")
    end.theirs.sendall(b"two")
    run_until(end.loop, lambda: len(end.told) == 2, "more")
    assert end.told == [("data", b"one"), ("data", b"two")]


def test_ready_without_anything_to_read(end: End) -> None:
    end.loop.callbacks[end.ours.fileno()](READ)
    assert end.told == []


def test_the_end_is_told_once_and_costs_nothing_more(end: End) -> None:
    end.theirs.sendall(b"last words")
    end.theirs.shutdown(socket.SHUT_WR)
    end.until("data", "eof")
    assert end.data() == b"last words"
    assert end.loop.rounds() == 0
    assert end.names() == ["data", "eof"]
    assert not end.stream.closed


def test_after_their_end_ours_goes_on(end: End) -> None:
    end.theirs.shutdown(socket.SHUT_WR)
    end.until("eof")
    end.stream.send(PATTERN)
    assert end.receive(len(PATTERN)) == PATTERN
    end.until("eof", "flushed")


def test_both_directions_ended(end: End) -> None:
    """The hang-up cannot be unsubscribed from; it is heard once."""
    end.stream.end_sending()
    assert end.theirs.recv(1) == b""
    end.theirs.shutdown(socket.SHUT_WR)
    end.until("eof")
    assert end.loop.rounds() <= 1
    assert end.loop.rounds() == 0
    assert end.names() == ["eof"]
    assert not end.stream.closed
    end.stream.close()
    assert end.ours.fileno() == -1


# -- failures ---------------------------------------------------------------------------------


def test_a_reset_is_told_once(end: End) -> None:
    reset(end.theirs)
    end.until("broken")
    assert end.told == [("broken", "Connection reset by peer")]
    assert end.ours.fileno() == -1
    assert end.loop.rounds() == 0
    end.stream.send(b"too late")
    end.stream.end_sending()
    end.stream.close()
    end.stream.abort()
    assert end.names() == ["broken"]


def test_bytes_before_a_reset_are_read(end: End) -> None:
    end.theirs.sendall(PATTERN[:3000])
    end.stream.send(b"never read, which makes their close a reset")
    end.theirs.close()
    end.until("flushed", "data", "broken")
    assert end.data() == PATTERN[:3000]


@pytest.mark.parametrize("sends_more", [False, True])
def test_what_they_said_is_read_before_a_failure_to_send_is_told(
    end: End, sends_more: bool
) -> None:
    """A controller that gives up says why and closes, whatever is still on its way to it."""
    end.fill()
    end.theirs.sendall(PATTERN[:3000])
    end.theirs.close()
    if sends_more:
        end.stream.send(b"x")
        assert end.told == []
    end.until("data", "broken")
    assert end.data() == PATTERN[:3000]
    assert end.told[-1][1] in ("Connection reset by peer", "Broken pipe")
    assert end.loop.rounds() == 0


def test_a_failure_to_send_is_never_told_while_sending(end: End) -> None:
    """Whoever sends is in the middle of something; and it is told once, whatever they send yet."""
    reset(end.theirs)
    for _ in range(3):
        end.stream.send(b"x")
    assert end.told == []
    assert not end.stream.closed
    end.until("broken")
    assert end.ours.fileno() == -1


def test_closing_after_a_failure_to_send_tells_nothing(end: End) -> None:
    reset(end.theirs)
    end.stream.send(b"x")
    end.stream.close()
    assert end.ours.fileno() == -1
    assert end.loop.rounds() == 0
    assert end.told == []


def test_a_failure_after_the_end_and_a_hang_up(end: End) -> None:
    """Nothing is watched any more when sending fails; it is told all the same."""
    end.theirs.close()
    end.until("eof")
    end.stream.send(b"their system answers this with a reset")
    run_until(end.loop, lambda: not end.loop.watches(end.ours.fileno()), "the hang-up is heard")
    assert end.names() == ["eof", "flushed"]
    end.stream.send(b"x")
    assert end.names() == ["eof", "flushed"]
    end.until("eof", "flushed", "broken")
    assert end.told[-1] == ("broken", "Broken pipe")


def test_a_failure_in_the_middle_of_sending_after_the_end(end: End) -> None:
    end.theirs.shutdown(socket.SHUT_WR)
    end.until("eof")
    end.stream.send(PATTERN)
    reset(end.theirs)
    end.until("eof", "broken")


# -- the end of ours --------------------------------------------------------------------------


def test_half_a_close(end: End) -> None:
    end.stream.end_sending()
    assert end.theirs.recv(1) == b""
    end.theirs.sendall(b"still there?")
    end.until("data")
    assert not end.stream.closed


def test_half_a_close_waits_until_all_is_sent(end: End) -> None:
    sent = end.fill()
    end.stream.end_sending()
    sent += b"and this"
    end.stream.send(b"and this")
    assert end.receive(len(sent) + 1) == sent
    assert end.names() == ["flushed"]
    end.theirs.sendall(b"thanks")
    end.until("flushed", "data")


def test_half_a_close_of_a_connection_that_is_reset(end: End) -> None:
    reset(end.theirs)
    end.stream.end_sending()
    end.until("broken")


def test_close_with_nothing_to_send(end: End) -> None:
    end.stream.close()
    assert end.stream.closed
    assert end.ours.fileno() == -1
    assert end.theirs.recv(1) == b""
    assert end.told == []


def test_close_sends_the_rest_first_and_tells_nothing(end: End) -> None:
    sent = end.fill()
    end.theirs.sendall(b"nobody reads this")
    end.theirs.shutdown(socket.SHUT_WR)
    end.stream.close()
    assert end.ours.fileno() >= 0
    assert end.receive(len(sent) + 1) == sent
    assert end.stream.closed
    assert end.ours.fileno() == -1
    assert end.told == []


def test_a_close_cannot_be_made_half_a_close(end: End) -> None:
    sent = end.fill()
    end.stream.close()
    end.stream.close()
    end.stream.end_sending()
    assert end.receive(len(sent) + 1) == sent
    assert end.ours.fileno() == -1


def test_half_a_close_can_be_made_a_close(end: End) -> None:
    sent = end.fill()
    end.stream.end_sending()
    end.stream.close()
    assert end.receive(len(sent) + 1) == sent
    assert end.ours.fileno() == -1
    assert end.told == []


def test_a_reader_that_resets_while_the_rest_is_sent(end: End) -> None:
    end.fill()
    end.stream.close()
    reset(end.theirs)
    run_until(end.loop, lambda: end.stream.closed, "it is closed")
    assert end.ours.fileno() == -1
    assert end.told == []


@pytest.mark.parametrize("name", ["data", "eof", "flushed"])
@pytest.mark.parametrize("how", ["close", "abort", "detach"])
def test_it_may_be_ended_by_what_it_tells(end: End, name: str, how: str) -> None:
    end.on[name] = getattr(end.stream, how)
    if name == "flushed":
        sent = end.fill()
        end.receive(len(sent))
    elif name == "data":
        end.theirs.sendall(b"x")
    end.theirs.shutdown(socket.SHUT_WR)
    end.until(name)
    assert end.stream.closed
    assert end.loop.rounds() == 0
    assert end.names() == [name]


def test_abort_loses_the_rest(end: End) -> None:
    end.fill()
    end.stream.abort()
    assert end.stream.closed
    assert end.ours.fileno() == -1
    assert len(end.receive(len(PATTERN))) < len(PATTERN)
    assert end.told == []


def test_detached(end: End) -> None:
    sock = end.stream.detach()
    assert sock is end.ours
    assert sock.getblocking()
    end.theirs.sendall(b"x")
    assert end.loop.rounds() == 0
    assert sock.recv(1) == b"x"
    end.stream.send(b"not by this way")
    end.stream.close()
    sock.sendall(b"y")
    assert end.theirs.recv(100) == b"y"
