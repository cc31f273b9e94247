"""Children that a launcher runs on its own host: direct children, and the one thread that forwards
their output."""

from __future__ import annotations

import os
import select
import signal
import threading

from joinproto.effects import Spawn
from joinproto.runtime.forward import Forwarder
from joinproto.runtime.host import Job, prefix_of
from joinproto.runtime.loop import Loop
from joinproto.runtime.output import Output
from joinproto.runtime.processes import Child, start


class OutputForwarder:
    """What forwards one child's output."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._open = 2

    def join(self, timeout: float | None = None) -> bool:
        """Wait until all of the child's output has been given on; whether that came about."""
        return self._ended.wait(timeout)

    def stream_ended(self) -> None:
        """Called when one of the two streams has ended."""
        self._open -= 1
        if not self._open:
            self._ended.set()


class LocalChild:
    """A relay or rank that was started for the caller, who waits for it and ends it.

    Attributes:
        name: for people, such as `rank 3`.
        rank: its global rank; None for the relay.
        device: the device it is pinned to; None for the relay.
        forwarder: what forwards its output.
    """

    def __init__(self, spawn: Spawn, process: Child) -> None:
        self.name = "relay" if spawn.rank is None else f"rank {spawn.rank}"
        self.rank = spawn.rank
        self.device = spawn.device
        self.forwarder = OutputForwarder()
        self.process = process

    @property
    def pid(self) -> int:
        """Its process number, and that of its process group."""
        return self.process.pid

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for its end: its exit code, −N for signal N, or None when `timeout` came first."""
        if self.process.code is None:
            poll = select.poll()
            poll.register(self.process.pidfd, select.POLLIN)
            poll.poll(None if timeout is None else timeout * 1000)
            if self.process.ended():
                self.process.forget()
        return self.process.code

    def terminate(self) -> None:
        """Send SIGTERM to its process group."""
        self.process.signal_group(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to its process group."""
        self.process.signal_group(signal.SIGKILL)


def start_all(host: str, spawns: tuple[Spawn, ...], job: Job) -> tuple[LocalChild, ...]:
    """Start these children, all or none.

    Raises:
        SpawnFailed: one could not be started; those before it were killed and reaped.
        ArtifactError: what one is to be handed cannot be read; likewise.
    """
    children: list[LocalChild] = []
    try:
        for spawn in spawns:
            process = start(
                job.argv(spawn), environment=job.environment(spawn), directory=job.directory
            )
            children.append(LocalChild(spawn, process))
    except BaseException:
        for child in children:
            child.process.reap()
            os.close(child.process.stdout)
            os.close(child.process.stderr)
        raise
    prefixes = [prefix_of(host, spawn).encode(errors="surrogateescape") for spawn in spawns]
    pump = threading.Thread(
        target=_forward,
        args=(children, prefixes),
        name="joinproto-forwarder",
        daemon=True,
    )
    pump.start()
    return tuple(children)


def _forward(children: list[LocalChild], prefixes: list[bytes]) -> None:
    loop = Loop()
    forwarders: list[Forwarder] = []

    def resume() -> None:
        for forwarder in forwarders:
            forwarder.resume()

    def given() -> None:
        if output.held_bytes:
            for forwarder in forwarders:
                forwarder.pause()

    output = Output(loop, out=1, err=2, resumed=resume)
    for child, prefix in zip(children, prefixes, strict=True):
        for fd, sink in ((child.process.stdout, output.out), (child.process.stderr, output.err)):
            ended = child.forwarder.stream_ended
            forwarders.append(Forwarder(loop, fd, prefix, sink, ended, given))
    while any(forwarder.open for forwarder in forwarders) or output.held_bytes:
        timers = [f.next_timer for f in forwarders]
        loop.run_once(min((time for time in timers if time is not None), default=None))
        for forwarder in forwarders:
            forwarder.handle_timer(loop.now())
    output.close()
    loop.close()
