"""Text of a target in reports: nothing steers, nothing is unseen, nothing is lost."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given

from joinproto.conformance.reports.text import hexdump, one_line, visible
from tests.support import records


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("", ""),
        ("plain é 世界 🙂", "plain é 世界 🙂"),
        ("a\n\tb", "a\n\tb"),
        ("a\r\nb", "a\\r\nb"),
        ("\x00\x1b[0m\x7f\x9b", r"\x00\x1b[0m\x7f\x9b"),
        ("\u202e\u200b\u2028\ufeff", r"\u202e\u200b\u2028\ufeff"),
        ("\ud800\ufffe\uffff\ufdd0\U0001ffff", r"\ud800\ufffe\uffff\ufdd0\U0001ffff"),
        (r"\x00", r"\x00"),
    ],
)
def test_what_cannot_be_seen_is_spelt_out(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(records.text)
def test_the_rest_can_be_seen_and_written(text: str) -> None:
    shown = visible(text)
    assert not {unicodedata.category(char) for char in shown} & {"Cf", "Cs", "Zl", "Zp"}
    assert {char for char in shown if unicodedata.category(char) == "Cc"} <= {"\n", "\t"}
    shown.encode()


@given(records.text)
def test_one_line_is_one(text: str) -> None:
    assert len(one_line(text).splitlines()) <= 1
    assert len(one_line(text, 10)) <= 10


def test_what_is_left_out_of_a_line_shows() -> None:
    assert one_line("\nabcdef\n", 6) == "abcdef"
    assert one_line("abcdefg", 6) == "abcde…"
    assert one_line("a\nb") == r"a\nb"


def test_a_hexdump() -> None:
    assert hexdump(b"") == ""
    assert hexdump(bytes(range(0x5C, 0x6E))).splitlines() == [
        "0000  5c 5d 5e 5f 60 61 62 63  64 65 66 67 68 69 6a 6b  \\]^_`abcdefghijk",
        "0010  6c 6d                                             lm",
    ]
    assert hexdump(b"\x00\xff~\x7f") == f"0000  {'00 ff 7e 7f':<48}  ··~·"
