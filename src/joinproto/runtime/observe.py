"""What an agent tells of itself to programs: events, a status file, and the service manager.

`specs/agent-events.schema.json` and `specs/agent-status.schema.json` describe the first two.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from joinproto.effects import Severity
from joinproto.errors import JoinprotoError
from joinproto.machines.agent import AgentState
from joinproto.machines.agent.context import AgentContext
from joinproto.runtime.notify import Notifier
from joinproto.runtime.signals import signal_name
from joinproto.runtime.summary import Fate

STARTING = "Starting"
"""The state in the status file of an agent that does not dial yet."""

DOING = {
    AgentState.DIALING: "dialing the controller",
    AgentState.HELLO: "sending the Hello",
    AgentState.AWAIT_ACCEPT: "waiting to be admitted",
    AgentState.AWAIT_FORMED: "waiting for the world to form",
    AgentState.SUPERVISING: "supervising ranks",
    AgentState.DONE: "done",
    AgentState.ABORTED: "aborted",
}


class Observer:
    """Keeps watchers posted; each of them is optional, and none of them can hold the agent up.

    Args:
        host: the name it joins under.
        controller: its address, for people.
        restarts: stints before this one.
        goes_on: whether there will be another stint after one that ended so.
        write_event: takes events as lines of JSON; None: nobody wants them.
        status_file: kept up to date, replaced as a whole each time; None: nobody wants it.
        notifier: the service manager.
        say: takes lines for people.

    Raises:
        OSError: the status file cannot be written.
    """

    def __init__(
        self,
        *,
        host: str,
        controller: str,
        restarts: int = 0,
        goes_on: Callable[[JoinprotoError | None], bool] = lambda error: False,
        write_event: Callable[[bytes], None] | None = None,
        status_file: str | None = None,
        notifier: Notifier | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._goes_on = goes_on
        self._write_event = write_event
        self._status_file = status_file
        self._notifier = notifier or Notifier({})
        self._say = say
        self._state: AgentState | None = None
        self._stopping = False
        self._ranks: dict[int, dict[str, Any]] = {}
        self._status: dict[str, Any] = {
            "host": host,
            "controller": controller,
            "pid": os.getpid(),
            "restarts": restarts,
            "state": STARTING,
            "wire": None,
            "ranks": [],
            "relay": None,
            "exit_code": None,
            "error": None,
        }
        if status_file is not None:
            self._replace(status_file)
        self._event("started", host=host, controller=controller, pid=os.getpid(), restarts=restarts)
        self.next_timer: float | None = None
        """When `alive` wants to be called; None: not at all."""
        self.alive(time.monotonic())

    def alive(self, now: float) -> None:
        """Give the service manager a sign of life, when the last one is old enough."""
        interval = self._notifier.interval
        if interval is not None and (self.next_timer is None or now >= self.next_timer):
            self._notifier.alive()
            self.next_timer = now + interval

    def told(self, severity: Severity, text: str) -> None:
        """A line for people."""
        if self._write_event is not None:
            self._write_event(told_line(severity, text))

    def follow(self, state: AgentState, context: AgentContext) -> None:
        """Look where the agent's machine is by now, and tell what has changed."""
        if context.ranks and not self._ranks:
            self._joined(context)
        if context.failure is not None and not self._stopping:
            self._stopping = True
            self._event("stopping", reason=str(context.failure))
            self._notify_end(f"stopping: {context.failure}", context.failure)
        if state is not self._state:
            self._changed(state)

    def spawned(self, rank: int | None, device: int | None, pid: int) -> None:
        """A child runs; the relay has no rank and no device."""
        self._event("spawned", rank=rank, device=device, pid=pid)
        self._child(rank).update(pid=pid)
        self._save()

    def exited(self, rank: int | None, fate: Fate) -> None:
        """A child ended."""
        assert fate.code is not None
        child = self._child(rank)
        child["code"] = fate.code
        self._event(
            "exited",
            rank=rank,
            device=child.get("device"),
            pid=fate.pid,
            code=fate.code,
            signal=signal_name(fate.code),
            by_agent=fate.by_agent,
            out_of_memory=fate.out_of_memory,
            seconds=round(fate.seconds or 0.0, 3),
        )
        self._save()

    def dropped(self, count: int, lines: int) -> None:
        """Output was dropped, since nobody read it."""
        self._event("dropped", bytes=count, lines=lines)

    def finished(self, error: JoinprotoError | None) -> None:
        """The stint is over; nothing is told after this."""
        code = 0 if error is None else error.exit_code
        text = None if error is None else str(error)
        self._status.update(exit_code=code, error=text)
        self._save()
        self._event("finished", exit_code=code, error=text)
        self._notify_end(text or "done", error)

    # -- inside -------------------------------------------------------------------------------

    def _joined(self, context: AgentContext) -> None:
        devices = context.plan.hello.local_devices
        self._ranks = {
            rank: {"rank": rank, "device": device, "pid": None, "code": None}
            for rank, device in zip(context.ranks, devices, strict=True)
        }
        self._status.update(wire=context.version, ranks=list(self._ranks.values()))
        self._event(
            "joined", ranks=list(context.ranks), devices=list(devices), wire=context.version
        )

    def _changed(self, state: AgentState) -> None:
        first, self._state = self._state is None, state
        self._status["state"] = state.value
        self._event("state", state=state.value)
        self._save()
        self._notifier.send(*(("READY=1",) if first else ()), f"STATUS={DOING[state]}")

    def _child(self, rank: int | None) -> dict[str, Any]:
        """What the status file says of a child."""
        if rank is not None:
            return self._ranks[rank]
        if self._status["relay"] is None:
            self._status["relay"] = {"pid": None, "code": None}
        relay: dict[str, Any] = self._status["relay"]
        return relay

    def _notify_end(self, text: str, error: JoinprotoError | None) -> None:
        # A manager that is told of an end it does not see will bring it about.
        ends = () if self._goes_on(error) else ("STOPPING=1",)
        self._notifier.send(*ends, f"STATUS={text}")

    def _event(self, name: str, **members: Any) -> None:
        if self._write_event is not None:
            self._write_event(_event_line(name, **members))

    def _save(self) -> None:
        if self._status_file is None:
            return
        try:
            self._replace(self._status_file)
        except OSError as error:
            # A full disk is no reason to stop anything.
            path, self._status_file = self._status_file, None
            text = f"--status-file {path}: {error.strerror}; it is kept no further"
            self._say(text)
            self.told(Severity.WARNING, text)

    def _replace(self, path: str) -> None:
        replace_file(path, _json({**self._status, "time": timestamp()}, indent=1))


