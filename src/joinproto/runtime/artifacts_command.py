"""`--artifacts-command`: a program that is asked what each host of a world is to be handed."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Final

from joinproto.errors import ArtifactError, ConfigError
from joinproto.runtime.custom_artifacts import (
    REWRITTEN_WIRE,
    check_envelope,
    check_relay,
    check_size,
)
from joinproto.runtime.environment import SALT_VARIABLE
from joinproto.runtime.hexjson import write_hex
from joinproto.runtime.job import split_words
from joinproto.runtime.loop import READ, WRITE, Loop
from joinproto.runtime.makers import HostPart, Made, World
from joinproto.runtime.signals import how_ended
from joinproto.runtime.timers import Timers

TIMEOUT: Final = 30.0
"""Seconds (unscaled) that the command may take: agents wait for the world meanwhile."""

REAP_WAIT: Final = 2.0
"""Seconds that a killed command has to be gone."""

ANSWER_BYTES: Final = 64 * 1024 * 1024
CHUNK: Final = 65536


def split_command(text: str) -> list[str]:
    """The words of a command, as a shell would split them.

    Raises:
        ConfigError: quotation marks are not closed, there are no words, or the first one is no
            command that can be run.
    """
    words = split_words("--artifacts-command", text)
    if shutil.which(words[0]) is None:
        raise ConfigError(f"--artifacts-command: {words[0]}: no such command", fault="command")
    return words


class CommandMaker:
    """Asks a command, which runs once, when the world is complete.

    On its standard input it gets an object of JSON: world_size, num_hosts, salt_hex, master_addr
    and master_port (null when not known), and hosts, an array of what `HostPart` has.  It answers
    on its standard output: {"HOST": {"envelope": E, "relay": R}, ...}, where each of E and R is an
    object, or a string that is taken as it is; R may be null or left out.  What it writes to its
    standard error goes to ours.  It has its own session, and is killed with its process group
    when it takes too long.

    Args:
        argv: the command and its arguments.
        loop: where its pipes and its end are waited for.
        timers: where its deadline is kept.
        scale: of the deadline.
    """

    def __init__(self, argv: Sequence[str], loop: Loop, timers: Timers, scale: float = 1.0) -> None:
        self._argv = list(argv)
        self._loop = loop
        self._timers = timers
        self._timeout = TIMEOUT * scale
        self._run: _Run | None = None

    def make(self, world: World, done: Callable[[Made | str], None]) -> None:
        """Start the command; `done` is called from the loop, or at once if it cannot be started."""

        def ended(answer: bytes | str) -> None:
            self._run = None
            self._timers.clear(self)
            try:
                made = answer if isinstance(answer, str) else _read_answer(answer, world)
            except ValueError as error:
                made = str(error)
            done(f"artifacts command {self._argv[0]}: {made}" if isinstance(made, str) else made)

        try:
            process = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={name: v for name, v in os.environ.items() if name != SALT_VARIABLE},
                start_new_session=True,
                bufsize=0,
            )
        except (OSError, ValueError) as error:
            ended(getattr(error, "strerror", None) or str(error))
            return
        self._run = _Run(process, _world_json(world), self._loop, ended)
        self._timers.set(self, self._loop.now() + self._timeout, self._too_late)

    def cancel(self) -> None:
        """Kill the command, should it run."""
        run, self._run = self._run, None
        self._timers.clear(self)
        if run is not None:
            run.end(kill=True)

    def _too_late(self, now: float) -> None:
        if self._run is not None:
            self._run.fail(f"it has not ended within {self._timeout:g} s")


class _Run:
    """One command that runs: fed, read, and waited for on the loop."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        given: bytes,
        loop: Loop,
        ended: Callable[[bytes | str], None],
    ) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._rest = memoryview(given)
        self._answer = bytearray()
        self._loop = loop
        self._ended = ended
        self._runs = True
        self._pidfd = os.pidfd_open(process.pid)
        for pipe in (self._stdin, self._stdout):
            os.set_blocking(pipe.fileno(), False)
        loop.watch(self._stdin.fileno(), WRITE, self._feed)
        loop.watch(self._stdout.fileno(), READ, self._hear)
        loop.watch(self._pidfd, READ, self._exited)

    def fail(self, why: str) -> None:
        """Kill it, and tell why there is no answer."""
        self.end(kill=True)
        self._ended(why)

    def end(self, *, kill: bool) -> None:
        """Let go of it; a command that is not to be killed has ended."""
        if kill:
            # Not reaped yet, so that neither the number nor the group can be somebody else's.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        for pipe in (self._stdin, self._stdout):
            self._close(pipe)
        if self._loop.watches(self._pidfd):
            self._loop.forget(self._pidfd)
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        if poll.poll(REAP_WAIT * 1000):
            self._process.wait()
        os.close(self._pidfd)

    def _close(self, pipe: IO[bytes]) -> None:
        if not pipe.closed:
            self._loop.forget(pipe.fileno())
            pipe.close()

    def _feed(self, _: int) -> None:
        try:
            self._rest = self._rest[os.write(self._stdin.fileno(), self._rest[:CHUNK]) :]
        except BlockingIOError:
            return
        except OSError:
            # It does not want to read it all, which is its own affair.
            self._rest = self._rest[:0]
        if not self._rest:
            self._close(self._stdin)

    def _hear(self, _: int) -> None:
        try:
            part = os.read(self._stdout.fileno(), CHUNK)
        except BlockingIOError:
            return
        self._answer += part
        if len(self._answer) > ANSWER_BYTES:
            self.fail(f"it answers with more than {ANSWER_BYTES // 2**20} MiB")
        elif not part:
            self._close(self._stdout)
            self._finish()

    def _exited(self, _: int) -> None:
        # Its output may still be on its way, or be held open by what it has started.
        self._loop.forget(self._pidfd)
        self._runs = False
        self._finish()

    def _finish(self) -> None:
        if self._runs or not self._stdout.closed:
            return
        self.end(kill=False)
        code = self._process.returncode
        if code:
            self._ended(f"it ended with {how_ended(code)}")
        else:
            self._ended(bytes(self._answer))


