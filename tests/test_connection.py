"""connection: bytes and times in, bytes and effects out, at both ends of a link."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from joinproto import effects as fx
from joinproto.codec import Note, encode_frame
from joinproto.connection import AgentConnection, ControllerConnection
from joinproto.errors import (
    Aborted,
    DecodeError,
    HelperLost,
    IllegalInput,
    LinkLost,
    RelayDied,
    Stage,
    Stopped,
    Unkillable,
)
from joinproto.keys import OPEN, Salt
from joinproto.machines.agent import AgentState, Plan
from joinproto.machines.controller import Admission, ControllerState
from joinproto.messages import (
    Abort,
    Accept,
    Hello,
    Message,
    RankExited,
    Reject,
    WorldFormed,
)
from joinproto.testing import strategies
from tests.support.frames import frame_of, read_frames
from tests.support.vectors import VECTORS, Vector

SALT = Salt(bytes(range(16)))
JOIN = b"\xe3\x17\x0d\xf1"
HELLO = Hello(host="h", local_devices=(0, 1))
ACCEPT = Accept(ranks=(2, 3), salt_hex=SALT.hex(), formation_wait_secs=60)
FORMED = WorldFormed(envelope_hex="aa", relay_spec_hex="bb")
ABORT = Abort(reason="why")
NOW = 100.0

Feed = Callable[[bytes], Iterable[bytes]]


def whole(data: bytes) -> Iterable[bytes]:
    return [data]


def drip(data: bytes) -> Iterable[bytes]:
    """Byte by byte; what is longer than that is worth, in odd pieces from there on."""
    yield from (data[at : at + 1] for at in range(min(len(data), 2000)))
    yield from (data[at : at + 997] for at in range(2000, len(data), 997))


FEEDS = pytest.mark.parametrize("feed", [whole, drip])


def fed(end: AgentConnection | ControllerConnection, chunks: Iterable[bytes]) -> list[Any]:
    """The effects of all chunks."""
    return [effect for chunk in chunks for effect in end.receive_data(chunk, NOW)]


def vector(wire: int, comment: str) -> bytes:
    """The frame of a vector, by what it is of."""
    return next(v.data for v in VECTORS if v.name == f"wire {wire}: {comment}")


def finish(effects: list[Any]) -> Any:
    """The error of the Finish that ends `effects`."""
    assert isinstance(effects[-1], fx.Finish)
    return effects[-1].error


# -- the agent --------------------------------------------------------------------------------


class Agent(AgentConnection):
    """An agent that does as a caller with a fast socket would."""

    def __init__(self, *, hello: Hello = HELLO, wires: tuple[int, ...] = (2,), **plan: Any) -> None:
        super().__init__(Plan(hello=hello, wires=wires, **plan))
        self.start(NOW)

    def dialed(self) -> bytes:
        """Connect; what goes out."""
        assert self.connected("c", NOW) == []
        sent = self.data_to_send()
        self.flushed(NOW)
        return sent

    def told(self, *messages: Message, key: Salt = SALT, wire: int = 2) -> list[Any]:
        """The effects of messages that arrive in one chunk."""
        return self.receive_data(b"".join(frame_of(m, key=key, wire=wire) for m in messages), NOW)


def admitted(**plan: Any) -> Agent:
    agent = Agent(**plan)
    agent.dialed()
    agent.told(ACCEPT, key=OPEN)
    assert agent.state is AgentState.AWAIT_FORMED
    return agent


def supervising(**plan: Any) -> Agent:
    """A relay in slot 0 and ranks 2 and 3 in slots 1 and 2, all running."""
    agent = admitted(**plan)
    agent.told(FORMED)
    for slot in range(3):
        agent.child_started(slot, NOW)
    return agent


def ended(agent: Agent, slot: int, code: int, now: float = NOW) -> list[Any]:
    return [*agent.child_exited(slot, code, now), *agent.output_ended(slot, now)]


class TestAgentDialing:
    def test_what_a_dial_leads_to_after_the_end(self) -> None:
        agent = Agent()
        agent.stop("SIGTERM", 15, NOW)
        assert agent.connected("c", NOW) == []
        assert agent.receive_data(b"a frame of no kind at all", NOW) == []
        assert agent.data_to_send() == b""

    def test_what_goes_out_is_the_magic_and_a_hello(self) -> None:
        labels = ("NVIDIA H100 (79GB, sm_90)", "cuda:1")
        hello = Hello(host="worker-x", local_devices=(0, 1), gpus=labels, libtorch="builds/test")
        for wire in (2, 4):
            agent = Agent(hello=hello, wires=(wire,), salt=SALT)
            assert agent.dialed() == JOIN + vector(wire, "hello from two devices")
            assert agent.data_to_send() == b""
            assert (agent.wire, agent.key) == (wire, SALT)

    def test_under_open_admission_it_is_tagged_with_zeros(self) -> None:
        assert Agent().dialed() == JOIN + frame_of(HELLO, key=OPEN)

    def test_a_hello_leaves_out_what_its_version_cannot_say(self) -> None:
        hello = Hello(host="h", local_devices=(0, 1), run_id="r", nccl_version=(2, 27, 3))
        agent = Agent(hello=hello, wires=(4, 2))
        assert read_frames(agent.dialed()[4:]) == [hello]
        assert agent.receive_eof(NOW)[-1] == fx.Dial(timeout=3.0, wire=2)
        assert read_frames(agent.dialed()[4:]) == [HELLO]

    def test_a_dial_that_leads_nowhere(self) -> None:
        agent = Agent()
        agent.connect_failed("refused", NOW)
        assert agent.next_timer == NOW + 0.5
        assert agent.handle_timer(NOW + 0.4) == []
        assert agent.handle_timer(NOW + 0.5) == [fx.Dial(timeout=3.0, wire=2)]

    def test_nothing_of_one_connection_is_left_for_the_next(self) -> None:
        agent = Agent()
        agent.connected("c", NOW)
        agent.receive_data(frame_of(ACCEPT)[:10], NOW)
        agent.link_broken("reset", NOW)
        agent.handle_timer(NOW + 0.5)
        assert agent.dialed() == JOIN + frame_of(HELLO)  # the first Hello never went out
        agent.told(ACCEPT, key=OPEN)
        assert agent.state is AgentState.AWAIT_FORMED

    def test_without_a_connection_nothing_of_one_is_taken(self) -> None:
        agent = Agent()
        for effects in (
            agent.receive_data(b"garbage", NOW),
            agent.receive_eof(NOW),
            agent.link_broken("reset", NOW),
            agent.flushed(NOW),
        ):
            assert effects == []
        assert agent.state is AgentState.DIALING

    def test_a_stop(self) -> None:
        agent = Agent()
        error = finish(agent.stop("SIGTERM", 15, NOW))
        assert (type(error), error.number) == (Stopped, 15)
        assert agent.next_timer is None

    def test_something_that_closes_for_the_first_five_seconds(self) -> None:
        agent = Agent()
        now, dials = NOW, [NOW]
        while now < NOW + 5:
            agent.connected("c", now)
            agent.flushed(now)
            agent.receive_eof(now)
            assert agent.next_timer is not None
            now = agent.next_timer
            assert agent.handle_timer(now) == [fx.Dial(timeout=3.0, wire=2)]
            dials.append(now)
        assert dials == [100, 100.5, 101.5, 103.5, 107.5]
        agent.dialed()
        agent.told(ACCEPT, key=OPEN)
        assert agent.state is AgentState.AWAIT_FORMED

    def test_something_that_never_answers(self) -> None:
        agent = Agent()
        agent.dialed()
        assert agent.next_timer == NOW + 30
        agent.receive_data(frame_of(ACCEPT)[:-1], NOW)  # half an answer is none
        assert agent.next_timer == NOW + 30
        assert "did not answer" in str(finish(agent.handle_timer(NOW + 30)))

    def test_a_world_that_never_forms(self) -> None:
        agent = admitted()
        assert agent.next_timer == NOW + 60 + 30
        assert "did not form the world" in str(finish(agent.handle_timer(NOW + 90)))


class TestAgentReading:
    def test_a_frame_may_change_the_key_of_the_one_behind_it(self) -> None:
        agent = Agent()
        agent.dialed()
        data = frame_of(ACCEPT, key=OPEN) + frame_of(FORMED, key=SALT)
        assert isinstance(agent.receive_data(data, NOW)[-1], fx.Spawn)
        assert agent.key == SALT

    def test_under_a_pre_shared_salt_the_key_stays(self) -> None:
        agent = Agent(salt=SALT)
        agent.dialed()
        agent.told(Accept(ranks=(2, 3), salt_hex="ff" * 16, formation_wait_secs=1), FORMED)
        assert agent.state is AgentState.SUPERVISING

    @pytest.mark.parametrize(
        ("data", "stage"),
        [
            (frame_of(FORMED, key=OPEN), Stage.TAG),
            (frame_of(FORMED, key=SALT, wire=4), Stage.VERSION),
            (encode_frame(b"\x05\x00", key=SALT, wire=2, kind=1), Stage.KIND),
            (encode_frame(b"\x05\x00", key=SALT, wire=2, kind=8), Stage.KIND),
            (encode_frame(b"\x05\x00", key=OPEN, wire=2, kind=1), Stage.TAG),
            (encode_frame(b"\x05\x01\xff", key=SALT, wire=2), Stage.PAYLOAD),
            (b"HTTP/1.1 400 Bad Request\r\n", Stage.MAGIC),
            (frame_of(FORMED)[:20] + b"\xff" * 4, Stage.LENGTH),
        ],
    )
    @FEEDS
    def test_what_it_cannot_obey_ends_it(self, data: bytes, stage: Stage, feed: Feed) -> None:
        agent = admitted()
        effects = fed(agent, feed(data))
        assert effects[0] == fx.CloseLink()
        error = finish(effects)
        assert isinstance(error, DecodeError)
        assert error.stage is stage

    @pytest.mark.parametrize("there", range(24))
    def test_an_end_inside_a_header_is_the_end_of_the_stream(self, there: int) -> None:
        agent = supervising()
        agent.receive_data(frame_of(ABORT)[:there], NOW)
        agent.receive_eof(NOW)
        told = "the controller at c closed the connection while ranks ran"
        assert str(agent.context.failure) == told

    def test_an_end_inside_a_payload_is_an_error(self) -> None:
        agent = admitted()
        agent.receive_data(frame_of(FORMED)[:26], NOW)
        error = finish(agent.receive_eof(NOW))
        assert isinstance(error, DecodeError)
        assert error.stage is Stage.TRUNCATED

    def test_after_the_close_nothing_is_read(self) -> None:
        agent = supervising()
        effects = agent.receive_data(b"garbage" * 4 + frame_of(ABORT), NOW)
        assert effects[0] == fx.CloseLink()
        failure = agent.context.failure
        assert isinstance(failure, LinkLost)
        assert agent.told(ABORT) == agent.receive_eof(NOW) == agent.link_broken("x", NOW) == []
        assert agent.context.failure is failure

    def test_what_is_remarkable_is_noted_once(self) -> None:
        agent = supervising()
        odd = encode_frame(b"\xfb\x02\x00\x00\x00", key=SALT, wire=2)  # a Reject, oddly put
        for _ in range(3):
            agent.receive_data(odd, NOW)
        assert agent.notes == [Note.NON_MINIMAL_VARINT, Note.TRAILING_BYTES]

    def test_an_undecodable_message_leaves_the_stream_readable(self) -> None:
        agent = supervising()
        bad = encode_frame(b"\xff", key=SALT, wire=2)
        told, *torn = agent.receive_data(bad + frame_of(ABORT, key=SALT), NOW)
        assert "ignored a message" in told.text
        assert isinstance(agent.context.failure, Aborted)
        assert torn


class TestAgentChildren:
    def test_all_are_asked_for_in_their_order(self) -> None:
        agent = admitted()
        spawns = [e for e in agent.told(FORMED) if isinstance(e, fx.Spawn)]
        asked = [(spawn.slot, spawn.rank, spawn.device) for spawn in spawns]
        assert asked == [(0, None, None), (1, 2, 0), (2, 3, 1)]
        for slot in range(3):
            assert agent.child_started(slot, NOW) == []

    def test_an_exit_goes_out_when_its_output_has(self) -> None:
        agent = supervising()
        assert agent.child_exited(1, -9, NOW) == []
        assert agent.data_to_send() == b""
        assert agent.output_ended(1, NOW) == []
        assert agent.data_to_send() == frame_of(RankExited(rank=2, code=-9), key=SALT)

    def test_to_the_byte(self) -> None:
        agent = Agent(salt=SALT, hello=Hello(host="h", local_devices=(0,)))
        agent.dialed()
        agent.told(Accept(ranks=(7,), formation_wait_secs=1), WorldFormed(envelope_hex=""))
        agent.child_started(0, NOW)
        agent.child_exited(0, -9, NOW)
        assert finish(agent.output_ended(0, NOW)) is None
        # What is still to be sent is there, though the link is to be closed behind it.
        assert agent.data_to_send() == vector(2, "rank exited with -9")

    def test_a_pipe_that_stays_open_delays_a_report_by_the_bound_and_no_more(self) -> None:
        agent = supervising()
        agent.child_exited(1, 3, NOW)
        assert agent.next_timer == NOW + 2
        assert agent.handle_timer(NOW + 2) == []
        assert read_frames(agent.data_to_send(), key=SALT) == [RankExited(rank=2, code=3)]
        assert agent.output_ended(1, NOW + 600) == []

    def test_one_grace_for_all(self) -> None:
        agent = supervising()
        effects = agent.told(ABORT)
        assert effects[1:] == [fx.Terminate(slot=slot) for slot in range(3)]
        ended(agent, 1, -15, NOW + 1)
        assert agent.next_timer == NOW + 5
        assert agent.handle_timer(NOW + 5) == [fx.Kill(slot=0), fx.Kill(slot=2)]
        ended(agent, 0, -9, NOW + 5)
        error = finish(ended(agent, 2, -9, NOW + 5))
        assert isinstance(error, Aborted)
        reports = [RankExited(rank=2, code=-15), RankExited(rank=3, code=-9)]
        assert read_frames(agent.data_to_send(), key=SALT) == reports

    def test_eight_that_ignore_the_term_are_all_killed_together(self) -> None:
        agent = Agent(hello=Hello(host="h", local_devices=tuple(range(8))), salt=SALT)
        agent.dialed()
        agent.told(Accept(ranks=tuple(range(8)), formation_wait_secs=1))
        agent.told(WorldFormed(envelope_hex=""))
        for slot in range(8):
            agent.child_started(slot, NOW)
        agent.stop("SIGTERM", 15, NOW)
        assert agent.handle_timer(NOW + 5) == [fx.Kill(slot=slot) for slot in range(8)]

    def test_what_cannot_be_killed_is_named_after_a_bound(self) -> None:
        agent = supervising(grace=0)
        agent.told(ABORT)
        ended(agent, 0, -9)
        ended(agent, 2, -9)
        assert agent.next_timer == NOW + 10
        error = finish(agent.handle_timer(NOW + 10))
        assert isinstance(error, Unkillable)
        assert str(error) == "rank 2 of host 'h' could not be killed (run aborted: why)"
        assert agent.child_exited(1, -9, NOW + 11) == []

    def test_a_second_signal_skips_the_grace(self) -> None:
        agent = supervising()
        agent.stop("SIGTERM", 15, NOW)
        effects = agent.stop("SIGTERM", 15, NOW + 1)
        assert effects[1:] == [fx.Kill(slot=slot) for slot in range(3)]

    def test_one_that_is_being_started_is_stopped_when_it_is_there(self) -> None:
        agent = admitted()
        agent.told(FORMED)
        agent.child_started(0, NOW)
        assert agent.told(ABORT)[1:] == [fx.Terminate(slot=0)]
        assert agent.child_started(1, NOW + 1) == [fx.Terminate(slot=1)]

    def test_one_that_cannot_be_started_stops_the_others(self) -> None:
        agent = admitted()
        agent.told(FORMED)
        agent.child_started(0, NOW)
        effects = agent.child_failed(1, "ENOMEM", NOW)
        assert effects[1:] == [fx.Terminate(slot=0)]
        # This one has started all the same, and is told to stop at once.
        assert agent.child_started(2, NOW) == [fx.Terminate(slot=2)]
        ended(agent, 2, -15)
        error = finish(ended(agent, 0, -15))
        assert str(error) == "rank 2 could not be started: ENOMEM"

    def test_a_command_that_is_not_there(self) -> None:
        agent = admitted()
        agent.told(FORMED)
        agent.child_failed(0, "no such file", NOW, not_found=True)
        agent.child_failed(1, "the host is being torn down", NOW)
        error = finish(agent.child_failed(2, "the host is being torn down", NOW))
        assert error.exit_code == 2

    def test_a_relay_that_dies(self) -> None:
        agent = supervising()
        effects = agent.child_exited(0, 1, NOW)
        assert effects[1:] == [fx.Terminate(slot=1), fx.Terminate(slot=2)]
        assert isinstance(agent.context.failure, RelayDied)

    def test_a_helper_that_dies(self) -> None:
        agent = supervising()
        effects = agent.helper_died("it was killed", NOW)
        assert effects[1:] == [fx.Terminate(slot=slot) for slot in range(3)]
        ended(agent, 0, -9)
        ended(agent, 1, -9)
        assert isinstance(finish(ended(agent, 2, -9)), HelperLost)

    def test_the_next_deadline_is_anybodys(self) -> None:
        agent = supervising()
        running = agent.next_timer
        assert running is None
        agent.child_exited(1, 0, NOW)
        agent.child_exited(2, 0, NOW + 1)
        assert agent.next_timer == NOW + 2
        agent.handle_timer(NOW + 2)
        assert agent.next_timer == NOW + 3


# -- the controller ---------------------------------------------------------------------------


class Peer(ControllerConnection):
    """A dial that was just accepted."""

    def __init__(self, *, open_admission: bool = True, scale: float = 1.0, **more: Any) -> None:
        super().__init__(Admission(salt=SALT, open=open_admission, scale=scale), **more)
        assert self.start(NOW) == []

    def said(self, *messages: Message, key: Salt = SALT, wire: int = 2) -> list[Any]:
        """The effects of messages that arrive in one chunk."""
        return self.receive_data(b"".join(frame_of(m, key=key, wire=wire) for m in messages), NOW)


def offered(wire: int = 2, **more: Any) -> Peer:
    peer = Peer(**more)
    key = OPEN if more.get("open_admission", True) else SALT
    assert peer.receive_data(JOIN + frame_of(HELLO, key=key, wire=wire), NOW) == [
        fx.Offer(hello=HELLO)
    ]
    return peer


def member(*, formed: bool = True, **more: Any) -> Peer:
    peer = offered(**more)
    assert peer.admit((2, 3), 60, NOW) == []
    if formed:
        assert peer.form("aa", "bb", NOW) == []
    peer.data_to_send()
    peer.flushed(NOW)
    return peer


class TestControllerRouting:
    @FEEDS
    def test_a_dial_to_the_join_channel(self, feed: Feed) -> None:
        peer = Peer()
        assert fed(peer, feed(JOIN)) == []
        assert (peer.channel, peer.state) == ("join", ControllerState.AWAIT_HELLO)

    @pytest.mark.parametrize(
        ("first", "channel"),
        [
            (b"\xe0\x17\x0d\xf1", "rendezvous"),
            (b"\xe1\x17\x0d\xf1", "data"),
            (b"\xe2\x17\x0d\xf1", "control"),
            (b"\x16\x03\x01\x02\x00\x01", ""),  # TLS
            (b"\xf1\x0d\x17\xe3", ""),  # the magic, big-endian
        ],
    )
    @FEEDS
    def test_any_other_is_closed_unanswered(self, first: bytes, channel: str, feed: Feed) -> None:
        peer = Peer()
        effects = fed(peer, feed(first + frame_of(HELLO)))
        assert [type(effect) for effect in effects] == [fx.CloseLink, fx.TurnedAway]
        assert (peer.channel, peer.state) == (channel, ControllerState.CLOSED)
        assert peer.data_to_send() == b""

    @pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"])
    def test_http_is_handed_over_with_all_that_has_come(self, method: str) -> None:
        peer = Peer()
        request = f"{method} / HTTP/1.1\r\n\r\n".encode()
        assert peer.receive_data(request[:3], NOW) == []
        assert peer.receive_data(request[3:], NOW) == [fx.HandOver()]
        assert (peer.channel, peer.head, peer.next_timer) == ("http", request, None)
        assert peer.receive_data(b"more", NOW) == []

    def test_what_an_unfinished_frame_holds(self) -> None:
        peer = Peer()
        peer.receive_data(JOIN + frame_of(HELLO)[:30], NOW)
        assert peer.held_bytes == 30

    @pytest.mark.parametrize("there", range(4))
    def test_one_that_ends_before_it_is_routed(self, there: int) -> None:
        peer = Peer()
        peer.receive_data(JOIN[:there], NOW)
        assert peer.channel is None
        assert peer.receive_eof(NOW) == [
            fx.CloseLink(),
            fx.TurnedAway(reason="closed before Hello"),
        ]

    def test_before_its_start_nothing_is_taken(self) -> None:
        peer = ControllerConnection(Admission(salt=SALT, open=True))
        assert peer.receive_data(JOIN, NOW) == peer.receive_eof(NOW) == []
        assert peer.link_broken("reset", NOW) == peer.flushed(NOW) == []


class TestControllerHello:
    @pytest.mark.parametrize("wire", [2, 4])
    @FEEDS
    def test_it_is_offered_and_answered_in_its_version(self, wire: int, feed: Feed) -> None:
        peer = Peer(open_admission=False)
        effects = fed(peer, feed(JOIN + vector(wire, "hello from two devices")))
        assert isinstance(effects[0], fx.Offer)
        assert effects[0].hello.host == "worker-x"
        assert peer.wire == wire
        peer.admit((0,), 600, NOW)
        assert peer.data_to_send() == vector(wire, "accept under a pre-shared salt")

    def test_under_open_admission_the_salt_goes_out_under_zeros_and_counts_from_then_on(
        self,
    ) -> None:
        peer = offered()
        peer.admit((3, 4), 60, NOW)
        accept = Accept(ranks=(3, 4), salt_hex=SALT.hex(), formation_wait_secs=60)
        assert read_frames(peer.data_to_send(), key=OPEN) == [accept]
        peer.form("7b7d", "7b7d", NOW)
        assert peer.data_to_send() == vector(2, "formed, with a relay")
        assert peer.said(RankExited(rank=3, code=0)) == [fx.ReportRank(rank=3, code=0)]

    def test_a_refusal_goes_out_under_the_join_key(self) -> None:
        peer = offered()
        peer.refuse("no room", NOW)
        assert read_frames(peer.data_to_send(), key=OPEN) == [Reject(reason="no room")]
        peer = offered(open_admission=False)
        peer.refuse("dataset signature mismatch", NOW)
        assert peer.data_to_send() == vector(2, "reject")

    def test_a_dismissal_says_nothing(self) -> None:
        peer = offered()
        assert peer.dismiss("wire", NOW) == [fx.CloseLink(), fx.TurnedAway(reason="wire")]
        assert peer.data_to_send() == b""

    @pytest.mark.parametrize(
        ("data", "stage"),
        [
            (frame_of(HELLO, key=SALT), "tag"),  # the salt, where there is open admission
            (encode_frame(b"\xff", key=SALT, wire=2), "tag"),
            (encode_frame(b"", key=SALT, wire=2, kind=1), "tag"),
            (frame_of(HELLO)[4:] + bytes(4), "magic"),
            (encode_frame(b"", key=OPEN, wire=3), "version"),
            (encode_frame(b"", key=OPEN, wire=2, kind=8), "kind"),
            (encode_frame(b"", key=OPEN, wire=2, kind=0), "kind"),
            (frame_of(HELLO)[:20] + b"\xff\xff\xff\xff", "length"),
            (frame_of(HELLO)[:20] + b"\x01\x00\x00\x01", "length"),
        ],
    )
    @FEEDS
    def test_who_may_not_hold_the_key_gets_no_answer(
        self, data: bytes, stage: str, feed: Feed
    ) -> None:
        peer = Peer()
        close, away = fed(peer, feed(JOIN + data))
        assert close == fx.CloseLink()
        assert away.reason.startswith(f"{stage}: ")
        assert peer.data_to_send() == b""

    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            (frame_of(ABORT), "the first message on the join channel is a Hello, not Abort"),
            (
                encode_frame(b"\x00", key=OPEN, wire=2, kind=6),
                "not a Hello: kind: a Rendezvous frame has no business on the join channel",
            ),
            (
                encode_frame(b"\x06", key=OPEN, wire=4),
                "not a Hello: payload: variant 6 is no message in message at byte 0 of the payload",
            ),
        ],
    )
    @FEEDS
    def test_who_does_is_told_what_is_wrong(self, data: bytes, reason: str, feed: Feed) -> None:
        peer = Peer()
        effects = fed(peer, feed(JOIN + data))
        assert effects == [fx.EndSending(), fx.TurnedAway(reason=reason)]
        assert peer.wire == int.from_bytes(data[4:8], "little")
        assert read_frames(peer.data_to_send()) == [Reject(reason=reason)]

    def test_an_end_inside_it(self) -> None:
        peer = Peer()
        peer.receive_data(JOIN + frame_of(HELLO)[:-1], NOW)
        close, away = peer.receive_eof(NOW)
        assert close == fx.CloseLink()
        assert away.reason.startswith("truncated: the stream ended after ")

    def test_a_version_that_is_not_taken(self) -> None:
        peer = Peer(wires=frozenset((4,)))
        _, away = peer.receive_data(JOIN + frame_of(HELLO), NOW)
        assert away.reason == "version: wire version 2, spoken here: 4"

    def test_what_is_behind_it_waits_for_the_decision(self) -> None:
        peer = Peer()
        data = JOIN + frame_of(HELLO, key=OPEN) + frame_of(RankExited(rank=2, code=1), key=SALT)
        assert peer.receive_data(data, NOW) == [fx.Offer(hello=HELLO)]
        assert peer.receive_data(frame_of(ABORT, key=SALT), NOW) == []
        early, strange = peer.admit((2, 3), 60, NOW)
        assert early.text == "host 'h' sent RankExited, which means nothing here; ignored"
        assert strange.text == "host 'h' sent Abort, which means nothing here; ignored"

    def test_a_peer_that_is_turned_away_costs_no_memory(self) -> None:
        peer = offered()
        assert peer.refuse("no", NOW)[0] == fx.EndSending()
        for _ in range(10):
            assert peer.receive_data(frame_of(HELLO) * 100, NOW) == []
            assert peer._framer.held == 0
        assert peer.receive_eof(NOW) == [fx.CloseLink()]

    def test_one_deadline_for_the_whole_of_it_however_it_drips(self) -> None:
        peer = Peer()
        for passed, byte in enumerate(drip(JOIN)):
            assert peer.next_timer == NOW + 5
            peer.receive_data(byte, NOW + passed)
        for passed, byte in enumerate(drip(frame_of(HELLO)[:13])):
            assert peer.next_timer == NOW + 3 + 10
            peer.receive_data(byte, NOW + 3 + 0.9 * passed)
        _, away = peer.handle_timer(NOW + 13)
        assert away.reason == "no whole Hello in time"

    def test_a_decision_that_comes_too_late_changes_nothing(self) -> None:
        peer = offered()
        peer.receive_eof(NOW)
        assert peer.admit((2, 3), 60, NOW) == peer.refuse("no", NOW) == []
        assert peer.data_to_send() == b""


class TestControllerMember:
    def test_reports(self) -> None:
        peer = member()
        effects = peer.said(RankExited(rank=3, code=-9), RankExited(rank=2, code=7))
        assert effects == [fx.ReportRank(rank=3, code=-9), fx.ReportRank(rank=2, code=7)]
        assert peer.context.exited == {2, 3}

    @pytest.mark.parametrize("formed", [False, True])
    def test_an_abort(self, formed: bool) -> None:
        peer = member(formed=formed)
        assert peer.abort("quorum not met", NOW) == []
        assert peer.data_to_send() == vector(2, "abort")
        assert peer.next_timer == NOW + 30
        assert peer.receive_eof(NOW) == [fx.CloseLink(), fx.Lost(cause="closed the connection")]

    def test_a_member_that_does_not_take_what_it_is_sent(self) -> None:
        peer = offered()
        peer.admit((2, 3), 60, NOW)
        peer.data_to_send()  # and the system takes no more of it
        close, lost = peer.handle_timer(NOW + 30)
        assert (close, lost.cause) == (fx.CloseLink(), "did not take what was sent to it")

    @pytest.mark.parametrize(
        ("data", "cause"),
        [
            (frame_of(RankExited(rank=2, code=0), key=OPEN), "tag"),
            (frame_of(RankExited(rank=2, code=0), key=SALT, wire=4), "version"),
            (encode_frame(b"\x04\x02\x00", key=SALT, wire=2, kind=1), "kind"),
            (b"GET /state.json HTTP/1.1\r\n", "magic"),
        ],
    )
    @FEEDS
    def test_bytes_that_end_it(self, data: bytes, cause: str, feed: Feed) -> None:
        close, lost = fed(member(), feed(data))
        assert close == fx.CloseLink()
        assert lost.cause.startswith(f"{cause}: ")

    def test_what_does_not_decode_is_told_and_ignored(self) -> None:
        peer = member()
        bad = encode_frame(b"\x04\x02", key=SALT, wire=2)
        told, report = peer.receive_data(bad + frame_of(RankExited(rank=2, code=0), key=SALT), NOW)
        assert "RankExited.code at byte 2" in told.text
        assert report == fx.ReportRank(rank=2, code=0)

    def test_what_is_remarkable_is_noted(self) -> None:
        peer = member()
        peer.receive_data(encode_frame(b"\x04\x02\x00\x00", key=SALT, wire=2), NOW)
        assert peer.notes == [Note.TRAILING_BYTES]

    def test_to_form_twice_is_the_callers_mistake(self) -> None:
        peer = member()
        with pytest.raises(IllegalInput, match="controller machine: Form cannot happen in state F"):
            peer.form("aa", None, NOW)
        assert peer.data_to_send() == b""


# -- vectors, at both ends --------------------------------------------------------------------


def outcome(vector: Vector) -> str:
    """What becomes of a link on which this vector's bytes arrive, and then an end of stream."""
    if vector.verdict == "valid" or vector.stage is Stage.PAYLOAD:
        return "goes on"
    return "ends" if vector.verdict == "end-of-stream" else "breaks"


