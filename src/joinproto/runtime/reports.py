"""Who else is told how an agent is, besides the people who read its lines."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Final

from joinproto.errors import ConfigError, JoinprotoError
from joinproto.limits import DRAIN
from joinproto.record import Record
from joinproto.runtime.addresses import format_address
from joinproto.runtime.output import Output, Sink, flush
from joinproto.runtime.spec import AgentSpec

if TYPE_CHECKING:
    from joinproto.runtime.loop import Loop
    from joinproto.runtime.observe import Observer

STDERR: Final = 2


class Reports(Record):
    """Who else is told how an agent is.  The service manager is, where it asks for that.

    Attributes:
        events_fd: descriptor that events are written to, as JSON, one a line; 2: standard error,
            where the agent's own lines are then left out, since the events hold them; None: none.
        status_file: file that is kept up to date; None: none.
        restarts: stints before this one, of an agent that dials again; None: it does not.
        ended: called with what ended the stint (None: it did its job), once they have been told.

    Raises:
        ConfigError: the descriptor is not open for writing, or the file cannot be where it is said.
    """

    events_fd: int | None = None
    status_file: str | None = None
    restarts: int | None = None
    ended: Callable[[JoinprotoError | None], None] | None = None

    def __post_init__(self) -> None:
        if self.events_fd is not None:
            _check_descriptor(self.events_fd)
        if self.status_file is not None:
            _check_file(self.status_file)

    @property
    def mute(self) -> bool:
        """Whether the agent's own lines are left out."""
        return self.events_fd == STDERR


def _check_descriptor(fd: int) -> None:
    try:
        mode = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE
    except (OSError, OverflowError, ValueError):
        raise ConfigError(f"--events-fd {fd}: no such descriptor is open") from None
    if mode == os.O_RDONLY:
        raise ConfigError(f"--events-fd {fd}: it is not open for writing")


def _check_file(path: str) -> None:
    if not path:
        raise ConfigError("--status-file is empty")
    folder = os.path.dirname(os.path.abspath(path))
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"--status-file {path}: files cannot be made in {folder}")


@contextmanager
def observing(reports: Reports, spec: AgentSpec, loop: Loop, output: Output) -> Iterator[Observer]:
    """An observer that tells them of one stint, and of how the block ends.

    Args:
        reports: who they are.
        spec: what the agent joins.
        loop: where readers of events are waited for.
        output: where the agent's own lines go; events that go there too share its sinks.

    Raises:
        ConfigError: the status file cannot be written.
    """
    # Late: most agents are watched by people alone.
    from joinproto.runtime.notify import Notifier
    from joinproto.runtime.observe import Observer
    from joinproto.runtime.persist import goes_on

    with ExitStack() as stack:
        sink = None if reports.events_fd is None else _sink(reports.events_fd, loop, output, stack)
        notifier = Notifier(os.environ)
        stack.callback(notifier.close)
        try:
            observer = Observer(
                host=spec.host,
                controller=format_address(spec.controller_host, spec.controller_port),
                restarts=reports.restarts or 0,
                goes_on=(lambda error: False) if reports.restarts is None else goes_on,
                write_event=None if sink is None else sink.write,
                status_file=reports.status_file,
                notifier=notifier,
                say=output.say,
            )
        except OSError as error:
            raise ConfigError(f"--status-file {reports.status_file}: {error.strerror}") from None

        def end(error: JoinprotoError | None) -> None:
            observer.finished(error)
            if sink is not None:
                flush(loop, (sink,), DRAIN)
            if reports.ended is not None:
                reports.ended(error)

        try:
            yield observer
        except JoinprotoError as error:
            end(error)
            raise
        end(None)


def _sink(fd: int, loop: Loop, output: Output, stack: ExitStack) -> Sink:
    """Where events go.  Two sinks for one reader would tear each other's lines."""
    for sink in output.sinks:
        if sink.leads_to(fd):
            return sink
    own = Sink(loop, fd, resumed=lambda: None)
    stack.callback(own.close)
    return own
