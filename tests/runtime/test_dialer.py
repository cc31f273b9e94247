"""dialer: one connection of a controller, from its first byte to whoever it is for."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest

from joinproto import effects as fx
from joinproto.runtime.dialer import DialerLink
from joinproto.runtime.unadmitted import Limits
from joinproto.testing.fakes import FakeAgent
from joinproto.testing.script import SendBytes, WaitEnd
from tests.support.server import Running, claimed, hello, joins
from tests.support.sockets import answer, dial


class Taken:
    """Takes the connections of those who speak HTTP, in the place of a web server."""

    open_connections = 0

    def __init__(self) -> None:
        self.heads: list[tuple[bytes, str]] = []

    def take(self, sock: socket.socket, head: bytes, peer_host: str) -> None:
        self.heads.append((head, peer_host))
        sock.sendall(b"taken")
        sock.close()

    def close(self, final: bool) -> None:
        """Nothing is open."""


def test_http_goes_to_whoever_speaks_it() -> None:
    running, web = Running(), Taken()
    running.server.web = web  # type: ignore[assignment]
    with running:
        assert answer(dial(running.address, b"GET /state.json HTTP/1.1\r\n")) == b"taken"
        joins(running)
        assert [each[0] for each in running.done()] == ["joined", "formed", "rank_exited"]
    assert web.heads == [(b"GET /state.json HTTP/1.1\r\n", "127.0.0.1")]


def test_without_one_it_is_hung_up_on() -> None:
    with Running() as running:
        assert answer(dial(running.address, b"GET / HTTP/1.1\r\n\r\n")) == b""
        joins(running)


def test_past_their_limit_the_oldest_stranger_is_dropped() -> None:
    with Running(limits=Limits(most=3)) as running:
        strangers = [dial(running.address) for _ in range(4)]
        assert answer(strangers[0]) == b""
        joins(running)
        told = running.done()
        assert {answer(sock) for sock in strangers[1:]} == {b""}
    reasons = [each[2] for each in told if each[0] == "rejected"]
    assert reasons[0] == "dropped: more than 3 in all"


def test_strangers_hold_only_so_much() -> None:
    with Running(limits=Limits(most_bytes=100_000)) as running:
        small = dial(running.address, hello()[:-1])
        # It may be reset while it still sends: what it sent was not all read.
        large = FakeAgent([SendBytes(claimed(2**20)[4:] + bytes(500_000)), WaitEnd()])
        with suppress(Exception), large.dial(*running.address):
            pass
        small.sendall(hello()[-1:])
        running.watcher.wait_for("formed")
        small.close()
        running.done()
    assert ["bytes held" in reason for reason in running.watcher.rejections()] == [True]


def test_it_carries_out_what_it_knows_and_nothing_else() -> None:
    running = Running()
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, socket.create_connection(listener.getsockname()) as far:
        near, _ = listener.accept()
        near.setblocking(False)
        link = DialerLink(running.server, 1, near)
        with pytest.raises(NotImplementedError, match="SweepHost"):
            link.do([fx.SweepHost()])
        link.stream.abort()
        assert far.recv(1) == b""
    running.server.close()
    running.loop.close()
