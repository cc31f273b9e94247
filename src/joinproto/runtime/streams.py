"""The output of all children of a host: who is read, where it goes, and what readers that stall do.

At most `HELD_BYTES` are kept for all of them together: lines that have not ended, and lines that a
reader has not taken.  Beyond that children are read no further (they wait in their pipes, and
nothing is lost), or, where that was chosen, whole lines are dropped and counted.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

from joinproto.effects import Severity, Spawn
from joinproto.errors import ConfigError
from joinproto.record import Record
from joinproto.runtime.forward import Forwarder, Lines
from joinproto.runtime.logs import LOG_BYTES, TOTAL_BYTES, Log, size_of_each
from joinproto.runtime.loop import Loop
from joinproto.runtime.output import Output, Part, Sink, widen
from joinproto.runtime.prefix import STANDARD_PREFIX, Prefix

HELD_BYTES = 8 * 1024 * 1024
UNENDED_BYTES = 2 * 1024 * 1024
"""Of it, for lines that have not ended.  Those of a reader that stalls may have been given on as
pieces, and the rest is for what one more batch (`forward.BATCH_BYTES`) adds for each of two."""

STALLED_BYTES = 512 * 1024
"""A reader that has not taken this much stalls."""

PIPE_BYTES = 256 * 1024
ROOMY_CHILDREN = 64
"""Up to so many children get roomier pipes than usual, which saves wake-ups under load."""


class OutputSettings(Record):
    """What becomes of children's output.

    Attributes:
        prefix: what stands in front of every line; None: nothing.
        only_ranks: global ranks whose output is given on; None: all.
        drop: what a reader that stalls has not taken is dropped, instead of waited for.
        log_dir: directory for one log per child; None: no logs.
        log_bytes: how large a log may grow before it is rotated.
        log_total: how large all of them together may grow.
    """

    prefix: Prefix | None = STANDARD_PREFIX
    only_ranks: frozenset[int] | None = None
    drop: bool = False
    log_dir: str | None = None
    log_bytes: int = LOG_BYTES
    log_total: int = TOTAL_BYTES


def parse_ranks(text: str) -> frozenset[int]:
    """Ranks as people list them: `0,3-5`.

    Raises:
        ConfigError: it is written otherwise.
    """
    ranks: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.partition("-")
        numbers = (first, last) if dash else (first, first)
        if not all(n.isascii() and n.isdigit() and len(n) < 10 for n in numbers):
            raise ConfigError(f"--only-ranks {text!r}: write numbers and ranges, as 0,3-5")
        low, high = map(int, numbers)
        if not low <= high <= low + 100_000:
            raise ConfigError(f"--only-ranks {text!r}: {part} is no range of ranks")
        ranks.update(range(low, high + 1))
    return frozenset(ranks)


class _Dropping:
    """A sink that takes no more while its reader stalls, and counts what it did not take."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self.bytes = 0
        self.lines = 0

    def write(self, *parts: Part) -> None:
        """Take whole lines, or count them."""
        if self._sink.held_bytes > STALLED_BYTES:
            data = b"".join(parts)
            self.bytes += len(data)
            self.lines += data.count(b"\n")
        else:
            self._sink.write(*parts)

    def told(self) -> tuple[int, int]:
        """Bytes and lines dropped since this was last asked."""
        dropped = self.bytes, self.lines
        self.bytes = self.lines = 0
        return dropped


class _Nowhere:
    """Takes lines that nobody asked for."""

    def write(self, *parts: Part) -> None:
        """Take them."""


class _Child:
    """The two streams of one child."""

    def __init__(self) -> None:
        self.forwarders: dict[Forwarder, Sink] = {}
        self.unended = 2
        self.log: Log | None = None


