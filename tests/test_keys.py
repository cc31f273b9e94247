"""keys: a salt is read strictly and never shows."""

from __future__ import annotations

import traceback

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joinproto.errors import ConfigError
from joinproto.keys import OPEN, Salt

RAW = bytes(range(16))
HEX = "000102030405060708090a0b0c0d0e0f"


def test_a_salt_is_its_bytes() -> None:
    salt = Salt(RAW)
    assert (salt.raw, salt.hex()) == (RAW, HEX)


def test_later_changes_of_a_buffer_do_not_reach_it() -> None:
    buffer = bytearray(RAW)
    salt = Salt(buffer)  # type: ignore[arg-type]  # what a reader may hand over
    buffer[0] = 255
    assert salt.raw == RAW


@pytest.mark.parametrize("size", [0, 15, 17, 32])
def test_a_salt_has_sixteen_bytes(size: int) -> None:
    with pytest.raises(ConfigError, match=rf"16 bytes \(32 hex digits\), not {size}$") as raised:
        Salt(bytes(size))
    assert raised.value.fault == "salt"


def test_open_admission_is_sixteen_zeros() -> None:
    assert OPEN.raw == bytes(16)


class TestFromHex:
    @pytest.mark.parametrize("text", [HEX, HEX.upper(), f"{HEX}\n", f" \t{HEX}\r\n"])
    def test_a_good_one(self, text: str) -> None:
        assert Salt.from_hex(text) == Salt(RAW)

    @pytest.mark.parametrize("text", ["", " ", "\n"])
    def test_an_empty_one(self, text: str) -> None:
        with pytest.raises(ConfigError, match="^the salt is empty; it is 32 hex digits$"):
            Salt.from_hex(text)

    @pytest.mark.parametrize(
        "text",
        [
            "s3cret",
            f"0x{HEX[2:]}",
            f"{HEX[:16]} {HEX[16:]}",  # bytes.fromhex would skip the space
            f"{HEX[:16]}\n{HEX[16:]}",
            f"{HEX[:-1]}g",
            f"{HEX[:-1]}٣",  # a digit of another script
            HEX[:-1],
            HEX[:-2],
            f"{HEX}00",
            "ü" * 32,
        ],
    )
    def test_a_bad_one_is_refused_and_not_repeated(self, text: str) -> None:
        with pytest.raises(ConfigError) as raised:
            Salt.from_hex(text)
        assert raised.value.fault == "salt"
        told = "".join(traceback.format_exception(raised.value))
        assert text not in told

    @given(st.text())
    def test_any_text_gives_a_salt_or_our_error(self, text: str) -> None:
        try:
            salt = Salt.from_hex(text)
        except ConfigError:
            return
        assert salt.hex() == text.strip().lower()

    @given(st.binary(min_size=16, max_size=16))
    def test_what_is_written_is_read(self, raw: bytes) -> None:
        assert Salt.from_hex(Salt(raw).hex()).raw == raw


class TestSecrecy:
    def test_it_shows_nowhere_of_itself(self) -> None:
        salt = Salt(RAW)
        for shown in (repr(salt), str(salt), f"{salt}", f"{[salt]}", f"{salt!r}"):
            assert "hidden" in shown
            assert HEX not in shown
            assert repr(RAW) not in shown

    def test_it_has_no_attributes_that_a_dump_would_show(self) -> None:
        assert not hasattr(Salt(RAW), "__dict__")


class TestEquality:
    def test_by_bytes(self) -> None:
        assert Salt(RAW) == Salt(RAW)
        assert hash(Salt(RAW)) == hash(Salt(RAW))
        assert Salt(RAW) != OPEN

    def test_with_salts_alone(self) -> None:
        assert Salt(RAW) != RAW
        assert Salt(RAW) != HEX
