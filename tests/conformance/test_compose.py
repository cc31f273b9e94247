from __future__ import annotations

import json
from typing import Any

import pytest

from joinproto import codec
from joinproto.conformance import compose
from joinproto.conformance.compose import Member
from joinproto.framing import Framer
from joinproto.grammar import JOIN_KIND
from joinproto.keys import OPEN
from joinproto.messages import Abort, Accept, Hello, Message, RankExited, Reject, WorldFormed
from tests.support.conformance import KEYS, OTHER, SESSION

ADDRESS = ("127.0.0.1", 29400)
MEMBER = Member(host="a", devices=(4, 6), ranks=(2, 3))


def made(name: str, **given: Any) -> Message:
    return compose.message_of(name, given, MEMBER, KEYS, ADDRESS)


def test_what_a_case_leaves_out_is_as_usual() -> None:
    assert made("Hello") == Hello(host="a", local_devices=(0,))
    accept = Accept(ranks=(0, 1), salt_hex=SESSION.hex(), formation_wait_secs=60)
    assert made("Accept") == accept
    assert made("RankExited") == RankExited(rank=2, code=0)
    assert isinstance(made("Reject"), Reject)
    assert isinstance(made("Abort"), Abort)


def test_what_it_gives_is_taken() -> None:
    hello = made("Hello", local_devices=[1, 2], dataset_sig={"bytes": "ab" * 32})
    assert hello == Hello(host="a", local_devices=(1, 2), dataset_sig=b"\xab" * 32)


def test_the_envelope_is_that_of_the_host() -> None:
    formed = made("WorldFormed")
    assert isinstance(formed, WorldFormed)
    envelope = json.loads(bytes.fromhex(formed.envelope_hex))
    assert envelope["worker"]["ranks"] == [2, 3]
    assert envelope["salt"] == SESSION.hex()
    assert formed.relay_spec_hex is None
    formed = made("WorldFormed", relay_spec_hex=True)
    assert isinstance(formed, WorldFormed)
    assert json.loads(bytes.fromhex(formed.relay_spec_hex or ""))["salt_hex"] == SESSION.hex()


def parse(data: bytes) -> Any:
    framer = Framer(wires=frozenset((2, 3, 4)))
    framer.feed(data)
    return framer.next_frame()


def test_a_frame_as_it_should_be() -> None:
    frame = parse(compose.frame_of(b"abc", SESSION, 2, {}))
    assert (frame.wire, frame.kind, frame.payload) == (2, JOIN_KIND, b"abc")
    assert codec.tag_matches(frame.kind, frame.payload, frame.tag, SESSION)


def test_what_can_be_wrong_with_one() -> None:
    right = compose.frame_of(b"abc", SESSION, 2, {})
    assert compose.frame_of(b"abc", SESSION, 2, {"magic": 1})[:4] == b"\1\0\0\0"
    assert parse(compose.frame_of(b"abc", SESSION, 2, {"wire": 3})).wire == 3
    assert parse(compose.frame_of(b"abc", SESSION, 2, {"kind": 1})).kind == 1
    flipped = compose.frame_of(b"abc", SESSION, 2, {"tag": "flipped"})
    assert [a ^ b for a, b in zip(right, flipped, strict=True) if a != b] == [1]
    assert parse(compose.frame_of(b"abc", SESSION, 2, {"tag": "11" * 8})).tag == b"\x11" * 8
    assert compose.frame_of(b"abc", SESSION, 2, {"length": 2**24 + 1})[20:24] == b"\1\0\0\1"
    assert parse(compose.frame_of(b"abc", SESSION, 2, {"behind": "00"})).payload == b"abc\0"
    assert compose.frame_of(b"abc", SESSION, 2, {"cut": 10}) == right[:10]


def test_keys_by_name() -> None:
    names = ("join", "session", "zero", "other")
    assert [compose.key_named(name, KEYS) for name in names] == [OPEN, SESSION, OPEN, OTHER]


@pytest.mark.parametrize(
    ("given", "data"),
    [
        ("00ff", b"\x00\xff"),
        ({"repeat": ["ab", 3]}, b"\xab" * 3),
        (["01", {"repeat": ["00", 2]}], b"\x01\0\0"),
    ],
)
def test_bytes_of_a_case(given: Any, data: bytes) -> None:
    assert compose.bytes_of(given) == data


def test_a_payload_holds_what_its_version_can_say() -> None:
    hello = Hello(host="a", local_devices=(0,), run_id="r")
    assert len(compose.payload_of(hello, 2)) < len(compose.payload_of(hello, 4))
