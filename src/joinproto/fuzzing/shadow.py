"""What our own machines would do in a case, in memory: which rows of their tables it reaches.

A case is played here before any target sees it.  So the choice of cases can be guided by the
declared machine whatever the target is, and what the target does be held against what it should.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from joinproto.conformance.case import Case
from joinproto.conformance.memory import AgentWorld, ControllerWorld, NotInMemory
from joinproto.conformance.verdicts import Level
from joinproto.conformance.world import Keys
from joinproto.fuzzing.acting import Actor, Heard
from joinproto.fuzzing.sequence import Sequence
from joinproto.machines.agent import AGENT
from joinproto.machines.controller import CONTROLLER
from joinproto.table import Table

SETTLE = 0.2
"""Seconds of fake time in which what a case has led to happens."""

Row: TypeAlias = tuple[str, str, str]
"""State, input, and the name of the condition under which the row applies ("" for the last)."""

OUT_OF_REACH: Mapping[str, Mapping[Row | str, str]] = {
    "agent": {
        "HelperDied": "takes a fault of the agent's own host",
        "ChildFailed": "takes a host that cannot start a process",
        "ChildStuck": "takes a process that survives SIGKILL",
        "Hello": "an agent is in state Hello only until its Hello is out, before a peer sees it",
    },
    "controller": {
        "Deciding": "is decided about in the same step in which it begins",
        ("Admitted", "Expired", ""): "what is sent fits into the buffers of any system",
        ("Formed", "Expired", ""): "what is sent fits into the buffers of any system",
    },
}
"""Rows that no peer can have taken: by state, by input, or one by one, and why."""


def out_of_reach(role: str, row: Row) -> str:
    """Why no peer can have a row taken; "" where one can."""
    reasons = OUT_OF_REACH[role]
    state, on, _ = row
    if (state, on) == ("Deciding", "Admit") or on in ("Refuse", "Dismiss"):
        return ""
    if role == "agent" and on == "Hello" and state != "Hello":
        return ""
    if (state, on) == ("Hello", "Flushed"):
        return ""
    return reasons.get(row) or reasons.get(on) or reasons.get(state) or ""


TABLES: Mapping[str, Table[Any]] = {"agent": AGENT, "controller": CONTROLLER}


def rows_of(role: str) -> list[Row]:
    """All rows of the machine of a role, in order."""
    return [row_of(rule) for rule in TABLES[role].rules]


def row_of(rule: Any) -> Row:
    """A row by its names."""
    return rule.source.value, rule.on.__name__, rule.guard


class Watched:
    """A table that tells which of its rows are taken.

    Args:
        table: the table itself.
        taken: where the rows go.
    """

    def __init__(self, table: Table[Any], taken: set[Row]) -> None:
        self._table = table
        self._taken = taken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def step(self, model: Any, given: Any, now: float) -> tuple[Any, ...]:
        """Step it, and take down the row."""
        for rule in self._table.cell(model.state, type(given)):
            if rule.when is None or rule.when(model.context, given, now):
                self._taken.add(row_of(rule))
                break
        return self._table.step(model, given, now)


@dataclass(frozen=True, kw_only=True)
class Foreseen:
    """What our own machines do in a case.

    Attributes:
        rows: the rows that were taken.
        heard: connection → what they did on it.
        looks: for each step `look` in turn, whether something came.
        due: for each step in turn, and for the end: connection → how much they had done on it
            before that.
        states: connection → where the machine was with it after the last step; for an agent under
            "".
        exit: the code with which the target ended; None: it did not.
        children: names of the processes that it started.
    """

    rows: frozenset[Row]
    heard: Mapping[str, Heard]
    looks: tuple[bool, ...]
    due: tuple[Mapping[str, int], ...]
    states: Mapping[str, str]
    exit: int | None
    children: frozenset[str] = field(default=frozenset())


def foresee(sequence: Sequence, keys: Keys, scale: float) -> Foreseen:
    """Play a case against our own machines."""
    taken: set[Row] = set()
    world: AgentWorld | ControllerWorld
    case = case_of(sequence)
    if sequence.role == "agent":
        world = _Agent(case, keys, scale, taken)
    else:
        world = _Controller(case, keys, scale, taken)
    actor = Actor(world, sequence.wire)
    due = []
    for step in sequence.steps:
        due.append(actor.so_far())
        with suppress(NotInMemory):
            actor.do(step)
    due.append(actor.so_far())
    states = world.states()
    actor.finish(SETTLE)
    return Foreseen(
        rows=frozenset(taken),
        heard=actor.heard,
        looks=tuple(actor.looks),
        due=tuple(due),
        states=states,
        exit=None if world.exit is None else world.exit.code,
        children=frozenset(world.children),
    )


def case_of(sequence: Sequence) -> Case:
    """As much of a conformance case as a world in memory asks for."""
    setup = {
        "min_ranks": sequence.quorum,
        "target_ranks": sequence.quorum,
        "join_timeout": 100_000,
        "max_join_timeout": 100_000,
        "spec": {"local_devices": list(range(sequence.devices))},
        "listen": sequence.listening,
    }
    return Case(
        id=f"{sequence.role}/fuzz/case", title="", clauses=(), level=Level.MUST, setup=setup
    )


class _Agent(AgentWorld):
    def __init__(self, case: Case, keys: Keys, scale: float, taken: set[Row]) -> None:
        self._taken = taken
        super().__init__(case, keys, scale)

    def begin(self) -> None:
        machine = self.target.agent.machine
        machine.table = Watched(machine.table, self._taken)  # type: ignore[assignment]
        super().begin()

    def states(self) -> dict[str, str]:
        """Where the agent is."""
        return {"": self.target.state.value}


class _Controller(ControllerWorld):
    def __init__(self, case: Case, keys: Keys, scale: float, taken: set[Row]) -> None:
        super().__init__(case, keys, scale)
        self._taken = taken
        self._states: dict[str, Any] = {}

    def dial(self, name: str, *, raw: bool) -> None:
        """Dial it; the machine of this connection tells what it does."""
        self.target.prepared = self._prepare
        super().dial(name, raw=raw)
        self._states[name] = self.target.connections[len(self.target.connections)]

    def _prepare(self, connection: Any) -> None:
        connection.machine.table = Watched(connection.machine.table, self._taken)

    def states(self) -> dict[str, str]:
        """Where each connection is."""
        return {name: _name(each.state) for name, each in self._states.items()}


def _name(state: Enum) -> str:
    return str(state.value)
