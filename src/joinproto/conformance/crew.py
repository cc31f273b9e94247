"""The processes that a target starts in a case: each runs the helper and is steered from here."""

from __future__ import annotations

import json
import shlex
import socket
import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from joinproto.conformance import helper
from joinproto.conformance.target import BYSTANDER_VARIABLE
from joinproto.conformance.telling import child_text
from joinproto.conformance.world import Child, Trace
from joinproto.runtime.environment import LOCAL_RANK_VARIABLE, RELAY_VARIABLE

BYSTANDER = "bystander"
"""The name of a process that is no concern of the target's."""

MAX_FACTS = 8 * 1024 * 1024
"""Bytes that a helper may tell of itself: an environment holds an envelope."""


class _Member:
    """One connected helper."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.said = bytearray()
        self.undone = 0
        self.child: Child | None = None


class Crew:
    """Takes the helpers of one case.

    Args:
        watch: has a descriptor watched for reading: `watch(socket, call)`; `call` None ends that.
        now: the time of the case.
        trace: takes down who comes and goes.

    Attributes:
        children: all that came up, by name, in order.
        command: what a rank is to run, as words.
    """

    def __init__(
        self,
        watch: Callable[[socket.socket, Callable[[], None] | None], None],
        now: Callable[[], float],
        trace: Trace,
    ) -> None:
        self.children: dict[str, list[Child]] = {}
        self._watch = watch
        self._now = now
        self._trace = trace
        self._folder = tempfile.TemporaryDirectory(prefix="joinproto-crew-")
        self._path = str(Path(self._folder.name) / "s")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.setblocking(False)
        self._listener.bind(self._path)
        self._listener.listen(128)
        self._members: list[_Member] = []
        watch(self._listener, self._accept)
        # Isolated: what the target puts into the environment must not reach this Python.
        self.command = (sys.executable, "-I", "-S", "-B", helper.__file__, self._path)

    @property
    def command_line(self) -> str:
        """What a rank is to run, as a shell takes it."""
        return shlex.join(self.command)

    def order(self, child: Child, commands: list[Mapping[str, Any]]) -> None:
        """Have a process do something; one that has ended does nothing any more."""
        for member in self._members:
            if member.child is child:
                with suppress(OSError):  # it has just ended
                    member.sock.sendall(json.dumps(commands).encode() + b"\n")
                    member.undone += 1

    def obeyed(self, child: Child) -> bool:
        """Whether a process has done all that it was told, or has ended."""
        return not any(member.undone for member in self._members if member.child is child)

    def close(self) -> None:
        """Let all of them go: a helper ends when the suite hangs up."""
        for member in self._members:
            self._watch(member.sock, None)
            member.sock.close()
        self._watch(self._listener, None)
        self._listener.close()
        self._folder.cleanup()

    # -- inside -------------------------------------------------------------------------------

    def _accept(self) -> None:
        sock, _ = self._listener.accept()
        # Facts are large, and orders small: only what is read must not block.
        member = _Member(sock)
        self._members.append(member)
        self._watch(sock, lambda: self._read(member))

    def _read(self, member: _Member) -> None:
        try:
            data = member.sock.recv(262144, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        member.said += data
        if not data or len(member.said) > MAX_FACTS:
            self._gone(member)
        elif member.child is None and b"\n" in member.said:
            self._up(member, json.loads(member.said.partition(b"\n")[0]))
            member.said.clear()
        elif member.child is not None:
            member.undone -= member.said.count(b"\n")
            del member.said[: member.said.rfind(b"\n") + 1]

    def _up(self, member: _Member, facts: Mapping[str, Any]) -> None:
        name = self._name(facts)
        child = member.child = Child(name=name, up=self._now(), facts=facts)
        self.children.setdefault(name, []).append(child)
        self._trace.add(child.up, _who(name), "up", text=f"{child_text(name)} runs")

    def _name(self, facts: Mapping[str, Any]) -> str:
        env = facts["env"]
        if BYSTANDER_VARIABLE in env:
            return BYSTANDER
        if facts["parent"] is not None:
            everyone = (child for group in self.children.values() for child in group)
            parents = [each.name for each in everyone if each.facts["pid"] == facts["parent"]]
            parent = parents[-1] if parents else "?"
            return f"{parent}/{sum(name.startswith(f'{parent}/') for name in self.children) + 1}"
        if LOCAL_RANK_VARIABLE in env:
            return str(env[LOCAL_RANK_VARIABLE])
        return "relay" if RELAY_VARIABLE in env else "?"

    def _gone(self, member: _Member) -> None:
        self._watch(member.sock, None)
        member.sock.close()
        self._members.remove(member)
        child = member.child
        if child is not None:
            child.down = self._now()
            self._trace.add(
                child.down, _who(child.name), "down", text=f"{child_text(child.name)} ended"
            )


def _who(name: str) -> str:
    return name if name in ("relay", BYSTANDER) else f"rank {name}"
