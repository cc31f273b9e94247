"""http: connections of which requests are read and answered, whatever comes on them."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from joinproto.runtime.http import (
    AHEAD_BYTES,
    BODY_BYTES,
    DRAIN,
    HEADER_BYTES,
    PATIENCE,
    PIECE,
    HttpConnection,
)
from tests.support.served import Client, Served, asking, served

CLOSE = "Connection: close"
BIG = 8 * 1024 * 1024
"""More than the system takes from one who does not read."""


@pytest.fixture
def run() -> Iterator[Served]:
    with served() as run:
        yield run


def statuses(said: bytes | bytearray) -> list[int]:
    """The statuses of all answers in what was said."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3})", said)]


def stuck(run: Served) -> Client:
    """Who has asked for a big state and does not read it, once the system takes no more of it."""
    assert run.board.state is not None
    run.board.state["members"] = ["x" * BIG]
    client = run.dial(b"GET ")
    client.stall()
    client.send(asking()[4:])
    run.until(lambda: not the_one(run).eager)
    return client


def the_one(run: Served) -> HttpConnection:
    """The connection there is."""
    (connection,) = run.web._connections
    return connection


# -- one after the other ----------------------------------------------------------------------


def test_a_connection_is_kept(run: Served) -> None:
    client = run.dial(asking())
    assert client.answer(asking()).status == 200
    assert client.ask(asking("/healthz")).body == b"ok\n"
    assert client.ask(asking("/nope")).status == 404
    assert client.ask(asking("/healthz", CLOSE)).headers["connection"] == "close"
    client.wait_end()


def test_one_of_old_is_not(run: Served) -> None:
    client = run.dial(b"GET /healthz HTTP/1.0\r\n\r\n")
    assert client.wait_end().endswith(b"\r\n\r\nok\n")


def test_a_request_that_comes_byte_by_byte(run: Served) -> None:
    first = asking("/healthz", "Content-Length: 2", method="POST") + b"{}"
    client = run.dial(first[:4])
    for raw, seen in ((first[4:], [405]), (asking("/healthz"), [405, 200])):
        for at in range(len(raw)):
            client.send(raw[at : at + 1])
            run.loop.run_once(run.loop.now() + 5)
        run.until(lambda seen=seen: statuses(client.said) == seen)  # type: ignore[misc]


def test_a_chunked_body_does_not_count(run: Served) -> None:
    head = asking("/start", "Transfer-Encoding: chunked", method="POST")
    client = run.dial(head)
    client.send(b"3\r\nabc\r\n0\r\n\r\n")
    assert client.answer(head).status == 200
    assert client.ask(asking("/healthz")).status == 200


def test_who_does_not_wait_for_answers_gets_one(run: Served) -> None:
    client = run.dial(asking("/healthz") * 100)
    assert statuses(client.wait_end()) == [200]
    assert CLOSE.encode() in client.said


def test_a_request_behind_another_that_is_being_answered(run: Served) -> None:
    client = stuck(run)
    client.send(asking("/healthz", CLOSE))
    client.read_on()
    assert statuses(client.wait_end()) == [200, 200]


def test_nobody_is_asked_for_a_body(run: Served) -> None:
    body = asking("/start", "Expect: 100-continue", "Content-Length: 9", method="POST")
    client = run.dial(body)
    assert statuses(client.wait_end()) == [200]
    assert run.board.armed_by == ["127.0.0.1"]


def test_half_a_connection_is_enough_for_an_answer(run: Served) -> None:
    client = run.dial(b"GET")
    client.send(asking("/healthz")[3:])
    client.end()
    assert statuses(client.wait_end()) == [200]
    assert run.web.open_connections == 0


# -- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET /state.json\r\n\r\n", 400),
        (b"GET /state.json HTTP/1.1\r\n\r\n", 400),
        (b"GET /state.json HTTP/9\r\n\r\n", 400),
        (b"GET /\xff HTTP/1.0\r\n\r\n", 400),
        (b"GET / HTTP/1.0\r\nA\r\n\r\n", 400),
        (b"GET http://[x/ HTTP/1.0\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: " + b"9" * 18 + b"\r\n\r\n", 413),
        (asking("/", "Transfer-Encoding: br", method="POST"), 501),
        (asking("/", "Transfer-Encoding: chunked", method="POST") + b"x\r\n", 400),
        (asking("/" + "a" * HEADER_BYTES), 431),
        (asking("/", f"X: {'a' * HEADER_BYTES}"), 431),
        (asking("/", *["X: a"] * HEADER_BYTES), 431),
        (b"GET /" + b"a" * HEADER_BYTES, 431),
        (asking("/", f"Content-Length: {BODY_BYTES + 1}", method="POST"), 413),
    ],
)
def test_what_is_refused(run: Served, raw: bytes, status: int) -> None:
    client = run.dial(raw)
    said = client.wait_end()
    assert statuses(said) == [status]
    head, _, body = said.partition(b"\r\n\r\n")
    assert b"\r\nConnection: close" in head
    assert body.startswith(b'{"error":"')


