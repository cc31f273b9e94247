"""codec: messages to bytes and back, by vectors, by hand and by chance."""

from __future__ import annotations

import hashlib
import hmac
import re
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from joinproto import codec, grammar
from joinproto.codec import Decoded, Note, decode_payload, encode, encode_frame, encode_payload
from joinproto.errors import DecodeError, InvalidMessage, Stage
from joinproto.framing import Frame, Framer
from joinproto.grammar import WIRES
from joinproto.keys import OPEN, Salt
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
from tests.support.vectors import LENIENT, VECTORS, Vector

KEY = Salt(bytes(range(16)))
MIB = 1024 * 1024

PLACES = st.integers(0, 2**20)
"""Where in something of a size that is not known yet: taken modulo it."""

EXITED = RankExited(rank=5, code=0)
EXITED_PAYLOAD = b"\x04\x05\x00"


def frame_of(data: bytes) -> Frame:
    """The first frame of a stream."""
    framer = Framer()
    framer.feed(data)
    frame = framer.next_frame()
    assert frame is not None
    return frame


def read(data: bytes, key: Salt) -> Decoded:
    """What the first frame says, its tag checked first, as every reader must."""
    frame = frame_of(data)
    codec.check_tag(frame.kind, frame.payload, frame.tag, key)
    return decode_payload(frame.payload, wire=frame.wire)


# -- vectors ----------------------------------------------------------------------------------

VALID = [vector for vector in VECTORS if vector.verdict == "valid"]
OTHER_KIND = [vector for vector in VECTORS if vector.verdict == "other-kind"]
REFUSED = [vector for vector in VECTORS if vector.stage in (Stage.TAG, Stage.PAYLOAD)]


@pytest.mark.parametrize("vector", VALID, ids=str)
def test_a_valid_vector_is_read(vector: Vector) -> None:
    decoded = read(vector.data, vector.key)
    assert decoded.message == vector.message
    if LENIENT in vector.flags:
        assert len(decoded.notes) == 1
    elif "inside this version" not in vector.name:
        assert decoded.notes == ()


@pytest.mark.parametrize("vector", [v for v in VALID if not v.flags], ids=str)
def test_a_valid_vector_is_written(vector: Vector) -> None:
    assert vector.message is not None
    written = encode(vector.message, key=vector.key, wire=vector.wire)
    assert written == vector.data[: vector.size]


@pytest.mark.parametrize("vector", REFUSED, ids=str)
def test_an_invalid_vector_is_refused_at_its_stage(vector: Vector) -> None:
    with pytest.raises(DecodeError) as raised:
        read(vector.data, vector.key)
    assert raised.value.stage is vector.stage
    assert (raised.value.offset is not None) == (vector.stage is Stage.PAYLOAD)


@pytest.mark.parametrize("vector", OTHER_KIND, ids=str)
def test_a_vector_of_another_kind_is_a_frame_of_that_kind(vector: Vector) -> None:
    frame = frame_of(vector.data)
    codec.check_tag(frame.kind, frame.payload, frame.tag, vector.key)
    assert 1 <= frame.kind <= 6
    # Its bytes are a message's, and still it says nothing on the join channel: see connection.
    assert encode_frame(frame.payload, key=vector.key, wire=vector.wire, kind=frame.kind) == (
        vector.data
    )


def test_the_vectors_leave_no_verdict_out() -> None:
    rest = [v for v in VECTORS if v not in VALID and v not in OTHER_KIND and v not in REFUSED]
    early = set(Stage) - {Stage.TAG, Stage.PAYLOAD}
    assert {v.stage for v in rest if v.verdict == "invalid"} == early
    assert {v.verdict for v in rest} == {"invalid", "end-of-stream"}


# -- tags -------------------------------------------------------------------------------------


def test_the_tag_covers_kind_length_and_payload() -> None:
    covered = b"\x07\0\0\0\x03\0\0\0" + EXITED_PAYLOAD
    tag = hmac.new(KEY.raw, covered, hashlib.sha256).digest()[:8]
    assert codec.tag_of(7, EXITED_PAYLOAD, KEY) == tag
    assert encode(EXITED, key=KEY, wire=2) == (
        b"\xc4\x17\x0d\xf1\x02\0\0\0" + tag + b"\x07\0\0\0\x03\0\0\0\x04\x05\x00"
    )


