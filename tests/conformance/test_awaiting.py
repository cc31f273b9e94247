from __future__ import annotations

from typing import Any

import pytest

from joinproto.conformance.awaiting import AFTERLIFE, PATIENCE, SLACK, Awaiting, Deviation
from joinproto.conformance.conversation import Said
from joinproto.conformance.verdicts import Verdict
from joinproto.conformance.world import Child, Exit, Line
from joinproto.messages import Abort, Accept, RankExited
from tests.support.conformance import StillWorld

REPORT = RankExited(rank=0, code=-9)


def waiting(world: StillWorld) -> Awaiting:
    return Awaiting(world, [], lambda value: value)


def one(world: StillWorld, *patterns: dict[str, Any], **step: Any) -> Any:
    return waiting(world).one_of({"await": list(patterns), **step})


def deviation(world: StillWorld, *patterns: dict[str, Any], **step: Any) -> Deviation:
    with pytest.raises(Deviation) as caught:
        one(world, *patterns, **step)
    return caught.value


def test_the_next_message_must_match() -> None:
    world = StillWorld("c")
    world.at(1.0, lambda: world.said(REPORT))
    pattern, event = one(world, {"message": "RankExited", "fields": {"code": {"less": 0}}})
    assert pattern["on"] == "c"
    assert isinstance(event, Said)


def test_another_message_is_a_deviation() -> None:
    world = StillWorld("c")
    world.said(REPORT)
    told = deviation(world, {"message": "RankExited", "fields": {"code": 7}}, clause="JP-X")
    assert "code=7" in told.expected
    assert "code: expected 7, got -9" in told.got
    assert told.clause == "JP-X"


def test_nothing_in_time_is_a_deviation() -> None:
    told = deviation(StillWorld("c"), {"end": ["fin", "rst"]})
    assert told.got == f"nothing within {PATIENCE:.1f} s"
    assert "FIN" in told.expected
    assert "RST" in told.expected


def test_what_is_skipped_is_waited_past() -> None:
    world = StillWorld("c")
    world.said(REPORT)
    world.said(REPORT)
    world.conversations["c"].end("fin", 0.0)
    pattern, _ = one(world, {"message": "RankExited", "skip": True}, {"end": ["fin"]})
    assert pattern["end"] == ["fin"]


def test_what_is_unwanted_is_a_deviation() -> None:
    world = StillWorld("c")
    world.lines = [Line(at=0.0, stream="stderr", text="a secret")]
    unwanted, nothing = {"line": "secret", "unwanted": True}, {"nothing": True}
    told = deviation(world, unwanted, nothing)
    assert told.expected == "nothing more on c"
    assert "'a secret' on stderr" in told.got
    assert one(world, unwanted, nothing)[0]["nothing"]
    world.said(REPORT)
    step = {"all": [{"line": "secret", "unwanted": True}, {"message": "RankExited"}]}
    assert len(list(waiting(world).all_of(step))) == 1


def test_how_a_connection_ends_counts() -> None:
    world = StillWorld("c")
    world.conversations["c"].end("rst", 0.0)
    assert "it should be fin" in deviation(world, {"end": ["fin"]}).got


def test_bytes_that_are_no_message() -> None:
    world = StillWorld("c")
    world.conversations["c"].feed(b"\0" * 24, 0.0)
    assert one(world, {"garbled": True})
    world = StillWorld("c")
    world.conversations["c"].feed(b"\0" * 24, 0.0)
    assert "no message" in deviation(world, {"end": ["fin"]}).got


def test_only_where_the_patterns_look_counts() -> None:
    world = StillWorld("a", "b")
    world.said(REPORT, on="b")
    world.exit = Exit(at=0.0, code=3)
    assert one(world, {"exit": [3]})
    assert one(world, {"message": "RankExited", "on": "b"})


@pytest.mark.parametrize("wanted", [[3], "nonzero", {"between": [1, 5]}])
def test_codes_that_match(wanted: Any) -> None:
    world = StillWorld()
    world.exit = Exit(at=0.0, code=3)
    told = waiting(world)
    told.one_of({"await": [{"exit": wanted}]})
    assert told.exit_seen


@pytest.mark.parametrize("wanted", [[0, 4], {"less": 0}])
def test_codes_that_do_not(wanted: Any) -> None:
    world = StillWorld()
    world.exit = Exit(at=0.0, code=3)
    assert "code 3" in deviation(world, {"exit": wanted}).got


def test_a_target_that_has_ended_is_not_waited_for_long() -> None:
    world = StillWorld("c")
    world.exit = Exit(at=0.0, code=1)
    deviation(world, {"message": "Hello"}, within=60)
    assert world.now() == AFTERLIFE


def test_a_deadline_must_come_neither_early_nor_late() -> None:
    world = StillWorld("c")
    world.scale = 0.1
    world.at(2.0, lambda: world.conversations["c"].end("fin", 2.0))
    told = deviation(world, {"end": ["fin"]}, deadline=30, not_before=True)
    assert "early" in told.got
    assert world.rests == [True]
    world = StillWorld("c")
    world.scale = 0.1
    deviation(world, {"end": ["fin"]}, deadline=30)
    assert world.now() == 3.0 + SLACK


def test_a_deadline_that_does_not_scale_is_added() -> None:
    world = StillWorld("c")
    world.scale = 0.1
    world.at(7.1, lambda: world.conversations["c"].end("fin", 7.1))
    assert one(world, {"end": ["fin"]}, deadline=0, plus=7, not_before=True)


