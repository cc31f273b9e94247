"""grammar: every scalar to the byte, and what is said of bytes that are none."""

from __future__ import annotations

import re
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from construct import Struct
from hypothesis import given
from hypothesis import strategies as st

from joinproto import grammar
from joinproto.grammar import (
    CHANNEL_MAGICS,
    I32,
    JOIN_MAGIC,
    KINDS,
    SIGNATURE,
    STR,
    U32,
    U64,
    WIRES,
    Exactly,
    Header,
    Octets,
    Option,
    ScalarError,
    Sequence,
    TagPrefix,
    Tuple,
    Varint,
)
from joinproto.messages import MESSAGES

U16 = Varint(2)
"""No message has one; a marker that is too wide for its field is told apart all the same."""


def parse(scalar: Any, data: bytes, notes: list[str] | None = None) -> Any:
    """What `scalar` reads from `data`, all of it."""
    stream = BytesIO(data)
    value = scalar.parse_stream(stream, notes=[] if notes is None else notes)
    assert stream.tell() == len(data)
    return value


def refusal(scalar: Any, data: bytes) -> ScalarError:
    with pytest.raises(ScalarError) as raised:
        scalar.parse_stream(BytesIO(data), notes=[])
    return raised.value


# -- the header -------------------------------------------------------------------------------


def test_the_magics() -> None:
    assert JOIN_MAGIC == b"\xe3\x17\x0d\xf1"
    assert CHANNEL_MAGICS == {
        b"\xe0\x17\x0d\xf1": "rendezvous",
        b"\xe1\x17\x0d\xf1": "data",
        b"\xe2\x17\x0d\xf1": "control",
        b"\xe3\x17\x0d\xf1": "join",
    }


def test_the_kinds() -> None:
    assert sorted(KINDS) == [1, 2, 3, 4, 5, 6, 7]
    names = [KINDS[kind] for kind in (1, 2, 3, 6, 7)]
    assert names == ["Control", "Timing", "Metrics", "Rendezvous", "Join"]
    assert grammar.JOIN_KIND == 7


def test_the_header() -> None:
    data = bytes.fromhex("c4170df1 02000000 0102030405060708 07000000 03000001".replace(" ", ""))
    header = {
        "magic": 0xF10D17C4,
        "version": 2,
        "tag": bytes(range(1, 9)),
        "kind": 7,
        "length": 0x01000003,
    }
    assert grammar.FRAME_MAGIC == 0xF10D17C4
    assert Header.build(header) == data
    parsed = Header.parse(data)
    assert {name: parsed[name] for name in header} == header


@given(st.binary(min_size=24, max_size=24))
def test_a_header_reads_in_one_go_as_its_declaration_does_field_by_field(data: bytes) -> None:
    parsed = Header.parse(data)
    field_by_field = Struct(*Header.subcons)
    assert parsed == field_by_field.parse(data)
    assert Header.build(parsed) == field_by_field.build(parsed) == data


def test_what_a_tag_covers_in_front_of_the_payload() -> None:
    assert TagPrefix.build({"kind": 7, "length": 258}) == bytes.fromhex("0700000002010000")


# -- numbers ----------------------------------------------------------------------------------

UNSIGNED = {
    0: "00",
    250: "fa",
    251: "fbfb00",
    300: "fb2c01",
    65_535: "fbffff",
    65_536: "fc00000100",
    2**32 - 1: "fcffffffff",
    2**32: "fd0000000001000000",
    2**64 - 1: "fdffffffffffffffff",
}

SIGNED = {
    0: "00",
    -1: "01",
    1: "02",
    -9: "11",
    -15: "1d",
    125: "fa",
    -126: "fbfb00",
    126: "fbfc00",
    137: "fb1201",
    143: "fb1e01",
    255: "fbfe01",
    2**31 - 1: "fcfeffffff",
    -(2**31): "fcffffffff",
}


@pytest.mark.parametrize(("value", "written"), UNSIGNED.items())
def test_an_unsigned_number(value: int, written: str) -> None:
    notes: list[str] = []
    assert U64.build(value).hex() == written
    assert parse(U64, bytes.fromhex(written), notes) == value
    assert not notes


@pytest.mark.parametrize(("value", "written"), SIGNED.items())
def test_a_signed_number(value: int, written: str) -> None:
    assert I32.build(value).hex() == written
    assert parse(I32, bytes.fromhex(written)) == value


