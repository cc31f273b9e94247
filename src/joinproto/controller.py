"""The reference controller as a library: a join window, and the world that it forms.

with Controller(bind=("127.0.0.1", 0), min_ranks=4, on_event=print) as controller:
    print("dial", controller.address)
    report = controller.run()
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

from joinproto.effects import Severity
from joinproto.errors import ConfigError
from joinproto.grammar import WIRES
from joinproto.inputs import RankReported, StopRequested
from joinproto.keys import Salt
from joinproto.limits import DRAIN, JOIN_TIMEOUT
from joinproto.machines.controller import Admission
from joinproto.machines.window import Check, StartMode, WindowConfig
from joinproto.record import Record
from joinproto.runtime.addresses import is_loopback
from joinproto.runtime.announcer import Announcer, Event
from joinproto.runtime.board import EXIT_CODES, Board, outcome
from joinproto.runtime.descriptors import lift_limit
from joinproto.runtime.listener import listen
from joinproto.runtime.loop import Loop
from joinproto.runtime.makers import Maker, PublishedMaker
from joinproto.runtime.output import Sink, flush
from joinproto.runtime.salts import new_salt
from joinproto.runtime.server import Server, Terms
from joinproto.runtime.timers import Timers
from joinproto.runtime.torch import MASTER_PORT
from joinproto.runtime.unadmitted import Limits
from joinproto.runtime.web import Access, Web

__all__ = ["Controller", "Event", "Report"]


SHOWN_APART = 0.25
SHOWN_AGAIN = 1.0
"""Seconds between two calls of `on_change`: the fewest, and the most."""


class Report(Record):
    """How a run ended.

    Attributes:
        outcome: `ok`, `failed` or `window-failed`.
        exits: rank → exit code, −N for signal N, of every rank whose end was told.
        lost: host → cause, of hosts whose link ended while ranks of theirs ran.
        reason: why the run was given up; None when it was not.
        hosts: every host with its ranks, as in the event `finished`.
    """

    outcome: str
    exits: Mapping[int, int]
    lost: Mapping[str, str]
    reason: str | None
    hosts: Sequence[Mapping[str, Any]] = ()

    @property
    def exit_code(self) -> int:
        """0 when every rank ended well, 1 when the run or a rank failed, 3 without a world."""
        return EXIT_CODES[self.outcome]

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
        start_mode: who closes the window: the clock (auto), the operator (manual), or whoever is
            first (hybrid).
        checks: what members must agree on, where they say it.
        max_rejected: more dials turned away than this fail the window; None: they never do.
        max_failures: more ranks failed or lost than this end the run; None: they never do.
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
        maker: makes the artifacts; given the loop and its timers; None: as published controllers.
        record: file for a journal of the run; None: none.
        status_open: the page, `/events` and `/metrics` are for everyone who reaches the port, also
            where that is not loopback.
        status_token: whoever has it may see them too, and give the start.
        limits: how many connections may be unadmitted at a time.
        scale: of every network deadline.
        events_fd: descriptor that events are written to, as JSON, one a line; None: none.
        on_event: takes the events of `specs/events.schema.json`, on the thread that runs.
        on_text: takes lines for people, with their severity.
        on_change: called when something that shows has changed, at most four times a second, and
            at least once a second as long as the run lasts.

    Attributes:
        address: host and port that are bound.
        board: what the run looks like now.

    Raises:
        ConfigError: the settings contradict each other, the address cannot be bound, the journal
            cannot be made, or open admission was not asked for on an address that is not loopback.
    """

    def __init__(
        self,
        *,
        bind: tuple[str, int] = ("127.0.0.1", 0),
        min_ranks: int = 1,
        target_ranks: int | None = None,
        join_timeout: float = JOIN_TIMEOUT,
        max_join_timeout: float | None = None,
        start_mode: StartMode | str = StartMode.AUTO,
        checks: Iterable[Check | str] = tuple(Check),
        max_rejected: int | None = None,
        max_failures: int | None = None,
        salt: Salt | None = None,
        open_admission: bool = False,
        dataset_sig: bytes | None = None,
        wires: Iterable[int] = tuple(WIRES),
        mixed_wires: bool = False,
        advertise: tuple[str, int | None] | None = None,
        relay: bool = False,
        master_port: int = MASTER_PORT,
        local_hosts: Iterable[str] = (),
        maker: Callable[[Loop, Timers], Maker] | None = None,
        record: str | None = None,
        status_open: bool = False,
        status_token: str | None = None,
        limits: Limits | None = None,
        scale: float = 1.0,
        events_fd: int | None = None,
        on_event: Callable[[Event], None] = lambda event: None,
        on_text: Callable[[Severity, str], None] = lambda severity, text: None,
        on_change: Callable[[], None] | None = None,
    ) -> None:
        window = WindowConfig(
            min_ranks=min_ranks,
            target_ranks=target_ranks,
            join_timeout=join_timeout,
            max_join_timeout=max_join_timeout,
            start_mode=StartMode(start_mode),
            checks=frozenset(map(Check, checks)),
            max_rejected=max_rejected,
            max_failures=max_failures,
            dataset_sig=dataset_sig,
            mixed_wires=mixed_wires,
            local_hosts=frozenset(local_hosts),
            scale=scale,
        )
        self._on_change = on_change
        self._shown_at = 0.0
        self._announcer = Announcer(on_event, on_text, self._changed)
        self._stack = ExitStack()
        try:
            listener = self._stack.enter_context(listen(*bind))
            host, port = listener.getsockname()[:2]
            self.address: tuple[str, int] = (str(host), int(port))
            if salt is None and not is_loopback(host):
                self._allow_open(host, open_admission)
            terms = Terms(
                admission=Admission(salt=salt or new_salt(), open=salt is None, scale=scale),
                window=window,
                wires=frozenset(wires),
                advertise=advertise,
                master_port=master_port,
                limits=limits or Limits(),
            )
            self._loop = Loop()
            self._stack.callback(self._loop.close)
            self._timers = timers = Timers()
            made_by = PublishedMaker(relay=relay) if maker is None else maker(self._loop, timers)
            self._server = Server(self._loop, timers, listener, terms, self._announcer, made_by)
            self._stack.callback(self._server.close)
            self.board = Board(self._server)
            self._server.web = Web(
                self._loop,
                timers,
                self.board,
                Access(
                    open=status_open or is_loopback(host),
                    token=status_token,
                    salt_hex=None if salt is None else salt.hex(),
                ),
            )
            self._write_to(record, events_fd)
        except BaseException:
            self._stack.close()
            raise

    def _write_to(self, record: str | None, events_fd: int | None) -> None:
        if record is not None:
            from joinproto.runtime.journal import Journal

            self._announcer.journal = Journal.create(record)
            self._stack.callback(self._announcer.journal.close)
        if events_fd is not None:
            self._announcer.sink = Sink(self._loop, events_fd, resumed=lambda: None)
            self._stack.callback(self._announcer.sink.close)

    def _allow_open(self, host: str, asked_for: bool) -> None:
        if not asked_for:
            raise ConfigError(
                f"{host} is not a loopback address: give a salt, or ask for open admission, under "
                "which anyone who reaches the port can join"
            )
        self._announcer.told(
            Severity.WARNING,
            f"WARNING: open admission on {host}: anyone who reaches the port can join this run",
        )

    def _changed(self) -> None:
        self.board.changed()
        if self._server.web is not None:
            self._server.web.changed()
        if self._on_change is not None:
            soon = max(self._loop.now(), self._shown_at + SHOWN_APART)
            self._timers.set("show", soon, self._show)

    def _show(self, now: float) -> None:
        assert self._on_change is not None
        self._shown_at = now
        self._on_change()
        # Countdowns go on when nothing happens.
        self._timers.set("show", now + SHOWN_AGAIN, self._show)

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
        """Run until nothing of the world is left to wait for.

        Raises:
            JournalError: the journal cannot be written any more; the hosts were told Abort.
        """
        lift_limit()
        self._announcer.listening(*self.address)
        self._server.run()
        report = self._report()
        self._announcer.finished(
            {
                "outcome": report.outcome,
                "exit_code": report.exit_code,
                "failed_ranks": list(report.failed_ranks),
                "lost_hosts": sorted(report.lost),
                "reason": report.reason,
                "hosts": list(report.hosts),
            }
        )
        if self._announcer.sink is not None:
            flush(self._loop, (self._announcer.sink,), DRAIN)
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
        self._stack.close()

    def _report(self) -> Report:
        context = self._server.context
        return Report(
            outcome=outcome(context, stopped=self._server.stopped),
            exits=context.exits,
            lost={host: loss.cause for host, loss in context.lost.items()},
            reason=context.failure,
            hosts=tuple(self.board.detail()["members"]),
        )
