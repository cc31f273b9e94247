"""A join window with its connections in memory, on a clock that only a test moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from joinproto import effects as fx
from joinproto.connection import ControllerConnection
from joinproto.inputs import MemberLost, Offered, RankReported, Settled, Start, StopRequested
from joinproto.machines.controller import Admission, ControllerState
from joinproto.machines.window import WINDOW, WindowConfig, WindowContext
from joinproto.session import Session
from joinproto.testing.clock import FakeClock
from joinproto.testing.link import End


class MemoryController:
    """A join window with its connections; carries out what they want of each other, and no more.

    Attributes:
        forms: reasons for which the world was formed.
        exits: (rank, code) of every end that the window took down, in order.
        ends: how often the run was told to be over.
        turned_away: reasons for which dials were.
        prepared: called with each new connection before anything happens on it.
    """

    def __init__(
        self, clock: FakeClock, config: WindowConfig, admission: Admission, *, relay: bool = False
    ) -> None:
        self.clock = clock
        self.admission = admission
        self.relay = relay
        self.window: Session[WindowContext] = Session(WINDOW, WindowContext(config=config))
        self.ends_of_links: dict[int, End] = {}
        self.connections: dict[int, ControllerConnection] = {}
        self.forms: list[str] = []
        self.exits: list[tuple[int, int]] = []
        self.ends = 0
        self.turned_away: list[str] = []
        self.prepared: Callable[[ControllerConnection], None] = lambda connection: None
        self.step(Start())

    @property
    def context(self) -> WindowContext:
        """What the window knows."""
        return self.window.context

    @property
    def open_connections(self) -> list[ControllerConnection]:
        """Those that have not ended."""
        connections = self.connections.values()
        return [each for each in connections if each.state is not ControllerState.CLOSED]

    def answer(self, dial: fx.Dial) -> End:
        """Take a dial."""
        number = len(self.connections) + 1
        connection = ControllerConnection(self.admission)
        self.prepared(connection)
        end = End(connection, self.clock, lambda effect: self._from_connection(number, effect))
        self.connections[number] = connection
        self.ends_of_links[number] = end
        end.do(connection.start(self.clock.now))
        return end

    def step(self, given: Any) -> None:
        """Give the window an input."""
        for effect in self.window.step(given, self.clock.now):
            self._from_window(effect)

    def stop(self) -> None:
        """Have somebody end the controller."""
        self.step(StopRequested(reason="SIGTERM", number=15))

    def expire(self) -> bool:
        """Let the window's deadlines expire; returns whether any was due."""
        due = self.window.next_timer
        if due is None or due > self.clock.now:
            return False
        for effect in self.window.expire(self.clock.now):
            self._from_window(effect)
        return True

    # -- inside -------------------------------------------------------------------------------

    def _from_connection(self, number: int, effect: Any) -> None:
        match effect:
            case fx.Offer(hello=hello):
                wire = self.connections[number].wire
                self.step(Offered(connection=number, hello=hello, wire=wire))
            case fx.ReportRank(rank=rank, code=code):
                self.step(RankReported(connection=number, rank=rank, code=code))
            case fx.Lost(cause=cause):
                self.step(MemberLost(connection=number, cause=cause))
            case fx.TurnedAway(reason=reason):
                self.turned_away.append(reason)

    def _from_window(self, effect: Any) -> None:
        now = self.clock.now
        match effect:
            case fx.AdmitHost(connection=number, ranks=ranks, formation_wait_secs=wait):
                self._do(number, self.connections[number].admit(ranks, wait, now))
            case fx.RefuseHost(connection=number, reason=reason):
                self._do(number, self.connections[number].refuse(reason, now))
            case fx.DismissHost(connection=number, reason=reason):
                self._do(number, self.connections[number].dismiss(reason, now))
            case fx.Settle():
                self.step(Settled())
            case fx.FormWorld(reason=reason):
                self.forms.append(reason)
                self._form()
            case fx.AbortAll(reason=reason):
                self._abort(reason)
            case fx.RankEnded(rank=rank, code=code):
                self.exits.append((rank, code))
            case fx.RunEnded():
                self.ends += 1
                self._abort("the run is over")

    def _do(self, number: int, effects: list[Any]) -> None:
        self.ends_of_links[number].do(effects)

    def _form(self) -> None:
        vacant = [member.host for member in self.context.members if member.connection is None]
        assert not vacant, "a world formed with a hole"
        for member in self.context.present:
            assert member.connection is not None
            connection = self.connections[member.connection]
            relay = "bb" if self.relay else None
            self._do(member.connection, connection.form("aa", relay, self.clock.now))

    def _abort(self, reason: str) -> None:
        for number, connection in self.connections.items():
            self._do(number, connection.abort(reason, self.clock.now))
