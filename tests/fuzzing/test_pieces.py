"""pieces: streams and scripts come apart and together again, whatever they are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from joinproto.codec import encode
from joinproto.fuzzing.pieces import (
    BYTES,
    FRAME,
    Step,
    Unit,
    read_script,
    signed,
    stream_of,
    units,
    write_script,
)
from joinproto.keys import OPEN
from joinproto.messages import Hello

HELLO = encode(Hello(host="a", local_devices=(0, 1), gpus=("x", "y")), key=OPEN, wire=4)
SCRIPT = write_script(3, [Step(BYTES, data=HELLO), Step(FRAME, data=b"\x05\x01a"), Step(9, 7)])


def test_a_frame_is_signed_as_the_codec_does() -> None:
    (unit,) = units(HELLO)
    assert signed(unit.body, OPEN.raw, 4) == unit


@given(st.lists(st.just(HELLO) | st.binary(max_size=40) | st.just(HELLO[:30])))
def test_a_stream_is_put_together_again(parts: list[bytes]) -> None:
    data = b"".join(parts)
    assert stream_of(units(data)) == data


def test_frames_are_found_between_other_bytes() -> None:
    found = units(b"xy" + HELLO + b"z")
    assert [bool(unit.header) for unit in found] == [False, True, False]
    assert found[0] == Unit(b"", b"xy")


@given(st.binary())
def test_any_bytes_are_a_script(data: bytes) -> None:
    settings, steps = read_script(data)
    assert read_script(write_script(settings, steps)) == (settings, steps)


def test_a_script() -> None:
    settings, steps = read_script(SCRIPT)
    assert settings == 3
    assert steps == [Step(BYTES, data=HELLO), Step(FRAME, data=b"\x05\x01a"), Step(9, 7)]
    assert read_script(b"\x01\x00\xff\xffab") == (1, [Step(BYTES, data=b"ab")])
    assert read_script(b"\x01\x09") == (1, [Step(9, 0)])
