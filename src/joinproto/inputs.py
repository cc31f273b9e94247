"""What can happen to a machine, besides a message arriving (those are inputs as they are)."""

from __future__ import annotations

from typing import ClassVar

from joinproto.errors import DecodeError
from joinproto.limits import Timer
from joinproto.messages import Hello
from joinproto.record import Record


class Start(Record):
    """The machine begins."""


class Expired(Record):
    """A deadline that the machine had set has come."""

    timer: Timer


class StopRequested(Record):
    """Somebody on this side wants an end: a signal (its name and number), or a caller (0)."""

    reason: str
    number: int = 0


class GiveUp(Record):
    """This side cannot go on."""

    reason: str


# -- a link -----------------------------------------------------------------------------------


class Connected(Record):
    """A connection stands; `peer` is the other end's address, for people."""

    peer: str


class ConnectFailed(Record):
    """An attempt to connect, name resolution included, did not lead to a connection."""

    cause: str


class Flushed(Record):
    """Every byte that was to be sent has been handed to the system."""


class EndOfStream(Record):
    """The other end closed the connection between two frames."""


class LinkBroken(Record):
    """The connection failed: a reset, a write that stalled, a stream cut inside a frame."""

    cause: str


class Undecodable(Record):
    """A frame that cannot be obeyed; `tagged`: its tag was right, so the peer holds the key."""

    error: DecodeError
    tagged: bool = False


class Routed(Record):
    """The first four bytes of a dial: the name of the channel they ask for, or "" for none."""

    channel: str


# -- children ---------------------------------------------------------------------------------


class ChildStarted(Record):
    """The process of the child in this slot runs."""

    slot: int


class ChildFailed(Record):
    """The process of the child in this slot could not be started."""

    slot: int
    cause: str
    not_found: bool = False


class ChildExited(Record):
    """The process of the child in this slot ended and was reaped."""

    slot: int
    code: int


class ChildDrained(Record):
    """All that the child wrote before its end is out, or its time for that is over."""

    slot: int


class ChildStuck(Record):
    """The child is still there although it was killed."""

    slot: int


class HelperDied(Record):
    """The process that stands between the agent and its children is gone, and they with it."""

    cause: str


class OutputEnded(Record):
    """Both of a child's output streams have ended."""


class StopChild(Record):
    """End the child: politely, and by force at `deadline` (seconds on the caller's clock)."""

    deadline: float


class KillChild(Record):
    """End the child by force."""


# -- a controller's decisions, as one connection sees them ------------------------------------


class Admit(Record):
    """The host on this connection is in."""

    ranks: tuple[int, ...]
    formation_wait_secs: int


class Refuse(Record):
    """The host on this connection is told why it is not in."""

    reason: str


class Dismiss(Record):
    """The connection is closed unanswered."""

    reason: str


class Form(Record):
    """The world is complete; these are the host's artifacts, which hold the session salt."""

    hidden: ClassVar[frozenset[str]] = frozenset({"envelope_hex", "relay_spec_hex"})

    envelope_hex: str
    relay_spec_hex: str | None


class AbortRun(Record):
    """The run is given up."""

    reason: str


# -- a controller's connections, as the window sees them --------------------------------------


class Offered(Record):
    """A host asks to be admitted; `peer` is its address, for people."""

    connection: int
    hello: Hello
    wire: int
    peer: str = ""


class Settled(Record):
    """What was decided about hosts has been carried out: there may be a world now."""


class StartGiven(Record):
    """The operator gives the start; `by` says from where."""

    by: str


class DialTurnedAway(Record):
    """A dial ended, or will, without its host being admitted."""


class MemberLost(Record):
    """The link of an admitted host ended; `cause` says how."""

    connection: int
    cause: str


class RankReported(Record):
    """A rank's end: reported on this connection, or (None) told by the caller for a local host."""

    connection: int | None
    rank: int
    code: int
