"""What bytes hold, as the HTML report shows it beside them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from joinproto.codec import encode, encode_frame
from joinproto.conformance.reports.wire import MOST_FRAMES, Direction
from joinproto.grammar import JOIN_MAGIC
from joinproto.keys import OPEN, Salt
from joinproto.messages import Abort, Hello, RankExited

HELLO = Hello(host="a|b", local_devices=(0, 1), gpus=("g", "h"))
FRAME = encode(HELLO, key=OPEN, wire=4)
EXITED = encode(RankExited(rank=3, code=-9), key=Salt(bytes(range(16))), wire=4)


def test_a_dial_and_its_hello() -> None:
    lines = Direction().read(JOIN_MAGIC + FRAME).splitlines()
    assert lines[0].startswith("magic of the channel ")
    assert lines[1] == f"frame of wire 4, kind 7 (Join), payload of {len(FRAME) - 24} bytes"
    assert lines[2] == f"  tag {FRAME[8:16].hex()}"
    assert lines[3:7] == [
        "  Hello",
        "    host = 'a|b'",
        "    local_devices = (0, 1)",
        "    gpus = ('g', 'h')",
    ]
    assert f"    dataset_sig = {HELLO.dataset_sig.hex()}" in lines


def test_a_frame_in_several_pieces_is_told_with_the_last() -> None:
    direction = Direction()
    whole = Direction().read(FRAME)
    assert [direction.read(part) for part in (FRAME[:3], FRAME[3:30], FRAME[30:])] == [
        "",
        "",
        whole,
    ]
    assert "RankExited" in direction.read(EXITED)


def test_what_cannot_be_decoded_is_told_and_what_follows_a_bad_header_is_not() -> None:
    direction = Direction()
    broken = encode_frame(b"\0\0\0\0\xff", key=OPEN, wire=4)
    assert "  not to be decoded in Hello.libtorch: " in direction.read(broken)
    assert "Hello" in direction.read(FRAME)
    assert direction.read(b"x" * 24) == "no further frame: 0x78787878 is not a frame's magic"
    assert direction.read(FRAME) == ""


def test_after_bytes_that_the_record_lacks_nothing_is_read() -> None:
    direction = Direction()
    assert "Hello" in direction.read(FRAME, whole=False)
    assert direction.read(FRAME) == ""


def test_a_frame_of_another_channel_is_not_decoded() -> None:
    other = encode_frame(b"abc", key=OPEN, wire=4, kind=1)
    assert [line.partition("(")[0] for line in Direction().read(other).splitlines()] == [
        "frame of wire 4, kind 1 ",
        f"  tag {other[8:16].hex()}",
    ]


def test_http_is_text() -> None:
    direction = Direction()
    assert direction.read(b"GET / HTTP/1.1\r\n") == "GET / HTTP/1.1\r\n"
    assert direction.read(b"\xff\r\n") == "\\xff\r\n"


def test_too_much_is_counted() -> None:
    shown = Direction().read(EXITED * (MOST_FRAMES + 5))
    assert shown.count("RankExited") == MOST_FRAMES
    assert shown.endswith("\n5 more frames")
    long = Direction().read(encode(Abort(reason="x" * 1000), key=OPEN, wire=4))
    assert "more characters)" in long
    assert len(long) < 700


@settings(max_examples=50)
@given(st.lists(st.binary(max_size=60) | st.sampled_from((FRAME, EXITED, JOIN_MAGIC))))
def test_any_bytes_can_be_read(parts: list[bytes]) -> None:
    direction = Direction()
    for part in parts:
        direction.read(part).encode()
