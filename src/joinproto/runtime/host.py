"""Carries out what an agent's machine wants: the one place where its effects meet the system.

One loop, no thread, no polling: the link, the ends of the children (pidfds), their output and the
signals to the agent are descriptors in one epoll.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from joinproto import effects as fx
from joinproto.connection import AgentConnection
from joinproto.effects import Severity
from joinproto.errors import ArtifactError, CommandNotFound, JoinprotoError, SpawnFailed
from joinproto.grammar import WIRES
from joinproto.limits import DRAIN, KILL_WAIT
from joinproto.machines.agent import Plan
from joinproto.record import Record
from joinproto.runtime import addresses
from joinproto.runtime.children import Children
from joinproto.runtime.dial import Dialer
from joinproto.runtime.loop import READ, Loop
from joinproto.runtime.output import Output
from joinproto.runtime.stream import Stream, configure

if TYPE_CHECKING:
    from joinproto.runtime.forward import Forwarder

# What is needed only once a world has formed is imported then: an agent's start is measured.

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""Signals that end an agent."""

HELD_BYTES = 8 * 1024 * 1024
"""The most output that is kept for readers that stall; beyond it children wait in their pipes."""


NOTHING: Mapping[str, str] = MappingProxyType({})


class Job(Record):
    """What a host runs, and for which controller.

    Attributes:
        controller: host and port, as configured.
        command: what each rank runs.
        relay_command: what the relay runs; None: the same.
        environ: what children's environments are built on.
        extra: laid over it, for relay and ranks alike.
        directory: where children run; None: here.
        data_path: goes into the envelope (wire 4).
        gpu_ram_share: goes into the envelope (wire 4).
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"environ", "extra"})

    controller: tuple[str, int]
    command: Sequence[str]
    relay_command: Sequence[str] | None = None
    environ: Mapping[str, str] = NOTHING
    extra: Mapping[str, str] = NOTHING
    directory: str | None = None
    data_path: str | None = None
    gpu_ram_share: float | None = None

    def argv(self, spawn: fx.Spawn) -> Sequence[str]:
        """The command line of this child."""
        is_relay = spawn.rank is None
        return self.relay_command if is_relay and self.relay_command else self.command

    def environment(self, spawn: fx.Spawn) -> dict[str, str]:
        """The whole environment of this child.

        Raises:
            ArtifactError: what it is to be handed cannot be read.
        """
        from joinproto.runtime import artifacts, environment

        host, port = self.controller
        artifact = spawn.artifact_hex
        localized = WIRES[spawn.wire].localized
        if spawn.local_rank is None or spawn.device is None:
            if localized:
                artifact = artifacts.localize_relay(artifact, host=host, port=port)
            return environment.relay_environment(self.environ, relay_hex=artifact, extra=self.extra)
        if localized:
            artifact = artifacts.localize_envelope(
                artifact,
                host=host,
                port=port,
                data_path=self.data_path,
                gpu_ram_share=self.gpu_ram_share,
            )
        return environment.rank_environment(
            self.environ,
            envelope_hex=artifact,
            local_rank=spawn.local_rank,
            device=spawn.device,
            wire=spawn.wire,
            extra=self.extra,
        )


def prefix_of(host: str, spawn: fx.Spawn) -> str:
    """What stands in front of a child's lines."""
    return f"[{host}:relay] " if spawn.rank is None else f"[{host}:{spawn.device}:r{spawn.rank}] "