def told_line(severity: Severity, text: str) -> bytes:
    """The event that holds a line for people, as it is written."""
    return _event_line("told", severity=severity.name.lower(), text=text)


def _event_line(name: str, **members: Any) -> bytes:
    """An event as it is written, in one line."""
    return _json({"event": name, "time": timestamp(), **members})


def _json(members: Mapping[str, Any], indent: int | None = None) -> bytes:
    """An object of JSON that every reader takes, in ASCII, and a line end."""
    clean = {
        # What is no text, such as a file's name that is not UTF-8, strict readers refuse.
        name: value.encode(errors="backslashreplace").decode() if isinstance(value, str) else value
        for name, value in members.items()
    }
    return json.dumps(clean, indent=indent).encode() + b"\n"


def replace_file(path: str, content: bytes) -> None:
    """Put `content` in the place of the file, so that a reader sees the old or the new, whole.

    Raises:
        OSError: it cannot be written there.
    """
    beside = f"{path}.{os.getpid()}.new"
    with suppress(FileNotFoundError):
        # Left behind by a process of that number that was killed.
        os.unlink(beside)
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        # Readable by anyone whatever the umask: it holds no secret.
        os.fchmod(fd, 0o644)
        if os.write(fd, content) < len(content):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.replace(beside, path)
    except OSError:
        os.unlink(beside)
        raise
    finally:
        os.close(fd)


def timestamp() -> str:
    """Now, in UTC, to the millisecond (RFC 3339)."""
    at = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03d}Z"
