from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import pytest

from joinproto.grammar import JOIN_MAGIC
from joinproto.keys import OPEN
from joinproto.messages import Abort, Hello, Reject
from joinproto.testing import (
    Call,
    Close,
    Drain,
    Drip,
    Ended,
    Expect,
    ExpectBytes,
    FakeController,
    HalfClose,
    Pause,
    Reset,
    Say,
    ScriptFailed,
    SendBytes,
    Step,
    Until,
    WaitEnd,
)
from tests.support.frames import frame_of
from tests.support.python import wait_until

HELLO = Hello(host="a", local_devices=(0,))
GREETING = JOIN_MAGIC + frame_of(HELLO)
PATIENCE = 10.0


def dial(fake: FakeController) -> socket.socket:
    return socket.create_connection((fake.host, fake.port), timeout=PATIENCE)


def read_all(sock: socket.socket) -> bytes:
    """Everything up to the end of the stream."""
    return b"".join(iter(lambda: sock.recv(65536), b""))


@pytest.fixture
def nothing_runs_on() -> Iterator[None]:
    """No thread of ours outlives the test."""
    yield
    assert [
        thread.name for thread in threading.enumerate() if thread.name == "joinproto-fake"
    ] == []


pytestmark = pytest.mark.usefixtures("nothing_runs_on")


def test_everything_is_sent_before_a_close() -> None:
    # Far more than the system's buffers hold, so that it goes out in parts.
    payload = bytes(range(256)) * 32_768
    script: list[Step] = [Expect(Hello), Say(payload), Close()]
    with FakeController(script) as fake, closing(dial(fake)) as sock:
        sock.sendall(GREETING)
        data = read_all(sock)
    assert data[24:] == payload


def test_what_comes_after_a_close_does_not_turn_it_into_a_reset() -> None:
    with FakeController([Close()]) as fake, closing(dial(fake)) as sock:
        assert sock.recv(1) == b""
        for _ in range(3):
            sock.sendall(GREETING)
        sock.shutdown(socket.SHUT_WR)
        fake.join()
        assert sock.recv(1) == b""


def test_a_half_close() -> None:
    script: list[Step] = [SendBytes(b"ab"), HalfClose(), Expect(Hello), WaitEnd()]
    with FakeController(script) as fake, closing(dial(fake)) as sock:
        assert read_all(sock) == b"ab"
        sock.sendall(GREETING)
        sock.shutdown(socket.SHUT_WR)
        fake.join()
    assert fake.messages == [HELLO]


def test_a_reset() -> None:
    with FakeController([Expect(Hello), Reset()]) as fake, closing(dial(fake)) as sock:
        sock.sendall(GREETING)
        with pytest.raises(ConnectionResetError):
            sock.recv(1)


def test_a_reset_by_the_peer() -> None:
    read = threading.Event()
    script: list[Step] = [Expect(Hello), Call(read.set), WaitEnd()]
    with FakeController(script) as fake, closing(dial(fake)) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.sendall(GREETING)
        assert read.wait(PATIENCE)
        sock.close()
        fake.join()
    assert fake.record[-1] == Ended(connection=1, cause="Connection reset by peer")


def test_pieces_take_their_time() -> None:
    with FakeController([Drip(b"abc", pause=0.01), Close()]) as fake, closing(dial(fake)) as sock:
        pieces = list(iter(lambda: sock.recv(100), b""))
    # Whether the system joins two of them is its business; what they say is not.
    assert b"".join(pieces) == b"abc"


def test_a_script_waits_for_the_test_and_the_test_for_it() -> None:
    arrived, go_on = threading.Event(), threading.Event()
    script: list[Step] = [
        Expect(Hello),
        Call(arrived.set),
        Until(go_on.is_set),
        Pause(0.01),
        Say(Reject(reason="x")),
        Drain(),
    ]
    with FakeController(script) as fake, closing(dial(fake)) as sock:
        sock.sendall(GREETING)
        assert arrived.wait(PATIENCE)
        sock.setblocking(False)
        with pytest.raises(BlockingIOError):
            sock.recv(1)
        sock.settimeout(PATIENCE)
        go_on.set()
        frame = frame_of(Reject(reason="x"), key=OPEN)
        assert sock.recv(100) == frame
        sock.close()
        fake.join()


def test_a_failed_script_hangs_up() -> None:
    with FakeController([Expect(Abort)]) as fake, closing(dial(fake)) as sock:
        sock.sendall(GREETING)
        assert sock.recv(1) == b""
        with pytest.raises(ScriptFailed, match="got:      Hello"):
            fake.join()
        with closing(dial(fake)) as other:
            assert other.recv(1) == b""


def test_what_is_said_after_the_script_is_taken_down() -> None:
    with FakeController([Expect(Hello)]) as fake, closing(dial(fake)) as sock:
        sock.sendall(GREETING)
        fake.join()
        sock.sendall(frame_of(Abort(reason="late")))
        wait_until(lambda: len(fake.messages) == 2, "the late message")
    assert fake.messages[1] == Abort(reason="late")


def test_one_connection_is_played_on_at_a_time() -> None:
    script: list[Step] = [Expect(Hello), WaitEnd(), ExpectBytes(JOIN_MAGIC), Close()]
    with FakeController(script) as fake, closing(dial(fake)) as first:
        # The first is accepted when it has been answered for; only then does the second dial.
        first.sendall(GREETING)
        with closing(dial(fake)) as second:
            second.sendall(JOIN_MAGIC)
            first.close()
            assert second.recv(1) == b""


def test_a_fake_that_breaks_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no more")

    with FakeController([Expect(Hello)]) as fake:
        monkeypatch.setattr(threading, "excepthook", lambda _: None)
        monkeypatch.setattr("joinproto.testing.tcp._Socket.read", broken)
        with closing(dial(fake)) as sock:
            sock.sendall(GREETING)
            with pytest.raises(ScriptFailed, match="the fake itself failed: RuntimeError"):
                fake.join()
