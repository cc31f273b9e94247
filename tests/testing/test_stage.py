from __future__ import annotations

from typing import Any

import pytest

from joinproto import codec
from joinproto.errors import DecodeError
from joinproto.errors import Stage as ReadStage
from joinproto.grammar import JOIN_MAGIC, WIRES
from joinproto.keys import OPEN, Salt
from joinproto.messages import Abort, Accept, Hello, Reject
from joinproto.testing import (
    SESSION,
    Call,
    Close,
    Ended,
    Expect,
    Pause,
    Received,
    Say,
    ScriptFailed,
    Sent,
    Stage,
    Step,
    Unreadable,
    Until,
    Waiting,
)
from tests.support.frames import frame_of

SALT = Salt(bytes(range(16)))
HELLO = Hello(host="a", local_devices=(0, 1))


def controller(*script: Step, **options: Any) -> Stage:
    return Stage(script, dials=False, **options)


def hear(stage: Stage, data: bytes, *, opened: bool = True) -> None:
    """A new connection on which this comes."""
    stage.connect().receive_data((JOIN_MAGIC if opened else b"") + data, 0.0)


def failure_of(stage: Stage) -> str:
    assert stage.failure is not None
    return str(stage.failure)


def test_a_script_is_played_step_by_step() -> None:
    done: list[int] = []
    stage = controller(Call(lambda: done.append(1)), Expect(Hello), Call(lambda: done.append(2)))
    stage.advance(0.0)
    assert (done, stage.finished) == ([1], False)
    hear(stage, frame_of(HELLO))
    assert (done, stage.finished) == ([1, 2], True)
    assert stage.hello == HELLO


def test_a_failure_tells_what_where_and_what_led_to_it() -> None:
    stage = controller(Expect(Hello), Say(Reject(reason="full")), Expect(Hello, host="b"))
    hear(stage, frame_of(HELLO))
    hear_again = stage.connections[0]
    hear_again.receive_data(frame_of(HELLO), 0.0)
    assert failure_of(stage).splitlines() == [
        "step 3 of 3, Expect(Hello(host='b')), did not come true",
        "  expected: Hello(host='b')",
        "  got:      Hello(host='a', local_devices=(0, 1))",
        "  differs:  host: expected 'b', got 'a'",
        "so far:",
        "  #1 connected",
        "  #1 received Hello(host='a', local_devices=(0, 1)) in wire 2",
        "  #1 sent Reject(reason='full')",
        "  #1 received Hello(host='a', local_devices=(0, 1)) in wire 2",
    ]
    assert not stage.finished
    assert isinstance(stage.failure, AssertionError)


def test_a_failed_script_leaves_nobody_waiting() -> None:
    stage = controller(Expect(Hello))
    hear(stage, frame_of(Abort(reason="x")))
    assert stage.connections[0].closed
    assert stage.connect().closed
    stage.advance(1.0)
    assert failure_of(stage).startswith("step 1 of 1")


