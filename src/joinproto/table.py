"""Transition tables as data, checked when they are made, and the one place that sees `transitions`.

A table decides every pair of state and input on purpose: by rules, by listing it as ignored, or by
listing it as illegal (it cannot happen; the caller is wrong).  `transitions` by itself accepts
unknown states, silent duplicates and misspelt callbacks, so all of that is checked here first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from joinproto.errors import IllegalInput, TableError
from joinproto.record import Record

if TYPE_CHECKING:
    from transitions import Machine
    from transitions.core import Event

C = TypeVar("C")
"""A machine's context: a frozen dataclass."""


class Rule(Record, Generic[C]):
    """One row of a table.

    Attributes:
        source: the state it applies in.
        on: the class of the input it applies to.
        target: the state it leads to.
        act: (context, input, now) → the new context and the effects, in order; pure.
        when: (context, input, now) → whether it applies; the first of a cell that does wins.
            The last rule of every cell has none.
    """

    source: Enum
    on: type
    target: Enum
    act: Callable[[C, Any, float], tuple[C, tuple[Any, ...]]]
    when: Callable[[C, Any, float], bool] | None = None

    @property
    def guard(self) -> str:
        """The name of the condition, for drawings."""
        return "" if self.when is None else self.when.__name__.strip("_").replace("_", " ")

    @property
    def action(self) -> str:
        """The name of what is done, for drawings."""
        return self.act.__name__.strip("_").replace("_", " ")


class Table(Generic[C]):
    """A machine, whole.

    Args:
        name: what it is called, in errors and drawings.
        states: the enum of its states.
        initial: where it begins.
        final: the states that it never leaves.
        inputs: every class of input that it may be given.
        rules: the rows; those of one cell in the order in which their conditions are asked.
        ignored: state → inputs that change nothing there.
        illegal: state → inputs that cannot happen there.

    Raises:
        TableError: a cell is decided twice or not at all, a state cannot be reached or left, or a
            name is unknown.
    """

    def __init__(
        self,
        name: str,
        *,
        states: type[Enum],
        initial: Enum,
        final: Iterable[Enum],
        inputs: Iterable[type],
        rules: Iterable[Rule[C]],
        ignored: Mapping[Any, Iterable[type]],
        illegal: Mapping[Any, Iterable[type]],
    ) -> None:
        self.name = name
        self.states = tuple(states)
        self.initial = initial
        self.final = frozenset(final)
        self.inputs = tuple(inputs)
        self.rules = tuple(rules)
        self.ignored = _cells(ignored)
        self.illegal = _cells(illegal)
        self._check()

    def cell(self, state: Enum, on: type) -> tuple[Rule[C], ...]:
        """The rules for one pair, in the order in which they are asked."""
        return tuple(self._by_cell.get((state, on), ()))

    def step(self, model: Any, given: Any, now: float) -> tuple[Any, ...]:
        """Give `model` (an object with `state` and `context`) an input; returns the effects.

        The context and the state change together, and only when the action succeeded.

        Raises:
            IllegalInput: the input cannot happen in this state; nothing has changed.
        """
        pair = (model.state, type(given))
        event = self._events.get(pair)
        if event is None:
            if pair in self.ignored:
                return ()
            event = self._event(pair)
        outcome: list[tuple[Any, ...]] = []
        event.trigger(model, given, now, outcome)
        return outcome[0]

    # -- checks -------------------------------------------------------------------------------

    @cached_property
    def _by_cell(self) -> dict[tuple[Enum, type], list[Rule[C]]]:
        cells: dict[tuple[Enum, type], list[Rule[C]]] = {}
        for rule in self.rules:
            cells.setdefault((rule.source, rule.on), []).append(rule)
        return cells

    def _check(self) -> None:
        self._check_names()
        for state in self.states:
            for on in self.inputs:
                self._check_cell(state, on)
        self._check_reach()

    def _check_names(self) -> None:
        pairs = (*self._by_cell, *self.ignored, *self.illegal)
        named = {self.initial, *self.final, *(s for s, _ in pairs), *(r.target for r in self.rules)}
        if unknown := named - set(self.states):
            raise TableError(f"{self.name}: no such state: {sorted(map(str, unknown))}")
        if strange := {on for _, on in pairs} - set(self.inputs):
            raise TableError(f"{self.name}: no such input: {sorted(t.__name__ for t in strange)}")

    def _check_cell(self, state: Enum, on: type) -> None:
        where = f"{self.name}: {on.__name__} in {state.value}"
        rules = self.cell(state, on)
        decided = bool(rules) + ((state, on) in self.ignored) + ((state, on) in self.illegal)
        if decided != 1:
            raise TableError(f"{where} is decided {decided} times")
        if rules and rules[-1].when is not None:
            raise TableError(f"{where}: the last rule must apply always")
        if any(rule.when is None for rule in rules[:-1]):
            raise TableError(f"{where}: a rule stands behind one that applies always")

    def _check_reach(self) -> None:
        reached = {self.initial}
        while more := {r.target for r in self.rules if r.source in reached} - reached:
            reached |= more
        if lost := set(self.states) - reached:
            raise TableError(f"{self.name}: out of reach: {sorted(s.value for s in lost)}")
        left = {rule.source for rule in self.rules if rule.target is not rule.source}
        if stuck := set(self.states) - left - self.final:
            raise TableError(f"{self.name}: no way out of {sorted(s.value for s in stuck)}")
        if escaped := left & self.final:
            raise TableError(f"{self.name}: final, yet left: {sorted(s.value for s in escaped)}")

    # -- transitions --------------------------------------------------------------------------

    @cached_property
    def _machine(self) -> Machine:
        return _machine_class()(
            model=None,
            states=list(self.states),
            initial=self.initial,
            auto_transitions=False,
            send_event=True,
        )

    @cached_property
    def _events(self) -> dict[tuple[Enum, type], Event]:
        return {}

    def _event(self, pair: tuple[Enum, type]) -> Event:
        """What `transitions` knows of a cell, which it is told when it is first needed.

        Raises:
            IllegalInput: the cell has no rules.
        """
        state, on = pair
        if pair not in self._by_cell:
            raise IllegalInput(self.name, state.value, on.__name__)
        for rule in self._by_cell[pair]:
            self._machine.add_transition(
                on.__name__,
                state,
                rule.target if rule.target is not state else None,
                conditions=_condition(rule) if rule.when is not None else None,
                before=_before(rule),
            )
        event: Event = self._machine.events[on.__name__]
        return self._events.setdefault(pair, event)


