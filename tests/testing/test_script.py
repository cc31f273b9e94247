from __future__ import annotations

from typing import Any

import pytest

from joinproto import codec
from joinproto.errors import InvalidMessage
from joinproto.grammar import JOIN_MAGIC
from joinproto.keys import OPEN, Salt
from joinproto.messages import Abort, Accept, Hello, Message, RankExited, Reject, WorldFormed
from joinproto.testing import (
    SESSION,
    AcceptAndClose,
    Admit,
    Call,
    Close,
    Drain,
    Drip,
    Ended,
    Expect,
    ExpectBytes,
    ExpectExits,
    FakeClock,
    HalfClose,
    Link,
    Pause,
    Received,
    ReportExits,
    Reset,
    Say,
    SendBytes,
    Sent,
    Stage,
    Step,
    Until,
    UseKey,
    WaitEnd,
)
from joinproto.testing.link import End
from tests.support.frames import frame_of, read_frames

SALT = Salt(bytes(range(16)))
HELLO = Hello(host="a", local_devices=(0, 1))
ACCEPT = Accept(ranks=(4, 5), salt_hex=SESSION.hex(), formation_wait_secs=9)


class Pair:
    """A fake controller and a fake agent, both with a script, on a link in memory."""

    def __init__(self, controller: list[Step], agent: list[Step], salt: Salt | None = None) -> None:
        self.clock = FakeClock()
        self.controller = Stage(controller, dials=False, salt=salt)
        self.agent = Stage(agent, dials=True, salt=salt, wires=frozenset((2,)))
        self.link = self.dial()

    def dial(self) -> Link:
        ends = (End(stage.connect(), self.clock) for stage in (self.agent, self.controller))
        self.link = Link(*ends)
        self.link.settle()
        return self.link

    @property
    def outcome(self) -> tuple[Any, Any]:
        """What has become of both scripts: True: through, False: it waits, or why it failed."""
        a, b = ((stage.failure or stage.finished) for stage in (self.controller, self.agent))
        return (a if isinstance(a, bool) else str(a)), (b if isinstance(b, bool) else str(b))


BOTH = (True, True)


def sent_by_agent(*script: Step, salt: Salt | None = None) -> bytes:
    """What an agent that plays this sends after the channel magic."""
    stage = Stage(script, dials=True, salt=salt, wires=frozenset((2,)))
    connection, data = stage.connect(), b""
    while piece := connection.data_to_send():
        data += piece
        connection.flushed(0.0)
    assert stage.finished
    return data.removeprefix(JOIN_MAGIC)


class TestExpect:
    @pytest.mark.parametrize(
        "step",
        [
            Expect(Hello),
            Expect(Hello, host="a", local_devices=(0, 1)),
            Expect(Hello, host=str.isalpha),
            Expect(HELLO),
        ],
    )
    def test_what_fits(self, step: Step) -> None:
        assert Pair([step], [Say(HELLO)]).outcome == BOTH

    @pytest.mark.parametrize(
        ("step", "lines"),
        [
            (
                Expect(RankExited, rank=1),
                ["expected: RankExited(rank=1)", "got:      Hello(host='a', local_devices=(0, 1))"],
            ),
            (
                Expect(Hello, host="b", local_devices=(0,)),
                ["host: expected 'b', got 'a'", "local_devices: expected (0,), got (0, 1)"],
            ),
            (Expect(Hello, host=str.isdigit), ["host: expected isdigit, got 'a'"]),
            (
                Expect(Hello(host="a", local_devices=(0, 1), libtorch="cu128")),
                ["libtorch: expected 'cu128', got ''"],
            ),
        ],
    )
    def test_what_does_not_fit(self, step: Step, lines: list[str]) -> None:
        failure, _ = Pair([step], [Say(HELLO)]).outcome
        for line in lines:
            assert line in failure

    def test_a_field_that_there_is_not(self) -> None:
        with pytest.raises(TypeError, match="Hello has no field device, hots"):
            Expect(Hello, hots="a", device=1)

    def test_it_tells_itself(self) -> None:
        assert str(Expect(Hello, host="a")) == "Expect(Hello(host='a'))"
        assert str(Expect(Abort(reason="x"))) == "Expect(Abort(reason='x'))"


