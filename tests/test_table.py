"""table: contradictions are found when it is made, and a step does all of a rule or nothing."""

from __future__ import annotations

from enum import Enum
from types import SimpleNamespace
from typing import Any

import pytest

from joinproto.errors import IllegalInput, TableError
from joinproto.machines.agent import AGENT
from joinproto.machines.child import CHILD
from joinproto.machines.controller import CONTROLLER
from joinproto.machines.window import WINDOW
from joinproto.record import Record, replace
from joinproto.table import Rule, Table


class Door(Enum):
    SHUT = "Shut"
    OPEN = "Open"
    GONE = "Gone"


class Push:
    """An input."""


class Pull:
    """An input."""


class Burn:
    """An input."""


class Rain:
    """An input of no door."""


class Context(Record):
    pushes: int = 0
    locked: object = False


def _count_push(ctx: Context, given: Push, now: float) -> tuple[Context, tuple[Any, ...]]:
    return replace(ctx, pushes=ctx.pushes + 1), ("creak", now)


def nothing(ctx: Context, given: Any, now: float) -> tuple[Context, tuple[Any, ...]]:
    return ctx, ()


def breaks(ctx: Context, given: Any, now: float) -> tuple[Context, tuple[Any, ...]]:
    raise ZeroDivisionError


def _is_locked(ctx: Context, given: Any, now: float) -> bool:
    return ctx.locked  # type: ignore[return-value]  # a guard that is merely truthy


S = Door
OPENS: Rule[Context] = Rule(source=S.SHUT, on=Push, target=S.OPEN, act=_count_push)
STUCK: Rule[Context] = Rule(source=S.SHUT, on=Push, when=_is_locked, target=S.SHUT, act=nothing)
SHUTS: Rule[Context] = Rule(source=S.OPEN, on=Pull, target=S.SHUT, act=nothing)
BURNS: Rule[Context] = Rule(source=S.OPEN, on=Burn, target=S.GONE, act=nothing)
GOOD: dict[str, Any] = {
    "states": Door,
    "initial": S.SHUT,
    "final": (S.GONE,),
    "inputs": (Push, Pull, Burn),
    "rules": (STUCK, OPENS, SHUTS, BURNS),
    "ignored": {S.SHUT: (Pull,), S.GONE: (Push, Pull, Burn)},
    "illegal": {S.SHUT: (Burn,), S.OPEN: (Push,)},
}


def door(**changes: Any) -> Table[Context]:
    return Table("door", **{**GOOD, **changes})


def model(state: Door = S.SHUT, **context: Any) -> Any:
    return SimpleNamespace(state=state, context=Context(**context))


# -- a table that holds -----------------------------------------------------------------------


def test_a_table_is_read_as_it_was_written() -> None:
    table = door()
    assert table.name == "door"
    assert table.states == (S.SHUT, S.OPEN, S.GONE)
    assert table.initial is S.SHUT
    assert list(table.final) == [S.GONE]
    assert table.cell(S.SHUT, Push) == (STUCK, OPENS)
    assert table.cell(S.SHUT, Pull) == ()
    assert table.ignored == {(S.SHUT, Pull), (S.GONE, Push), (S.GONE, Pull), (S.GONE, Burn)}
    assert table.illegal == {(S.SHUT, Burn), (S.OPEN, Push)}


def test_a_rule_has_names_for_drawings() -> None:
    assert (STUCK.guard, STUCK.action) == ("is locked", "nothing")
    assert (OPENS.guard, OPENS.action) == ("", "count push")


# -- contradictions ---------------------------------------------------------------------------


