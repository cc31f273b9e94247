"""The controller's port: what comes in from anybody, on time or not, and what it costs."""

from __future__ import annotations

import fcntl
import os
import socket
import threading
import time
from contextlib import ExitStack
from typing import Any

import pytest

from joinproto import codec
from joinproto.effects import Severity
from joinproto.errors import JoinprotoError
from joinproto.grammar import CHANNEL_MAGICS, JOIN_MAGIC
from joinproto.inputs import RankReported, StopRequested
from joinproto.limits import MAX_PAYLOAD_BYTES
from joinproto.messages import Abort, Accept, RankExited, Reject, WorldFormed
from joinproto.runtime import server as module
from joinproto.testing.fakes import FakeAgent
from joinproto.testing.script import (
    Call,
    Close,
    Drip,
    Expect,
    ReportExits,
    Reset,
    Say,
    SendBytes,
    WaitEnd,
)
from tests.support.python import PATIENCE
from tests.support.server import (
    ENDS_WELL,
    HELLO,
    RESET,
    SESSION,
    Running,
    claimed,
    frame,
    hello,
    joins,
    member,
)
from tests.support.sockets import answer, dial

# -- what is no Hello -------------------------------------------------------------------------

CLIENT_HELLO = bytes.fromhex("1603010200010001fc0303") + bytes(range(200))

GARBAGE = {
    "a port scan": (b"", "closed before Hello"),
    "half a magic": (JOIN_MAGIC[:2], "closed before Hello"),
    "TLS": (CLIENT_HELLO, "the first bytes ask for no channel that is served here"),
    "the magic and no more": (JOIN_MAGIC, "closed before Hello"),
    "a header cut off": (hello()[:20], "closed before Hello"),
    "a payload cut off": (hello()[:-1], "truncated: "),
    "4 GiB announced": (claimed(2**32 - 1), "length: "),
    "a byte too many announced": (claimed(MAX_PAYLOAD_BYTES + 1), "length: "),
    "no frame": (JOIN_MAGIC * 7, "magic: "),
    "another version": (hello(wire=3), "version: "),
    "no kind": (hello(kind=8), "kind: "),
    "another key": (hello(key=SESSION), "tag: "),
    "another message under another key": (frame(b"\5\0", key=SESSION), "tag: "),
    "noise": (bytes(range(256)) * 16, "no channel that is served here"),
}
GARBAGE |= {
    f"the channel {name}": (magic, f"the first bytes ask for the {name} channel")
    for magic, name in CHANNEL_MAGICS.items()
    if name != "join"
}


@pytest.mark.parametrize(("data", "reason"), GARBAGE.values(), ids=GARBAGE)
def test_garbage_is_hung_up_on_and_has_no_effect(data: bytes, reason: str) -> None:
    with Running() as running:
        sock = dial(running.address, data)
        sock.shutdown(socket.SHUT_WR)
        assert answer(sock) == b""
        joins(running)
        told = running.done()
    assert [each[0] for each in told] == ["rejected", *ENDS_WELL]
    assert told[0][1] is None
    assert reason in told[0][2]


def test_a_reset_is_as_good_as_a_close() -> None:
    with Running() as running:
        with FakeAgent([SendBytes(b"x"), Reset()]).dial(*running.address):
            pass
        joins(running)
        told = [each[0] for each in running.done()]
    # It is told only where it was still a connection when its turn came.
    assert told in (ENDS_WELL, ["rejected", *ENDS_WELL])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (frame(codec.encode_payload(Abort(reason="no"), wire=4)), "a Hello, not Abort"),
        (frame(codec.encode_payload(RankExited(rank=0, code=0), wire=2), wire=2), "not RankExited"),
        (frame(b""), "not a Hello: payload: "),
        (frame(b"\x09"), "not a Hello: payload: "),
        (hello(kind=1), "not a Hello: kind: a Control frame has no business"),
        (frame(b"\0" + b"\xfd" + b"\xff" * 8), "not a Hello: payload: "),
        (frame(codec.encode_payload(HELLO, wire=4)[:-1]), "not a Hello: payload: "),
    ],
)
def test_who_holds_the_key_is_told_what_is_wrong(data: bytes, reason: str) -> None:
    with Running() as running:
        agent = FakeAgent(
            [SendBytes(data[len(JOIN_MAGIC) :]), Expect(Reject), WaitEnd()], wire=data[8]
        )
        with agent.dial(*running.address):
            pass
        joins(running)
        told = running.done()
    said = agent.messages[0]
    assert isinstance(said, Reject)
    assert reason in said.reason
    assert told[0] == ("rejected", None, said.reason)


