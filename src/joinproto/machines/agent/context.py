"""What an agent sets out to do, and what it knows on the way."""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeAlias

from joinproto import effects as fx
from joinproto.effects import Severity
from joinproto.errors import ConfigError, JoinprotoError
from joinproto.inputs import EndOfStream, LinkBroken
from joinproto.keys import Salt
from joinproto.limits import GRACE, Timer
from joinproto.messages import Hello, WorldFormed
from joinproto.record import Record, replace


class AgentState(Enum):
    """Where an agent is."""

    DIALING = "Dialing"
    HELLO = "Hello"
    AWAIT_ACCEPT = "AwaitAccept"
    AWAIT_FORMED = "AwaitFormed"
    SUPERVISING = "Supervising"
    DONE = "Done"
    ABORTED = "Aborted"


class Plan(Record):
    """What an agent sets out to do.

    Attributes:
        hello: what it says of itself, with every field that the newest wire has.
        wires: the versions to try, in this order, each on a dial of its own.
        salt: the pre-shared salt; None under open admission.
        scale: of every network deadline.
        grace: seconds between SIGTERM and SIGKILL, one for all children; 0 kills at once.

    Raises:
        ConfigError: the host has no device to offer (fault `no-devices`), or there is no wire
            version to try.
    """

    hello: Hello
    wires: tuple[int, ...]
    salt: Salt | None = None
    scale: float = 1.0
    grace: float = GRACE

    def __post_init__(self) -> None:
        if not self.hello.local_devices:
            raise ConfigError(
                f"host {self.hello.host!r} has no devices to offer; name some with --devices",
                fault="no-devices",
            )
        if not self.wires:
            raise ConfigError("there is no wire version to try; name one with --wire")


class AgentContext(Record):
    """What an agent knows.

    Attributes:
        plan: what it set out to do.
        wire: index of the version in use, in `plan.wires`.
        hangups: attempts that ended with a connection closed before any answer.
        give_up_at: end of the connect budget.
        peer: address of the controller, for people.
        ranks: global ranks, in the order of the devices.
        formed: the artifacts.
        alive: children whose process runs or is to be started.
        unreported: children whose end has not been dealt with to the end.
        codes: slot → exit code of children that have ended.
        stuck: slots of children that cannot be ended.
        signals: how often somebody on this side asked for an end.
        link: the connection stands.
        failure: why the host is being torn down; None while it is not.
    """

    plan: Plan
    wire: int = 0
    hangups: int = 0
    give_up_at: float = 0.0
    peer: str = ""
    ranks: tuple[int, ...] = ()
    formed: WorldFormed | None = None
    alive: frozenset[int] = frozenset()
    unreported: frozenset[int] = frozenset()
    codes: tuple[tuple[int, int], ...] = ()
    stuck: frozenset[int] = frozenset()
    signals: int = 0
    link: bool = False
    failure: JoinprotoError | None = None

    @property
    def version(self) -> int:
        """The wire version in use."""
        return self.plan.wires[self.wire]

    @property
    def relays(self) -> int:
        """How many slots the relay takes: 1, or 0 where none is asked for."""
        return int(self.formed is not None and self.formed.relay_spec_hex is not None)

    @property
    def children(self) -> int:
        """How many children a complete host has."""
        return self.relays + len(self.ranks)

    def rank_of(self, slot: int) -> int | None:
        """The global rank of the child in `slot`; None for the relay."""
        return None if slot < self.relays else self.ranks[slot - self.relays]

    def name_of(self, slot: int) -> str:
        """The child in `slot`, for people."""
        rank = self.rank_of(slot)
        return "relay" if rank is None else f"rank {rank}"

    @property
    def failed_ranks(self) -> int:
        """How many ranks ended with anything but 0."""
        return sum(1 for slot, code in self.codes if code and self.rank_of(slot) is not None)


Outcome: TypeAlias = tuple[AgentContext, tuple[Any, ...]]


def say(text: str, severity: Severity = Severity.INFO) -> fx.Tell:
    return fx.Tell(severity=severity, text=text)


def calm() -> tuple[Any, ...]:
    return tuple(
        fx.ClearTimer(timer=timer)
        for timer in (Timer.REDIAL, Timer.WRITE, Timer.REPLY, Timer.FORMATION)
    )


def fail(ctx: AgentContext, error: JoinprotoError) -> Outcome:
    return replace(ctx, failure=error, link=False), (fx.CloseLink(), fx.Finish(error=error))


def how_lost(ctx: AgentContext, given: EndOfStream | LinkBroken) -> str:
    if isinstance(given, EndOfStream):
        return f"the controller at {ctx.peer} closed the connection"
    return f"the connection to the controller at {ctx.peer} failed ({given.cause})"