def test_all_in_any_order() -> None:
    world = StillWorld("a", "b")
    world.said(REPORT, on="b")
    world.at(1.0, lambda: world.said(Abort(reason="x"), on="a"))
    found = waiting(world).all_of(
        {"all": [{"message": "Abort", "on": "a"}, {"message": "RankExited", "on": "b"}]}
    )
    assert [pattern["on"] for pattern, _ in found] == ["b", "a"]


def test_all_of_them_once() -> None:
    world = StillWorld("c")
    world.said(REPORT)
    world.said(REPORT)
    step = {"all": [{"message": "RankExited"}, {"message": "Abort"}]}
    with pytest.raises(Deviation) as caught:
        list(waiting(world).all_of(step))
    assert "Abort" in caught.value.expected


def test_quiet_is_broken_by_anything() -> None:
    world = StillWorld("a", "b")
    waiting(world).quiet({"quiet": 0.5, "on": ["a", "b"]})
    assert world.now() == 0.5
    world.at(0.6, lambda: world.said(REPORT, on="b"))
    with pytest.raises(Deviation, match="expected nothing more"):
        waiting(world).quiet({"quiet": 0.5, "on": ["a", "b"]})


def test_processes_come_up_and_end() -> None:
    world = StillWorld()
    child = Child(name="0", up=0.0, facts={"env": {"A": "1"}, "cwd": "/x"})
    world.children = {"0": [child]}
    told = waiting(world)
    told.one_of({"await": [{"up": 0, "facts": {"env.A": "1", "env.B": None, "cwd": "/x"}}]})
    child.down = 1.0
    told.one_of({"await": [{"down": 0}]})
    again = Child(name="0", up=2.0, down=3.0)
    world.children["0"].append(again)
    # Who only waits for the end has not asked when it came up.
    told.one_of({"await": [{"down": 0}]})


def test_a_process_that_found_something_else() -> None:
    world = StillWorld()
    world.children = {"relay": [Child(name="relay", up=0.0, facts={"env": {}})]}
    told = deviation(world, {"up": "relay", "facts": {"env.A": "1"}})
    assert 'env.A: expected "1", got null' in told.got.replace("'1'", '"1"')


def test_lines_are_searched_and_used_up() -> None:
    world = StillWorld()
    world.lines = [Line(at=0, stream="stderr", text="x"), Line(at=0, stream="stdout", text="a x")]
    assert one(world, {"line": "x$", "stream": "stdout"})
    assert [line.text for line in world.lines] == ["x"]
    assert "nothing" in deviation(world, {"line": "y"}).got


def test_a_dial_can_be_waited_for() -> None:
    world = StillWorld()
    world.at(1.0, lambda: setattr(world, "dials_waiting", 1))
    assert one(world, {"dial": "d"})


def test_what_a_pattern_says_of_itself() -> None:
    world = StillWorld("c")
    world.said(REPORT)
    notes: list[str] = []
    told = Awaiting(world, notes, lambda value: value)
    told.one_of({"await": [{"message": "RankExited", "verdict": "NON-STRICT", "note": "so"}]})
    assert told.verdicts == [Verdict.NON_STRICT]
    assert notes == ["so"]


class RunningWorld(StillWorld):
    """Its clock does not stand still while a case looks at it."""

    def now(self) -> float:
        self._now += 0.001
        return self._now


def test_nothing_is_awaited_long_of_a_target_that_has_ended() -> None:
    world = RunningWorld("c")
    world.exit = Exit(at=0.0, code=1)
    deviation(world, {"message": "Abort"})
    assert world.now() < AFTERLIFE + 0.1


def test_a_message_in_another_version() -> None:
    world = StillWorld("c")
    world.said(Abort(reason=""), wire=2)
    got = deviation(world, {"message": "Abort", "wire": 4}).got
    assert "expected wire 4, got wire 2" in got


def test_bytes_that_no_encoder_should_write() -> None:
    world = StillWorld("c")
    world.conversations["c"].feed(_with_trailing(), 0.0)
    assert "no encoder" in deviation(world, {"message": "Abort", "canonical": True}).got


def _with_trailing() -> bytes:
    from joinproto import codec
    from tests.support.conformance import SESSION

    payload = codec.encode_payload(Abort(reason=""), wire=4) + b"\0"
    return codec.encode_frame(payload, key=SESSION, wire=4)


def test_http_is_read_whole() -> None:
    world = StillWorld("h", raw=True)
    reply = b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}'
    world.conversations["h"].feed(reply[:30], 0.0)
    world.at(0.1, lambda: world.conversations["h"].feed(reply[30:], 0.1))
    assert one(world, {"http": {"status": 200, "json": {"a": 1}}}, on="h")
    world.conversations["h"].feed(reply, 0.2)
    told = deviation(world, {"http": {"status": 404, "json": {"a": 2}}}, on="h")
    assert "status: expected 404" in told.got
    assert "a: expected 2" in told.got


def test_what_is_no_http() -> None:
    world = StillWorld("h", raw=True)
    world.conversations["h"].feed(b"\0\1\r\n\r\n", 0.0)
    assert "no HTTP reply" in deviation(world, {"http": {"status": 200}}, on="h").got
    world = StillWorld("h", raw=True)
    world.conversations["h"].end("fin", 0.0)
    assert "end of the stream" in deviation(world, {"http": {"status": 200}}, on="h").got


def test_the_next_event_whatever_it_is() -> None:
    world = StillWorld("c")
    told = waiting(world)
    assert told.next_on("c", 1.0) is None
    world.said(Accept(ranks=(0,), formation_wait_secs=1))
    assert isinstance(told.next_on("c", 1.0), Said)
