from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from joinproto import codec
from joinproto.conformance.acts import OTHER_DIALS
from joinproto.conformance.verdicts import Verdict
from joinproto.conformance.world import Child, Exit, Line
from joinproto.grammar import JOIN_KIND, JOIN_MAGIC
from joinproto.keys import OPEN
from joinproto.messages import Abort, Accept, Hello, RankExited, Reject
from tests.support.conformance import OTHER, SESSION, StillWorld, dial, played, sent

REPORT = RankExited(rank=0, code=0)


def test_hello_takes_the_dial_of_its_version() -> None:
    world = StillWorld(dialed=True)
    dial(world, Hello(host="target", local_devices=(0, 1)), wire=2)
    dial(world, Hello(host="target", local_devices=(0, 1)), wire=4)
    outcome = played(
        world,
        {"hello": "c", "fields": {"host": "$host", "local_devices": [0, 1]}},
        {"say": "Accept"},
    )
    assert outcome.verdict is Verdict.PASS
    assert world.done[:3] == [("accept", "c"), ("close", "c"), ("accept", "c")]
    accept = Accept(ranks=(0, 1), salt_hex=SESSION.hex(), formation_wait_secs=60)
    assert sent(world) == codec.encode(accept, key=OPEN, wire=4)


def test_a_target_of_another_version_is_unsupported() -> None:
    world = StillWorld(dialed=True)
    for _ in range(OTHER_DIALS):
        dial(world, Hello(host="target", local_devices=(0,)), wire=2)
    outcome = played(world, {"hello": "c"})
    assert outcome.verdict is Verdict.UNSUPPORTED
    assert "wire 2" in outcome.got


def test_a_target_that_ends_after_an_offer_in_another_version_is_unsupported() -> None:
    world = StillWorld(dialed=True)
    dial(world, Hello(host="target", local_devices=(0,)), wire=2)
    world.at(0.1, lambda: setattr(world, "exit", Exit(at=0.1, code=1)))
    assert played(world, {"hello": "c"}).verdict is Verdict.UNSUPPORTED


def test_a_hello_that_says_something_else() -> None:
    world = StillWorld(dialed=True)
    dial(world, Hello(host="b", local_devices=(0,)))
    outcome = played(world, {"hello": "c", "fields": {"host": "$host"}})
    assert outcome.got == "host: expected 'target', got 'b'"


def test_something_else_than_a_hello() -> None:
    world = StillWorld(dialed=True)
    world.dials_waiting = 1
    world.at(0.0, lambda: world.conversations["c"].feed(b"GET / HTTP/1.1", 0.0))
    assert "no message" in played(world, {"hello": "c"}).got


def test_a_case_about_the_fields_of_a_hello_says_nothing_without_one() -> None:
    world = StillWorld(dialed=True)
    world.dials_waiting = 1
    world.at(0.0, lambda: world.conversations["c"].feed(b"GET / HTTP/1.1", 0.0))
    outcome = played(world, {"hello": "c", "fields": {"host": "$host"}})
    assert outcome.verdict is Verdict.INCONCLUSIVE


def test_a_hello_as_no_encoder_writes_it() -> None:
    world = StillWorld(dialed=True)
    world.dials_waiting = 1
    payload = codec.encode_payload(Hello(host="a", local_devices=(0,)), wire=4) + b"\0"
    data = JOIN_MAGIC + codec.encode_frame(payload, key=OPEN, wire=4)
    world.at(0.0, lambda: world.conversations["c"].feed(data, 0.0))
    outcome = played(world, {"hello": "c", "canonical": True})
    assert outcome.expected == "Hello as an encoder writes it"


@pytest.mark.parametrize(("pause", "verdict"), [(0.5, Verdict.FAIL), (1.5, Verdict.PASS)])
def test_dials_that_come_too_soon(pause: float, verdict: Verdict) -> None:
    world = StillWorld()
    world.dials_waiting = 2
    steps = ({"accept": "a"}, {"wait": pause}, {"await": [{"dial": "b", "after": ["a", 1]}]})
    assert played(world, *steps).verdict is verdict


@pytest.mark.parametrize("ended", [True, False])
def test_no_dial(ended: bool) -> None:
    world = StillWorld()
    world.exit = Exit(at=0.0, code=2) if ended else None
    outcome = played(world, {"accept": "c", "within": 3})
    assert outcome.got == ("the target ended with code 2" if ended else "no dial within 3 s")


