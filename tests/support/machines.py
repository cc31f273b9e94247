"""What holds for every machine: each pair of state and input is decided, and actions are pure."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from joinproto import effects
from joinproto.errors import IllegalInput, JoinprotoError
from joinproto.keys import Salt
from joinproto.messages import MESSAGES
from joinproto.record import Record
from joinproto.session import Session
from joinproto.table import Table

ATOMS = (bool, int, float, str, bytes, Enum, Salt, JoinprotoError, type(None))


def is_immutable(value: Any) -> bool:
    """Whether nothing of `value`, however deep, can be changed in place."""
    if isinstance(value, tuple | frozenset):
        return all(map(is_immutable, value))
    if isinstance(value, MappingProxyType):
        return all(map(is_immutable, value.items()))
    if isinstance(value, Record):
        return all(is_immutable(getattr(value, name)) for name in value.fields)
    if isinstance(value, MESSAGES):
        return all(is_immutable(getattr(value, field.name)) for field in fields(value))
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


def at(session: Session[Any], state: Enum) -> bool:
    """Whether it is in this state; a type checker holds that a step changes none."""
    return session.state is state