@pytest.mark.parametrize(
    ("scalar", "data", "marker", "bits"),
    [
        (U16, "fc00000000", 252, 16),
        (U16, "fd0000000000000000", 253, 16),
        (U32, "fd0000000000000000", 253, 32),
        (I32, "fd0200000000000000", 253, 32),
        (U64, "fe" + "00" * 16, 254, 64),
        (U32, "fe" + "00" * 16, 254, 32),
        (U64, "ff", 255, 64),
        (U32, "ff00", 255, 32),
    ],
)
def test_a_marker_that_is_too_wide(scalar: Any, data: str, marker: int, bits: int) -> None:
    error = refusal(scalar, bytes.fromhex(data))
    assert str(error) == f"marker {marker} in a number of {bits} bits"
    assert error.offset == 0


def test_a_marker_narrower_than_its_field_is_fine() -> None:
    assert parse(U32, bytes.fromhex("fbffff")) == 65_535
    assert parse(U64, bytes.fromhex("fcffffffff")) == 2**32 - 1


@pytest.mark.parametrize(
    ("data", "offset", "text"),
    [
        ("", 0, "a number takes 1 bytes, 0 are left"),
        ("fb", 1, "a number with marker 251 takes 2 bytes, 0 are left"),
        ("fb00", 1, "a number with marker 251 takes 2 bytes, 1 are left"),
        ("fc000000", 1, "a number with marker 252 takes 4 bytes, 3 are left"),
        ("fd00000000000000", 1, "a number with marker 253 takes 8 bytes, 7 are left"),
    ],
)
def test_a_number_that_is_cut_off(data: str, offset: int, text: str) -> None:
    error = refusal(U64, bytes.fromhex(data))
    assert (str(error), error.offset) == (text, offset)


@pytest.mark.parametrize(
    ("data", "value"),
    [
        ("fb0000", 0),
        ("fbfa00", 250),
        ("fcfb000000", 251),
        ("fcffff0000", 65_535),
        ("fd0500000000000000", 5),
        ("fdffffffff00000000", 2**32 - 1),
    ],
)
def test_a_number_in_more_bytes_than_it_needs_is_noted(data: str, value: int) -> None:
    notes: list[str] = []
    assert parse(U64, bytes.fromhex(data), notes) == value
    assert len(notes) == 1


@given(st.integers(0, 2**64 - 1))
def test_an_unsigned_number_comes_back(value: int) -> None:
    notes: list[str] = []
    assert parse(U64, U64.build(value), notes) == value
    assert not notes


@given(st.integers(-(2**31), 2**31 - 1))
def test_a_signed_number_comes_back(value: int) -> None:
    assert parse(I32, I32.build(value)) == value


# -- strings, sequences, options --------------------------------------------------------------


@pytest.mark.parametrize(
    ("scalar", "value", "written"),
    [
        (STR, "", "00"),
        (STR, "hi", "026869"),
        (STR, "hö🚀", "0768c3b6f09f9a80"),
        (STR, "a\n\0", "03610a00"),
        (Octets(), (), "00"),
        (Octets(), (0, 250, 251, 255), "0400fafbff"),  # a u8 is a raw byte, never a varint
        (Sequence(U32), (), "00"),
        (Sequence(U32), (0, 251), "0200fbfb00"),
        (Sequence(STR), ("", "a"), "02000161"),
        (Exactly(3), b"\x01\x02\x03", "010203"),
        (Option(STR), None, "00"),
        (Option(STR), "", "0100"),
        (Option(U32), 7, "0107"),
        (Tuple(U32, U32, U32), (2, 27, 300), "021bfb2c01"),
    ],
)
def test_to_the_byte(scalar: Any, value: Any, written: str) -> None:
    assert scalar.build(value).hex() == written
    assert parse(scalar, bytes.fromhex(written)) == value


def test_lengths_grow_as_numbers_do() -> None:
    assert STR.build("a" * 250)[:2] == b"\xfaa"
    assert STR.build("a" * 251)[:4] == b"\xfb\xfb\x00a"
    assert Octets().build((7,) * 251)[:4] == b"\xfb\xfb\x00\x07"
    assert Sequence(U32).build((7,) * 251)[:4] == b"\xfb\xfb\x00\x07"


