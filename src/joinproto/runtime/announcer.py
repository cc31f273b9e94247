"""Tells what a controller does: as events for programs, as lines for people, and to the journal."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from joinproto.effects import Severity
from joinproto.machines.window import Member, WindowContext
from joinproto.runtime.addresses import format_address
from joinproto.runtime.observe import timestamp
from joinproto.runtime.signals import how_ended, signal_name

if TYPE_CHECKING:
    from joinproto.runtime.journal import Journal
    from joinproto.runtime.output import Sink

Event: TypeAlias = Mapping[str, Any]

QUIET = 1.0
"""Seconds in which turned-away dials that never said who they are make one event, not more."""

HELD_BYTES = 8 * 1024 * 1024
"""Beyond this, a reader of events that stalls is not told of dials that were turned away."""


class Announcer:
    """Turns what a server tells into events and into lines for people.

    Args:
        on_event: takes the events of `specs/events.schema.json`.
        on_text: takes lines for people, with their severity.
        on_change: called when something that shows has changed.
    """

    def __init__(
        self,
        on_event: Callable[[Event], None],
        on_text: Callable[[Severity, str], None],
        on_change: Callable[[], None],
    ) -> None:
        self.journal: Journal | None = None
        self.sink: Sink | None = None
        self._on_event = on_event
        self._text = on_text
        self._on_change = on_change
        self._quiet_until = 0.0
        self._suppressed = 0

    def tell(self, name: str, *, sync: bool = False, **members: Any) -> None:
        """Send one event.

        Args:
            name: which.
            sync: it is in the journal, on the disk, when this returns.
            members: what it says.

        Raises:
            JournalError: it cannot be written to the journal.
            BrokenPipeError: whoever read the events is gone.
        """
        event = {"event": name, "time": timestamp(), **members}
        if self.journal is not None:
            self.journal.write(event, sync=sync)
        self._on_event(event)
        if self.sink is not None:
            # ASCII only: whatever a host called itself, every reader gets through the line.
            self.sink.write(json.dumps(event).encode() + b"\n")
            if self.sink.gone:
                raise BrokenPipeError("nobody reads the events any more")

    def listening(self, host: str, port: int) -> None:
        """The port is open."""
        self.tell("listening", host=host, port=port)
        self._text(Severity.INFO, f"listening on {format_address(host, port)}")

    def changed(self) -> None:
        """Something that shows has changed."""
        self._on_change()

    def told(self, severity: Severity, text: str) -> None:
        """Something that people should know."""
        self._text(severity, text)

    def joined(self, member: Member, context: WindowContext) -> None:
        """A host is in.

        Raises:
            JournalError: it cannot be written to the journal, so its Accept must not leave.
        """
        hello = member.hello
        config = context.config
        self.tell(
            "joined",
            sync=True,
            host=member.host,
            ranks=list(member.ranks),
            devices=list(hello.local_devices),
            gpus=list(hello.gpus),
            libtorch=hello.libtorch,
            wire=member.wire,
            peer=member.peer,
            joined_ranks=context.joined_ranks,
            min_ranks=config.min_ranks,
            target_ranks=config.target_ranks,
        )
        wanted = (
            f"at least {config.min_ranks}"
            if config.target_ranks is None
            else f"target {config.target_ranks}"
        )
        ranks = ", ".join(map(str, member.ranks))
        self._text(
            Severity.INFO,
            f"host {member.host!r} ({member.peer}) joined with rank(s) {ranks}, "
            f"wire {member.wire}; {context.joined_ranks} rank(s) in, {wanted}",
        )

    def rejected(self, peer: str, host: str | None, reason: str) -> None:
        """A dial ended without its host being admitted."""
        suppressed = 0
        stalled = self.sink is not None and self.sink.held_bytes > HELD_BYTES
        if host is None or stalled:
            # Port scans and garbage come in floods; one line a second tells as much.
            now = time.monotonic()
            if now < self._quiet_until or stalled:
                self._suppressed += 1
                return
            self._quiet_until = now + QUIET
            suppressed, self._suppressed = self._suppressed, 0
        self.tell("rejected", peer=peer, host=host, reason=reason, suppressed=suppressed)
        who = "a dial" if host is None else f"host {host!r}"
        more = f" (and {suppressed} more since the last line)" if suppressed else ""
        self._text(Severity.WARNING, f"turned away {who} from {peer}: {reason}{more}")

    def formed(self, reason: str, context: WindowContext) -> None:
        """The world is complete.

        Raises:
            JournalError: it cannot be written to the journal, so no WorldFormed must leave.
        """
        hosts = [
            {"host": member.host, "ranks": list(member.ranks), "wire": member.wire}
            for member in context.members
        ]
        size = context.world_size
        self.tell("formed", sync=True, reason=reason, world_size=size, hosts=hosts)
        self._text(
            Severity.INFO, f"world formed: {size} rank(s) on {len(hosts)} host(s) ({reason})"
        )

    def rank_exited(self, rank: int, code: int, host: str) -> None:
        """A rank ended."""
        signal = signal_name(code)
        self.tell("rank_exited", rank=rank, host=host, code=code, signal=signal)
        severity = Severity.WARNING if code else Severity.INFO
        self._text(severity, f"rank {rank} on host {host!r} ended with {how_ended(code)}")

    def member_lost(self, member: Member, cause: str, context: WindowContext) -> None:
        """The link of an admitted host ended while it was needed."""
        self.tell(
            "member_lost",
            host=member.host,
            ranks=list(member.ranks),
            cause=cause,
            formed=context.formed,
        )
        self._text(Severity.WARNING, f"lost host {member.host!r}: {cause}")

    def finished(self, report: Mapping[str, Any]) -> None:
        """Nothing is left to wait for.

        Args:
            report: what the event says, from `outcome` to `hosts`.
        """
        self.tell("finished", sync=True, **report)
        outcome, reason = report["outcome"], report["reason"]
        severity = Severity.INFO if outcome == "ok" else Severity.ERROR
        for line in told_hosts(report["hosts"]):
            self._text(severity, line)
        why = f": {reason}" if reason else ""
        failed = ", ".join(map(str, report["failed_ranks"]))
        ranks = f"; rank(s) {failed} failed" if failed else ""
        self._text(severity, f"finished: {outcome}{why}{ranks}")


def told_hosts(hosts: list[Mapping[str, Any]]) -> list[str]:
    """What became of each rank, a line for each host."""
    return [
        f"host {host['host']!r}: {'; '.join(_told_rank(host, rank) for rank in host['ranks'])}"
        for host in hosts
    ]


def _told_rank(host: Mapping[str, Any], rank: Mapping[str, Any]) -> str:
    who = f"rank {rank['rank']} (device {rank['device']})"
    started, ended = rank["started_at_secs"], rank["ended_at_secs"]
    if started is None:
        return f"{who} never started"
    if ended is None:
        left = host["left_at_secs"]
        when = "" if left is None else f" after {left - started:.1f} s"
        return f"{who} lost{when}" if host["lost"] is not None else f"{who} not told of{when}"
    return f"{who} {how_ended(rank['code'])} after {ended - started:.1f} s"
