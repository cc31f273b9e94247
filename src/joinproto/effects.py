"""What a machine wants done.  Carrying it out is somebody else's business."""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

from joinproto.errors import JoinprotoError
from joinproto.keys import Salt
from joinproto.limits import Timer
from joinproto.messages import Hello, Message
from joinproto.record import Record


class Severity(IntEnum):
    """How much a person needs to know; the order is that of verbosity."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


class Tell(Record):
    """Say something to the people who run this."""

    severity: Severity
    text: str


class SetTimer(Record):
    """Let `timer` expire at the time `at` (seconds on the caller's clock)."""

    timer: Timer
    at: float


class ClearTimer(Record):
    """Forget `timer`."""

    timer: Timer


# -- a link -----------------------------------------------------------------------------------


class Dial(Record):
    """Connect to the controller within `timeout` seconds, name resolution included."""

    timeout: float
    wire: int


class OpenChannel(Record):
    """Send the join channel's magic."""


class Send(Record):
    """Send a message, tagged with the key in force."""

    message: Message


class UseKey(Record):
    """From here on, frames of both directions are tagged with this key."""

    key: Salt


class EndSending(Record):
    """Close this side of the connection once everything is sent; go on reading."""


class CloseLink(Record):
    """Close the connection once everything is sent."""


# -- children ---------------------------------------------------------------------------------


class Spawn(Record):
    """Start a child.

    Attributes:
        slot: its place in the order of starting, from 0.
        artifact_hex: the relay spec for the relay, the envelope for a rank; either holds the
            session salt, so it is not shown in a repr.
        rank: its global rank; None for the relay.
        local_rank: its position on this host; None for the relay.
        device: the device it is pinned to; None for the relay.
        wire: the version that the controller answered in, which decides its environment.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"artifact_hex"})

    slot: int
    artifact_hex: str
    rank: int | None
    local_rank: int | None
    device: int | None
    wire: int


class StopChildren(Record):
    """Stop every child, politely until `deadline`, by force then."""

    deadline: float


class KillChildren(Record):
    """End every child by force."""


class SweepHost(Record):
    """End every descendant that is still there, wherever it has gone; no child of ours runs."""


class Terminate(Record):
    """Send SIGTERM to the process group of the child in this slot."""

    slot: int


class Kill(Record):
    """Send SIGKILL to the process group of the child in this slot."""

    slot: int


class TellExited(Record):
    """The child's process is gone, with this code."""

    code: int


class TellDrained(Record):
    """Nothing more of the child's output is waited for."""


class TellStuck(Record):
    """The child cannot be ended."""


class Finish(Record):
    """The agent is done: well (None), or with an error."""

    error: JoinprotoError | None


# -- one connection of a controller -----------------------------------------------------------


class Offer(Record):
    """Ask the window about this host."""

    hello: Hello


class HandOver(Record):
    """This connection speaks HTTP: it is somebody else's from here on, with what has come on it."""


class ReportRank(Record):
    """A rank of this host ended."""

    rank: int
    code: int


class TurnedAway(Record):
    """The connection ended or will end without its host being admitted."""

    reason: str


class Lost(Record):
    """The link of an admitted host ended."""

    cause: str


# -- the window -------------------------------------------------------------------------------


class AdmitHost(Record):
    """Tell this connection's host that it is in."""

    connection: int
    ranks: tuple[int, ...]
    formation_wait_secs: int


class RefuseHost(Record):
    """Tell this connection's host why it is not in."""

    connection: int
    reason: str


class DismissHost(Record):
    """Close this connection unanswered."""

    connection: int
    reason: str


class Settle(Record):
    """Come back with `Settled` once everything before this has been carried out."""


class FormWorld(Record):
    """Send every member its artifacts."""

    reason: str


class AbortAll(Record):
    """Send every member an Abort."""

    reason: str


class RankEnded(Record):
    """A rank's end has been taken down."""

    rank: int
    code: int


class RunEnded(Record):
    """Nothing of the world is left to wait for."""