class TestExits:
    SCRIPT = (Expect(Hello), Say(ACCEPT))

    def joined(self, exits: ExpectExits, *reports: RankExited) -> Any:
        agent: list[Step] = [Say(HELLO), Expect(Accept), *map(Say, reports)]
        return Pair([*self.SCRIPT, exits], agent).outcome[0]

    def test_any_order_and_any_code(self) -> None:
        reports = (RankExited(rank=5, code=-9), RankExited(rank=4, code=7))
        assert self.joined(ExpectExits({4: 7}), *reports) is True

    def test_one_is_missing(self) -> None:
        assert self.joined(ExpectExits(), RankExited(rank=5, code=0)) is False

    @pytest.mark.parametrize(
        ("reports", "text"),
        [
            ((RankExited(rank=4, code=8),), "code: expected 7, got 8"),
            ((RankExited(rank=6, code=0),), "expected: RankExited of rank 4 or rank 5"),
            ((RankExited(rank=5, code=0),) * 2, "expected: RankExited of rank 4"),
        ],
    )
    def test_what_does_not_fit(self, reports: tuple[RankExited, ...], text: str) -> None:
        assert text in self.joined(ExpectExits({4: 7}), *reports)

    def test_something_else(self) -> None:
        agent: list[Step] = [Say(HELLO), Expect(Accept), Say(HELLO)]
        assert "got:      Hello" in Pair([*self.SCRIPT, ExpectExits()], agent).outcome[0]

    def test_reporting_them(self) -> None:
        agent: list[Step] = [Say(HELLO), Expect(Accept), ReportExits({5: -9})]
        pair = Pair([*self.SCRIPT, ExpectExits({4: 0, 5: -9})], agent)
        assert pair.outcome == BOTH


class TestBytes:
    def test_what_fits(self) -> None:
        pair = Pair([ExpectBytes(JOIN_MAGIC), ExpectBytes(b"ab"), Expect(Hello)], [])
        near = pair.agent.connections[0]
        near.send(b"a")
        near.send(b"b" + frame_of(HELLO))
        pair.link.settle()
        assert pair.outcome == BOTH

    def test_what_does_not_fit(self) -> None:
        failure, _ = Pair([ExpectBytes(JOIN_MAGIC + b"ab")], [SendBytes(b"ax")]).outcome
        assert "differs:  byte 5: expected 62, got 78" in failure

    def test_too_few(self) -> None:
        failure, _ = Pair([ExpectBytes(JOIN_MAGIC + b"ab")], [SendBytes(b"a"), Close()]).outcome
        assert "got:      the end of the stream after 5 bytes" in failure

    def test_they_are_sent_as_they_are(self) -> None:
        assert sent_by_agent(SendBytes(b"\x00\xff")) == b"\x00\xff"

    def test_they_tell_themselves(self) -> None:
        assert str(ExpectBytes(b"a")) == "ExpectBytes(1 bytes 61)"
        assert str(SendBytes(b"a")) == "SendBytes(1 bytes 61)"


class TestEnds:
    @pytest.mark.parametrize(
        ("end", "cause"), [(Close(), ""), (Reset(), "connection reset by peer"), (HalfClose(), "")]
    )
    def test_an_end_is_waited_for(self, end: Step, cause: str) -> None:
        # Until the fake has read what came before: a reset would sweep it away.
        read: list[bool] = []
        pair = Pair([Expect(Hello), WaitEnd()], [Say(HELLO), Until(lambda: read), end])
        read.append(True)
        pair.link.settle()
        assert pair.outcome == BOTH
        assert pair.controller.record[-1] == Ended(connection=1, cause=cause)
        assert pair.controller.connections[0].closed

    def test_nothing_may_come_before_it(self) -> None:
        failure, _ = Pair([WaitEnd()], [Say(HELLO), Close()]).outcome
        assert "expected: the end of the stream" in failure
        assert "got:      Hello" in failure

    def test_whatever_comes_before_it_is_taken_down(self) -> None:
        agent = [Say(HELLO), SendBytes(b"x" * 30), Close()]
        pair = Pair([Drain()], agent)
        assert pair.outcome == BOTH
        told = [str(entry) for entry in pair.controller.record]
        assert told[1] == "#1 received Hello(host='a', local_devices=(0, 1)) in wire 2"
        assert "cannot be read" in told[2]
        assert told[-1] == "#1 received the end of the stream"

    def test_a_script_goes_on_with_the_next_connection(self) -> None:
        pair = Pair([AcceptAndClose(times=2), Expect(Hello)], [WaitEnd(), WaitEnd(), Say(HELLO)])
        pair.dial()
        assert pair.outcome == (False, False)
        pair.dial()
        assert pair.outcome == BOTH

    def test_an_accepted_connection_may_be_reset(self) -> None:
        pair = Pair([AcceptAndClose(reset=True)], [WaitEnd()])
        assert pair.agent.record[-1] == Ended(connection=1, cause="connection reset by peer")

    def test_a_half_closed_connection_goes_on_reading(self) -> None:
        agent: list[Step] = [Say(HELLO), Say(Abort(reason=""))]
        pair = Pair([Expect(Hello), HalfClose(), Expect(Abort)], agent)
        assert pair.outcome == BOTH
        assert pair.agent.record[-1] == Ended(connection=1, cause="")