def _world_json(world: World) -> bytes:
    addr, port = world.master or (None, None)
    return json.dumps(
        {
            "world_size": world.world_size,
            "num_hosts": world.num_hosts,
            "salt_hex": world.salt.hex(),
            "master_addr": addr,
            "master_port": port,
            "hosts": [{name: getattr(p, name) for name in p.fields} for p in world.hosts],
        }
    ).encode()


def _read_answer(answer: bytes, world: World) -> Made:
    """What a command answered.

    Raises:
        ValueError: it is not an answer for this world.
    """
    try:
        hosts = json.loads(answer)
    except (ValueError, RecursionError):
        raise ValueError("its answer is not JSON") from None
    if not isinstance(hosts, dict):
        raise ValueError("its answer is not an object of JSON")
    return {part.host: _read_part(hosts.get(part.host), part) for part in world.hosts}


def _read_part(given: object, part: HostPart) -> tuple[str, str | None]:
    if not isinstance(given, dict):
        raise ValueError(f"its answer has no object for host {part.host!r}")
    envelope = _read_artifact(given, "envelope", part, check_envelope)
    if envelope is None:
        raise ValueError(f"its answer has no envelope for host {part.host!r}")
    relay = _read_artifact(given, "relay", part, check_relay)
    check_size(part.host, envelope, relay)
    return envelope, relay


def _read_artifact(
    given: Mapping[str, object], name: str, part: HostPart, check: Callable[[str], None]
) -> str | None:
    value = given.get(name)
    if value is None:
        return None
    if not isinstance(value, str | dict):
        raise ValueError(f"the {name} for host {part.host!r} is neither an object nor a string")
    try:
        digits = write_hex(value) if isinstance(value, dict) else value.encode().hex()
        if part.wire == REWRITTEN_WIRE:
            check(digits)
    except UnicodeEncodeError:
        raise ValueError(f"the {name} for host {part.host!r} holds a lone surrogate") from None
    except ValueError as error:
        raise ValueError(f"the {name} for host {part.host!r} cannot be used: {error}") from None
    except ArtifactError as error:
        raise ValueError(f"host {part.host!r}, which speaks wire 4: {error}") from None
    return digits
