"""Every way of failing, one class each.

Two sides (as in h11): a `LocalError` says that the caller of this code did something wrong, a
`RemoteError` that the other end of the link did, or that the link itself failed.  A `HostError` is
neither: something on this machine (a spawn, a device, a child) stood in the way.

`exit_code` is the code with which an agent ends when that error ends it: 1 where a restart may
cure it, 2 where it will not, 3 after a Reject.
"""

from __future__ import annotations

from enum import StrEnum


class Stage(StrEnum):
    """The step of reading a frame at which it was refused, in the order in which they are done."""

    MAGIC = "magic"
    VERSION = "version"
    KIND = "kind"
    LENGTH = "length"
    TRUNCATED = "truncated"
    TAG = "tag"
    PAYLOAD = "payload"


class JoinprotoError(Exception):
    """The root of every error that joinproto raises on purpose."""

    exit_code: int = 1


# -- our side ---------------------------------------------------------------------------------


class LocalError(JoinprotoError):
    """The caller asked for something that the protocol does not allow."""

    exit_code = 2


class InvalidMessage(LocalError, ValueError):
    """A message was made with a value that the wire cannot carry."""


class IllegalInput(LocalError):
    """A machine was given an input that cannot happen in the state it is in.

    The machine is unchanged and may be used further.
    """

    def __init__(self, machine: str, state: str, given: str) -> None:
        super().__init__(f"{machine} machine: {given} cannot happen in state {state}")
        self.machine = machine
        self.state = state
        self.given = given


class TableError(LocalError):
    """A machine's table contradicts itself; raised when the module that holds it is imported."""


class ConfigError(LocalError, ValueError):
    """A setting is unusable.  `fault` names the step that refused it.

    Faults: `hex`, `json`, `salt`, `signature`, `no-devices`, `role`, `command`, `option`.
    """

    def __init__(self, message: str, *, fault: str = "option") -> None:
        super().__init__(message)
        self.fault = fault


# -- the other side ---------------------------------------------------------------------------


class RemoteError(JoinprotoError):
    """The other end broke the protocol, refused us, or cannot be reached."""


class DecodeError(RemoteError):
    """Bytes that are not a frame, or a frame whose payload is not a message.

    A stream that gave one before `Stage.TAG` cannot be read further: where the next frame begins
    is not known.  After a `TAG` or `PAYLOAD` error the stream stands at the next frame.

    Attributes:
        stage: the step that refused it.
        detail: what is wrong, without any secret.
        field: for payloads, the path of the field, such as `Hello.gpus[1]`; else "".
        offset: for payloads, the byte of the payload at which reading the field failed; else None.
    """

    def __init__(
        self, stage: Stage, detail: str, *, field: str = "", offset: int | None = None
    ) -> None:
        where = f" in {field} at byte {offset} of the payload" if offset is not None else ""
        super().__init__(f"{stage}: {detail}{where}")
        self.stage = stage
        self.detail = detail
        self.field = field
        self.offset = offset


class ProtocolViolation(RemoteError):
    """A well-formed message that has no business where it came."""

    def __init__(self, expected: str, got: str) -> None:
        super().__init__(f"expected {expected}, got {got}")
        self.expected = expected
        self.got = got


class Rejected(RemoteError):
    """The controller turned this host away; asking again at once will not help."""

    exit_code = 3

    def __init__(self, reason: str) -> None:
        super().__init__(f"join rejected by the controller: {reason}")
        self.reason = reason


class Aborted(RemoteError):
    """The controller gave the run up."""

    def __init__(self, reason: str, *, formed: bool) -> None:
        when = "run aborted" if formed else "run aborted before the world formed"
        super().__init__(f"{when}: {reason}")
        self.reason = reason
        self.formed = formed


class LinkLost(RemoteError):
    """The join connection ended or broke while it was needed."""


class Unreachable(RemoteError):
    """No attempt to reach the controller succeeded inside the connect budget."""


class DeadlinePassed(RemoteError):
    """The other end did not answer within the deadline of a phase."""


class TrustMismatch(RemoteError):
    """The two ends disagree on whether a pre-shared salt is used."""


# -- this host --------------------------------------------------------------------------------


class HostError(JoinprotoError):
    """Something on this machine stood in the way."""


class SpawnFailed(HostError):
    """A relay or rank could not be started; what had been started was stopped."""


class CommandNotFound(SpawnFailed):
    """The command to run does not exist or may not be executed; a restart will not help."""

    exit_code = 2


class HelperLost(HostError):
    """The process between the agent and its children was ended, and they with it."""


class RelayDied(HostError):
    """The relay ended with an error while ranks still needed it."""


class Unkillable(HostError):
    """A child is still there after SIGKILL and a bounded wait; the message names it."""


class ArtifactError(HostError):
    """The envelope or the relay spec of a formed world cannot be read."""


class Stopped(JoinprotoError):
    """The agent was told to stop by a signal; its exit code is 128 + that signal."""

    def __init__(self, signal_name: str, number: int) -> None:
        super().__init__(f"stopped by {signal_name}")
        self.signal_name = signal_name
        self.number = number
        self.exit_code = 128 + number