def test_dials_of_a_case() -> None:
    world = StillWorld()
    steps = ({"dial": "a"}, {"dial": "b", "channel": ""}, {"dial": "s", "times": 2})
    assert played(world, *steps, role="controller").verdict is Verdict.PASS
    dialed = [entry[1] for entry in world.done if entry[0] == "dial"]
    assert dialed == ["a", "b", "s0", "s1"]
    assert sent(world) == JOIN_MAGIC * 3


def test_an_honest_agent_is_accepted() -> None:
    world = StillWorld()
    accept = Accept(ranks=(0,), salt_hex=SESSION.hex(), formation_wait_secs=1)
    world.at(0.0, lambda: world.said(accept, on="h"))
    outcome = played(world, {"honest": "h"}, {"say": "RankExited", "on": "h"}, role="controller")
    assert outcome.verdict is Verdict.PASS
    assert sent(world).endswith(codec.encode(REPORT, key=SESSION, wire=4))


def test_what_is_wrong_on_purpose_changes_nothing_else() -> None:
    world = StillWorld("c")
    played(
        world,
        {"say": "Accept", "with": {"ranks": [7]}, "tag": "flipped"},
        {"say": "RankExited"},
    )
    assert sent(world).endswith(codec.encode(REPORT, key=SESSION, wire=4))


def test_frames_and_bytes() -> None:
    world = StillWorld("c")
    played(world, {"frame": "05", "behind": "00"}, {"frame": "05", "key": "other"}, {"send": "ff"})
    data = sent(world)
    assert data[24:26] == b"\5\0"
    assert data.endswith(b"\xff")
    assert len(data) == 26 + 25 + 1


def test_what_a_frame_says_counts_as_said() -> None:
    world = StillWorld("c")
    played(world, {"frame": "010107003c", "key": "join"}, {"say": "RankExited"})
    report = RankExited(rank=7, code=0)
    assert sent(world).endswith(codec.encode(report, key=SESSION, wire=4))


def test_what_is_held_goes_out_with_what_comes_next() -> None:
    world = StillWorld("c")
    played(world, {"send": "00", "hold": True}, {"send": "01", "hold": True}, {"send": "02"})
    assert [entry[2] for entry in world.done] == [b"\0\1\2"]


def test_the_session_key_is_that_of_the_connection() -> None:
    world = StillWorld("c")
    world.said(Accept(ranks=(0,), salt_hex=OTHER.hex(), formation_wait_secs=60))
    played(
        world,
        {"await": [{"message": "Accept"}]},
        {"say": "Hello", "with": {"host": "a"}, "key": "session"},
    )
    hello = Hello(host="a", local_devices=(0,))
    assert sent(world) == codec.encode(hello, key=OTHER, wire=4)


def test_pieces_are_sent_one_by_one() -> None:
    world = StillWorld("c")
    played(world, {"send": "00010203", "chunk": 2, "pause": 0.5})
    assert [entry[2] for entry in world.done] == [b"\0\1", b"\2\3"]
    assert world.now() == 0.5


def test_a_long_drip_lets_others_run() -> None:
    world = StillWorld("c")
    world.scale = 0.1
    played(world, {"send": "00010203", "chunk": 1, "pause": 10, "scaled": True})
    assert world.now() == 3.0
    assert world.rests == [True]


def test_no_more_pieces_for_whoever_has_hung_up() -> None:
    world = StillWorld("c")
    world.at(0.7, lambda: world.conversations["c"].end("fin", 0.7))
    played(world, {"send": "00010203", "chunk": 1, "pause": 0.5, "until_end": True})
    assert len(world.done) == 2


def test_acts_on_connections() -> None:
    world = StillWorld("c")
    played(world, {"half_close": "c"}, {"close": "c"}, {"reset": "c"}, {"listen": True})
    assert [entry[0] for entry in world.done] == ["half_close", "close", "reset", "listen"]


def test_time_passes() -> None:
    world = StillWorld()
    world.scale = 0.1
    played(world, {"wait": 2}, {"wait": 30, "scaled": True})
    assert world.now() == 5.0


def test_processes_are_told_what_to_do() -> None:
    world = StillWorld()
    world.children = {"0": [Child(name="0", up=0.0)]}
    assert played(world, {"rank": 0, "do": {"exit": 3}}).verdict is Verdict.PASS
    assert world.done == [("order", "0", {"exit": 3})]
    outcome = played(world, {"rank": "relay", "do": {"exit": 3}})
    assert outcome.got == "it never came up"


