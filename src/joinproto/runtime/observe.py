"""What an agent tells of itself to programs: events, a status file, and the service manager."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from joinproto.machines.agent import AgentState
from joinproto.runtime.notify import Notifier
from joinproto.runtime.summary import Fate

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
        write_event: takes events as lines of JSON; None: nobody wants them.
        status_file: kept up to date, replaced as a whole each time; None: nobody wants it.
        notifier: the service manager.
    """

    def __init__(
        self,
        *,
        host: str,
        controller: str,
        restarts: int = 0,
        write_event: Callable[[bytes], None] | None = None,
        status_file: str | None = None,
        notifier: Notifier | None = None,
    ) -> None:
        self._write_event = write_event
        self._status_file = status_file
        self._notifier = notifier or Notifier({})
        self._state: AgentState | None = None
        self._status: dict[str, Any] = {
            "host": host,
            "controller": controller,
            "state": "",
            "restarts": restarts,
            "ranks": [],
        }
        self._children: dict[int, dict[str, Any]] = {}
        interval = self._notifier.interval
        self.next_timer = None if interval is None else time.monotonic() + interval
        """When `alive` wants to be called; None: not at all."""

    def alive(self, now: float) -> None:
        """Give the service manager a sign of life."""
        interval = self._notifier.interval
        if self.next_timer is not None and interval is not None and now >= self.next_timer:
            self._notifier.send("WATCHDOG=1")
            self.next_timer = now + interval

    def state(self, state: AgentState) -> None:
        """The agent's machine is in this state; told when it changes."""
        if state is self._state:
            return
        first, self._state = self._state is None, state
        self._status["state"] = state.value
        self._event("state", state=state.value)
        self._save()
        ready = ("READY=1",) if first else ()
        self._notifier.send(*ready, f"STATUS={DOING[state]}")

    def joined(self, ranks: tuple[int, ...], wire: int) -> None:
        """The host was admitted."""
        self._status["wire"] = wire
        self._event("joined", ranks=list(ranks), wire=wire)

    def spawned(self, slot: int, rank: int | None, device: int | None, pid: int) -> None:
        """A child runs; the relay has no rank and no device."""
        child = {"rank": rank, "device": device, "pid": pid, "code": None}
        self._children[slot] = child
        self._event("spawned", rank=rank, device=device, pid=pid)
        self._save()

    def exited(self, slot: int, fate: Fate) -> None:
        """A child ended."""
        child = self._children.get(slot, {"rank": None, "device": None, "pid": None})
        child["code"] = fate.code
        self._event(
            "exited",
            rank=child["rank"],
            device=child["device"],
            pid=child["pid"],
            code=fate.code,
            signal=_signal_name(fate.code),
            by_agent=fate.by_agent,
            out_of_memory=fate.out_of_memory,
            seconds=None if fate.seconds is None else round(fate.seconds, 3),
        )
        self._save()

    def dropped(self, count: int, lines: int) -> None:
        """Output was dropped, since nobody read it."""
        self._event("dropped", bytes=count, lines=lines)

    def stopping(self, reason: str) -> None:
        """The host is being torn down."""
        self._event("stopping", reason=reason)
        self._notifier.send("STOPPING=1", f"STATUS=stopping: {reason}")

    def finished(self, exit_code: int, error: str | None) -> None:
        """The agent is done."""
        self._status["exit_code"] = exit_code
        self._event("finished", exit_code=exit_code, error=error)
        self._save()
        self._notifier.send("STOPPING=1", f"STATUS={error or 'done'}")

    # -- inside -------------------------------------------------------------------------------

    def _event(self, name: str, **members: Any) -> None:
        if self._write_event is not None:
            event = {"event": name, "time": timestamp(), **members}
            self._write_event(json.dumps(event).encode() + b"\n")

    def _save(self) -> None:
        if self._status_file is None:
            return
        children = list(self._children.values())
        self._status["ranks"] = [child for child in children if child["rank"] is not None]
        relay: Mapping[str, Any] | None = next((c for c in children if c["rank"] is None), None)
        self._status["relay"] = relay
        self._status["time"] = timestamp()
        try:
            replace_file(self._status_file, json.dumps(self._status, indent=1).encode() + b"\n")
        except OSError as error:
            # Told once: a full disk is no reason to stop anything.
            self._status_file = None
            self._event("status_file_lost", cause=error.strerror)


def replace_file(path: str, content: bytes) -> None:
    """Put `content` in the place of the file, so that a reader sees the old or the new, whole.

    Raises:
        OSError: it cannot be written there.
    """
    beside = f"{path}.{os.getpid()}.new"
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        # Readable by anyone whatever the umask: it holds no secret.
        os.fchmod(fd, 0o644)
        os.write(fd, content)
    finally:
        os.close(fd)
    os.replace(beside, path)


def timestamp() -> str:
    """Now, in UTC, to the millisecond (RFC 3339)."""
    at = time.time()
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at)) + f".{int(at % 1 * 1000):03d}Z"


def _signal_name(code: int | None) -> str | None:
    try:
        return signal.Signals(-code).name if code is not None and code < 0 else None
    except ValueError:
        return None
