"""Children that a launcher runs on its own host: direct children, and the one thread that forwards
their output."""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Sequence

from joinproto.effects import Spawn
from joinproto.errors import SpawnFailed
from joinproto.runtime.forward import Forwarder
from joinproto.runtime.job import Job
from joinproto.runtime.loop import Loop
from joinproto.runtime.output import Output, Sink
from joinproto.runtime.prefix import STANDARD_PREFIX
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
        """Called when one of the two streams has ended, and all of it has been written."""
        self._open -= 1
        if not self._open:
            self._ended.set()


class LocalChild:
    """A relay or rank that was started for the caller, who waits for it and ends it.

    Any thread may do so.  Once a `wait` has given its exit code, nothing is signalled any more.

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
        # Between two threads, one of which might signal what the other has just reaped.
        self._lock = threading.Lock()

    @property
    def pid(self) -> int:
        """Its process number, and that of its process group."""
        return self.process.pid

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait for its end: its exit code, −N for signal N, or None when `timeout` came first."""
        with self._lock:
            code = self._reap()
            if code is not None:
                return code
            # Another thread may reap it, and close its descriptor, while this one waits.
            pidfd = os.dup(self.process.pidfd)
        try:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            poll.poll(None if timeout is None else max(0.0, timeout) * 1000)
        finally:
            os.close(pidfd)
        with self._lock:
            return self._reap()

    def terminate(self) -> None:
        """Send SIGTERM to its process group."""
        with self._lock:
            self.process.signal_group(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to its process group."""
        with self._lock:
            self.process.signal_group(signal.SIGKILL)

    def _reap(self) -> int | None:
        """Its exit code, if it has ended."""
        if self.process.code is None and self.process.ended():
            self.process.forget()
        return self.process.code


def start_all(host: str, spawns: tuple[Spawn, ...], job: Job) -> tuple[LocalChild, ...]:
    """Start these children, all or none.

    Raises:
        SpawnFailed: one could not be started; those before it were killed and reaped.
        ArtifactError: what one is to be handed cannot be read; likewise.
    """
    try:
        pump = _Pump()
    except OSError as error:
        raise SpawnFailed(f"output cannot be forwarded: {error.strerror}") from None
    children: list[LocalChild] = []
    try:
        for spawn in spawns:
            process = start(
                job.argv(spawn), environment=job.environment(spawn), directory=job.directory
            )
            children.append(LocalChild(spawn, process))
        prefixes = [STANDARD_PREFIX.of(host, spawn, "out")() for spawn in spawns]
        pump.start(children, prefixes)
    except BaseException:
        for child in children:
            child.process.reap()
            os.close(child.process.stdout)
            os.close(child.process.stderr)
        pump.close()
        raise
    return tuple(children)


class _Pump:
    """Gives children's output on, from a thread of its own.

    Raises (when made):
        OSError: there are no descriptors left, or standard output or error is not open.
    """

    def __init__(self) -> None:
        self._loop = Loop()
        try:
            self._output = Output(self._loop, out=1, err=2, resumed=self._resume)
        except OSError:
            self._loop.close()
            raise
        self._forwarders: list[Forwarder] = []
        self._drained: list[OutputForwarder] = []

    def start(self, children: Sequence[LocalChild], prefixes: Sequence[bytes]) -> None:
        """Begin; the descriptors are its own from then on.

        Raises:
            SpawnFailed: there are too many threads.
        """
        thread = threading.Thread(
            target=self._run, args=(children, prefixes), name="joinproto-forwarder", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            raise SpawnFailed(f"output cannot be forwarded: {error}") from None

    def close(self) -> None:
        """Let go of what it was made with."""
        self._output.close()
        self._loop.close()

    def _run(self, children: Sequence[LocalChild], prefixes: Sequence[bytes]) -> None:
        for child, prefix in zip(children, prefixes, strict=True):
            self._take(child.process.stdout, prefix, self._output.out, child.forwarder)
            self._take(child.process.stderr, prefix, self._output.err, child.forwarder)
        while self._drained or any(forwarder.open for forwarder in self._forwarders):
            timers = [forwarder.next_timer for forwarder in self._forwarders]
            self._loop.run_once(min((time for time in timers if time is not None), default=None))
            for forwarder in self._forwarders:
                forwarder.handle_timer(self._loop.now())
            self._tell_ends()
        self.close()

    def _take(self, fd: int, prefix: bytes, sink: Sink, whose: OutputForwarder) -> None:
        forwarder = Forwarder(
            self._loop, fd, prefix, sink, lambda: self._drained.append(whose), self._took
        )
        self._forwarders.append(forwarder)

    def _tell_ends(self) -> None:
        """A stream has ended for the caller when a reader has its last byte, or is gone."""
        if not self._output.held_bytes:
            for forwarder in self._drained:
                forwarder.stream_ended()
            self._drained.clear()

    def _took(self) -> None:
        """Keep only what one reader would not take: the rest waits in the children's pipes."""
        if self._output.held_bytes:
            for forwarder in self._forwarders:
                forwarder.pause()

    def _resume(self) -> None:
        # One reader may have caught up while the other still stalls.
        if not self._output.held_bytes:
            for forwarder in self._forwarders:
                forwarder.resume()