class Streams:
    """Reads every child of a host.

    Args:
        loop: where pipes are watched.
        output: where lines go.
        host: the host's name, for prefixes.
        settings: what becomes of output.
        children: how many there will be.
        tell: takes lines for people.
        dropped: told bytes and lines that were dropped.
    """

    def __init__(
        self,
        loop: Loop,
        output: Output,
        host: str,
        settings: OutputSettings,
        children: int,
        tell: Callable[[Severity, str], None],
        dropped: Callable[[int, int], None],
    ) -> None:
        self._loop = loop
        self._output = output
        self._host = host
        self._settings = settings
        self._count = children
        self._tell = tell
        self._dropped = dropped
        self._children: dict[int, _Child] = {}
        self._paused: set[Sink] = set()
        self._lossy = {sink: _Dropping(sink) for sink in output.sinks} if settings.drop else {}

    def attach(
        self,
        spawn: Spawn,
        pipes: tuple[int, int],
        ended: Callable[[], None],
        errors: Callable[[bytes], None],
    ) -> None:
        """Read a child.

        Args:
            spawn: which one.
            pipes: reading ends of its standard output and error, non-blocking; ours from now on.
            ended: called once, when both have ended and all of it has been taken by its reader.
            errors: told what it writes to standard error.
        """
        child = self._children[spawn.slot] = _Child()
        if self._settings.log_dir is not None:
            child.log = self._log(self._settings.log_dir, spawn)

        def done() -> None:
            child.unended -= 1
            if not child.unended:
                ended()

        for name, fd, sink in zip(
            ("out", "err"), pipes, (self._output.out, self._output.err), strict=True
        ):
            if self._count <= ROOMY_CHILDREN:
                widen(fd, PIPE_BYTES)
            self._read(spawn, child, name, fd, sink, done, errors if name == "err" else None)

    def _read(
        self,
        spawn: Spawn,
        child: _Child,
        name: str,
        fd: int,
        sink: Sink,
        done: Callable[[], None],
        errors: Callable[[bytes], None] | None,
    ) -> None:
        log = child.log

        def tap(data: bytes) -> None:
            if log is not None:
                log.feed(name, data)
            if errors is not None:
                errors(data)

        def ended() -> None:
            if log is not None:
                log.end(name)
            sink.after(done)

        prefix = self._settings.prefix
        fresh = None if prefix is None else prefix.of(self._host, spawn, name)
        changes = prefix is not None and prefix.changes
        forwarder = Forwarder(
            self._loop,
            fd,
            b"" if fresh is None else fresh(),
            self._lines(spawn, sink),
            ended,
            self._took,
            tap=None if log is None and errors is None else tap,
            fresh=fresh if changes else None,
        )
        child.forwarders[forwarder] = sink
        if sink in self._paused:
            forwarder.pause()

    def _lines(self, spawn: Spawn, sink: Sink) -> Lines:
        only = self._settings.only_ranks
        if only is not None and spawn.rank is not None and spawn.rank not in only:
            return _Nowhere()
        return self._lossy.get(sink, sink)

    def _log(self, directory: str, spawn: Spawn) -> Log:
        settings = self._settings
        limit = size_of_each(self._count, each=settings.log_bytes, total=settings.log_total)
        name = "relay.log" if spawn.rank is None else f"rank-{spawn.rank}.log"
        complain = lambda text: self._tell(Severity.WARNING, text)  # noqa: E731
        return Log(os.path.join(directory, name), limit, complain)

    # -- time ---------------------------------------------------------------------------------

    @property
    def next_timer(self) -> float | None:
        """When `handle_timer` wants to be called; None: not at all."""
        times = (forwarder.next_timer for forwarder, _ in self._all())
        return min((time for time in times if time is not None), default=None)

    def handle_timer(self, now: float) -> None:
        """Give on progress bars that have waited long enough."""
        for forwarder, _ in self._all():
            forwarder.handle_timer(now)

    # -- readers that stall -------------------------------------------------------------------

    def _took(self) -> None:
        """Called when bytes came in: keep what is held within its bounds."""
        for sink in self._output.sinks:
            if self._stalls(sink):
                self._pause(sink)
        if not self._crowded():
            return
        forwarders = [forwarder for forwarder, _ in self._all()]
        while sum(forwarder.held_bytes for forwarder in forwarders) > UNENDED_BYTES:
            max(forwarders, key=lambda forwarder: forwarder.held_bytes).cut()

    def _crowded(self) -> bool:
        """Whether some line that has not ended is larger than its share of what may be held."""
        share = UNENDED_BYTES // max(1, 2 * len(self._children))
        return any(forwarder.held_bytes > share for forwarder, _ in self._all())

    def _stalls(self, sink: Sink) -> bool:
        """Whether children are to wait for its reader."""
        return sink.held_bytes > STALLED_BYTES and not self._lossy

    def _pause(self, sink: Sink) -> None:
        if sink not in self._paused:
            self._paused.add(sink)
            for forwarder, its in self._all():
                if its is sink:
                    forwarder.pause()

    def resume(self) -> None:
        """Read on what was paused; called when a reader has caught up."""
        for sink in [sink for sink in self._paused if not sink.held_bytes]:
            self._paused.discard(sink)
            for forwarder, its in self._all():
                if its is sink:
                    forwarder.resume()
        self._tell_dropped()

    def _tell_dropped(self) -> None:
        for lossy in self._lossy.values():
            count, lines = lossy.told()
            if count:
                self._dropped(count, lines)
                text = f"dropped {lines} line(s), {count} bytes: nobody read them in time"
                self._tell(Severity.WARNING, text)

    # -- the end ------------------------------------------------------------------------------

    def drain(self, flush: Callable[[], None]) -> None:
        """Take what is in the pipes now, without waiting for more, and end.

        Args:
            flush: waits for readers to take what is held, as long as they take any of it.
        """
        stalled: set[Sink] = set()
        for forwarder, sink in list(self._all()):
            if forwarder.open and sink not in stalled and not self._catches_up(sink, flush):
                stalled.add(sink)
            if sink in stalled:
                # Nobody would read it, and there may be more of it than memory is to hold.
                forwarder.close()
            else:
                forwarder.drain()
        self._tell_dropped()

    def _catches_up(self, sink: Sink, flush: Callable[[], None]) -> bool:
        """Wait for the reader of a sink that stalls; whether it comes to take more."""
        while self._stalls(sink):
            written = sink.written_bytes
            flush()
            if sink.written_bytes == written:
                return False
        return True

    def close(self) -> None:
        """Close the logs."""
        for child in self._children.values():
            if child.log is not None:
                child.log.close()

    def _all(self) -> Iterator[tuple[Forwarder, Sink]]:
        for child in list(self._children.values()):
            yield from child.forwarders.items()
