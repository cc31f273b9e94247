"""mutation: changes on each layer, all from one `Random`."""

from __future__ import annotations

from random import Random

import pytest

from joinproto.codec import check_tag, encode
from joinproto.errors import DecodeError
from joinproto.framing import Frame, Framer
from joinproto.fuzzing.mutation import Mutator
from joinproto.fuzzing.pieces import (
    BYTES,
    FRAME,
    SESSION,
    Step,
    read_script,
    units,
    write_script,
)
from joinproto.grammar import WIRES
from joinproto.keys import OPEN
from joinproto.messages import Hello

HELLO = encode(Hello(host="a", local_devices=(0, 1), gpus=("x", "y")), key=OPEN, wire=4)
TWO = HELLO + encode(Hello(host="b", local_devices=(0,)), key=SESSION, wire=2)
SCRIPT = write_script(3, [Step(BYTES, data=HELLO), Step(FRAME, data=b"\x05\x01a"), Step(9, 7)])


def frames(data: bytes) -> list[Frame]:
    """The frames of a stream up to what is none."""
    framer = Framer()
    framer.feed(data)
    found = []
    try:
        while frame := framer.next_frame():
            found.append(frame)
    except DecodeError:
        pass
    return found


def tagged(frame: Frame) -> bool:
    """Whether its tag is right under one of the keys."""
    for key in (OPEN, SESSION):
        try:
            check_tag(frame.kind, frame.payload, frame.tag, key)
            return True
        except DecodeError:
            continue
    return False


@pytest.mark.parametrize("how", ["stream", "script", "text", "raw", "stale", "fields", "frames"])
def test_all_follows_from_the_random(how: str) -> None:
    start = SCRIPT if how == "script" else TWO

    def made(seed: int) -> list[bytes]:
        change = getattr(Mutator(Random(seed), tokens=[b"token"]), how)
        return [change(start) for _ in range(100)]

    assert made(1) == made(1)
    assert made(1) != made(2)
    assert len(set(made(1))) > 30


@pytest.mark.parametrize("how", ["stream", "script", "text"])
def test_a_case_is_no_longer_than_it_may_be(how: str) -> None:
    change = getattr(Mutator(Random(3)), how)
    data = b""
    for _ in range(3000):
        data = change(data, 300)
        assert len(data) <= 300


def test_fields_are_changed_under_a_valid_tag() -> None:
    mutator = Mutator(Random(4))
    for _ in range(500):
        assert all(tagged(frame) for frame in frames(mutator.fields(TWO)))


def test_a_header_is_changed_under_the_tag_that_was_there() -> None:
    mutator = Mutator(Random(5))
    header, body = units(HELLO)[0]
    changed = [mutator.stale(HELLO) for _ in range(300)]
    assert sum(data[8:16] == header[8:16] for data in changed) > 200
    # The tag covers neither the version nor what stands behind the frame.
    found = [frame for data in changed for frame in frames(data)[:1]]
    assert all((each.kind, each.payload) == (7, body) for each in found if tagged(each))


def test_most_cases_get_past_the_tag() -> None:
    mutator = Mutator(Random(6), wires=(4,))
    cases = [frames(mutator.stream(HELLO)) for _ in range(1000)]
    assert sum(bool(case) and tagged(case[0]) for case in cases) > 500


@pytest.mark.parametrize("wire", WIRES)
def test_payloads_change_in_what_they_say(wire: int) -> None:
    mutator = Mutator(Random(7), wires=(wire,))
    payload = units(HELLO)[0].body
    made = {mutator.payload(payload, wire) for _ in range(2000)}
    # A length that is announced and never there, an option that is none, bytes behind the end.
    assert any(b"\xfd\x00\x00\x00\x00\x00\x01\x00\x00" in each for each in made)
    assert any(b"\xfd" + b"\xff" * 8 in each for each in made)
    assert any(each.startswith(payload) and each != payload for each in made)
    assert len(made) > 500


def test_a_payload_may_be_changed_by_others() -> None:
    body = units(HELLO)[0].body
    changed = Mutator(Random(8)).fields(HELLO, lambda payload, wire: payload + bytes((wire,)))
    (frame,) = frames(changed)
    assert frame.payload == body + b"\x04"
    assert tagged(frame)


def test_a_plain_script_has_texts_and_no_frames() -> None:
    mutator = Mutator(Random(9), tokens=[b"GET "], plain=True)
    data = write_script(0, [Step(BYTES, data=b"HEAD / HTTP/1.0")])
    made = [mutator.script(data) for _ in range(2000)]
    assert any(b"GET " in each for each in made)
    assert not any(b"\xc4\x17\x0d\xf1" in each or b"\xe3\x17\x0d\xf1" in each for each in made)
    assert not any(each.op == FRAME for case in made for each in read_script(case)[1])
