"""What a case expects, held against what happened."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from joinproto.messages import Message
from joinproto.testing.record import short

MATCHERS: Mapping[str, Callable[[Any, Any], bool]] = {
    "any_of": lambda wanted, got: any(equals(each, got) for each in wanted),
    "less": lambda wanted, got: _is_number(got) and got < wanted,
    "between": lambda wanted, got: _is_number(got) and wanted[0] <= got <= wanted[1],
    "like": lambda wanted, got: isinstance(got, str) and re.search(wanted, got) is not None,
    "not": lambda wanted, got: not equals(wanted, got),
    "length": lambda wanted, got: got is not None and len(got) == wanted,
    "json": lambda wanted, got: isinstance(got, str) and _json_holds(wanted, got),
    "absent": lambda wanted, got: (got is None) is bool(wanted),
}
"""Word → whether what came is as it says; a JSON object with one of them stands for a value."""


def _is_number(got: Any) -> bool:
    return isinstance(got, int | float) and not isinstance(got, bool)


def equals(wanted: Any, got: Any) -> bool:
    """Whether a value of a case, which may be a matcher, stands for what came."""
    if (
        isinstance(wanted, Mapping)
        and len(wanted) == 1
        and (word := next(iter(wanted))) in MATCHERS
    ):
        return MATCHERS[word](wanted[word], got)
    if isinstance(got, bytes):
        return bool(wanted == got.hex())
    if isinstance(got, Sequence) and not isinstance(got, str):
        return (
            isinstance(wanted, list) and len(wanted) == len(got) and all(map(equals, wanted, got))
        )
    return bool(wanted == got) and isinstance(wanted, bool) == isinstance(got, bool)


def differences(wanted: Mapping[str, Any], got: Callable[[str], Any]) -> list[str]:
    """How named values differ from those wanted, one line each."""
    return [
        f"{name}: expected {shown(value)}, got {shown(got(name))}"
        for name, value in wanted.items()
        if not equals(value, got(name))
    ]


def shown(value: Any) -> str:
    """A value of a case, or one that came, for people."""
    if isinstance(value, Message | bytes):
        return short(value)
    return short(value) if isinstance(value, str) else json.dumps(value, default=str)


def _json_holds(wanted: Mapping[str, Any], got: str) -> bool:
    """Whether hex of JSON holds the values at these dotted paths; null: nothing is there."""
    try:
        value = json.loads(bytes.fromhex(got))
    except ValueError:
        return False
    return all(equals(each, at_path(value, path)) for path, each in wanted.items())


def at_path(value: Any, path: str) -> Any:
    """What stands at a dotted path in nested objects and arrays; None: nothing does."""
    for part in path.split("."):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list) and part.isdigit() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value