def test_a_frame_of_exactly_the_cap_is_a_frame() -> None:
    with Running() as running:
        payload = b"\5" + bytes(MAX_PAYLOAD_BYTES - 1)
        agent = FakeAgent([SendBytes(frame(payload)[4:]), Expect(Reject), WaitEnd()], wire=4)
        with agent.dial(*running.address):
            pass
        joins(running)
        assert "a Hello, not Abort" in running.done()[0][2]


def test_whoever_says_nothing_is_in_nobodys_way() -> None:
    with Running() as running:
        silent = [dial(running.address) for _ in range(100)]
        silent += [dial(running.address, claimed(MAX_PAYLOAD_BYTES)) for _ in range(20)]
        joins(running)
        told = running.done()
        assert [answer(sock) for sock in silent] == [b""] * 120
    assert [each[0] for each in told[:3]] == ENDS_WELL
    assert running.watcher.rejections() == ["the run is over"] * 120


def test_an_honest_hello_may_come_byte_by_byte() -> None:
    script = [Drip(HELLO), Expect(Accept), Expect(WorldFormed), ReportExits(), Close()]
    with Running() as running:
        with FakeAgent(script).dial(*running.address):
            pass
        assert running.done()[0] == ("joined", "a")


# -- deadlines --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "script",
    [
        [WaitEnd()],
        [SendBytes(claimed(MAX_PAYLOAD_BYTES)[4:]), WaitEnd()],
        # Each byte is well within the deadline, the header is not.
        [Drip(hello()[4:], pause=0.2, stop_after=7), WaitEnd()],
    ],
    ids=["silence", "the cap announced", "drip-fed"],
)
def test_one_deadline_holds_for_the_whole_hello(script: list[Any]) -> None:
    reason = "no whole Hello in time"
    ends: list[float] = []
    with Running(scale=0.1) as running:
        began = time.monotonic()
        running.watcher.reactions["rejected"] = lambda: ends.append(time.monotonic() - began)
        with FakeAgent(script).dial(*running.address):
            pass
        joins(running)
        assert running.done()[0] == ("rejected", None, reason)
    assert 0.9 < ends[0] < 2


@pytest.mark.slow
def test_one_deadline_holds_for_the_channel_magic() -> None:
    ends: list[float] = []
    with Running(scale=0.1) as running:
        began = time.monotonic()
        running.watcher.reactions["rejected"] = lambda: ends.append(time.monotonic() - began)
        # A deadline anew for each byte would come after 1.8 s at the earliest.
        script = [Drip(JOIN_MAGIC[:3], pause=0.4), WaitEnd()]
        with FakeAgent(script, channel=b"").dial(*running.address):
            pass
        joins(running)
        assert running.done()[0] == ("rejected", None, "no channel magic in time")
    assert 0.9 < ends[0] < 1.7


# -- members ----------------------------------------------------------------------------------


def test_a_member_that_breaks_off_is_lost_with_the_cause() -> None:
    with Running() as running, member(Reset()).dial(*running.address):
        told = running.done()
    assert told[-1] == ("member_lost", "a", "Connection reset by peer")


def test_a_member_that_garbles_its_frames_is_lost() -> None:
    with Running() as running, member(SendBytes(bytes(24)), WaitEnd()).dial(*running.address):
        told = running.done()
    assert told[-1][:2] == ("member_lost", "a")
    assert told[-1][2].startswith("magic: ")


def test_a_message_that_cannot_be_decoded_is_told_and_ignored() -> None:
    script = [Say(b"\x63"), Say(HELLO), Say(RankExited(rank=0, code=5)), Close()]
    with Running() as running, member(*script).dial(*running.address):
        told = running.done()
    ignored = [each[2] for each in told if each[0] == "told"]
    assert len(ignored) == 2
    assert "payload: " in ignored[0]
    assert "Hello" in ignored[1]
    assert told[-1] == ("rank_exited", 0, 5, "a")


