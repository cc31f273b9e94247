"""A window to be given things by hand, and what it wants done."""

from __future__ import annotations

from typing import Any

from joinproto import effects as fx
from joinproto.inputs import (
    GiveUp,
    MemberLost,
    Offered,
    RankReported,
    Settled,
    Start,
    StopRequested,
)
from joinproto.machines.window import (
    WINDOW,
    WindowConfig,
    WindowContext,
    WindowState,
)
from joinproto.messages import Hello
from joinproto.session import Session
from tests.support.machines import at

S = WindowState


SIG = bytes(range(32))
STOP = StopRequested(reason="SIGTERM", number=15)
GIVE_UP = GiveUp(reason="the journal cannot be written")


def hello(host: str = "a", devices: int = 1, **more: Any) -> Hello:
    return Hello(host=host, local_devices=tuple(range(devices)), **more)


class Window(Session[WindowContext]):
    """A window that opened at 1000, and what it wanted done last."""

    def __init__(self, **config: Any) -> None:
        super().__init__(WINDOW, WindowContext(config=WindowConfig(**config)))
        self.now = 1000.0
        self.give(Start())

    def give(self, given: Any) -> list[Any]:
        """Give it an input, and carry out at once what is to settle."""
        self.done = self.settle(self.step(given, self.now))
        return self.done

    def settle(self, effects: list[Any]) -> list[Any]:
        done = []
        for effect in effects:
            done += self.give(Settled()) if effect == fx.Settle() else [effect]
        return done

    def offer(
        self, connection: int, host: str, devices: int = 1, wire: int = 2, **more: Any
    ) -> list[Any]:
        return self.give(
            Offered(connection=connection, hello=hello(host, devices, **more), wire=wire)
        )

    def lose(self, connection: int) -> list[Any]:
        return self.give(MemberLost(connection=connection, cause="reset"))

    def report(self, rank: int, code: int = 0, connection: int | None = 1) -> list[Any]:
        return self.give(RankReported(connection=connection, rank=rank, code=code))

    def wait(self, seconds: float) -> list[Any]:
        self.now += seconds
        self.done = self.settle(self.expire(self.now))
        return self.done

    @property
    def ranks(self) -> list[tuple[str, tuple[int, ...]]]:
        """The hosts that are there, and what they were given."""
        return [(member.host, member.ranks) for member in self.context.present]


def admitted(connection: int, *ranks: int, wait: int = 600) -> fx.AdmitHost:
    return fx.AdmitHost(connection=connection, ranks=ranks, formation_wait_secs=wait)


def refused(connection: int, reason: str) -> list[Any]:
    return [fx.RefuseHost(connection=connection, reason=reason)]


TARGET = fx.FormWorld(reason="target reached")
QUORUM = fx.FormWorld(reason="quorum holds and the join timeout has passed")


def formed(**config: Any) -> Window:
    """A world of a (ranks 0 and 1, connection 1) and b (rank 2, connection 2)."""
    window = Window(target_ranks=3, **config)
    window.offer(1, "a", 2)
    window.offer(2, "b", 1)
    assert at(window, S.FORMED)
    return window
