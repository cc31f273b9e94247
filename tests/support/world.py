"""A controller and its hosts in memory: window, connections and agents, all on one clock."""

from __future__ import annotations

from joinproto import effects as fx
from joinproto.keys import Salt
from joinproto.machines.controller import Admission
from joinproto.machines.window import WindowConfig
from joinproto.testing import FakeAgent, FakeClock, Link, MemoryHost, SendBytes, WaitEnd
from joinproto.testing.controller import MemoryController


class World:
    """A controller and hosts that dial it."""

    def __init__(self, config: WindowConfig, salt: Salt, *, open: bool, relay: bool) -> None:
        self.clock = FakeClock()
        admission = Admission(salt=salt, open=open, scale=config.scale)
        self.controller = MemoryController(self.clock, config, admission, relay=relay)
        self.hosts: list[MemoryHost] = []
        self.strangers: list[Link] = []

    @property
    def next_timer(self) -> float | None:
        """When something is due somewhere; None: nothing is."""
        times = [self.controller.window.next_timer]
        times += [part.next_timer for part in self._parts]
        return min((time for time in times if time is not None), default=None)

    def settle(self) -> None:
        """Let everything happen that can without time passing."""
        moved = True
        while moved:
            moved = self.controller.expire()
            for part in self._parts:
                moved |= part.settle()

    @property
    def _parts(self) -> list[MemoryHost | Link]:
        return [*self.hosts, *self.strangers]

    def stranger(self, data: bytes) -> None:
        """Have somebody dial who says this, and nothing more."""
        far = FakeAgent([SendBytes(data), WaitEnd()], channel=b"").end(self.clock)
        self.strangers.append(Link(far, self.controller.answer(fx.Dial(timeout=3.0, wire=2))))

    def advance(self, seconds: float) -> None:
        """Let time pass, from one deadline to the next."""
        until = self.clock.now + seconds
        while (due := self.next_timer) is not None and due <= until:
            self.clock.advance_to(due)
            self.settle()
        self.clock.advance_to(until)
        self.settle()