@FEEDS
@pytest.mark.parametrize("vector", VECTORS, ids=str)
def test_a_vector_between_an_agent_and_its_controller(vector: Vector, feed: Feed) -> None:
    agent = Agent(salt=vector.key, wires=(vector.wire,))
    agent.dialed()
    agent.told(ACCEPT, FORMED, wire=vector.wire)
    agent.child_started(0, NOW)
    peer = member(open_admission=False, wire=vector.wire)
    ends: tuple[AgentConnection | ControllerConnection, ...] = (agent, peer)
    for end in ends:
        effects = fed(end, feed(vector.data[: vector.size]))
        broken = fx.CloseLink() in effects
        assert broken == (outcome(vector) == "breaks" and vector.stage is not Stage.TRUNCATED)
        if not broken:
            assert fx.CloseLink() in end.receive_eof(NOW)
    # Whatever it was, an agent has lost a link that ended while its children ran.
    failure = agent.context.failure
    aborted = isinstance(vector.message, Abort) and vector.verdict == "valid"
    assert type(failure) is (Aborted if aborted else LinkLost)
    if vector.stage:
        kept = outcome(vector) == "goes on"
        assert (f"({vector.stage}: " in str(failure)) == (not kept)


# -- any split, any bytes ---------------------------------------------------------------------