class TestSay:
    def test_as_the_protocol_has_it(self) -> None:
        assert sent_by_agent(Say(HELLO)) == frame_of(HELLO)
        assert sent_by_agent(Say(HELLO), salt=SALT) == frame_of(HELLO, key=SALT)

    @pytest.mark.parametrize(
        ("step", "frame"),
        [
            (Say(HELLO, key=SALT), frame_of(HELLO, key=SALT)),
            (Say(HELLO, wire=4), frame_of(HELLO, wire=4)),
            (
                Say(HELLO, kind=1),
                codec.encode_frame(codec.encode_payload(HELLO, wire=2), key=OPEN, wire=2, kind=1),
            ),
            (
                # The version is outside the tag, and the payload is that of the wire spoken.
                Say(HELLO, wire=99),
                codec.encode_frame(codec.encode_payload(HELLO, wire=2), key=OPEN, wire=99),
            ),
            (Say(b"ab"), codec.encode_frame(b"ab", key=OPEN, wire=2)),
        ],
    )
    def test_otherwise(self, step: Step, frame: bytes) -> None:
        assert sent_by_agent(step) == frame

    def test_with_a_wrong_tag_or_length(self) -> None:
        frame = frame_of(HELLO)
        wrong = sent_by_agent(Say(HELLO, tag=b"12345678"))
        assert wrong == frame[:8] + b"12345678" + frame[16:]
        longer = sent_by_agent(Say(HELLO, length=0xFFFFFFFF))
        assert longer == frame[:20] + b"\xff" * 4 + frame[24:]

    def test_a_tag_of_another_size(self) -> None:
        with pytest.raises(InvalidMessage, match="a tag is 8 bytes, not 3"):
            Say(HELLO, tag=b"123")

    def test_what_depends_on_what_came(self) -> None:
        def reply(stage: Stage) -> Message:
            assert stage.hello is not None
            return Reject(reason=f"no {stage.hello.host}")

        pair = Pair([Expect(Hello), Say(reply)], [Say(HELLO), Expect(Reject, reason="no a")])
        assert pair.outcome == BOTH
        assert str(Say(reply)) == "Say(reply)"

    def test_what_the_wire_cannot_say_fails_the_script(self) -> None:
        stage = Stage(
            [Say(Hello(host="a", local_devices=(), run_id="r"))], dials=True, wires=frozenset((2,))
        )
        stage.connect()
        stage.advance(0.0)
        assert "run_id cannot be said in wire 2" in str(stage.failure)

    def test_it_tells_itself(self) -> None:
        assert str(Say(Abort(reason="x"))) == "Say(Abort(reason='x'))"


