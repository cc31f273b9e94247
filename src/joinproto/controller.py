"""The reference controller as a library: a join window, and the world that it forms.

with Controller(bind=("127.0.0.1", 0), min_ranks=4, on_event=print) as controller:
    print("dial", controller.address)
    report = controller.run()
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeAlias

from joinproto.effects import Severity
from joinproto.errors import ConfigError
from joinproto.grammar import WIRES
from joinproto.inputs import RankReported, StopRequested
from joinproto.keys import Salt
from joinproto.limits import JOIN_TIMEOUT
from joinproto.machines.controller import Admission
from joinproto.machines.window import Member, WindowConfig, WindowContext
from joinproto.record import Record
from joinproto.runtime.addresses import format_address, is_loopback
from joinproto.runtime.loop import Loop
from joinproto.runtime.observe import timestamp
from joinproto.runtime.salts import new_salt
from joinproto.runtime.server import Server, Terms, listen
from joinproto.runtime.signals import signal_name
from joinproto.runtime.torch import MASTER_PORT

Event: TypeAlias = Mapping[str, Any]

QUIET = 1.0
"""Seconds in which turned-away dials that never said who they are make one event, not more."""


class Report(Record):
    """How a run ended.

    Attributes:
        outcome: `ok`, `failed` or `window-failed`.
        exits: rank → exit code, −N for signal N, of every rank whose end was told.
        lost: host → cause, of hosts whose link ended while ranks of theirs ran.
        reason: why the run was given up; None when it was not.
    """

    outcome: str
    exits: Mapping[int, int]
    lost: Mapping[str, str]
    reason: str | None

    @property
    def exit_code(self) -> int:
        """0 when every rank ended well, 1 when the run or a rank failed, 3 without a world."""
        return {"ok": 0, "failed": 1, "window-failed": 3}[self.outcome]

    @property
    def failed_ranks(self) -> tuple[int, ...]:
        """Ranks that ended with anything but 0."""
        return tuple(sorted(rank for rank, code in self.exits.items() if code))


class Controller:
    """Admits hosts, forms a world of them, and takes down how its ranks end.

    The port is open once the object is made.  Use it as a context manager, or call `close`.

    Args:
        bind: host and port; port 0 takes a free one.
        min_ranks: the quorum.
        target_ranks: as many ranks form the world at once.
        join_timeout: seconds (unscaled) for which the window stays open even with quorum.
        max_join_timeout: seconds (unscaled) after which it fails without quorum.
        salt: the pre-shared salt; None admits openly.
        open_admission: admit openly on an address that is not loopback.
        dataset_sig: what every host must carry; None: what the first one carries.
        wires: the versions that are spoken.
        mixed_wires: members of different versions may share a world.
        advertise: host and port that envelopes name; see `Terms`.
        relay: every host runs a relay too.
        master_port: a port on rank 0's host, told to ranks that run torch.distributed.
        local_hosts: hosts whose link may end while their ranks run, because the caller runs them
            (see `join_and_spawn_local`) and tells their ends with `rank_exited`.
        scale: of every network deadline.
        on_event: takes the events of `specs/events.schema.json`, on the thread that runs.
        on_text: takes lines for people, with their severity.

    Raises:
        ConfigError: the settings contradict each other, the address cannot be bound, or open
            admission was not asked for on an address that is not loopback.
    """

    def __init__(
        self,
        *,
        bind: tuple[str, int] = ("127.0.0.1", 0),
        min_ranks: int = 1,
        target_ranks: int | None = None,
        join_timeout: float = JOIN_TIMEOUT,
        max_join_timeout: float | None = None,
        salt: Salt | None = None,
        open_admission: bool = False,
        dataset_sig: bytes | None = None,
        wires: Iterable[int] = tuple(WIRES),
        mixed_wires: bool = False,
        advertise: tuple[str, int | None] | None = None,
        relay: bool = False,
        master_port: int = MASTER_PORT,
        local_hosts: Iterable[str] = (),
        scale: float = 1.0,
        on_event: Callable[[Event], None] = lambda event: None,
        on_text: Callable[[Severity, str], None] = lambda severity, text: None,
    ) -> None:
        window = WindowConfig(
            min_ranks=min_ranks,
            target_ranks=target_ranks,
            join_timeout=join_timeout,
            max_join_timeout=max_join_timeout,
            dataset_sig=dataset_sig,
            mixed_wires=mixed_wires,
            local_hosts=frozenset(local_hosts),
            scale=scale,
        )
        listener = listen(*bind)
        self._loop = Loop()
        self._events = _Events(on_event, on_text)
        try:
            host = str(listener.getsockname()[0])
            if salt is None and not is_loopback(host):
                self._allow_open(host, open_admission)
            admission = Admission(salt=salt or new_salt(), open=salt is None, scale=scale)
            terms = Terms(
                admission=admission,
                window=window,
                wires=frozenset(wires),
                advertise=advertise,
                relay=relay,
                master_port=master_port,
            )
            self.address: tuple[str, int] = (host, int(listener.getsockname()[1]))
            self._server = Server(self._loop, listener, terms, self._events)
        except BaseException:
            listener.close()
            self._loop.close()
            raise

    def _allow_open(self, host: str, asked_for: bool) -> None:
        if not asked_for:
            raise ConfigError(
                f"{host} is not a loopback address: give a salt, or ask for open admission, under "
                "which anyone who reaches the port can join"
            )
        self._events.told(
            Severity.WARNING,
            f"WARNING: open admission on {host}: anyone who reaches the port can join this run",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def run(self) -> Report:
        """Run until nothing of the world is left to wait for."""
        host, port = self.address
        self._events.tell("listening", host=host, port=port)
        self._server.run()
        report = self._report()
        self._events.finished(report)
        return report

    def stop(self, reason: str = "the caller's wish") -> None:
        """Give the run up: Abort to every member; `run` returns when they are gone.

        The second call waits for nobody any more.  May be called from any thread, and from a signal
        handler; once the run is over it does nothing.
        """
        self._server.ask(StopRequested(reason=reason))

    def rank_exited(self, rank: int, code: int) -> None:
        """Tell the end of a local host's rank; `code` is −N for signal N.  From any thread."""
        self._server.ask(RankReported(connection=None, rank=rank, code=code))

    def close(self) -> None:
        """Let go of the port and of every connection at once; may be called again."""
        self._server.close()
        self._loop.close()

    def _report(self) -> Report:
        context = self._server.context
        exits, lost = dict(context.exits), dict(context.lost)
        if not context.formed and not self._server.stopped:
            outcome = "window-failed"
        elif context.failure is not None or lost or any(exits.values()):
            outcome = "failed"
        else:
            outcome = "ok"
        return Report(outcome=outcome, exits=exits, lost=lost, reason=context.failure)


