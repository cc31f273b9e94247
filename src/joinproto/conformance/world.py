"""What a case is played in: the target, its connections, its processes, and the time."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from joinproto.conformance.conversation import Conversation
from joinproto.conformance.results import Happening
from joinproto.keys import Salt

SHOWN_BYTES = 65536
"""Bytes of one piece of a stream that the record keeps."""


@dataclass(frozen=True, kw_only=True)
class Exit:
    """The target ended; `code` is −N when signal N ended it."""

    at: float
    code: int


@dataclass(frozen=True, kw_only=True)
class Line:
    """The target wrote a line, without its LF."""

    at: float
    stream: str
    text: str


@dataclass(kw_only=True)
class Child:
    """A process that the target started: a rank, named by its place on the host, or the relay.

    Attributes:
        name: `0`, `1`, … or `relay`.
        up: when it said that it runs.
        down: when it ended; None: it has not.
        facts: what it told of itself: environment, pid, arguments, working directory.
    """

    name: str
    up: float
    facts: Mapping[str, Any] = field(default_factory=dict)
    down: float | None = None


class Trace:
    """Takes down what happens in a case."""

    def __init__(self) -> None:
        self._entries: list[dict[str, Any]] = []

    def add(
        self,
        at: float,
        who: str,
        what: str,
        *,
        connection: str = "",
        data: bytes = b"",
        text: str = "",
    ) -> None:
        """Something happened."""
        entry = {
            "at": round(at, 6),
            "who": who,
            "what": what,
            "connection": connection,
            "hex": data[:SHOWN_BYTES].hex(),
            "size": len(data),
            "text": text,
        }
        self._entries.append(entry)

    def clear(self) -> None:
        """Forget all of it."""
        self._entries.clear()

    def meaning(self, connection: str, text: str) -> None:
        """What the last bytes of the target on that connection mean."""
        for entry in reversed(self._entries):
            if entry["connection"] == connection and entry["who"] == "target":
                entry["text"] = f"{entry['text']}; {text}" if entry["text"] else text
                return

    @property
    def happenings(self) -> tuple[Happening, ...]:
        """All of it, in order."""
        return tuple(Happening(**entry) for entry in self._entries)


@dataclass(frozen=True, kw_only=True)
class Keys:
    """The secrets of a case, made for it alone.

    Attributes:
        join: with which Hello, Accept and Reject are tagged.
        session: with which the other messages are; the same under a pre-shared salt.
        other: a salt that nobody holds.
        open: admission is open.
    """

    join: Salt
    session: Salt
    other: Salt
    open: bool


class World(Protocol):
    """A running target and all that a case sees of it.

    Attributes:
        scale: of every network deadline.
        host: the name that the target, an agent, is to join under.
        address: where the suite, or the target, listens.
        keys: the secrets of the case.
        trace: takes down what happens.
        conversations: the connections, by name.
        exit: the target ended; None: it has not.
        lines: what the target wrote and no step has looked at.
    """

    scale: float
    host: str
    address: tuple[str, int]
    keys: Keys
    trace: Trace
    conversations: dict[str, Conversation]
    exit: Exit | None
    lines: list[Line]

    @property
    def children(self) -> dict[str, list[Child]]:
        """What the target started, by name, in the order in which it came up."""

    @property
    def dials_waiting(self) -> int:
        """How many dials wait for `accept`."""

    def now(self) -> float:
        """Seconds since the case began."""

    def run(self, until: float) -> None:
        """Let things happen until something did, or until that time."""

    def resting(self, rests: bool) -> AbstractContextManager[None]:
        """Where a case only waits for a deadline: others may run meanwhile."""

    def listen(self) -> None:
        """Take dials, which so far were refused."""

    def accept(self, name: str) -> bool:
        """Take the next dial under that name; returns whether there was one."""

    def dial(self, name: str, *, raw: bool) -> None:
        """Dial the target.

        Raises:
            Unreachable: it takes no connections.
        """

    def send(self, name: str, data: bytes, text: str) -> None:
        """Send bytes, as one piece where the network lets it."""

    def half_close(self, name: str) -> None:
        """Send no more."""

    def close(self, name: str) -> None:
        """Close the connection once everything is sent."""

    def reset(self, name: str) -> None:
        """Break the connection."""

    def restart(self) -> None:
        """End the target and what connects to it, and start it anew."""

    def signal(self, number: int) -> None:
        """Send the target a signal."""

    def order(self, child: Child, command: Mapping[str, Any]) -> None:
        """Have a process that the target started do something."""


class Unreachable(Exception):
    """The target takes no connections; the text says why."""


class Flood(Exception):
    """The target sends or writes without end; the text says what."""
