"""hexjson: what serde_json takes is taken, what it refuses is refused, and nothing else escapes."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joinproto.runtime.hexjson import (
    Field,
    array,
    boolean,
    decode_hex,
    nullable,
    number,
    read_record,
    read_value,
    string,
    whole,
    write_hex,
)

FIELDS = (
    Field("name", string),
    Field("port", whole(65_535), 0),
    Field("share", nullable(number), None),
    Field("on", boolean, False),
    Field("ids", array(whole(255)), ()),
)


@pytest.mark.parametrize(
    ("digits", "raw"),
    [("", b""), ("00fF", b"\x00\xff"), ("7b7d", b"{}"), ("ABCDEF", b"\xab\xcd\xef")],
)
def test_hex_of_either_case(digits: str, raw: bytes) -> None:
    assert decode_hex(digits) == raw


@pytest.mark.parametrize(
    "digits", ["0", "abc", "0g", "00 00", " 00", "00\n", "٣٣", "0x00", "--", "ÿÿ"]
)
def test_what_is_not_hex(digits: str) -> None:
    with pytest.raises(
        ValueError, match=r"^it (holds characters that are not|has an odd number of) hex"
    ):
        decode_hex(digits)


@pytest.mark.parametrize(
    ("raw", "record"),
    [
        (b'{"name":"n"}', ("n", 0, None, False, ())),
        (
            b'{"ids":[0,255],"on":true,"share":1,"port":65535,"name":""}',
            ("", 65_535, 1.0, True, (0, 255)),
        ),
        (b' \t\r\n["n" , 7 ]\n', ("n", 7, None, False, ())),
        (b'["n",7,0.5,true,[]]', ("n", 7, 0.5, True, ())),
        (
            b'{"n\\u0061me":"\\ud83d\\ude00\\u0000","share":null}',
            ("\U0001f600\0", 0, None, False, ()),
        ),
        (b'{"name":"n","share":-0}', ("n", 0, 0.0, False, ())),
        (b'{"name":"n","share":18446744073709551616}', ("n", 0, 2.0**64, False, ())),
        # What is ignored may be anything that is JSON, and more.
        (
            b'{"x":1,"x":"\xff\\ud800","y":{"name":1e999,"a":[],"a":[]},"name":"n"}',
            ("n", 0, None, False, ()),
        ),
        (b'{"name":"n","x":' + b"9" * 5000 + b"}", ("n", 0, None, False, ())),
    ],
)
def test_records_that_are_read(raw: bytes, record: tuple[object, ...]) -> None:
    assert tuple(read_record(raw, FIELDS).values()) == record


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "it is empty"),
        (b" ", "it is not JSON: Expecting value: line 1 column 2 (char 1)"),
        (b"null", "it is not a JSON object"),
        (b"7", "it is not a JSON object"),
        (b'"name"', "it is not a JSON object"),
        (b"[]", "name is missing"),
        (b"{}", "name is missing"),
        (b'["n",1,null,true,[],0]', "it is an array of 6; there are 5 fields"),
        (b'{"name":"n","name":"n"}', "name is given twice"),
        (b'{"name":"n","n\\u0061me":"n"}', "name is given twice"),
        (b'{"name":"n","\xff":0}', "it has a field whose name is not valid UTF-8"),
        (b'{"name":"n","\\ud800":0}', "it has a field whose name is not valid UTF-8"),
        (b'{"name":null}', "name must be a string"),
        (b'{"name":["n"]}', "name must be a string"),
        (b'{"name":"\xff"}', "name must be a string of valid UTF-8"),
        (b'{"name":"\\udc00\\ud800"}', "name must be a string of valid UTF-8"),
        (b'{"name":"n","on":1}', "on must be true or false"),
        (b'{"name":"n","on":null}', "on must be true or false"),
        (b'{"name":"n","share":true}', "share must be a finite number"),
        (b'{"name":"n","share":"1"}', "share must be a finite number"),
        (b'{"name":"n","share":1e999}', "share must be a finite number"),
        (b'{"name":"n","share":-' + b"9" * 5000 + b"}", "share must be a finite number"),
        (b'{"name":"n","ids":{}}', "ids must be an array"),
        (b'{"name":"n","ids":"all"}', "ids must be an array"),
        (
            b'{"name":"n","ids":[0,256]}',
            "ids must be an array, each entry a whole number from 0 to 255",
        ),
        (b'{"name":"n","share":NaN}', "it is not JSON: NaN"),
        (b'{"name":"n","x":-Infinity}', "it is not JSON: -Infinity"),
        (b'\xef\xbb\xbf["n"]', "it is not JSON: Unexpected UTF-8 BOM"),
        (b'["n"] x', "it is not JSON: Extra data"),
        (b'["n"]\xff', "it is not JSON: Extra data"),
        (b'["n",]', "it is not JSON: Expecting value"),
        (b'["n\n"]', "it is not JSON: Invalid control character"),
        (b'["\\x"]', "it is not JSON: Invalid \\escape"),
        (b"[" * 200_000, "it is nested too deeply"),
        (b'{"x":' * 200_000, "it is nested too deeply"),
    ],
)
def test_records_that_are_refused(raw: bytes, why: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - compared as a whole below
        read_record(raw, FIELDS)
    assert str(caught.value).startswith(why)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "digits", ["-1", "65536", "1.0", "1e1", "-0", "true", '"1"', "null", "[1]", "9" * 5000]
)
def test_what_is_no_whole_number(digits: str) -> None:
    with pytest.raises(ValueError, match=r"^port must be a whole number from 0 to 65535$"):
        read_record(b'{"name":"n","port":%s}' % digits.encode(), FIELDS)


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b'{"a":1,"a":[true,null,"\xc3\xa9"]}', {"a": [True, None, "é"]}),
        (b"18446744073709551615", 2**64 - 1),
        (b"18446744073709551616", 2.0**64),
        (b"-9223372036854775808", -(2**63)),
        (b"-9223372036854775809", -(2.0**63)),
        (b"-0", -0.0),
    ],
)
def test_values_that_are_read(raw: bytes, value: object) -> None:
    read = read_value(raw)
    assert read == value
    assert type(read) is type(value)
    assert read_value(decode_hex(write_hex(read))) == value


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "it is empty"),
        (b'"\xff"', "it is not UTF-8 at byte 1"),
        (b"1e999", "it holds a number that is out of range"),
        (b"9" * 5000, "it holds a number that is out of range"),
        (b"NaN", "it is not JSON: NaN"),
        (b"{", "it is not JSON: "),
        (b"[" * 200_000, "it is nested too deeply"),
    ],
)
def test_values_that_are_refused(raw: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=r"^" + why):
        read_value(raw)


def test_what_cannot_be_written() -> None:
    deep: list[object] = []
    for _ in range(200_000):
        deep = [deep]
    with pytest.raises(ValueError, match=r"^it is nested too deeply$"):
        write_hex(deep)
    with pytest.raises(ValueError, match=r"^it holds a string with a lone surrogate$"):
        write_hex({"a": "\ud800"})
    with pytest.raises(ValueError, match=r"^it holds a number that is out of range$"):
        write_hex([float("nan")])


@given(st.binary() | st.text().map(str.encode))
def test_any_bytes_give_a_value_or_a_value_error(raw: bytes) -> None:
    with suppress(ValueError):
        read_value(raw)
    with suppress(ValueError):
        read_record(raw, FIELDS)