class Joiner:
    """Dials, joins and waits for the world: an agent up to its first `Spawn`.

    Args:
        loop: the loop it runs on.
        plan: what the agent sets out to do.
        controller: host and port, as configured.
        say: takes lines for people.
    """

    def __init__(
        self,
        loop: Loop,
        plan: Plan,
        controller: tuple[str, int],
        say: Callable[[Severity, str], None],
    ) -> None:
        self.loop = loop
        self.connection = AgentConnection(plan)
        self.error: JoinprotoError | None = None
        self.finished = False
        self.spawns: list[fx.Spawn] = []
        self._controller = controller
        self._say = say
        self._dialer: Dialer | None = None
        self._stream: Stream | None = None
        self._warned: set[str] = set()

    def join(self) -> None:
        """Run until the world has formed or there is none; `error` says why."""
        self.begin()
        while not (self.finished or self.spawns):
            self.loop.run_once(self.next_timer)
            self.handle_timer(self.loop.now())

    def begin(self) -> None:
        """Start dialing."""
        self.carry_out(self.connection.start(self.loop.now()))

    @property
    def next_timer(self) -> float | None:
        """When `handle_timer` wants to be called; None: not at all."""
        dialing = None if self._dialer is None else self._dialer.next_timer
        times = (self.connection.next_timer, dialing)
        return min((time for time in times if time is not None), default=None)

    def handle_timer(self, now: float) -> None:
        """Let every deadline that has come expire."""
        if self._dialer is not None:
            self._dialer.handle_timer(now)
        self.carry_out(self.connection.handle_timer(now))

    def detach(self) -> socket.socket:
        """Give the link away."""
        assert self._stream is not None
        return self._stream.detach()

    def close(self) -> None:
        """Let go of the link and of any attempt to make one."""
        if self._dialer is not None:
            self._dialer.cancel()
            self._dialer = None
        if self._stream is not None:
            self._stream.close()

    # -- what the link tells ------------------------------------------------------------------

    def stream_data(self, data: bytes) -> None:
        """Bytes came in."""
        self.carry_out(self.connection.receive_data(data, self.loop.now()))

    def stream_eof(self) -> None:
        """The controller will send no more."""
        self.carry_out(self.connection.receive_eof(self.loop.now()))

    def stream_broken(self, cause: str) -> None:
        """The connection failed."""
        self.carry_out(self.connection.link_broken(cause, self.loop.now()))

    def stream_flushed(self) -> None:
        """Everything that was to be sent is with the system."""
        self.carry_out(self.connection.flushed(self.loop.now()))

    # -- effects ------------------------------------------------------------------------------

    def carry_out(self, effects: list[Any]) -> None:
        """Do what the machine wants, in order."""
        for effect in effects:
            self.one(effect)
        data = self.connection.data_to_send()
        if data and self._stream is not None:
            self._stream.send(data)

    def one(self, effect: Any) -> None:
        """Do one thing."""
        match effect:
            case fx.Dial(timeout=timeout):
                self._dialer = Dialer(self.loop, *self._controller, self._dialed)
                self._dialer.start(timeout)
            case fx.Tell(severity=severity, text=text):
                self._say(severity, text)
            case fx.CloseLink():
                self._flush_and_close()
            case fx.Spawn():
                self.spawns.append(effect)
            case fx.Finish(error=error):
                self.error = error
                self.finished = True
            case _:
                raise NotImplementedError(type(effect).__name__)

    def _flush_and_close(self) -> None:
        data = self.connection.data_to_send()
        if data and self._stream is not None:
            self._stream.send(data)
        self.close()
        self._stream = None

    def _dialed(self, sock: socket.socket | None, cause: str) -> None:
        self._dialer = None
        now = self.loop.now()
        if sock is None:
            self.carry_out(self.connection.connect_failed(cause, now))
            return
        try:
            configure(sock, self.connection.context.plan.scale)
            self._stream = Stream(self.loop, sock, self)
        except OSError as error:
            # Reset between the connect and here.
            sock.close()
            self.carry_out(self.connection.connect_failed(error.strerror or str(error), now))
            return
        self._warn_cleartext(self._stream.peer_host)
        self.carry_out(self.connection.connected(self._stream.peer, now))

    def _warn_cleartext(self, host: str) -> None:
        warning = addresses.cleartext_warning(host)
        if warning is not None and host not in self._warned:
            self._warned.add(host)
            self._say(Severity.WARNING, warning)


