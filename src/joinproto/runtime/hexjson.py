"""Hex-encoded JSON, taken and refused exactly where published peers (serde_json) do.

Python's own reader differs: it takes NaN, lone surrogates, white space between hex digits and a
key given twice; it counts `true` as a number; its limit of digits is an error of its own.  Every
refusal here is a ValueError of one line that repeats no value of the document, which may be a
salt.  Only the depth at which nesting is refused is Python's: a thousand levels, about.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar

T = TypeVar("T")

_LONGEST_INTEGER: Final = 20
_INTEGERS: Final = range(-(2**63), 2**64)

REQUIRED: Final = object()
"""The default of a field that has none."""


class Field(NamedTuple):
    """One field of a record: its name, what reads its JSON value, and its default."""

    name: str
    read: Callable[[object], Any]
    default: object = REQUIRED


class _Members(NamedTuple):
    """A JSON object with repeated keys still there."""

    pairs: list[tuple[str, object]]


# -- documents --------------------------------------------------------------------------------


def decode_hex(digits: str) -> bytes:
    """The bytes that `digits` spells in hex of either case.

    Raises:
        ValueError: there are other characters, white space included, or an odd number of digits.
    """
    # bytes.fromhex alone would skip white space.
    if digits and not (digits.isascii() and digits.isalnum()):
        raise ValueError("it holds characters that are not hex digits")
    if len(digits) % 2:
        raise ValueError(f"it has an odd number of hex digits ({len(digits)})")
    try:
        return bytes.fromhex(digits)
    except ValueError:
        raise ValueError("it holds characters that are not hex digits") from None


def read_value(raw: bytes) -> Any:
    """The JSON value in `raw`; of a key given twice the last one counts.

    A lone surrogate passes here and is refused by `write_hex`.

    Raises:
        ValueError: it is not UTF-8 or not JSON.
    """
    try:
        document = raw.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"it is not UTF-8 at byte {error.start}") from None
    return _parse(document, dict, _finite)


def read_record(raw: bytes, fields: Iterable[Field]) -> dict[str, Any]:
    """The values of `fields`, by name, from a JSON object or from an array in their order.

    Unknown fields are ignored whatever they hold.

    Raises:
        ValueError: it is not JSON, a known field is missing, repeated or of another type, or an
            array is longer than there are fields.
    """
    # What is ignored may hold bytes that aren't UTF-8 and numbers too large, as for serde_json.
    document = _parse(raw.decode(errors="surrogateescape"), _Members, float)
    known = tuple(fields)
    if isinstance(document, _Members):
        given = _from_members({field.name for field in known}, document.pairs)
    elif isinstance(document, list):
        given = _from_array(known, document)
    else:
        raise ValueError("it is not a JSON object")
    return {field.name: _read_field(field, given) for field in known}


def write_hex(document: object) -> str:
    """`document` as compact JSON in hex.

    Raises:
        ValueError: it holds a number or a string that JSON cannot carry, or is nested too deeply.
    """
    try:
        written = json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return written.encode().hex()
    except UnicodeEncodeError:
        raise ValueError("it holds a string with a lone surrogate") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:
        raise ValueError("it holds a number that is out of range") from None


def _parse(
    document: str,
    make: Callable[[list[tuple[str, object]]], object],
    make_float: Callable[[str], float],
) -> object:
    if not document:
        raise ValueError("it is empty")
    try:
        return json.loads(
            document,
            object_pairs_hook=make,
            parse_float=make_float,
            parse_int=lambda digits: _integer(digits, make_float),
            parse_constant=_constant,
        )
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"it is not JSON: {error}") from None


def _integer(digits: str, make_float: Callable[[str], float]) -> int | float:
    # For serde_json an integer beyond 64 bits is a float, and so is -0.
    if len(digits) > _LONGEST_INTEGER or digits == "-0" or int(digits) not in _INTEGERS:
        return make_float(digits)
    return int(digits)


def _finite(digits: str) -> float:
    value = float(digits)
    if not math.isfinite(value):
        raise ValueError("it holds a number that is out of range")
    return value


def _constant(name: str) -> object:
    raise ValueError(f"it is not JSON: {name}")


def _from_members(names: set[str], pairs: list[tuple[str, object]]) -> dict[str, object]:
    given: dict[str, object] = {}
    for name, value in pairs:
        if not _is_utf8(name):
            raise ValueError("it has a field whose name is not valid UTF-8")
        if name in names and name in given:
            raise ValueError(f"{name} is given twice")
        given[name] = value
    return given


def _from_array(known: tuple[Field, ...], values: list[object]) -> dict[str, object]:
    if len(values) > len(known):
        raise ValueError(f"it is an array of {len(values)}; there are {len(known)} fields")
    return {field.name: value for field, value in zip(known, values, strict=False)}


def _read_field(field: Field, given: dict[str, object]) -> object:
    if field.name in given:
        try:
            return field.read(given[field.name])
        except ValueError as error:
            raise ValueError(f"{field.name} must be {error}") from None
    if field.default is REQUIRED:
        raise ValueError(f"{field.name} is missing")
    return field.default


# -- values: each reader's ValueError ends the sentence "NAME must be ..." ---------------------


def string(value: object) -> str:
    """A string that UTF-8 can carry."""
    if type(value) is not str:
        raise ValueError("a string")
    if not _is_utf8(value):
        raise ValueError("a string of valid UTF-8")
    return value


def boolean(value: object) -> bool:
    """true or false."""
    if type(value) is not bool:
        raise ValueError("true or false")
    return value


def number(value: object) -> float:
    """A finite number, whole or not."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError("a finite number")
    return float(value)


def whole(limit: int) -> Callable[[object], int]:
    """A reader of whole numbers from 0 to `limit`; 1.0 and true are none."""

    def read(value: object) -> int:
        if type(value) is not int or not 0 <= value <= limit:
            raise ValueError(f"a whole number from 0 to {limit}")
        return value

    return read


def array(read_one: Callable[[object], T]) -> Callable[[object], tuple[T, ...]]:
    """A reader of arrays whose entries `read_one` takes."""

    def read(value: object) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise ValueError("an array")
        try:
            return tuple(read_one(entry) for entry in value)
        except ValueError as error:
            raise ValueError(f"an array, each entry {error}") from None

    return read


def nullable(read_one: Callable[[object], T]) -> Callable[[object], T | None]:
    """A reader that gives None for null."""

    def read(value: object) -> T | None:
        return None if value is None else read_one(value)

    return read


def _is_utf8(given: str) -> bool:
    try:
        given.encode()
    except UnicodeEncodeError:
        return False
    return True
