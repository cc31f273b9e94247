from __future__ import annotations

from typing import Any

import pytest

from joinproto.conformance.match import at_path, differences, equals, shown
from joinproto.messages import Abort


def hexed(text: str) -> str:
    return text.encode().hex()


@pytest.mark.parametrize(
    ("wanted", "got"),
    [
        (1, 1),
        ("a", "a"),
        (None, None),
        ([0, 1], (0, 1)),
        ([], ()),
        ("00ff", b"\x00\xff"),
        ({"any_of": [1, 2]}, 2),
        ({"any_of": [[0], [1]]}, (1,)),
        ({"less": 0}, -9),
        ({"between": [1, 3]}, 3),
        ({"like": "^to "}, "to do"),
        ({"not": 5}, 6),
        ({"length": 32}, "0" * 32),
        ({"absent": True}, None),
        ({"absent": False}, 0),
        ({"json": {"a.b": 1, "c": None}}, hexed('{"a": {"b": 1}}')),
        ({"json": {"a.1": {"like": "x"}}}, hexed('{"a": ["", "xx"]}')),
    ],
)
def test_a_value_that_matches(wanted: Any, got: Any) -> None:
    assert equals(wanted, got)


@pytest.mark.parametrize(
    ("wanted", "got"),
    [
        (1, 2),
        (1, True),
        (True, 1),
        (0, None),
        ([0], (0, 1)),
        ([0, 1], (1, 0)),
        ("00", b"\x01"),
        ({"any_of": [1, 2]}, 3),
        ({"less": 0}, 0),
        ({"less": 0}, None),
        ({"less": 0}, "-1"),
        ({"less": 2}, True),
        ({"between": [1, 3]}, "2"),
        ({"between": [1, 3]}, 4),
        ({"between": [1, 3]}, None),
        ({"like": "a"}, None),
        ({"not": 5}, 5),
        ({"length": 1}, None),
        ({"absent": True}, ""),
        ({"json": {"a": 1}}, "zz"),
        ({"json": {"a": 1}}, hexed("[")),
        ({"json": {"a": 1}}, hexed('{"a": true}')),
        ({"json": {"a.b.c": 1}}, hexed('{"a": {"b": 2}}')),
        ({"json": {"a.2": 1}}, hexed('{"a": [1]}')),
        ({"unknown": 1}, 1),
    ],
)
def test_a_value_that_does_not_match(wanted: Any, got: Any) -> None:
    assert not equals(wanted, got)


def test_each_difference_is_told() -> None:
    got = {"rank": 3, "code": -1}
    assert differences({"rank": 3, "code": -9}, got.__getitem__) == ["code: expected -9, got -1"]


def test_what_is_shown_is_short() -> None:
    assert shown(Abort(reason="x")) == "Abort(reason='x')"
    assert shown(b"\x01") == "1 bytes 01"
    assert len(shown("a" * 1000)) < 200
    assert shown({"a": [1]}) == '{"a": [1]}'


def test_a_path_into_nothing() -> None:
    assert at_path({"a": [5]}, "a.0") == 5
    assert at_path(None, "a") is None