@pytest.mark.parametrize("bit", range(64))
def test_every_bit_of_the_tag_counts(bit: int) -> None:
    tag = bytearray(codec.tag_of(7, EXITED_PAYLOAD, KEY))
    assert codec.tag_matches(7, EXITED_PAYLOAD, bytes(tag), KEY)
    tag[bit // 8] ^= 1 << bit % 8
    assert not codec.tag_matches(7, EXITED_PAYLOAD, bytes(tag), KEY)


@pytest.mark.parametrize(
    ("kind", "payload", "key"),
    [
        (1, EXITED_PAYLOAD, KEY),
        (7, EXITED_PAYLOAD + b"\0", KEY),
        (7, EXITED_PAYLOAD[:-1], KEY),
        (7, b"\x04\x04\x00", KEY),
        (7, EXITED_PAYLOAD, OPEN),
    ],
    ids=["kind", "longer", "shorter", "payload", "key"],
)
def test_whatever_is_covered_changes_the_tag(kind: int, payload: bytes, key: Salt) -> None:
    tag = codec.tag_of(7, EXITED_PAYLOAD, KEY)
    with pytest.raises(DecodeError) as raised:
        codec.check_tag(kind, payload, tag, key)
    assert raised.value.stage is Stage.TAG
    right = codec.tag_of(kind, payload, key)
    assert right.hex() not in str(raised.value)


def test_bytes_cannot_be_moved_from_one_frame_to_the_next() -> None:
    one, two = b"\x02\x03abc", b"\x02\x03def"
    assert codec.tag_of(7, one, KEY) != codec.tag_of(7, one + two[:1], KEY)


def test_magic_and_version_are_outside_the_tag() -> None:
    # Why a connection holds on to the version that it began with.
    two, four = (encode(EXITED, key=KEY, wire=wire) for wire in (2, 4))
    assert two[8:] == four[8:]
    assert read(four, KEY).message == EXITED


def test_a_replayed_frame_passes_as_the_threat_model_says() -> None:
    data = encode(EXITED, key=KEY, wire=2)
    assert [read(data, KEY).message for _ in range(2)] == [EXITED, EXITED]


def test_a_bad_tag_is_told_before_a_bad_payload(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "decode_payload", pytest.fail)
    with pytest.raises(DecodeError, match="^tag: "):
        read(encode_frame(b"\xff", key=OPEN, wire=2), KEY)


# -- round trips ------------------------------------------------------------------------------


@given(strategies.frames())
def test_what_is_written_is_read(frame: strategies.KeyedFrame) -> None:
    assert read(frame.data, frame.key) == Decoded(message=frame.message)
    assert encode(frame.message, key=frame.key, wire=frame.wire) == frame.data


@given(strategies.messages())
def test_a_fitted_message_says_what_its_version_can(message: Message) -> None:
    assert codec.fitted(message, wire=max(WIRES)) == message
    said = codec.fitted(message, wire=2)
    if isinstance(message, Hello):
        message = replace(message, run_id=None, nccl_version=None, model_sig=None)
    assert said == message


# -- what cannot be said ----------------------------------------------------------------------

HELLO = Hello(host="h", local_devices=(0,))


@pytest.mark.parametrize(
    ("field", "value"), [("run_id", ""), ("nccl_version", (2, 27, 3)), ("model_sig", bytes(32))]
)
def test_a_field_that_the_version_lacks_is_not_dropped_in_silence(field: str, value: Any) -> None:
    hello = replace(HELLO, **{field: value})
    with pytest.raises(InvalidMessage, match=f"^{field} cannot be said in wire 2$"):
        encode(hello, key=KEY, wire=2)
    assert read(encode(hello, key=KEY, wire=4), KEY).message == hello


@pytest.mark.parametrize("wire", [0, 1, 3, 2**32 - 1])
def test_an_unknown_version_is_refused(wire: int) -> None:
    told = rf"^wire version {wire} is not known; spoken here: {re.escape(str(sorted(WIRES)))}$"
    with pytest.raises(InvalidMessage, match=told):
        encode(EXITED, key=KEY, wire=wire)
    with pytest.raises(InvalidMessage, match=told):
        codec.fitted(EXITED, wire=wire)
    with pytest.raises(InvalidMessage, match=told):
        decode_payload(EXITED_PAYLOAD, wire=wire)


def test_a_message_as_long_as_a_payload_may_be_is_the_longest() -> None:
    # One byte says which message, five how long its text is.
    longest = Abort(reason="a" * (16 * MIB - 6))
    assert len(encode(longest, key=KEY, wire=2)) == 16 * MIB + 24
    with pytest.raises(InvalidMessage, match="^Abort takes 16777217 bytes, more than 16777216$"):
        encode(Abort(reason="a" * (16 * MIB - 5)), key=KEY, wire=2)


# -- what cannot be read ----------------------------------------------------------------------

HELLO_PAYLOAD = b"\0\x01h\x01\0\x01\x01g\x01l" + bytes(32)


@pytest.mark.parametrize(
    ("payload", "field", "offset", "detail"),
    [
        (b"", "message", 0, "a number takes 1 bytes, 0 are left"),
        (b"\x06", "message", 0, "variant 6 is no message"),
        (b"\xfa", "message", 0, "variant 250 is no message"),
        (b"\xfd\x04" + bytes(7), "message", 0, "marker 253 in a number of 32 bits"),
        (b"\xff", "message", 0, "marker 255 in a number of 32 bits"),
        (b"\x04\x05", "RankExited.code", 2, "a number takes 1 bytes, 0 are left"),
        (b"\x05\x02\xff\xfe", "Abort.reason", 2, "a string that is not UTF-8"),
        (b"\x03\x00\x02", "WorldFormed.relay_spec_hex", 2, "option byte 2, which is neither 0 "),
        (b"\x01\x01\x05\x01\x03ab", "Accept.salt_hex", 5, "a string takes 3 bytes, 2 are left"),
        (b"\x01\x02\x05\xfd" + bytes(8), "Accept.ranks[1]", 3, "marker 253 in a number of 32 bi"),
        (b"\x00\x01h\x05\x00", "Hello.local_devices", 3, "5 entries announced, 1 bytes are left"),
        (b"\x00\x01h\x00\x02\x01g\x01\xc3", "Hello.gpus[1]", 8, "a string that is not UTF-8"),
        (HELLO_PAYLOAD[:-1], "Hello.dataset_sig", 10, "a byte array takes 32 bytes, 31 are left"),
    ],
)
def test_an_error_names_field_and_byte(
    payload: bytes, field: str, offset: int, detail: str
) -> None:
    with pytest.raises(DecodeError) as raised:
        decode_payload(payload, wire=2)
    error = raised.value
    assert (error.stage, error.field, error.offset) == (Stage.PAYLOAD, field, offset)
    assert error.detail.startswith(detail)


@given(strategies.frames(), PLACES)
def test_a_payload_cut_anywhere_is_refused(frame: strategies.KeyedFrame, place: int) -> None:
    payload, wire = frame.data[24:], frame.wire
    end = place % len(payload)
    with pytest.raises(DecodeError) as raised:
        decode_payload(payload[:end], wire=wire)
    assert raised.value.stage is Stage.PAYLOAD
    assert raised.value.offset is not None
    assert raised.value.offset <= end


class TestLeniency:
    """As published decoders do; noted, so that others can be told."""

    @pytest.mark.parametrize("behind", [b"\0", b"\xff" * 100, EXITED_PAYLOAD])
    def test_bytes_behind_the_value(self, behind: bytes) -> None:
        decoded = decode_payload(EXITED_PAYLOAD + behind, wire=2)
        assert decoded == Decoded(message=EXITED, notes=(Note.TRAILING_BYTES,))

    @pytest.mark.parametrize(
        "payload", [b"\xfb\x04\0\x05\0", b"\x04\xfc\x05\0\0\0\0", b"\x04\x05\xfb\0\0"]
    )
    def test_numbers_in_more_bytes_than_they_need(self, payload: bytes) -> None:
        decoded = decode_payload(payload, wire=2)
        assert decoded == Decoded(message=EXITED, notes=(Note.NON_MINIMAL_VARINT,))

    def test_both_each_told_once(self) -> None:
        decoded = decode_payload(b"\xfb\x04\0\xfb\x05\0\0\0\0", wire=2)
        assert decoded.notes == (Note.NON_MINIMAL_VARINT, Note.TRAILING_BYTES)

    @given(strategies.hellos())
    def test_a_hello_of_the_newer_wire_in_the_older(self, hello: Hello) -> None:
        decoded = decode_payload(encode_payload(hello, wire=4), wire=2)
        assert decoded.message == codec.fitted(hello, wire=2)
        assert decoded.notes == (Note.TRAILING_BYTES,)


# -- any bytes --------------------------------------------------------------------------------


def verdict(payload: bytes, wire: int) -> Message | Stage:
    try:
        return decode_payload(payload, wire=wire).message
    except DecodeError as raised:
        error = raised
    assert error.field
    assert error.offset in range(len(payload) + 1)
    return error.stage


@pytest.mark.parametrize("wire", WIRES)
@given(start=st.sampled_from([b"", b"\0", b"\1", b"\2", b"\3", b"\4", b"\5"]), rest=st.binary())
@example(start=b"\0", rest=b"\xfd" + b"\xff" * 8 + bytes(30))
@example(start=b"\1", rest=b"\xfd" + b"\xff" * 8)
@example(start=b"", rest=b"\x80" * 1000)
def test_any_bytes_give_a_message_or_our_error(wire: int, start: bytes, rest: bytes) -> None:
    got = verdict(start + rest, wire)
    if isinstance(got, Stage):
        assert got is Stage.PAYLOAD
    else:
        # What was read can be written, and says the same again.
        assert decode_payload(encode_payload(got, wire=wire), wire=wire).message == got


@given(strategies.frames(), PLACES, st.sampled_from([0, 1, 2, 250, 251, 252, 253, 254, 255]))
def test_a_byte_changed_anywhere_gives_a_message_or_our_error(
    frame: strategies.KeyedFrame, place: int, byte: int
) -> None:
    payload = bytearray(frame.data[24:])
    payload[place % len(payload)] = byte
    assert isinstance(verdict(bytes(payload), frame.wire), Message | Stage)


HOSTILE = {
    "a string of 2^64-1 bytes": b"\x05\xfd" + b"\xff" * 8,
    "a string of 2^63 bytes in a short payload": b"\x05\xfd" + bytes(7) + b"\x80" + bytes(20),
    "2^32-1 labels": b"\0\x01h\0\xfc" + b"\xff" * 4 + bytes(MIB),
    "2^64-1 ranks": b"\x01\xfd" + b"\xff" * 8 + bytes(MIB),
    "as many labels as bytes": b"\0\x01h\0\xfc\0\0\x10\0" + bytes(MIB),
    "a megabyte of 0x80": b"\x80" * MIB,
    "a megabyte of 0xfb": b"\0" + b"\xfb" * MIB,
    "strings of one byte that never end": b"\0\x01h\0\xfc\0\0\1\0" + b"\x01a" * 65_535,
    "ranks up to the limit, then nothing": b"\x01\xfc\0\0\1\0" + bytes(65_536),
    "one long string, not UTF-8 at its end": b"\x05\xfc\0\0\x10\0" + b"a" * (MIB - 1) + b"\xff",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("wire", WIRES)
def test_work_stays_in_proportion(name: str, wire: int, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = 0

    def counted(*arguments: Any) -> bytes:
        nonlocal readings
        readings += 1
        return take(*arguments)

    take = grammar._take
    monkeypatch.setattr(grammar, "_take", counted)
    assert verdict(HOSTILE[name], wire) is Stage.PAYLOAD
    # A string takes two readings, its length and its bytes; a list one more in front.
    assert readings <= 2 * min(len(HOSTILE[name]), 65_536) + 10


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_memory_stays_in_proportion(name: str) -> None:
    payload = HOSTILE[name]
    tracemalloc.start()
    try:
        assert verdict(payload, max(WIRES)) is Stage.PAYLOAD
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # An entry of one byte on the wire is an object of some fifty in memory.
    assert peak <= 4 * len(payload) + 65_536 * 100 + MIB


@pytest.mark.slow
@pytest.mark.parametrize("character", ["a", "é", "🚀"])
def test_the_longest_message_takes_a_bounded_multiple_of_its_size(character: str) -> None:
    text = character * ((16 * MIB - 6) // len(character.encode()))
    payload = encode_payload(Reject(reason=text), wire=2)
    tracemalloc.start()
    try:
        assert decode_payload(payload, wire=2).message == Reject(reason=text)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= 10 * 16 * MIB


def test_what_is_read_is_of_the_right_types() -> None:
    decoded = decode_payload(HELLO_PAYLOAD, wire=2)
    assert decoded == Decoded(
        message=Hello(host="h", local_devices=(0,), gpus=("g",), libtorch="l")
    )
    accept = decode_payload(b"\x01\x02\x03\x04\x00\x3c", wire=2).message
    assert accept == Accept(ranks=(3, 4), salt_hex=None, formation_wait_secs=60)
    formed = decode_payload(b"\x03\x00\x01\x00", wire=2).message
    assert formed == WorldFormed(envelope_hex="", relay_spec_hex="")