def test_all_and_quiet_and_dials_in_patterns() -> None:
    world = StillWorld("a", "b")
    world.said(Abort(reason="x"), on="a")
    world.said(Abort(reason="x"), on="b")
    world.dials_waiting = 1
    outcome = played(
        world,
        {"all": [{"message": "Abort", "on": "a"}, {"message": "Abort", "on": "b"}]},
        {"quiet": 0.1, "on": ["a", "b"]},
        {"await": [{"dial": "d"}]},
    )
    assert outcome.verdict is Verdict.PASS
    assert ("accept", "d") in world.done


def test_variables_are_filled_in_everywhere() -> None:
    world = StillWorld("c")
    world.said(Abort(reason="target"))
    wanted = {"reason": {"any_of": ["$host", "$port", "$address"]}}
    assert (
        played(world, {"await": [{"message": "Abort", "fields": wanted}]}).verdict is Verdict.PASS
    )


def test_the_session_in_other_spellings() -> None:
    world = StillWorld("c")
    texts = ["$SESSION", "$session_padded"]
    for text in texts:
        played(world, {"say": "Abort", "with": {"reason": text}})
    spellings = (SESSION.hex().upper(), f" {SESSION.hex()}\t\n")
    expected = (codec.encode(Abort(reason=text), key=SESSION, wire=4) for text in spellings)
    assert sent(world) == b"".join(expected)


def test_the_session_is_that_which_a_controller_gives_out() -> None:
    world = StillWorld("a", "c")
    world.said(Accept(ranks=(0,), salt_hex=OTHER.hex(), formation_wait_secs=60))
    reason = {"message": "Abort", "fields": {"reason": "$session"}}
    steps = [{"await": [{"message": "Accept", "fields": {"salt_hex": "$other"}}]}]
    steps += [{"await": [reason]}]
    world.at(0.0, lambda: world.said(Abort(reason=OTHER.hex())))
    assert played(world, *steps, role="controller").verdict is Verdict.PASS
    again = StillWorld("a")
    again.said(Abort(reason=SESSION.hex()), on="a")
    assert played(again, {"await": [{**reason, "on": "a"}]}).verdict is Verdict.PASS


def test_a_case_knows_the_tag_that_its_last_frame_should_have_had() -> None:
    world = StillWorld("c")
    frame = {"frame": "616263", "tag": "flipped"}
    right = codec.tag_of(JOIN_KIND, b"abc", SESSION).hex()
    world.at(0.0, lambda: world.lines.append(Line(at=0.0, stream="stderr", text=f"not {right}")))
    assert played(world, frame, {"await": [{"line": "$tag"}]}).verdict is Verdict.PASS


def test_the_session_of_another_connection_is_used_where_this_one_has_none() -> None:
    world = StillWorld("a", "c")
    world.said(Accept(ranks=(0,), salt_hex=OTHER.hex(), formation_wait_secs=60), on="a")
    steps = ({"await": [{"message": "Accept"}], "on": "a"}, {"frame": "", "key": "session"})
    assert played(world, *steps, role="controller").verdict is Verdict.PASS
    assert sent(world) == codec.encode_frame(b"", key=OTHER, wire=4)


@pytest.mark.parametrize(("second", "verdict"), [("no", Verdict.PASS), ("why", Verdict.FAIL)])
def test_the_reason_of_the_last_reject_is_known(second: str, verdict: Verdict) -> None:
    world = StillWorld("c")
    world.said(Reject(reason="no"))
    world.at(0.1, lambda: world.said(Reject(reason=second)))
    steps: list[Mapping[str, Any]] = [
        {"await": [{"message": "Reject"}]},
        {"await": [{"message": "Reject", "fields": {"reason": "$reason"}}]},
    ]
    assert played(world, *steps).verdict is verdict


@pytest.mark.parametrize(("seconds", "verdict"), [(290, Verdict.PASS), (580, Verdict.FAIL)])
def test_seconds_that_scale(seconds: int, verdict: Verdict) -> None:
    world = StillWorld("c")
    world.scale = 0.5
    world.said(Accept(ranks=(0,), salt_hex=SESSION.hex(), formation_wait_secs=seconds))
    accept = {"message": "Accept", "fields": {"formation_wait_secs": {"scaled": [560, 600]}}}
    assert played(world, {"await": [accept]}).verdict is verdict


def test_steps_that_are_repeated() -> None:
    world = StillWorld()
    played(world, {"repeat": 3, "do": [{"dial": "c", "channel": ""}, {"close": "c"}]})
    assert world.done == [("dial", "c"), ("close", "c")] * 3


def test_a_target_that_is_started_anew() -> None:
    world = StillWorld()
    played(world, {"restart": True}, role="controller")
    assert world.done == [("restart",)]