@pytest.mark.parametrize(
    ("scalar", "data", "offset", "text"),
    [
        (STR, "", 0, "a number takes 1 bytes, 0 are left"),
        (STR, "0361", 1, "a string takes 3 bytes, 1 are left"),
        (STR, "02fffe", 1, "a string that is not UTF-8"),
        (STR, "0361c3", 1, "a string takes 3 bytes, 2 are left"),
        (STR, "0261c3", 2, "a string that is not UTF-8"),
        (STR, "03eda080", 1, "a string that is not UTF-8"),  # a surrogate
        (STR, "02c0af", 1, "a string that is not UTF-8"),  # an overlong form
        (STR, "fd" + "ff" * 8, 9, f"a string takes {2**64 - 1} bytes, 0 are left"),
        (Octets(), "0300", 0, "3 entries announced, 1 bytes are left"),
        (Octets(), "fbffff00", 0, "65535 entries announced, 1 bytes are left"),
        (Sequence(STR), "0200", 0, "2 entries announced, 1 bytes are left"),
        (Sequence(U32), "fd0000000001000000" + "00" * 9, 0, "4294967296 entries announced, 9 "),
        (Sequence(U32), "0201fd" + "00" * 8, 2, "marker 253 in a number of 32 bits"),
        (Exactly(32), "00" * 31, 0, "a byte array takes 32 bytes, 31 are left"),
        (Option(STR), "", 0, "an option takes 1 bytes, 0 are left"),
        (Option(STR), "01", 1, "a number takes 1 bytes, 0 are left"),
        (Option(STR), "02", 0, "option byte 2, which is neither 0 nor 1"),
        (Option(STR), "ff00", 0, "option byte 255, which is neither 0 nor 1"),
        (Tuple(U32, U32, U32), "0102", 2, "a number takes 1 bytes, 0 are left"),
    ],
)
def test_what_is_refused(scalar: Any, data: str, offset: int, text: str) -> None:
    error = refusal(scalar, bytes.fromhex(data))
    assert str(error).startswith(text)
    assert error.offset == offset


@pytest.mark.parametrize("scalar", [Octets(), Sequence(U32), Sequence(STR)])
def test_a_sequence_ends_at_its_limit(scalar: Any) -> None:
    longest = b"\xfc\x00\x00\x01\x00" + bytes(65_536)
    assert len(parse(scalar, longest)) == 65_536
    error = refusal(scalar, b"\xfc\x01\x00\x01\x00" + bytes(65_537))
    assert str(error) == "65537 entries, more than 65536"
    assert error.offset == 0


def test_an_error_names_the_field_inside_its_message() -> None:
    fields = WIRES[2].payloads[0]
    error = refusal(fields, bytes.fromhex("01610003016101ff"))
    assert (error.field, error.offset) == ("gpus[1]", 7)


def test_an_error_outside_a_message_names_none() -> None:
    assert refusal(U32, b"").field == ""


# -- the rows ---------------------------------------------------------------------------------


def names(version: int) -> list[list[str]]:
    return [[field.name for field in payload.subcons] for payload in WIRES[version].payloads]


HELLO = ["host", "local_devices", "gpus", "libtorch", "dataset_sig"]
OTHERS = [
    ["ranks", "salt_hex", "formation_wait_secs"],
    ["reason"],
    ["envelope_hex", "relay_spec_hex"],
    ["rank", "code"],
    ["reason"],
]


def test_the_fields_of_wire_2() -> None:
    assert names(2) == [HELLO, *OTHERS]
    assert not WIRES[2].localized


def test_the_fields_of_wire_4() -> None:
    assert names(4) == [[*HELLO, "run_id", "nccl_version", "model_sig"], *OTHERS]
    assert WIRES[4].localized


@pytest.mark.parametrize("version", WIRES)
def test_a_row_is_listed_under_its_version_and_complete(version: int) -> None:
    assert WIRES[version].version == version
    assert len(WIRES[version].payloads) == len(MESSAGES)


def test_a_signature_is_thirty_two_raw_bytes() -> None:
    assert SIGNATURE.build(bytes(range(32))) == bytes(range(32))


def test_constructs_own_lenient_parsers_stand_nowhere() -> None:
    source = Path(grammar.__file__).read_text()
    imported = re.search(r"^ *from construct import (.*)$", source, re.MULTILINE)
    assert imported is not None
    assert imported[1] == "Bytes, Construct, ConstructError, Container, Int32ul, Struct"
