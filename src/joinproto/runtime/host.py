"""Carries out what an agent's machine wants: the one place where its effects meet the system.

One loop, no thread, no polling: the link, the helper that starts and reaps the children, their
output and the signals to the agent are descriptors in one epoll.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from joinproto import effects as fx
from joinproto.effects import Severity
from joinproto.errors import ArtifactError, CommandNotFound, JoinprotoError, SpawnFailed, Stopped
from joinproto.limits import DRAIN, KILL_WAIT
from joinproto.machines.agent import AgentState, Plan
from joinproto.runtime.children import Children
from joinproto.runtime.job import Job
from joinproto.runtime.joiner import Joiner
from joinproto.runtime.loop import READ, Loop
from joinproto.runtime.output import Output, flush
from joinproto.runtime.signals import STOPS, heeded

if TYPE_CHECKING:
    from joinproto.runtime.observe import Observer
    from joinproto.runtime.oom import KillWatch
    from joinproto.runtime.streams import OutputSettings, Streams
    from joinproto.runtime.summary import Fate

# What is needed only once a world has formed is imported then: an agent's start is measured.

SIGNALS = 64
"""As many are read at once."""

PIPES = 2
SPARE = 16
"""Descriptors of one child, and what is open for a moment while one is started, with some to
spare."""


class HostRunner(Joiner):
    """A whole agent: joins, then starts and supervises the relay and the ranks.

    Args:
        loop: the loop it runs on.
        plan: what the agent sets out to do.
        job: what the host runs.
        output: where lines go.
        settings: what becomes of children's output.
        observer: who is told how the agent is.
        verbose: also tell what only matters when something is being looked for.
    """

    def __init__(
        self,
        loop: Loop,
        plan: Plan,
        job: Job,
        output: Output,
        *,
        settings: OutputSettings | None = None,
        observer: Observer | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(loop, plan, job.controller, self._tell)
        self._job = job
        self._host = plan.hello.host
        self._output = output
        self._settings = settings
        self._observer = observer
        self._least = Severity.DEBUG if verbose else Severity.INFO
        self._children: Children | None = None
        self._streams: Streams | None = None
        self._fates: dict[int, Fate] = {}
        self._spawned: dict[int, fx.Spawn] = {}
        self._starting: dict[int, tuple[int, int]] = {}
        self._kills: KillWatch | None = None
        self._prepared = False
        self._expecting = False
        self._woken: int | None = None
        self._flushing = False

    def run(self) -> JoinprotoError | None:
        """Run to the end; returns why the host was torn down, or None when it did its job."""
        with self._signals():
            try:
                self._children = Children(self.loop, self)
                self.begin()
                while not self.finished:
                    # Between two spawns whatever has come in is looked at first.
                    self.loop.run_once(self.loop.now() if self.spawns else self.next_timer)
                    self.handle_timer(self.loop.now())
                    if self.spawns:
                        self._spawn(self.spawns.pop(0))
            finally:
                # A signal that comes meanwhile must not cut it short, and lose output by that.
                self._clean_up()
        return self.error

    @property
    def next_timer(self) -> float | None:
        """When `handle_timer` wants to be called; None: not at all."""
        streams = None if self._streams is None else self._streams.next_timer
        observer = None if self._observer is None else self._observer.next_timer
        times = (super().next_timer, streams, observer)
        return min((time for time in times if time is not None), default=None)

    def handle_timer(self, now: float) -> None:
        """Let every deadline that has come expire."""
        if self._streams is not None:
            self._streams.handle_timer(now)
        if self._observer is not None:
            self._observer.alive(now)
        super().handle_timer(now)

    def resume(self) -> None:
        """Read children's output again; called when readers have caught up."""
        if self._streams is not None:
            self._streams.resume()

    # -- effects ------------------------------------------------------------------------------

    def carry_out(self, effects: list[Any]) -> None:
        """Do what the machine wants, in order, and tell where it is by now."""
        super().carry_out(effects)
        if not self._expecting and self.connection.state is AgentState.AWAIT_FORMED:
            self._expecting = True
            self._helper.expect(len(self.connection.context.ranks))
        if self._observer is not None:
            self._observer.follow(self.connection.state, self.connection.context)

    @property
    def _stopping(self) -> bool:
        return self.connection.context.failure is not None

    def one(self, effect: Any) -> None:
        """Do one thing."""
        match effect:
            case fx.SweepHost():
                self._helper.sweep(KILL_WAIT)
            case fx.Terminate(slot=slot):
                self._signal(slot, signal.SIGTERM)
            case fx.Kill(slot=slot):
                self._signal(slot, signal.SIGKILL)
            case _:
                super().one(effect)

    def _signal(self, slot: int, number: int) -> None:
        # One that was not handed to the helper yet will not be.
        if slot in self._fates:
            self._fates[slot].by_agent = True
            self._helper.signal(slot, number)

    def _tell(self, severity: Severity, text: str) -> None:
        if severity >= self._least:
            self._output.say(text)
            if self._observer is not None:
                self._observer.told(severity, text)

    # -- children -----------------------------------------------------------------------------

    @property
    def _helper(self) -> Children:
        assert self._children is not None
        return self._children

    def stream_flushed(self) -> None:
        """Everything that was to be sent is with the system: time to get ready for the ranks."""
        super().stream_flushed()
        if not self._prepared and not self.finished:
            self._prepared = True
            self._helper.prepare()
            import resource  # noqa: F401

            import joinproto.runtime.artifacts
            import joinproto.runtime.environment
            import joinproto.runtime.streams
            import joinproto.runtime.summary  # noqa: F401
            from joinproto.runtime.oom import KillWatch

            self._kills = KillWatch()

    def _spawn(self, spawn: fx.Spawn) -> None:
        slot = spawn.slot
        try:
            if self._stopping:
                raise SpawnFailed("the host is being torn down")
            if self._streams is None:
                self._streams = self._make_streams()
            job = self._job
            pipes = self._helper.spawn(slot, job.argv(spawn), job.environment(spawn), job.directory)
        except (SpawnFailed, ArtifactError) as error:
            self.child_failed(slot, error)
            return
        self._spawned[slot] = spawn
        self._starting[slot] = pipes
        self._fates[slot] = self._fate(spawn)

    def _fate(self, spawn: fx.Spawn) -> Fate:
        from joinproto.runtime.summary import Fate

        where = "" if spawn.device is None else f" (device {spawn.device})"
        return Fate(f"{self.connection.context.name_of(spawn.slot)}{where}")

    def _make_streams(self) -> Streams:
        """Get ready for the first child.

        Raises:
            SpawnFailed: there are not enough descriptors for all of them.
        """
        from joinproto.runtime.streams import OutputSettings, Streams

        context = self.connection.context
        settings = self._settings or OutputSettings()
        require_descriptors(context.children, logs=settings.log_dir is not None)
        return Streams(
            self.loop,
            self._output,
            self._host,
            settings,
            context.children,
            self._tell,
            self._dropped,
        )

    def _dropped(self, count: int, lines: int) -> None:
        if self._observer is not None:
            self._observer.dropped(count, lines)

    # -- what the helper tells ----------------------------------------------------------------

    def child_started(self, slot: int, pid: int) -> None:
        """The child's process runs."""
        assert self._streams is not None
        spawn, fate = self._spawned[slot], self._fates[slot]
        fate.pid, fate.started = pid, self.loop.now()
        # Only now: pipes that are closed because the start failed are no end of any output.
        pipes = self._starting.pop(slot)
        self._streams.attach(spawn, pipes, lambda: self._output_ended(slot), fate.add_error)
        if self._observer is not None:
            self._observer.spawned(spawn.rank, spawn.device, pid)
        self.carry_out(self.connection.child_started(slot, self.loop.now()))

    def child_failed(self, slot: int, error: JoinprotoError) -> None:
        """The child could not be started."""
        self._close_pipes(slot)
        self._fates.pop(slot, None)
        not_found = isinstance(error, CommandNotFound)
        now = self.loop.now()
        self.carry_out(self.connection.child_failed(slot, str(error), now, not_found=not_found))

    def child_exited(self, slot: int, code: int) -> None:
        """The child's process ended."""
        fate = self._fates[slot]
        fate.ended, fate.code = self.loop.now(), code
        if self._kills is not None:
            by_us = fate.by_agent or fate.with_helper
            fate.out_of_memory = self._kills.explains(code, by_agent=by_us)
        if self._observer is not None:
            self._observer.exited(self._spawned[slot].rank, fate)
        self.carry_out(self.connection.child_exited(slot, code, self.loop.now()))

    def helper_died(self, codes: Mapping[int, int]) -> None:
        """The helper is gone, and so are the children."""
        cause = "the helper process was ended from outside, and the children with it"
        alive = self.connection.context.alive
        # One that was to be asked for next counts as alive, and fails below like the others.
        self.spawns.clear()
        self.carry_out(self.connection.helper_died(cause, self.loop.now()))
        for slot in sorted(alive):
            if slot in codes:
                self._fates[slot].with_helper = True
                self.child_exited(slot, codes[slot])
            else:
                self.child_failed(slot, SpawnFailed(cause))

    def _close_pipes(self, slot: int) -> None:
        """Close the output of a child that has not started."""
        for fd in self._starting.pop(slot, ()):
            os.close(fd)

    def _output_ended(self, slot: int) -> None:
        self.carry_out(self.connection.output_ended(slot, self.loop.now()))

    # -- signals ------------------------------------------------------------------------------

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """SIGTERM, SIGINT and SIGHUP end the agent by its machine while this lasts."""
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            wakeup = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        except ValueError:
            # Not the main thread: signals are the caller's business.
            os.close(read)
            os.close(write)
            yield
            return
        before = {number: signal.signal(number, _noticed) for number in heeded()}
        self.loop.watch(read, READ, lambda _: self._signalled(read))
        self._woken = read
        try:
            yield
        finally:
            self._woken = None
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup)
            self.loop.forget(read)
            os.close(read)
            os.close(write)

    def _signalled(self, fd: int) -> None:
        for number in os.read(fd, SIGNALS):
            # The program that this runs in may handle other signals, which are told here too.
            if number in STOPS:
                name = signal.Signals(number).name
                self.carry_out(self.connection.stop(name, number, self.loop.now()))
                if self._flushing:
                    self._flushing = False
                    self.error = self.error or Stopped(name, number)

    # -- the end ------------------------------------------------------------------------------

    def _clean_up(self) -> None:
        """Leave nothing behind, whatever ended the run: process, descriptor or byte."""
        if self._children is not None:
            for pid in self._children.close(KILL_WAIT):
                text = f"process {pid} is still there after SIGKILL; leaving it"
                self._tell(Severity.ERROR, text)
        for slot in list(self._starting):
            self._close_pipes(slot)
        self._heed_no_older_signal()
        try:
            if self._streams is not None:
                self._streams.drain(self._flush)
                self._summarize()
            self._flush()
        finally:
            if self._streams is not None:
                self._streams.close()
            self.close()
            self.abandon()
        if self._output.held_bytes:
            lost = self._output.held_bytes
            self._tell(Severity.WARNING, f"{lost} bytes of output are lost: nobody reads them")

    def _heed_no_older_signal(self) -> None:
        """From here on a signal means that nobody waits for readers any more."""
        self._flushing = True
        if self._woken is not None:
            with suppress(BlockingIOError):
                os.read(self._woken, SIGNALS)

    def _flush(self) -> None:
        patience = DRAIN * self.connection.context.plan.scale
        flush(self.loop, self._output.sinks, patience, lambda: self._flushing)

    def _summarize(self) -> None:
        """Tell in full what became of the children that did not end well."""
        for slot in sorted(self._fates):
            fate = self._fates[slot]
            if fate.code != 0:
                for line in fate.lines():
                    self._tell(Severity.WARNING, line)


def _noticed(number: int, frame: object) -> None:
    """The wakeup descriptor tells the loop; a handler is needed for that to happen at all."""


def require_descriptors(children: int, *, logs: bool) -> None:
    """See to it that so many children can be started, before the first one is.

    The soft limit is raised where the hard one allows it; children keep the old one.

    Raises:
        SpawnFailed: the limit is too low; the message names what is needed.
    """
    import resource

    needed = len(os.listdir("/proc/self/fd")) + children * (PIPES + logs) + SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or needed <= soft:
        return
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise SpawnFailed(
            f"{children} children need {needed} open descriptors, and the limit is {soft}: "
            f"raise it to {needed} or more (ulimit -n, or LimitNOFILE= in a unit)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
