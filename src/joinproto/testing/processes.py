"""Fake processes: they start, end and refuse to end as a test says; nothing is ever executed."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from joinproto import effects as fx
from joinproto.connection import AgentConnection
from joinproto.testing.clock import FakeClock


@dataclass(frozen=True, kw_only=True, slots=True)
class Behaviour:
    """What a fake process does by itself.

    Attributes:
        starts: it starts at once; else when `FakeProcess.start` or `fail` is called.
        cannot_start: why it cannot be started; None: it can.
        not_found: that is since there is no such command.
        exits: the code with which it ends as soon as it has started; None: it runs on.
        ignores_sigterm: SIGTERM does not end it.
        unkillable: not even SIGKILL does, as with a process that hangs in a driver.
        holds_output: its output stays open when it has ended, in a grandchild's hands, until
            `FakeProcess.end_output` is called or the host is swept.
    """

    starts: bool = True
    cannot_start: str | None = None
    not_found: bool = False
    exits: int | None = None
    ignores_sigterm: bool = False
    unkillable: bool = False
    holds_output: bool = False


ORDINARY = Behaviour()


class FakeProcess:
    """A process that is not there.

    Attributes:
        spawn: the effect that asked for it.
        behaviour: what it does by itself.
        signals: those it was sent, in order.
        settled: it has started, or failed to.
        running: it has started and not ended.
        code: with which it ended; None: it has not.
        output_open: its output has not ended.
    """

    def __init__(self, owner: FakeProcesses, spawn: fx.Spawn, behaviour: Behaviour) -> None:
        self.spawn = spawn
        self.behaviour = behaviour
        self.signals: list[signal.Signals] = []
        self.settled = False
        self.running = False
        self.code: int | None = None
        self.output_open = True
        self._owner = owner

    def __repr__(self) -> str:
        name = "relay" if self.spawn.rank is None else f"rank {self.spawn.rank}"
        ended = "not started" if self.code is None else f"ended with {self.code}"
        return f"<fake process of the {name}, {'running' if self.running else ended}>"

    def start(self) -> list[Any]:
        """Have it start; returns the effects that are left to carry out, as do all of these."""
        return self._owner.do(self._started())

    def fail(self, cause: str, *, not_found: bool = False) -> list[Any]:
        """Have its start fail."""
        return self._owner.do(self._failed(cause, not_found))

    def exit(self, code: int) -> list[Any]:
        """Have it end with `code` (−N: by signal N), and its output with it unless that is held."""
        return self._owner.do(self._exited(code))

    def end_output(self) -> list[Any]:
        """Have its output end."""
        return self._owner.do(self.close_output())

    # -- inside -------------------------------------------------------------------------------

    @property
    def _agent(self) -> AgentConnection:
        return self._owner.agent

    @property
    def _now(self) -> float:
        return self._owner.clock.now

    def begin(self) -> list[Any]:
        """What it does by itself when it is asked for."""
        behaviour = self.behaviour
        if behaviour.cannot_start is not None:
            return self._failed(behaviour.cannot_start, behaviour.not_found)
        return self._started() if behaviour.starts else []

    def take(self, number: signal.Signals) -> list[Any]:
        """What it does when it is sent a signal."""
        self.signals.append(number)
        deaf = number == signal.SIGTERM and self.behaviour.ignores_sigterm
        if self.behaviour.unkillable or deaf:
            return []
        if not self.settled:
            # One that is killed on its way counts as started, as it does with real ones.
            return [*self._started(), *self._exited(-number)]
        if not self.running:
            return []
        return self._exited(-number)

    def lose_helper(self, cause: str) -> list[Any]:
        """What becomes of it when the process that stands over it ends."""
        if self.running:
            return self._exited(-signal.SIGKILL)
        return [] if self.settled else self._failed(cause, not_found=False)

    def close_output(self) -> list[Any]:
        """What the end of its output leads to."""
        if not self.output_open:
            return []
        self.output_open = False
        return self._agent.output_ended(self.spawn.slot, self._now)

    def _started(self) -> list[Any]:
        self.running = self.settled = True
        effects = self._agent.child_started(self.spawn.slot, self._now)
        # It may have been stopped by what its start led to.
        if self.behaviour.exits is not None and self.running:
            effects += self._exited(self.behaviour.exits)
        return effects

    def _failed(self, cause: str, not_found: bool) -> list[Any]:
        self.settled = True
        slot = self.spawn.slot
        return self._agent.child_failed(slot, cause, self._now, not_found=not_found)

    def _exited(self, code: int) -> list[Any]:
        self.running, self.code = False, code
        slot = self.spawn.slot
        if self.behaviour.holds_output:
            return self._agent.child_exited(slot, code, self._now)
        # Its last output is out before its end is told, as it mostly is.
        return [*self.close_output(), *self._agent.child_exited(slot, code, self._now)]


class FakeProcesses(Mapping[int | None, FakeProcess]):
    """Carries out what an `AgentConnection` wants of processes; a mapping of what it asked for.

    The keys are global ranks, and None for the relay.

    Args:
        agent: whose effects are carried out, and who is told what becomes of them.
        clock: where the time is taken from.
        behaviours: what each process does by itself, by the same keys.
        others: what all other processes do.

    Attributes:
        slots: each process by its number, in the order in which they were asked for.
        sweeps: how often the host was to be swept of what the processes left behind.
    """

    def __init__(
        self,
        agent: AgentConnection,
        clock: FakeClock,
        behaviours: Mapping[int | None, Behaviour] | None = None,
        *,
        others: Behaviour = ORDINARY,
    ) -> None:
        self.agent = agent
        self.clock = clock
        self.behaviours = dict(behaviours or {})
        self.others = others
        self.sweeps = 0
        self.slots: dict[int, FakeProcess] = {}

    def __getitem__(self, rank: int | None) -> FakeProcess:
        for process in self.slots.values():
            if process.spawn.rank == rank:
                return process
        raise KeyError(rank)

    def __iter__(self) -> Any:
        return iter([process.spawn.rank for process in self.slots.values()])

    def __len__(self) -> int:
        return len(self.slots)

    def __repr__(self) -> str:
        return f"FakeProcesses({list(self.slots.values())})"

    @property
    def running(self) -> list[FakeProcess]:
        """Those that have started and not ended, in the order in which they were asked for."""
        return [process for process in self.slots.values() if process.running]

    def do(self, effects: Iterable[Any]) -> list[Any]:
        """Carry out what concerns processes, and what comes of that; returns the other effects."""
        todo, left = deque(effects), []
        while todo:
            effect = todo.popleft()
            match effect:
                case fx.Spawn():
                    todo += self._spawn(effect)
                case fx.Terminate(slot=slot):
                    todo += self.slots[slot].take(signal.SIGTERM)
                case fx.Kill(slot=slot):
                    todo += self.slots[slot].take(signal.SIGKILL)
                case fx.SweepHost():
                    todo += self._sweep()
                case _:
                    left.append(effect)
        return left

    def helper_dies(self, cause: str = "the helper process was killed") -> list[Any]:
        """Have the process between the agent and its children end, and all of them with it."""
        effects = self.agent.helper_died(cause, self.clock.now)
        for process in list(self.slots.values()):
            effects += process.lose_helper(cause)
        return self.do(effects)

    def all_exit(self, code: int = 0, *, but: Sequence[int | None] = ()) -> list[Any]:
        """Have every process that runs end with `code`, the ranks (or None) in `but` excepted."""
        left = []
        for process in self.running:
            if process.spawn.rank not in but:
                left += process.exit(code)
        return left

    def _sweep(self) -> list[Any]:
        self.sweeps += 1
        effects = []
        for process in self.slots.values():
            if process.code is not None:
                effects += process.close_output()
        return effects

    def _spawn(self, spawn: fx.Spawn) -> list[Any]:
        behaviour = self.behaviours.get(spawn.rank, self.others)
        process = FakeProcess(self, spawn, behaviour)
        self.slots[spawn.slot] = process
        return process.begin()
