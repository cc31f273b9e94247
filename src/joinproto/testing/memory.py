"""A whole host in memory: a real agent machine, with links, processes and time under control."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from joinproto import effects as fx
from joinproto.connection import AgentConnection
from joinproto.errors import JoinprotoError
from joinproto.machines.agent import AgentState, Plan
from joinproto.testing.clock import FakeClock
from joinproto.testing.link import STEPS, End, Link
from joinproto.testing.processes import ORDINARY, Behaviour, FakeProcesses


class DialFailed(Exception):
    """Raised by what takes a host's dials: this one fails, for the reason that is its text."""


Answer: TypeAlias = Callable[[fx.Dial], End | None]
"""Takes a dial: gives the controller's end of a new link, None when nobody ever answers it, or
raises `DialFailed`."""


class MemoryHost:
    """Runs an `AgentConnection` without a network, a process or a moment of waiting.

    Args:
        plan: what the agent sets out to do.
        clock: the time.
        answer: takes its dials; `lambda dial: fake.end(clock)` leads them to a `FakeController`.
        behaviours: what its processes do by themselves (see `FakeProcesses`).
        others: what all other processes do.

    Attributes:
        agent: the agent.
        processes: what it runs.
        links: one for each dial that led to one, the last of them current.
        dials: when it dialed, and in which wire version.
        told: what it said to people.
        finished: it is done; then `error` says how.
        error: None when it did its job.
    """

    def __init__(
        self,
        plan: Plan,
        clock: FakeClock,
        answer: Answer,
        behaviours: Mapping[int | None, Behaviour] | None = None,
        *,
        others: Behaviour = ORDINARY,
    ) -> None:
        self.agent = AgentConnection(plan)
        self.clock = clock
        self.processes = FakeProcesses(self.agent, clock, behaviours, others=others)
        self.links: list[Link] = []
        self.dials: list[tuple[float, int]] = []
        self.told: list[fx.Tell] = []
        self.finished = False
        self.error: JoinprotoError | None = None
        self._answer = answer
        self._dial_fails_at: float | None = None

    @property
    def state(self) -> AgentState:
        """Where the agent is."""
        return self.agent.state

    @property
    def link(self) -> Link:
        """The current link."""
        return self.links[-1]

    @property
    def next_timer(self) -> float | None:
        """When something is due, at the host or at the far end of its links; None: nothing is."""
        times = [self.agent.next_timer, self._dial_fails_at]
        times += [link.next_timer for link in self.links]
        return min((time for time in times if time is not None), default=None)

    def start(self) -> None:
        """Begin, and settle."""
        self.do(self.agent.start(self.clock.now))
        self.settle()

    def stop(self, reason: str = "SIGTERM", number: int = 15) -> None:
        """Have somebody on the host ask for an end, and settle."""
        self.do(self.agent.stop(reason, number, self.clock.now))
        self.settle()

    def exit(self, rank: int | None, code: int) -> None:
        """Have the process of a rank (None: the relay) end, and settle."""
        self.do(self.processes[rank].exit(code))
        self.settle()

    def do(self, effects: list[Any]) -> None:
        """Carry out effects, those of calls that the test made itself included."""
        for effect in self.processes.do(effects):
            match effect:
                case fx.Dial():
                    self._dial(effect)
                case fx.CloseLink() if self.links:
                    self.link.left.do([effect])
                case fx.Tell():
                    self.told.append(effect)
                case fx.Finish(error=error):
                    self.finished, self.error = True, error

    def settle(self) -> bool:
        """Let everything happen that can without time passing; returns whether anything did.

        Raises:
            RuntimeError: it never comes to rest.
        """
        for turn in range(STEPS):
            if not self._step():
                return turn > 0
        raise RuntimeError("the host never comes to rest")

    def run(self, until: float | None = None) -> None:
        """Let time pass from one deadline to the next, until the agent is done or nothing is due.

        Args:
            until: stop at this time at the latest; it is reached even when nothing is due.

        Raises:
            RuntimeError: it never ends.
        """
        self.settle()
        for _ in range(STEPS):
            due = self.next_timer
            if self.finished or due is None or (until is not None and due > until):
                break
            self.clock.advance_to(due)
            self.settle()
        else:
            raise RuntimeError("the host never ends")
        if until is not None:
            self.clock.advance_to(until)
            self.settle()

    # -- inside -------------------------------------------------------------------------------

    def _step(self) -> bool:
        moved = False
        # An old link may still have its end to deliver while a new one stands.
        for link in list(self.links):
            moved |= link.settle()
        now = self.clock.now
        if self._dial_fails_at is not None and self._dial_fails_at <= now:
            self._dial_fails_at = None
            self.do(self.agent.connect_failed("connection timed out", now))
            moved = True
        due = self.agent.next_timer
        if due is not None and due <= now:
            self.do(self.agent.handle_timer(now))
            moved = True
        return moved

    def _dial(self, dial: fx.Dial) -> None:
        now = self.clock.now
        self.dials.append((now, dial.wire))
        try:
            far = self._answer(dial)
        except DialFailed as failed:
            self.do(self.agent.connect_failed(str(failed), now))
            return
        if far is None:
            self._dial_fails_at = now + dial.timeout
            return
        # Effect by effect: what one leads to may come before the next, but none is lost.
        near = End(self.agent, self.clock, lambda effect: self.do([effect]))
        self.links.append(Link(near, far))
        near.do(self.agent.connected("controller", now))