def test_a_step_that_raises_fails_the_script() -> None:
    stage = controller(Call(lambda: 1 // 0))
    stage.advance(0.0)
    assert "ZeroDivisionError: integer division or modulo by zero" in failure_of(stage)
    assert stage.failure is not None
    assert isinstance(stage.failure.__cause__, ZeroDivisionError)


@pytest.mark.parametrize("script", [[], [Expect(Hello)]])
def test_giving_up(script: list[Step]) -> None:
    stage = controller(*script)
    stage.give_up("enough")
    assert "enough" in failure_of(stage)
    assert "nothing happened" in failure_of(stage)


def test_a_script_that_is_through_is_not_given_up() -> None:
    stage = controller()
    stage.advance(0.0)
    stage.give_up("enough")
    assert stage.failure is None


def test_a_step_may_be_of_the_tests_own() -> None:
    class Greet(Step):
        def play(self, stage: Stage) -> Waiting[None]:
            got = yield from stage.message("a Hello")
            assert isinstance(got.message, Hello)
            yield from Say(Reject(reason=f"not you, {got.message.host}")).play(stage)

    stage = controller(Greet())
    hear(stage, frame_of(HELLO))
    assert stage.finished
    assert stage.record[-1] == Sent(connection=1, what=Reject(reason="not you, a"))


def test_a_function_of_the_script_that_leads_back_into_it() -> None:
    stage = controller()
    stage.script = (Call(lambda: stage.advance(0.0)),)
    stage.advance(0.0)
    assert stage.finished


# -- connections ------------------------------------------------------------------------------


def test_whoever_dials_meanwhile_waits() -> None:
    stage = controller(Expect(Hello, host="a"), Close(), Expect(Hello, host="b"))
    first, second = stage.connect(), stage.connect()
    second.receive_data(JOIN_MAGIC + frame_of(Hello(host="b", local_devices=())), 0.0)
    assert stage.record[2:] == []
    first.receive_data(JOIN_MAGIC + frame_of(HELLO), 0.0)
    assert stage.finished


def test_an_agent_dials_when_a_step_needs_it_to() -> None:
    stage = Stage([Say(HELLO), Close(), Expect(Accept)], dials=True)
    stage.advance(0.0)
    wants = [stage.wants_dial]
    connection = stage.connect()
    wants.append(stage.wants_dial)
    assert connection.data_to_send() == JOIN_MAGIC
    wants.append(stage.wants_dial)
    assert wants == [True, False, True]


def test_an_agent_may_ask_for_another_channel() -> None:
    assert Stage([], dials=True, channel=b"GET ").connect().data_to_send() == b"GET "


@pytest.mark.parametrize("wire", WIRES)
def test_a_controller_speaks_the_wire_of_the_hello(wire: int) -> None:
    stage = controller(Expect(Hello), Say(Reject(reason="x")))
    connection = stage.connect()
    hello = JOIN_MAGIC + frame_of(HELLO, wire=wire)
    connection.receive_data(hello, 0.0)
    assert connection.data_to_send() == frame_of(Reject(reason="x"), wire=wire)


def test_a_controller_hangs_up_on_a_wire_that_it_does_not_speak() -> None:
    stage = controller(Expect(Hello), wires=frozenset((2,)))
    hear(stage, frame_of(HELLO, wire=4))
    assert stage.connections[0].closed
    assert str(stage.record[-1]).endswith("version: a Hello in wire 4; hung up")
    assert (stage.failure, stage.finished) == (None, False)
    hear(stage, frame_of(HELLO, wire=2))
    assert stage.finished


def test_the_wire_of_a_connection_does_not_change() -> None:
    stage = controller(Expect(Hello), Expect(Hello))
    hear(stage, frame_of(HELLO, wire=4) + frame_of(HELLO, wire=2))
    assert "wire 2 on a connection that speaks wire 4" in failure_of(stage)


def test_an_agent_is_answered_in_its_own_wire() -> None:
    stage = Stage([Expect(Reject)], dials=True, wires=frozenset((2,)))
    stage.connect().receive_data(frame_of(Reject(reason="x"), wire=4), 0.0)
    assert "wire 4 on a connection that speaks wire 2" in failure_of(stage)


# -- what comes -------------------------------------------------------------------------------


def test_a_message_is_taken_down_with_its_notes() -> None:
    stage = controller(Expect(Hello))
    payload = codec.encode_payload(HELLO, wire=4) + b"more"
    hear(stage, codec.encode_frame(payload, key=OPEN, wire=4))
    assert stage.record[-1] == Received(
        connection=1, message=HELLO, wire=4, notes=(codec.Note.TRAILING_BYTES,)
    )


@pytest.mark.parametrize(
    ("data", "stage_of_reading"),
    [
        (b"x" * 24, ReadStage.MAGIC),
        (codec.encode_frame(b"", key=OPEN, wire=9), ReadStage.VERSION),
        (codec.encode_frame(b"", key=OPEN, wire=4, kind=1), ReadStage.KIND),
        (frame_of(HELLO, key=SALT), ReadStage.TAG),
        (codec.encode_frame(b"", key=OPEN, wire=4), ReadStage.PAYLOAD),
    ],
)
def test_what_cannot_be_read_is_told(data: bytes, stage_of_reading: ReadStage) -> None:
    stage = controller(Expect(Hello))
    hear(stage, data)
    entry = stage.record[-1]
    assert isinstance(entry, Unreadable)
    assert entry.error.stage is stage_of_reading
    assert f"got:      what cannot be read: {stage_of_reading}" in failure_of(stage)


@pytest.mark.parametrize(
    ("used", "text"),
    [
        (OPEN, "tagged with zeros, where the pre-shared salt must be used"),
        (Salt(bytes(15) + b"x"), "was not tagged with this key"),
    ],
)
def test_a_tag_made_with_another_key_is_explained(used: Salt, text: str) -> None:
    stage = controller(Expect(Hello), salt=SALT)
    hear(stage, frame_of(HELLO, key=used))
    assert text in failure_of(stage)


@pytest.mark.parametrize(
    ("rest", "text"),
    [
        (b"", "got:      the end of the stream"),
        (b"abc", "the end of the stream after 3 bytes 616263"),
    ],
)
def test_an_end_where_a_message_was_expected(rest: bytes, text: str) -> None:
    stage = controller(Expect(Hello))
    hear(stage, rest)
    stage.connections[0].receive_eof(0.0)
    assert text in failure_of(stage)
    assert stage.record[-1] == Ended(connection=1, cause="")


def test_what_comes_after_the_script_is_taken_down_too() -> None:
    stage = controller(Expect(Hello))
    hear(stage, frame_of(HELLO))
    connection = stage.connections[0]
    connection.receive_data(frame_of(Abort(reason="x")), 0.0)
    connection.receive_data(b"x" * 24, 0.0)
    connection.link_broken("reset", 0.0)
    assert [str(entry) for entry in stage.record[2:]] == [
        "#1 received Abort(reason='x') in wire 2",
        "#1 received what cannot be read: magic: 0x78787878 is not a frame's magic",
        "#1 received a broken connection (reset)",
    ]
    assert connection.closed
    assert stage.failure is None


# -- keys -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("salt", "salt_hex", "key"),
    [
        (None, SESSION.hex(), SESSION),
        (None, None, OPEN),
        (None, "no salt", OPEN),
        (SALT, SESSION.hex(), SALT),
    ],
)
@pytest.mark.parametrize("dials", [True, False])
def test_the_key_after_an_accept(
    salt: Salt | None, salt_hex: str | None, key: Salt, dials: bool
) -> None:
    accept = Accept(ranks=(3,), salt_hex=salt_hex, formation_wait_secs=1)
    script: list[Step] = [Expect(Accept)] if dials else [Say(accept)]
    stage = Stage(script, dials=dials, salt=salt)
    connection = stage.connect()
    wire = stage.wire_of(connection)
    data = frame_of(accept, key=salt or OPEN, wire=wire) if dials else b""
    connection.receive_data(data, 0.0)
    assert stage.finished
    assert (connection.key, stage.ranks) == (key, (3,))


# -- time -------------------------------------------------------------------------------------


def test_a_pause_ends_at_its_time() -> None:
    stage = controller(Pause(2.0))
    stage.advance(1.0)
    assert stage.wake_at == 3.0
    stage.advance(2.9)
    states = [stage.finished]
    stage.advance(3.0)
    assert [*states, stage.finished, stage.wake_at] == [False, True, None]


def test_a_condition_is_asked_for_again() -> None:
    ready: list[int] = []
    stage = controller(Until(lambda: ready))
    connection = stage.connect()
    connection.data_to_send()
    states = [(stage.polling, stage.finished)]
    ready.append(1)
    connection.data_to_send()
    assert [*states, (stage.polling, stage.finished)] == [(True, False), (False, True)]


def test_a_failure_is_an_assertion() -> None:
    with pytest.raises(AssertionError, match="x"):
        raise ScriptFailed("x")
    assert not issubclass(DecodeError, AssertionError)