class TestAdmit:
    @pytest.mark.parametrize(("salt", "salt_hex"), [(None, SESSION.hex()), (SALT, None)])
    def test_as_a_controller_does(self, salt: Salt | None, salt_hex: str | None) -> None:
        accept = Accept(ranks=(0, 1), salt_hex=salt_hex, formation_wait_secs=60)
        controller = [Expect(Hello), Admit(), Say(WorldFormed(envelope_hex="00"))]
        pair = Pair(controller, [Say(HELLO), Expect(accept), Expect(WorldFormed)], salt)
        assert pair.outcome == BOTH

    def test_with_other_ranks(self) -> None:
        controller = [Expect(Hello), Admit(ranks=(7,), formation_wait_secs=3)]
        agent = [Say(HELLO), Expect(Accept, ranks=(7,), formation_wait_secs=3)]
        assert Pair(controller, agent).outcome == BOTH

    def test_without_a_hello(self) -> None:
        assert Pair([Admit()], [Expect(Accept, ranks=())]).outcome[0] is True


class TestDrip:
    def test_every_piece_is_its_own(self) -> None:
        stage = Stage([Drip(b"abcde", chunk=2)], dials=True)
        connection, pieces = stage.connect(), []
        assert connection.data_to_send() == JOIN_MAGIC
        while piece := connection.data_to_send():
            # Before it is said to be out, there is no other.
            pieces.append((piece, connection.data_to_send()))
            connection.flushed(0.0)
        assert pieces == [(b"ab", b""), (b"cd", b""), (b"e", b"")]
        assert stage.record[-1] == Sent(connection=1, what=b"abcde")

    def test_a_message_is_taken_down_as_one(self) -> None:
        pair = Pair([Expect(Hello), Drip(ACCEPT), Say(Abort(reason=""))], [Say(HELLO), Drain()])
        assert pair.controller.record[2] == Sent(connection=1, what=ACCEPT)
        # The session salt that it carries is in force from then on.
        assert [e.message for e in pair.agent.record if isinstance(e, Received)] == [
            ACCEPT,
            Abort(reason=""),
        ]

    def test_it_may_stop_part_way(self) -> None:
        frame = frame_of(HELLO)
        assert sent_by_agent(Drip(HELLO, chunk=10, stop_after=2)) == frame[:20]
        stage = Stage([Drip(b"abc", stop_after=1)], dials=True)
        stage.connect().data_to_send()
        stage.connections[0].flushed(0.0)
        stage.connections[0].data_to_send()
        stage.connections[0].flushed(0.0)
        assert stage.record[-1] == Sent(connection=1, what=b"a")

    def test_it_takes_its_time(self) -> None:
        pair = Pair([Drain()], [Drip(b"ab", pause=3.0)])
        received = [bytes(pair.controller.connections[0].received)]
        pair.clock.advance(2.9)
        pair.link.settle()
        received.append(bytes(pair.controller.connections[0].received))
        pair.clock.advance(0.1)
        pair.link.settle()
        received.append(bytes(pair.controller.connections[0].received))
        assert received == [JOIN_MAGIC + b"a", JOIN_MAGIC + b"a", JOIN_MAGIC + b"ab"]

    def test_a_peer_that_has_gone_is_not_waited_for(self) -> None:
        pair = Pair([Close()], [])
        agent = Stage([Drip(b"abc")], dials=True)
        connection = agent.connect()
        connection.receive_eof(0.0)
        assert agent.finished
        assert pair.outcome == BOTH

    def test_it_tells_itself(self) -> None:
        assert str(Drip(b"a")) == "Drip(1 bytes 61, chunk=1, pause=0)"


def test_a_key_put_in_force() -> None:
    controller = [UseKey(SALT), Expect(Hello), Say(Reject(reason="x"))]
    pair = Pair(controller, [UseKey(SALT), Say(HELLO), Expect(Reject)])
    assert pair.outcome == BOTH
    assert read_frames(sent_by_agent(UseKey(SALT), Say(HELLO)), key=SALT) == [HELLO]


def test_time_condition_and_call() -> None:
    done: list[str] = []
    ready: list[str] = []
    script = [Pause(2.0), Call(lambda: done.append("a")), Until(lambda: ready), Say(HELLO)]
    pair = Pair([Expect(Hello)], script)
    pair.link.settle()
    states = [list(done)]
    pair.clock.advance(2.0)
    pair.link.settle()
    states.append(list(done))
    assert (states, pair.outcome) == ([[], ["a"]], (False, False))
    ready.append("b")
    pair.link.settle()
    assert pair.outcome == BOTH
    assert str(Call(done.clear)) == "Call(clear)"
    assert str(Until(done.clear)) == "Until(clear)"
