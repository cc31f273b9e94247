"""effects: what machines want done, each with a machine that wants it, and no secret told."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path

import pytest

from joinproto import effects, machines
from joinproto.effects import Send, Severity, Spawn, Tell, UseKey
from joinproto.keys import Salt
from joinproto.messages import WorldFormed

CLASSES = {
    name
    for name, cls in inspect.getmembers(effects, inspect.isclass)
    if cls.__module__ == effects.__name__ and cls is not Severity
}


def test_every_effect_has_a_machine_that_wants_it() -> None:
    wanted = {
        node.func.attr
        for path in Path(machines.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "fx"
    }
    assert wanted == CLASSES


def test_an_effect_does_not_change() -> None:
    effect = Tell(severity=Severity.INFO, text="a")
    with pytest.raises(AttributeError):
        effect.text = "b"  # type: ignore[misc]


def test_severities_can_be_compared() -> None:
    assert Severity.DEBUG < Severity.INFO < Severity.WARNING < Severity.ERROR


def test_artifacts_and_keys_are_not_shown() -> None:
    spawn = Spawn(slot=0, artifact_hex="5a17", rank=0, local_rank=0, device=1, wire=2)
    assert repr(spawn) == "Spawn(slot=0, rank=0, local_rank=0, device=1, wire=2)"
    assert "5a17" not in repr(Send(message=WorldFormed(envelope_hex="5a17")))
    assert repr(UseKey(key=Salt(bytes(16)))) == "UseKey(key=Salt(hidden))"
