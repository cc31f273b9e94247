"""What a machine wants done.  Carrying it out is somebody else's business."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from joinproto.errors import JoinprotoError
from joinproto.keys import Salt
from joinproto.limits import Timer
from joinproto.messages import Hello, Message


class Severity(IntEnum):
    """How much a person needs to know; the order is that of verbosity."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


@dataclass(frozen=True, kw_only=True, slots=True)
class Tell:
    """Say something to the people who run this."""

    severity: Severity
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SetTimer:
    """Let `timer` expire at the time `at` (seconds on the caller's clock)."""

    timer: Timer
    at: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ClearTimer:
    """Forget `timer`."""

    timer: Timer


# -- a link -----------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Dial:
    """Connect to the controller within `timeout` seconds, name resolution included."""

    timeout: float
    wire: int


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenChannel:
    """Send the join channel's magic."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Send:
    """Send a message, tagged with the key in force."""

    message: Message


@dataclass(frozen=True, kw_only=True, slots=True)
class UseKey:
    """From here on, frames of both directions are tagged with this key."""

    key: Salt


@dataclass(frozen=True, kw_only=True, slots=True)
class EndSending:
    """Close this side of the connection once everything is sent; go on reading."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CloseLink:
    """Close the connection once everything is sent."""


# -- children ---------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Spawn:
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

    slot: int
    artifact_hex: str = field(repr=False)
    rank: int | None
    local_rank: int | None
    device: int | None
    wire: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StopChildren:
    """Stop every child, politely until `deadline`, by force then."""

    deadline: float


@dataclass(frozen=True, kw_only=True, slots=True)
class KillChildren:
    """End every child by force."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Terminate:
    """Send SIGTERM to the process group of the child in this slot."""

    slot: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Kill:
    """Send SIGKILL to the process group of the child in this slot."""

    slot: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TellExited:
    """The child's process is gone, with this code."""

    code: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TellDrained:
    """Nothing more of the child's output is waited for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TellStuck:
    """The child cannot be ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finish:
    """The agent is done: well (None), or with an error."""

    error: JoinprotoError | None


# -- one connection of a controller -----------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class Offer:
    """Ask the window about this host."""

    hello: Hello


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportRank:
    """A rank of this host ended."""

    rank: int
    code: int


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnedAway:
    """The connection ended or will end without its host being admitted."""

    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Lost:
    """The link of an admitted host ended."""

    cause: str


# -- the window -------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True, slots=True)
class AdmitHost:
    """Tell this connection's host that it is in."""

    connection: int
    ranks: tuple[int, ...]
    formation_wait_secs: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RefuseHost:
    """Tell this connection's host why it is not in."""

    connection: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class DismissHost:
    """Close this connection unanswered."""

    connection: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class FormWorld:
    """Send every member its artifacts."""

    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class AbortAll:
    """Send every member an Abort."""

    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class RankEnded:
    """A rank's end has been taken down."""

    rank: int
    code: int


@dataclass(frozen=True, kw_only=True, slots=True)
class RunEnded:
    """Nothing of the world is left to wait for."""