class Window(Enum):
    AJAR = "Ajar"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"initial": Window.AJAR}, "no such state: ['Window.AJAR']"),
        ({"final": (S.GONE, Window.AJAR)}, "no such state: ['Window.AJAR']"),
        (
            {"rules": (*GOOD["rules"], replace(OPENS, source=Window.AJAR))},
            "no such state: ['Window.AJAR']",
        ),
        (
            {"rules": (STUCK, replace(OPENS, target=Window.AJAR), SHUTS, BURNS)},
            "no such state: ['Window.AJAR']",
        ),
        ({"ignored": {**GOOD["ignored"], Window.AJAR: (Push,)}}, "no such state: ['Window.AJAR']"),
        ({"illegal": {**GOOD["illegal"], Window.AJAR: (Push,)}}, "no such state: ['Window.AJAR']"),
        ({"rules": (*GOOD["rules"], replace(OPENS, on=Rain))}, "no such input: ['Rain']"),
        ({"illegal": {**GOOD["illegal"], S.OPEN: (Push, Rain)}}, "no such input: ['Rain']"),
        ({"rules": (STUCK, OPENS, SHUTS)}, "Burn in Open is decided 0 times"),
        ({"illegal": {**GOOD["illegal"], S.OPEN: ()}}, "Push in Open is decided 0 times"),
        ({"ignored": {**GOOD["ignored"], S.OPEN: (Push,)}}, "Push in Open is decided 2 times"),
        ({"illegal": {**GOOD["illegal"], S.SHUT: (Burn, Push)}}, "Push in Shut is decided 2 times"),
        ({"rules": (STUCK, SHUTS, BURNS)}, "Push in Shut: the last rule must apply always"),
        (
            {"rules": (OPENS, STUCK, SHUTS, BURNS)},
            "Push in Shut: the last rule must apply always",
        ),
        (
            {"rules": (OPENS, OPENS, SHUTS, BURNS)},
            "Push in Shut: a rule stands behind one that applies always",
        ),
        (
            {"rules": (STUCK, OPENS, SHUTS, replace(BURNS, target=S.OPEN))},
            "out of reach: ['Gone']",
        ),
        (
            {
                "rules": (STUCK, OPENS, replace(SHUTS, target=S.OPEN), replace(BURNS, on=Burn)),
                "final": (S.GONE, S.SHUT),
            },
            "final, yet left: ['Shut']",
        ),
        ({"final": ()}, "no way out of ['Gone']"),
        (
            {
                "rules": (
                    STUCK,
                    replace(OPENS, target=S.GONE),
                    replace(SHUTS, source=S.GONE, target=S.OPEN),
                    replace(BURNS, source=S.GONE, target=S.GONE),
                ),
                "ignored": {S.SHUT: (Pull,), S.GONE: (Push,), S.OPEN: (Pull, Burn)},
                "final": (),
            },
            "no way out of ['Open']",
        ),
    ],
)
def test_a_table_that_contradicts_itself(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(TableError) as raised:
        door(**changes)
    assert str(raised.value) == f"door: {complaint}"


# -- steps ------------------------------------------------------------------------------------


def test_a_step_changes_state_and_context_together() -> None:
    it = model()
    assert door().step(it, Push(), 7.5) == ("creak", 7.5)
    assert (it.state, it.context.pushes) == (S.OPEN, 1)


@pytest.mark.parametrize("locked", [True, 1, "yes"])
def test_the_first_rule_whose_condition_holds_is_taken(locked: object) -> None:
    it = model(locked=locked)
    assert door().step(it, Push(), 0.0) == ()
    assert (it.state, it.context.pushes) == (S.SHUT, 0)


@pytest.mark.parametrize("locked", [False, 0, None])
def test_a_rule_whose_condition_fails_is_passed_over(locked: object) -> None:
    it = model(locked=locked)
    door().step(it, Push(), 0.0)
    assert it.state is S.OPEN


def test_what_is_ignored_changes_nothing() -> None:
    it = model()
    before = it.context
    assert door().step(it, Pull(), 0.0) == ()
    assert (it.state, it.context) == (S.SHUT, before)


@pytest.mark.parametrize(
    ("state", "given"), [(S.SHUT, Burn()), (S.OPEN, Push()), (S.SHUT, Rain()), (S.GONE, Rain())]
)
def test_what_cannot_happen_is_told_and_changes_nothing(state: Door, given: Any) -> None:
    it = model(state)
    before = it.context
    with pytest.raises(IllegalInput) as raised:
        door().step(it, given, 0.0)
    told = f"door machine: {type(given).__name__} cannot happen in state {state.value}"
    assert str(raised.value) == told
    assert (it.state, it.context) == (state, before)


@pytest.mark.parametrize("target", [S.OPEN, S.SHUT])
def test_an_action_that_fails_leaves_all_as_it_was(target: Door) -> None:
    pulled = replace(OPENS, on=Pull)  # so that the door still opens somehow
    table = door(
        rules=(replace(OPENS, act=breaks, target=target), pulled, SHUTS, BURNS),
        ignored={S.GONE: (Push, Pull, Burn)},
    )
    it = model()
    before = it.context
    with pytest.raises(ZeroDivisionError):
        table.step(it, Push(), 0.0)
    assert (it.state, it.context) == (S.SHUT, before)


def test_a_condition_that_fails_leaves_all_as_it_was() -> None:
    def confused(ctx: Context, given: Any, now: float) -> bool:
        raise ZeroDivisionError

    table = door(rules=(replace(STUCK, when=confused), OPENS, SHUTS, BURNS))
    it = model()
    with pytest.raises(ZeroDivisionError):
        table.step(it, Push(), 0.0)
    assert it.state is S.SHUT


def test_models_do_not_share_a_state() -> None:
    table = door()
    one, other = model(), model()
    table.step(one, Push(), 0.0)
    assert (one.state, other.state) == (S.OPEN, S.SHUT)


# -- the four machines ------------------------------------------------------------------------

TABLES = [AGENT, CHILD, CONTROLLER, WINDOW]


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_every_pair_is_decided_exactly_once(table: Table[Any]) -> None:
    for state in table.states:
        for on in table.inputs:
            ways = [bool(table.cell(state, on)), (state, on) in table.ignored]
            ways.append((state, on) in table.illegal)
            assert sum(ways) == 1, (state, on)


def test_the_states_of_an_agent_have_the_published_names() -> None:
    names = ["Dialing", "Hello", "AwaitAccept", "AwaitFormed", "Supervising", "Done", "Aborted"]
    assert [state.value for state in AGENT.states] == names