def test_an_admission_whose_accept_cannot_be_written() -> None:
    """The dialer is gone when its turn comes, and the server finds out only by answering it."""
    blocked, go_on = threading.Event(), threading.Event()

    def block() -> None:
        blocked.set()
        go_on.wait(PATIENCE)

    with Running() as running:
        doomed = dial(running.address, JOIN_MAGIC)
        running.watcher.reactions["rejected"] = block
        other = dial(running.address, b"garbage")
        assert blocked.wait(PATIENCE)
        with doomed:
            doomed.sendall(hello()[4:])
            doomed.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        go_on.set()
        assert answer(other) == b""
        running.watcher.wait_for("member_lost", "a", "Connection reset by peer")
        # It completed the world, and is taken back: the next one has its rank.
        joins(running, host="b")
        told = [each[:2] for each in running.done()[1:]]
    assert told == [
        ("joined", "a"),
        ("member_lost", "a"),
        ("joined", "b"),
        ("formed",),
        ("rank_exited", 0),
    ]


def test_what_is_not_sent_is_lost_when_nobody_is_waited_for() -> None:
    formed = threading.Event()
    with Running() as running, member(Call(formed.set)).dial(*running.address):
        assert formed.wait(PATIENCE)
        # More than the sockets' buffers take, and the agent reads none of it.
        running.server.ask(StopRequested(reason="x" * 2**23))
        running.server.ask(StopRequested(reason="again"))
        running.done()
    assert running.server.stopped


# -- other addresses --------------------------------------------------------------------------


def test_cleartext_is_warned_of_once_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "cleartext_warning", lambda host: f"{host} is far away")
    with Running() as running:
        assert answer(dial(running.address, b"garbage")) == b""
        joins(running)
        told = [each for each in running.done() if each[0] == "told"]
    assert told == [("told", Severity.WARNING, "127.0.0.1 is far away")]


# -- other threads ----------------------------------------------------------------------------


def test_it_can_be_asked_more_often_than_it_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe2 = os.pipe2

    def small(flags: int) -> tuple[int, int]:
        read, write = pipe2(flags)
        fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, 4096)
        return read, write

    with monkeypatch.context() as patch:
        patch.setattr(os, "pipe2", small)
        running = Running()
    for _ in range(5000):
        running.server.ask(RankReported(connection=None, rank=0, code=0))
    running.server.ask(StopRequested(reason="enough"))
    with running:
        assert running.done() == []
        assert running.server.context.failure == "the controller was stopped (enough)"


def test_it_can_be_closed_before_it_runs_and_twice() -> None:
    running = Running()
    running.server.close()
    running.server.close()
    running.server.ask(StopRequested(reason="too late"))
    running.loop.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(running.address)


def test_what_a_watcher_raises_ends_the_run_and_closing_drops_everybody() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    running = Running()
    running.watcher.reactions["joined"] = interrupt
    with FakeAgent([Say(HELLO), WaitEnd()]).dial(*running.address):
        with pytest.raises(KeyboardInterrupt):
            running.server.run()
        running.server.close()
        running.loop.close()


# -- promises that cannot be kept -------------------------------------------------------------


class Unkept(JoinprotoError):
    """The journal cannot be written."""


def fail() -> None:
    raise Unkept("journal: cannot be written: No space left on device")


def test_a_host_that_cannot_be_recorded_is_not_admitted() -> None:
    with Running() as running:
        running.watcher.reactions["joined"] = fail
        agent = FakeAgent([Say(HELLO), Expect(Reject), WaitEnd()])
        with agent.dial(*running.address):
            running.done()
    assert agent.messages == [Reject(reason="journal: cannot be written: No space left on device")]
    assert running.server.context.members == ()
    assert running.server.context.failure == "journal: cannot be written: No space left on device"


def test_a_world_that_cannot_be_recorded_does_not_form() -> None:
    with Running() as running:
        running.watcher.reactions["formed"] = fail
        agent = FakeAgent([Say(HELLO), Expect(Accept), Expect(Abort), Close()])
        with agent.dial(*running.address):
            running.done()
    assert isinstance(agent.messages[-1], Abort)
    assert not any(isinstance(message, WorldFormed) for message in agent.messages)


def test_the_host_of_a_rank_is_found_among_many() -> None:
    hosts = {"a": 2, "b": 1, "c": 3}
    with Running(ranks=6) as running, ExitStack() as agents:
        for number, (host, devices) in enumerate(hosts.items(), start=1):
            script = FakeAgent.joining(host=host, devices=tuple(range(devices)))
            agents.enter_context(script.dial(*running.address))
            if number < len(hosts):
                running.watcher.wait_for("joined", host)
        told = running.done()
    exited = {each[1]: each[3] for each in told if each[0] == "rank_exited"}
    assert exited == {0: "a", 1: "a", 2: "b", 3: "c", 4: "c", 5: "c"}