USUAL = [
    frame_of(message, key=key)
    for message in (HELLO, ACCEPT, FORMED, ABORT, RankExited(rank=2, code=0))
    for key in (SALT, OPEN)
]
ODD = st.builds(
    encode_frame,
    st.binary(max_size=20),
    key=st.just(SALT),
    wire=st.just(2),
    kind=st.sampled_from([7, 7, 7, 1, 8]),
)
ANY = strategies.frames(key=st.just(SALT), wire=2).map(lambda frame: frame.data)
PARTS = st.sampled_from(USUAL) | st.sampled_from(USUAL[::2]) | ODD | ANY | st.binary(max_size=40)
STREAMS = st.lists(PARTS, max_size=4).map(b"".join)
"""Streams that both ends read far into: good frames, odd ones, and what is none."""


def seen(effects: Iterable[Any]) -> list[str]:
    """Effects as they can be compared, errors by what they say."""
    return [repr(effect) for effect in effects]


def dialed_agent(**plan: Any) -> Agent:
    agent = Agent(**plan)
    agent.dialed()
    return agent


class Admitting(Peer):
    """A dial whose host is admitted as soon as it asks to be."""

    def receive_data(self, data: bytes, now: float) -> list[Any]:
        effects = super().receive_data(data, now)
        if any(isinstance(effect, fx.Offer) for effect in effects):
            effects += self.admit((2, 3), 60, now)
        return effects


