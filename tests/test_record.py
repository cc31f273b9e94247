"""record: values of named fields that are complete when made and never change."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from joinproto.record import Record, replace


class Point(Record):
    x: int
    y: int = 0


class Other(Record):
    x: int
    y: int = 0


class Empty(Record):
    """Nothing to say."""


class Secretive(Record):
    number: ClassVar[int] = 7
    hidden: ClassVar[frozenset[str]] = frozenset(("salt",))
    name: str
    salt: str


class Checked(Record):
    x: int

    def __post_init__(self) -> None:
        if self.x < 0:
            raise ValueError("below zero")


def make(cls: type[Record], **values: Any) -> Any:
    """What a type checker would not let pass."""
    return cls(**values)


def test_fields_in_their_order() -> None:
    assert (Point.fields, Empty.fields) == (("x", "y"), ())
    assert Secretive.fields == ("name", "salt")  # a ClassVar is none


def test_values_and_defaults() -> None:
    assert (Point(x=1, y=2).x, Point(x=1, y=2).y) == (1, 2)
    assert Point(x=1).y == 0


@pytest.mark.parametrize(
    ("cls", "values", "complaint"),
    [
        (Point, {}, "Point needs x"),
        (Point, {"y": 1}, "Point needs x"),
        (Secretive, {}, "Secretive needs name, salt"),
        (Point, {"x": 1, "z": 2}, "Point has no field z"),
        (Point, {"z": 1, "a": 2}, "Point has no field a, z"),
        (Empty, {"x": 1}, "Empty has no field x"),
        (Secretive, {"name": "", "salt": "", "number": 8}, "Secretive has no field number"),
    ],
)
def test_a_record_is_complete_or_not_made(
    cls: type[Record], values: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(TypeError, match=f"^{complaint}$"):
        make(cls, **values)


def test_a_record_can_check_its_values() -> None:
    assert Checked(x=0).x == 0
    with pytest.raises(ValueError, match="^below zero$"):
        Checked(x=-1)


@pytest.mark.parametrize("name", ["x", "y", "z"])
def test_a_record_does_not_change(name: str) -> None:
    point = Point(x=1)
    with pytest.raises(AttributeError, match="^Point cannot be changed$"):
        setattr(point, name, 5)
    with pytest.raises(AttributeError, match="^Point cannot be changed$"):
        delattr(point, name)
    assert point == Point(x=1, y=0)


def test_equality_is_of_class_and_values() -> None:
    assert Point(x=1) == Point(x=1, y=0)
    assert hash(Point(x=1)) == hash(Point(x=1, y=0))
    assert Point(x=1) != Point(x=2)
    assert Point(x=1) != Other(x=1)
    assert Point(x=1) != (1, 0)
    assert len({Point(x=1), Point(x=1, y=0), Other(x=1)}) == 2


def test_fields_can_be_matched() -> None:
    match Point(x=1, y=2):
        case Point(x=1, y=y):
            assert y == 2
        case _:
            pytest.fail("no match")


def test_what_is_shown_and_what_is_not() -> None:
    assert repr(Point(x=1)) == "Point(x=1, y=0)"
    assert repr(Empty()) == "Empty()"
    assert repr(Secretive(name="a", salt="5a17")) == "Secretive(name='a')"


def test_a_changed_copy() -> None:
    point = Point(x=1)
    assert replace(point, y=5) == Point(x=1, y=5)
    assert replace(point) == point
    assert point.y == 0


def test_a_changed_copy_is_checked_too() -> None:
    with pytest.raises(ValueError, match="below zero"):
        replace(Checked(x=1), x=-1)
    with pytest.raises(TypeError, match="^Point has no field z$"):
        replace(Point(x=1), z=1)