class HostRunner(Joiner):
    """A whole agent: joins, then starts and supervises the relay and the ranks.

    Args:
        loop: the loop it runs on.
        plan: what the agent sets out to do.
        job: what the host runs.
        output: where lines go.
        verbose: also tell what only matters when something is being looked for.
    """

    def __init__(
        self, loop: Loop, plan: Plan, job: Job, output: Output, *, verbose: bool = False
    ) -> None:
        super().__init__(loop, plan, job.controller, self._tell)
        self._job = job
        self._host = plan.hello.host
        self._output = output
        self._least = Severity.DEBUG if verbose else Severity.INFO
        self._children: Children | None = None
        self._starting: dict[int, tuple[fx.Spawn, tuple[int, int]]] = {}
        self._forwarders: dict[int, list[Forwarder]] = {}
        self._paused = False
        self._prepared = False

    def run(self) -> JoinprotoError | None:
        """Run to the end; returns why the host was torn down, or None when it did its job."""
        try:
            with self._signals():
                self._children = Children(self.loop, self)
                self.begin()
                while not self.finished:
                    # Between two spawns whatever has come in is looked at first.
                    self.loop.run_once(self.loop.now() if self.spawns else self.next_timer)
                    self.handle_timer(self.loop.now())
                    if self.spawns:
                        self._spawn(self.spawns.pop(0))
        finally:
            self._clean_up()
        return self.error

    @property
    def next_timer(self) -> float | None:
        """When `handle_timer` wants to be called; None: not at all."""
        times = [super().next_timer, *(f.next_timer for f in self._all_forwarders())]
        return min((time for time in times if time is not None), default=None)

    def handle_timer(self, now: float) -> None:
        """Let every deadline that has come expire."""
        for forwarder in self._all_forwarders():
            forwarder.handle_timer(now)
        super().handle_timer(now)

    # -- effects ------------------------------------------------------------------------------

    def one(self, effect: Any) -> None:
        """Do one thing."""
        match effect:
            case fx.SweepHost():
                self._helper.sweep(KILL_WAIT)
            case fx.Terminate(slot=slot):
                self._helper.signal(slot, signal.SIGTERM)
            case fx.Kill(slot=slot):
                self._helper.signal(slot, signal.SIGKILL)
            case _:
                super().one(effect)

    def _tell(self, severity: Severity, text: str) -> None:
        if severity >= self._least:
            self._output.say(text)

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
            import joinproto.runtime.artifacts
            import joinproto.runtime.environment
            import joinproto.runtime.forward  # noqa: F401

    def _spawn(self, spawn: fx.Spawn) -> None:
        slot = spawn.slot
        try:
            if self.connection.context.failure is not None:
                raise SpawnFailed("the host is being torn down")
            job = self._job
            pipes = self._helper.spawn(slot, job.argv(spawn), job.environment(spawn), job.directory)
        except (SpawnFailed, ArtifactError) as error:
            self.child_failed(slot, error)
            return
        self._starting[slot] = (spawn, pipes)

    # -- what the helper tells ----------------------------------------------------------------

    def child_started(self, slot: int, pid: int) -> None:
        """The child's process runs."""
        from joinproto.runtime.forward import Forwarder

        # Only now: pipes that are closed because the start failed are no end of any output.
        spawn, pipes = self._starting.pop(slot)
        prefix = prefix_of(self._host, spawn).encode(errors="surrogateescape")
        self._forwarders[slot] = [
            Forwarder(self.loop, fd, prefix, sink, lambda: self._stream_ended(slot), self._held)
            for fd, sink in zip(pipes, (self._output.out, self._output.err), strict=True)
        ]
        if self._paused:
            for forwarder in self._forwarders[slot]:
                forwarder.pause()
        self.carry_out(self.connection.child_started(slot, self.loop.now()))

    def child_failed(self, slot: int, error: JoinprotoError) -> None:
        """The child could not be started."""
        self._close_pipes(slot)
        not_found = isinstance(error, CommandNotFound)
        now = self.loop.now()
        self.carry_out(self.connection.child_failed(slot, str(error), now, not_found=not_found))

    def child_exited(self, slot: int, code: int) -> None:
        """The child's process ended."""
        self.carry_out(self.connection.child_exited(slot, code, self.loop.now()))

    def helper_died(self, codes: Mapping[int, int]) -> None:
        """The helper is gone, and so are the children."""
        cause = "the helper process was ended from outside, and the children with it"
        alive = self.connection.context.alive
        self.carry_out(self.connection.helper_died(cause, self.loop.now()))
        for slot in sorted(alive):
            if slot in codes:
                self.child_exited(slot, codes[slot])
            else:
                self.child_failed(slot, SpawnFailed(cause))

    def _close_pipes(self, slot: int) -> None:
        """Close the output of a child that has not started."""
        if slot in self._starting:
            for fd in self._starting.pop(slot)[1]:
                os.close(fd)

    def _stream_ended(self, slot: int) -> None:
        if not any(forwarder.open for forwarder in self._forwarders[slot]):
            self.carry_out(self.connection.output_ended(slot, self.loop.now()))

    def _all_forwarders(self) -> Iterator[Forwarder]:
        for pair in list(self._forwarders.values()):
            yield from pair

    # -- readers that stall -------------------------------------------------------------------

    def _held(self) -> None:
        """Called when output was given on: stop reading children when too much is kept."""
        if not self._paused and self._output.held_bytes > HELD_BYTES // 2:
            self._paused = True
            for forwarder in self._all_forwarders():
                forwarder.pause()

    def resume(self) -> None:
        """Read children's output again; called when readers have caught up."""
        if self._paused:
            self._paused = False
            for forwarder in self._all_forwarders():
                forwarder.resume()

    # -- signals ------------------------------------------------------------------------------

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """`STOPS` end the agent by its machine while this lasts, but for those that are ignored.

        nohup has SIGHUP ignored, and a shell SIGINT for what it runs in the background.
        """
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        heeded = [number for number in STOPS if signal.getsignal(number) != signal.SIG_IGN]
        try:
            wakeup = signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        except ValueError:
            # Not the main thread: signals are the caller's business.
            os.close(read)
            os.close(write)
            yield
            return
        before = {number: signal.signal(number, _noticed) for number in heeded}
        self.loop.watch(read, READ, lambda _: self._signalled(read))
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup)
            self.loop.forget(read)
            os.close(read)
            os.close(write)

    def _signalled(self, fd: int) -> None:
        for number in os.read(fd, 64):
            # The program that this runs in may handle other signals, which are told here too.
            if number in STOPS:
                name = signal.Signals(number).name
                self.carry_out(self.connection.stop(name, number, self.loop.now()))

    # -- the end ------------------------------------------------------------------------------

    def _clean_up(self) -> None:
        """Leave nothing behind, whatever ended the run: process, descriptor or byte."""
        if self._children is not None:
            for pid in self._children.close(KILL_WAIT):
                self._output.say(f"process {pid} is still there after SIGKILL; leaving it")
        for slot in list(self._starting):
            self._close_pipes(slot)
        for forwarder in list(self._all_forwarders()):
            forwarder.drain()
        self._flush()
        self.close()

    def _flush(self) -> None:
        """Give readers the time to take what is held, for as long as they take any of it."""
        patience = DRAIN * self.connection.context.plan.scale
        written = -1
        while self._output.held_bytes and self._output.written_bytes > written:
            written = self._output.written_bytes
            until = self.loop.now() + patience
            while self._output.held_bytes and self.loop.now() < until:
                self.loop.run_once(until)
                if self._output.written_bytes > written:
                    break


def _noticed(number: int, frame: object) -> None:
    """The wakeup descriptor tells the loop; a handler is needed for that to happen at all."""