@cache
def _machine_class() -> type[Machine]:
    """The machine of `transitions`, without what no table has: queues, and callbacks but for one.

    It looks for ten kinds of callback in every step and writes a line about each to its log, which
    is most of what a step takes; a controller makes ten steps for each host.
    """
    # Late, and once: it is a costly import of an agent's start.
    from transitions import Machine
    from transitions.core import Event, EventData, Transition

    class Given(Event):
        def trigger(self, model: Any, *args: Any, **kwargs: Any) -> bool:
            event_data = EventData(None, self, self.machine, model, args, kwargs)
            return any(step.execute(event_data) for step in self.transitions[model.state.name])

    class Step(Transition):
        def execute(self, event_data: Any) -> bool:
            for condition in self.conditions:
                if not condition.check(event_data):
                    return False
            # `before` and not `after`: an action that raises leaves the state as it was.
            acts: list[Any] = self.before
            for act in acts:
                act(event_data)
            if self.dest:
                event_data.machine.set_state(self.dest, event_data.model)
            return True

    class Steps(Machine):
        event_cls = Given
        transition_cls = Step

    return Steps


def _cells(listed: Mapping[Any, Iterable[type]]) -> frozenset[tuple[Enum, type]]:
    return frozenset((state, on) for state, group in listed.items() for on in group)


def _condition(rule: Rule[Any]) -> Callable[[Any], bool]:
    # transitions compares with True, so a result that is merely truthy would count as false.
    return lambda event: bool(rule.when and rule.when(event.model.context, *event.args[:2]))


def _before(rule: Rule[Any]) -> Callable[[Any], None]:
    def act(event: Any) -> None:
        given, now, outcome = event.args
        event.model.context, effects = rule.act(event.model.context, given, now)
        outcome.append(effects)

    return act