class _Events:
    """Turns what a server tells into events and into lines for people."""

    def __init__(
        self, on_event: Callable[[Event], None], on_text: Callable[[Severity, str], None]
    ) -> None:
        self._on_event = on_event
        self._text = on_text
        self._quiet_until = 0.0
        self._suppressed = 0

    def tell(self, name: str, **members: Any) -> None:
        """Send one event."""
        self._on_event({"event": name, "time": timestamp(), **members})
        if name == "listening":
            where = format_address(members["host"], members["port"])
            self._text(Severity.INFO, f"listening on {where}")

    def told(self, severity: Severity, text: str) -> None:
        """Something that people should know."""
        self._text(severity, text)

    def joined(self, member: Member, peer: str, context: WindowContext) -> None:
        """A host is in."""
        hello = member.hello
        config = context.config
        self.tell(
            "joined",
            host=member.host,
            ranks=list(member.ranks),
            devices=list(hello.local_devices),
            gpus=list(hello.gpus),
            libtorch=hello.libtorch,
            wire=member.wire,
            peer=peer,
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
            f"host {member.host!r} ({peer}) joined with rank(s) {ranks}, wire {member.wire}; "
            f"{context.joined_ranks} rank(s) in, {wanted}",
        )

    def rejected(self, peer: str, host: str | None, reason: str) -> None:
        """A dial ended without its host being admitted."""
        suppressed = 0
        if host is None:
            # Port scans and garbage come in floods; one line a second tells as much.
            now = time.monotonic()
            if now < self._quiet_until:
                self._suppressed += 1
                return
            self._quiet_until = now + QUIET
            suppressed, self._suppressed = self._suppressed, 0
        self.tell("rejected", peer=peer, host=host, reason=reason, suppressed=suppressed)
        who = "a dial" if host is None else f"host {host!r}"
        more = f" (and {suppressed} more since the last line)" if suppressed else ""
        self._text(Severity.WARNING, f"turned away {who} from {peer}: {reason}{more}")

    def formed(self, reason: str, context: WindowContext) -> None:
        """The world is complete."""
        hosts = [
            {"host": member.host, "ranks": list(member.ranks), "wire": member.wire}
            for member in context.members
        ]
        size = sum(len(member.ranks) for member in context.members)
        self.tell("formed", reason=reason, world_size=size, hosts=hosts)
        self._text(
            Severity.INFO, f"world formed: {size} rank(s) on {len(hosts)} host(s) ({reason})"
        )

    def rank_exited(self, rank: int, code: int, host: str) -> None:
        """A rank ended."""
        name = signal_name(code)
        self.tell("rank_exited", rank=rank, host=host, code=code, signal=name)
        how = f"code {code}" if name is None else name
        severity = Severity.WARNING if code else Severity.INFO
        self._text(severity, f"rank {rank} on host {host!r} ended with {how}")

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

    def finished(self, report: Report) -> None:
        """Nothing is left to wait for."""
        self.tell(
            "finished",
            outcome=report.outcome,
            exit_code=report.exit_code,
            failed_ranks=list(report.failed_ranks),
            lost_hosts=sorted(report.lost),
            reason=report.reason,
        )
        why = f": {report.reason}" if report.reason else ""
        failed = ", ".join(map(str, report.failed_ranks))
        ranks = f"; rank(s) {failed} failed" if failed else ""
        severity = Severity.INFO if report.outcome == "ok" else Severity.ERROR
        self._text(severity, f"finished: {report.outcome}{why}{ranks}")
