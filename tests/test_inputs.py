"""inputs: what can happen, each with somebody to whom it can, and no secret told."""

from __future__ import annotations

import inspect

import pytest

from joinproto import inputs
from joinproto.errors import DecodeError, Stage
from joinproto.inputs import ChildExited, Form, StopRequested, Undecodable
from joinproto.machines.agent import AGENT
from joinproto.machines.child import CHILD
from joinproto.machines.controller import CONTROLLER
from joinproto.machines.window import WINDOW
from joinproto.messages import MESSAGES

CLASSES = {
    cls
    for _, cls in inspect.getmembers(inputs, inspect.isclass)
    if cls.__module__ == inputs.__name__
}


def test_every_input_has_a_machine_that_takes_it() -> None:
    taken = {cls for table in (AGENT, CHILD, CONTROLLER, WINDOW) for cls in table.inputs}
    assert taken == CLASSES | set(MESSAGES)


def test_an_input_does_not_change() -> None:
    given = ChildExited(slot=0, code=1)
    with pytest.raises(AttributeError):
        given.code = 2  # type: ignore[misc]


def test_what_is_seldom_said_has_a_default() -> None:
    assert StopRequested(reason="caller").number == 0
    assert not Undecodable(error=DecodeError(Stage.MAGIC, "")).tagged


def test_artifacts_are_not_shown() -> None:
    assert repr(Form(envelope_hex="5a17", relay_spec_hex="5a17")) == "Form()"
