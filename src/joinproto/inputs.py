"""What can happen to a machine, besides a message arriving (those are inputs as they are)."""

from __future__ import annotations

from dataclasses import dataclass, field

from joinproto.errors import DecodeError
from joinproto.limits import Timer
from joinproto.messages import Hello


@dataclass(frozen=True, kw_only=True, slots=True)
class Start:
    """The machine begins."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Expired:
    """A deadline that the machine had set has come."""

    timer: Timer


@dataclass(frozen=True, kw_only=True, slots=True)
class StopRequested:
    """Somebody on this side wants an end: a signal (its name and number), or a caller (0)."""

    reason: str
    number: int = 0


# -- a link -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Connected:
    """A connection stands; `peer` is the other end's address, for people."""

    peer: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectFailed:
    """An attempt to connect, name resolution included, did not lead to a connection."""

    cause: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Flushed:
    """Every byte that was to be sent has been handed to the system."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EndOfStream:
    """The other end closed the connection between two frames."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LinkBroken:
    """The connection failed: a reset, a write that stalled, a stream cut inside a frame."""

    cause: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Undecodable:
    """A frame that cannot be obeyed; `tagged`: its tag was right, so the peer holds the key."""

    error: DecodeError
    tagged: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Routed:
    """The first four bytes of a dial: the name of the channel they ask for, or "" for none."""

    channel: str


# -- children ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildStarted:
    """The process of the child in this slot runs."""

    slot: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildFailed:
    """The process of the child in this slot could not be started."""

    slot: int
    cause: str
    not_found: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildExited:
    """The process of the child in this slot ended and was reaped."""

    slot: int
    code: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildDrained:
    """All that the child wrote before its end is out, or its time for that is over."""

    slot: int


@dataclass(frozen=True, kw_only=True, slots=True)
class ChildStuck:
    """The child is still there although it was killed."""

    slot: int


@dataclass(frozen=True, kw_only=True, slots=True)
class OutputEnded:
    """Both of a child's output streams have ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StopChild:
    """End the child: politely, and by force at `deadline` (seconds on the caller's clock)."""

    deadline: float


@dataclass(frozen=True, kw_only=True, slots=True)
class KillChild:
    """End the child by force."""


# -- a controller's decisions, as one connection sees them ------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Admit:
    """The host on this connection is in."""

    ranks: tuple[int, ...]
    formation_wait_secs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Refuse:
    """The host on this connection is told why it is not in."""

    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Dismiss:
    """The connection is closed unanswered."""

    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Form:
    """The world is complete; these are the host's artifacts, which hold the session salt."""

    envelope_hex: str = field(repr=False)
    relay_spec_hex: str | None = field(repr=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class AbortRun:
    """The run is given up."""

    reason: str


# -- a controller's connections, as the window sees them --------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Offered:
    """A host asks to be admitted."""

    connection: int
    hello: Hello
    wire: int


@dataclass(frozen=True, kw_only=True, slots=True)
class MemberLost:
    """The link of an admitted host ended; `cause` says how."""

    connection: int
    cause: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RankReported:
    """A rank's end: reported on this connection, or (None) told by the caller for a local host."""

    connection: int | None
    rank: int
    code: int
