"""scale: one validated reading of the variable; a bad value is told and changes nothing (F1)."""

from __future__ import annotations

import pytest

from joinproto.runtime.scale import timeout_scale

VARIABLE = "FLODL_NET_TIMEOUT_SCALE"


def test_unset_is_one() -> None:
    assert timeout_scale({}) == (1.0, None)


@pytest.mark.parametrize(
    ("text", "scale"), [("1", 1.0), (" 2 ", 2.0), ("0.1", 0.1), ("1e3", 1000.0), ("2.5\n", 2.5)]
)
def test_a_good_value(text: str, scale: float) -> None:
    assert timeout_scale({VARIABLE: text}) == (scale, None)


@pytest.mark.parametrize(
    "text",
    ["nan", "inf", "1e309", "-1", "0", "", " ", "abc", "1,5", "1_0", "٣", "0.09", "1001", "\udcff"],
)
def test_a_bad_value_is_told_in_one_line(text: str) -> None:
    scale, warning = timeout_scale({VARIABLE: text})
    assert scale == 1.0
    assert warning is not None
    assert warning.startswith(f"{VARIABLE}: {text!r} is not ")
    assert warning.endswith("; using 1")
    assert "\n" not in warning
