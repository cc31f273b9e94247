"""limits: the published numbers, and the one scale for every deadline."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joinproto import limits
from joinproto.limits import connect_attempt, parse_scale, whole_seconds


def test_the_numbers_that_the_other_side_relies_on() -> None:
    assert limits.HEADER_BYTES == 24
    assert limits.TAG_BYTES == 8
    assert limits.SALT_BYTES == 16
    assert limits.SIGNATURE_BYTES == 32
    assert limits.MAX_PAYLOAD_BYTES == 16_777_216
    assert limits.MAX_DEVICES == 256
    assert limits.CONNECT_BUDGET == 60 * limits.CONNECT_PAUSE == 30
    assert (limits.WRITE_STALL, limits.JOIN_REPLY, limits.FORMATION_MARGIN) == (30, 30, 30)
    assert (limits.ROUTE, limits.HELLO) == (5, 10)
    assert (limits.JOIN_TIMEOUT, limits.MAX_JOIN_TIMEOUT) == (300, 600)


def test_every_timer_has_a_name_of_its_own() -> None:
    assert all(timer.value == timer.name.lower() for timer in limits.Timer)


class TestParseScale:
    @pytest.mark.parametrize(
        ("text", "scale"),
        [
            ("1", 1),
            (" 2 ", 2),
            ("\t2.5\n", 2.5),
            ("0.1", 0.1),
            ("1e3", 1000),
            ("+.5", 0.5),
        ],
    )
    def test_a_good_one(self, text: str, scale: float) -> None:
        assert parse_scale(text) == scale

    @pytest.mark.parametrize("text", ["", " ", "abc", "1,5", "1_0", "٣", "0x10", "1 2", "--1"])
    def test_no_number(self, text: str) -> None:
        with pytest.raises(ValueError, match="is not a number$") as raised:
            parse_scale(text)
        assert repr(text) in str(raised.value)

    @pytest.mark.parametrize(
        "text", ["nan", "inf", "-inf", "1e309", "-1", "0", "0.0999", "1000.001", "1e300"]
    )
    def test_out_of_range(self, text: str) -> None:
        with pytest.raises(ValueError, match=f"^'{text}' is not between 0.1 and 1000$"):
            parse_scale(text)

    @given(st.text() | st.floats().map(str))
    def test_any_text_gives_a_usable_scale_or_a_value_error(self, text: str) -> None:
        try:
            scale = parse_scale(text)
        except ValueError:
            return
        assert 0.1 <= scale <= 1000


class TestDeadlines:
    @pytest.mark.parametrize(
        ("base", "scale", "seconds"),
        [
            (30, 1, 30),
            (30, 0.1, 3),
            (5, 0.1, 1),  # 0.5 rounded up
            (5, 0.25, 2),  # 1.25 rounded up
            (0.2, 0.1, 1),  # at least one
            (0, 1, 1),
            (600, 1000, 600_000),
        ],
    )
    def test_whole_seconds(self, base: float, scale: float, seconds: float) -> None:
        assert whole_seconds(base, scale) == seconds

    @given(st.floats(0, 1e6), st.floats(0.1, 1000))
    def test_never_before_its_time_and_a_second_late_at_most(
        self, base: float, scale: float
    ) -> None:
        seconds = whole_seconds(base, scale)
        assert seconds == math.floor(seconds) >= 1
        assert max(base * scale, 1) <= seconds <= max(base * scale + 1, 1)

    @pytest.mark.parametrize(("scale", "seconds"), [(1, 3), (2, 6), (0.5, 1.5), (0.1, 1)])
    def test_one_dial(self, scale: float, seconds: float) -> None:
        assert connect_attempt(scale) == seconds