def test_a_body_as_long_as_may_be(run: Served) -> None:
    head = asking("/start", f"Content-Length: {BODY_BYTES}", method="POST")
    client = run.dial(head)
    assert client.ask(b"x" * BODY_BYTES).status == 200


def test_a_body_that_goes_on_too_long(run: Served) -> None:
    head = asking("/start", "Transfer-Encoding: chunked", method="POST")
    client = run.dial(head)
    chunk = b"4000\r\n" + b"x" * 0x4000 + b"\r\n"
    client.send(chunk * (BODY_BYTES // 0x4000 + 1))
    assert statuses(client.wait_end()) == [413]
    assert run.board.armed_by == []


def test_a_refusal_outlives_what_is_still_sent(run: Served) -> None:
    client = run.dial(b"GET /\r\n\r\n")
    run.until(lambda: bool(client.said))
    client.send(b"x" * 1000)
    client.wait_end()
    assert not client.was_reset
    client.end()
    run.until(lambda: run.web.open_connections == 0)


def test_a_request_is_not_waited_for_longer_than_that(run: Served) -> None:
    client = run.dial(asking()[:-2])
    run.later(PATIENCE - 1)
    assert (bytes(client.said), run.web.open_connections) == (b"", 1)
    run.later(PATIENCE)
    assert statuses(client.wait_end()) == [408]
    run.later(DRAIN)
    assert run.web.open_connections == 0


def test_a_drip_does_not_prolong_that(run: Served) -> None:
    client = run.dial(b"GET ")
    due = run.timers.next
    client.send(b"/")
    run.loop.run_once(run.loop.now() + 5)
    assert run.timers.next == due


def test_no_next_request_is_waited_for_longer_than_that(run: Served) -> None:
    client = run.dial(asking())
    client.answer(asking())
    client.said.clear()
    run.later(PATIENCE)
    assert client.wait_end() == b""
    assert run.web.open_connections == 0


# -- the other end goes -----------------------------------------------------------------------


@pytest.mark.parametrize("head", [b"GET ", asking(), asking("/events"), b"GET /\r\n\r\n"])
def test_one_that_hangs_up(run: Served, head: bytes) -> None:
    client = run.dial(head)
    client.close()
    run.until(lambda: run.web.open_connections == 0)
    assert run.timers.next is None


def test_one_that_resets_in_the_middle_of_an_answer(run: Served) -> None:
    client = stuck(run)
    client._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    client.close()
    run.until(lambda: run.web.open_connections == 0)
    assert run.timers.next is None


def test_one_that_is_gone_before_it_is_taken(run: Served) -> None:
    sock = socket.socket()  # never connected: as good as gone
    run.web.take(sock, asking(), "127.0.0.1")
    assert (sock.fileno(), run.web.open_connections) == (-1, 0)


# -- slow readers and eager writers -----------------------------------------------------------


def test_a_reader_that_stalls_is_let_go(run: Served) -> None:
    stuck(run)
    run.later(PATIENCE)
    assert run.web.open_connections == 0


def test_a_reader_that_is_slow_gets_it_all(run: Served) -> None:
    client = stuck(run)
    client.read_on()
    assert len(client.answer(asking()).body) > BIG


def test_what_comes_unasked_is_bounded(run: Served) -> None:
    client = stuck(run)
    _flood(run, client)


@pytest.mark.parametrize("head", [asking("/events"), b"GET /\r\n\r\n"], ids=["events", "refused"])
def test_what_comes_unasked_at_the_end_is_bounded(run: Served, head: bytes) -> None:
    client = run.dial(head)
    run.until(lambda: bool(client.said))
    _flood(run, client)


def _flood(run: Served, client: Client) -> None:
    client._sock.setblocking(False)
    for _ in range(AHEAD_BYTES // 1024 + 1):
        client.send(b"x" * 1024)
        run.loop.run_once(run.loop.now())
    run.until(lambda: run.web.open_connections == 0)


def test_pieces_are_not_larger_than_that(run: Served) -> None:
    stuck(run)
    assert 0 < len(the_one(run)._stream._out) <= PIECE


# -- anything ---------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    method=st.sampled_from([b"GET ", b"HEAD ", b"POST ", b"PUT ", b"OPTIONS "]),
    line=st.binary(max_size=20)
    | st.sampled_from([b"/ HTTP/1.1\r\nHost: a\r\n", b"/start HTTP/1.0\r\n"]),
    rest=st.lists(
        st.binary(max_size=40)
        | st.sampled_from(
            [b"\r\n\r\n", b"Transfer-Encoding: chunked\r\n", b"Content-Length: 3\r\n", b"\0"]
        ),
        max_size=6,
    ),
)
def test_whatever_comes_is_answered_or_ended(method: bytes, line: bytes, rest: list[bytes]) -> None:
    with served() as run:
        client = run.dial(method + line)
        for part in rest:
            if part:
                client.send(part)
            run.loop.run_once(run.loop.now())
        client.end()
        said = client.wait_end()
        assert said == b"" or said.startswith(b"HTTP/1.1 ")
        run.until(lambda: run.web.open_connections == 0)
