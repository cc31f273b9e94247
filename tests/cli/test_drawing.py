"""Drawings of a table small enough to be drawn by hand."""

from __future__ import annotations

from enum import Enum
from typing import Any

from joinproto.cli import drawing
from joinproto.table import Rule, Table


class Door(Enum):
    OPEN = "Open"
    SHUT = "Shut"
    GONE = "Gone"


class Push: ...


class Wind: ...


class Key: ...


class Axe: ...


def _locked(ctx: None, given: Any, now: float) -> bool:
    return True


def _too_heavy(ctx: None, given: Any, now: float) -> bool:
    return True


def _swing(ctx: None, given: Any, now: float) -> tuple[None, tuple[Any, ...]]:
    return None, ()


def _make_noise(ctx: None, given: Any, now: float) -> tuple[None, tuple[Any, ...]]:
    return None, ()


DOOR = Table[None](
    "door",
    states=Door,
    initial=Door.OPEN,
    final=(Door.GONE,),
    inputs=(Push, Wind, Key, Axe),
    rules=(
        Rule(source=Door.OPEN, on=Push, target=Door.SHUT, act=_swing),
        Rule(source=Door.OPEN, on=Wind, target=Door.SHUT, act=_swing),
        Rule(source=Door.SHUT, on=Push, when=_locked, target=Door.SHUT, act=_make_noise),
        Rule(source=Door.SHUT, on=Push, when=_too_heavy, target=Door.SHUT, act=_make_noise),
        Rule(source=Door.SHUT, on=Push, target=Door.OPEN, act=_swing),
        Rule(source=Door.SHUT, on=Axe, target=Door.GONE, act=_make_noise),
    ),
    ignored={Door.SHUT: (Wind, Key), Door.GONE: (Wind,)},
    illegal={Door.OPEN: (Key, Axe), Door.GONE: (Axe, Push, Key)},
)


MERMAID = """\
%% The door machine, drawn by: joinproto machines door
stateDiagram-v2
    [*] --> Open
    Open --> Shut : Push, Wind / swing
    Shut --> Shut : Push [locked] / make noise<br>Push [too heavy] / make noise
    Shut --> Open : Push [else] / swing
    Shut --> Gone : Axe / make noise
    Gone --> [*]
"""

DOT = r"""// The door machine, drawn by: joinproto machines door --format dot
digraph door {
    node [shape=box, style=rounded, fontname=Helvetica];
    edge [fontname=Helvetica, fontsize=9];
    start [shape=point];
    Open;
    Shut;
    Gone [peripheries=2];
    start -> Open;
    Open -> Shut [label="Push, Wind / swing\l"];
    Shut -> Shut [label="Push [locked] / make noise\lPush [too heavy] / make noise\l"];
    Shut -> Open [label="Push [else] / swing\l"];
    Shut -> Gone [label="Axe / make noise\l"];
}
"""


def test_mermaid() -> None:
    assert drawing.mermaid(DOOR) == MERMAID


def test_dot() -> None:
    assert drawing.dot(DOOR) == DOT


def test_json_holds_every_cell_in_the_order_of_the_table() -> None:
    body = drawing.body(DOOR)
    assert body["states"] == ["Open", "Shut", "Gone"]
    assert (body["initial"], body["final"]) == ("Open", ["Gone"])
    assert body["inputs"] == ["Push", "Wind", "Key", "Axe"]
    assert body["ignored"] == {"Shut": ["Wind", "Key"], "Gone": ["Wind"]}
    assert body["illegal"] == {"Open": ["Key", "Axe"], "Gone": ["Push", "Key", "Axe"]}
    assert len(body["rules"]) == len(DOOR.rules)
    assert body["rules"][3] == {
        "source": "Shut",
        "input": "Push",
        "guard": "too heavy",
        "action": "make noise",
        "target": "Shut",
    }
    assert body["rules"][4]["guard"] is None


def test_a_long_line_is_broken_but_never_inside_condition_or_action() -> None:
    names = [f"Input{number}" for number in range(12)]
    inputs = [type(name, (), {}) for name in names]
    table = Table[None](
        "long",
        states=Door,
        initial=Door.OPEN,
        final=(Door.SHUT, Door.GONE),
        inputs=inputs,
        rules=(
            *(
                Rule(source=Door.OPEN, on=on, when=when, target=target, act=_make_noise)
                for on in inputs
                for when, target in ((_too_heavy, Door.SHUT), (None, Door.GONE))
            ),
        ),
        ignored={Door.SHUT: inputs, Door.GONE: inputs},
        illegal={},
    )
    labels = {(a, b): label for a, b, label in drawing.arrows(table)}
    label = labels[Door.OPEN, Door.SHUT]
    assert len(label) == 3
    assert all(len(line) <= drawing.LABEL_WIDTH for line in label)
    assert label[-1].endswith("[too heavy] / make noise")
    assert " ".join(label) == f"{', '.join(names)} [too heavy] / make noise"
