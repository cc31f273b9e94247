"""What holds for every machine: each pair of state and input is decided, and actions are pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

from joinproto import effects
from joinproto.errors import IllegalInput, JoinprotoError
from joinproto.keys import Salt
from joinproto.record import Record
from joinproto.session import Session
from joinproto.table import Table

ATOMS = (bool, int, float, str, bytes, Enum, Salt, JoinprotoError, type(None))


def is_immutable(value: Any) -> bool:
    """Whether nothing of `value`, however deep, can be changed in place."""
    if isinstance(value, tuple | frozenset):
        return all(map(is_immutable, value))
    if isinstance(value, Record):
        return all(is_immutable(getattr(value, name)) for name in value.fields)
    if is_dataclass(value):
        frozen: bool = type(value).__dataclass_params__.frozen  # type: ignore[attr-defined]
        return frozen and all(is_immutable(getattr(value, field.name)) for field in fields(value))
    return isinstance(value, ATOMS)


def check(table: Table[Any], state: Enum, context: Any, given: Any, now: float) -> None:
    """Give a machine an input, wherever it is, and hold what it does against its table."""
    model = SimpleNamespace(state=state, context=context)
    pair = (state, type(given))
    if pair in table.illegal:
        with pytest.raises(IllegalInput):
            table.step(model, given, now)
        assert (model.state, model.context) == (state, context)
        return
    done = table.step(model, given, now)
    assert is_immutable(model.context)
    assert all(type(effect).__module__ == effects.__name__ for effect in done)
    assert is_immutable(done)
    if pair in table.ignored:
        assert (model.state, model.context, done) == (state, context, ())
    else:
        assert model.state in {rule.target for rule in table.cell(state, type(given))}
    # The same again, the same outcome: nothing outside the context is looked at.
    again = SimpleNamespace(state=state, context=context)
    assert list(map(repr, table.step(again, given, now))) == list(map(repr, done))
    assert again.state == model.state


def check_all(session: Session[Any], samples: Iterable[Any], now: float) -> None:
    """`check` every sample in the state that a session has reached, leaving it there.

    Every class of input must be among the samples.
    """
    seen = set()
    for given in samples:
        check(session.table, session.state, session.context, given, now)
        seen.add(type(given))
    assert seen == set(session.table.inputs)


def step(session: Session[Any], given: Any, now: float = 0.0) -> tuple[Any, list[Any]]:
    """The state after an input, and the effects without timers."""
    done = session.step(given, now)
    return session.state, done