def half_dialed() -> Agent:
    agent = Agent(salt=SALT)
    agent.connected("c", NOW)
    return agent


def awaiting_hello() -> Peer:
    peer = Admitting(open_admission=False)
    peer.receive_data(JOIN, NOW)
    return peer


def aborting() -> Peer:
    peer = member()
    peer.abort("why", NOW)
    return peer


MAKERS: dict[str, Callable[[], AgentConnection | ControllerConnection]] = {
    "an agent in Hello": half_dialed,
    "an agent in AwaitAccept": lambda: dialed_agent(salt=SALT),
    "an agent in AwaitFormed": admitted,
    "an agent in Supervising": supervising,
    "a peer in Routing": lambda: Admitting(open_admission=False),
    "a peer in AwaitHello": awaiting_hello,
    "a peer in Formed": member,
    "a peer in Aborting": aborting,
}
WHEREVER = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS.keys())


def read(
    end: AgentConnection | ControllerConnection, chunks: Iterable[bytes]
) -> tuple[list[str], str, bytes, float | None]:
    """All that comes of a stream, its end included."""
    effects = fed(end, chunks)
    effects += end.receive_eof(NOW)
    return seen(effects), end.state.value, end.data_to_send(), end.next_timer


@pytest.mark.slow
@WHEREVER
@examples(stream=STREAMS, data=st.data())
def test_any_split_of_any_stream_comes_to_the_same(
    make: Callable[[], AgentConnection | ControllerConnection],
    stream: bytes,
    data: st.DataObject,
) -> None:
    assert read(make(), data.draw(strategies.splits(stream))) == read(make(), [stream])


@WHEREVER
@examples(stream=st.binary(max_size=300))
def test_any_bytes_are_survived(
    make: Callable[[], AgentConnection | ControllerConnection], stream: bytes
) -> None:
    end = make()
    effects = fed(end, drip(stream))
    kinds = [type(effect) for effect in effects]
    assert kinds.count(fx.CloseLink) <= 1
    assert end._framer.held <= len(stream)
    if fx.CloseLink in kinds:
        assert end.receive_data(stream, NOW) == end.receive_eof(NOW) == []
