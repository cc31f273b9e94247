"""One running machine: its state, its context and the deadlines it has set."""

from __future__ import annotations

from enum import Enum
from typing import Any, Generic, TypeVar

from joinproto.effects import ClearTimer, SetTimer
from joinproto.inputs import Expired
from joinproto.limits import Timer
from joinproto.table import Table

C = TypeVar("C")


class Session(Generic[C]):
    """Steps a table and keeps its timers; time is always an argument.

    Attributes:
        state: where the machine is.
        context: what it knows.
    """

    def __init__(self, table: Table[C], context: C) -> None:
        self.table = table
        self.state: Enum = table.initial
        self.context: C = context
        self._timers: dict[Timer, float] = {}

    @property
    def final(self) -> bool:
        """Whether the machine has ended."""
        return self.state in self.table.final

    @property
    def next_timer(self) -> float | None:
        """When `expire` wants to be called, on the caller's clock; None: not at all."""
        return min(self._timers.values(), default=None)

    def step(self, given: Any, now: float) -> list[Any]:
        """Give the machine an input; returns the effects that are left to carry out.

        Raises:
            IllegalInput: it cannot happen in this state; nothing has changed.
        """
        left = []
        for effect in self.table.step(self, given, now):
            if isinstance(effect, SetTimer):
                self._timers[effect.timer] = effect.at
            elif isinstance(effect, ClearTimer):
                self._timers.pop(effect.timer, None)
            else:
                left.append(effect)
        if self.final:
            self._timers.clear()
        return left

    def expire(self, now: float) -> list[Any]:
        """Step the machine for every deadline that has come, the earliest first."""
        effects: list[Any] = []
        while self._timers:
            timer = min(self._timers, key=self._timers.__getitem__)
            if self._timers[timer] > now:
                break
            del self._timers[timer]
            effects += self.step(Expired(timer=timer), now)
        return effects
