from __future__ import annotations

import os
import selectors
import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from joinproto.conformance.crew import Crew
from joinproto.conformance.world import Child, Trace

PATIENCE = 10.0


class Loop:
    """Runs a crew without a world."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.trace = Trace()
        self.crew = Crew(self._watch, time.monotonic, self.trace)
        self.processes: list[subprocess.Popen[bytes]] = []

    def _watch(self, sock: socket.socket, call: Callable[[], None] | None) -> None:
        if call is None:
            self.selector.unregister(sock)
        else:
            self.selector.register(sock, selectors.EVENT_READ, call)

    def start(self, **env: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self.crew.command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE
        )
        self.processes.append(process)
        return process

    def until(self, condition: Callable[[], Any]) -> Any:
        due = time.monotonic() + PATIENCE
        while not (found := condition()):
            assert time.monotonic() < due, "it never came"
            for key, _ in self.selector.select(0.05):
                key.data()
        return found

    def child(self, name: str) -> Child:
        found: Child = self.until(lambda: self.crew.children.get(name))[0]
        return found

    def close(self) -> None:
        self.crew.close()
        self.selector.close()
        for process in self.processes:
            # Let go of, a helper ends by itself.
            process.wait(PATIENCE)
            assert process.stdout is not None
            process.stdout.close()


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    try:
        yield loop
    finally:
        loop.close()


def test_a_helper_tells_of_itself(loop: Loop) -> None:
    process = loop.start(FLODL_INTERNAL_LOCAL_RANK="1", A="b")
    child = loop.child("1")
    assert child.facts["pid"] == process.pid
    assert child.facts["ppid"] == os.getpid()
    assert child.facts["env"]["A"] == "b"
    assert child.facts["stdin"] == "/dev/null"
    assert child.facts["cwd"] == os.getcwd()


def test_the_relay_is_known_by_its_role(loop: Loop) -> None:
    loop.start(FLODL_INTERNAL_RELAY_JSON="x")
    assert loop.child("relay").down is None


def test_it_is_known_when_it_has_obeyed(loop: Loop) -> None:
    process = loop.start(FLODL_INTERNAL_LOCAL_RANK="0")
    child = loop.child("0")
    assert loop.crew.obeyed(child)
    loop.crew.order(child, [{"ignore": "TERM"}])
    assert not loop.crew.obeyed(child)
    loop.until(lambda: loop.crew.obeyed(child))
    process.terminate()
    loop.crew.order(child, [{"exit": 3}])
    loop.until(lambda: loop.crew.obeyed(child))
    assert process.wait(PATIENCE) == 3


def test_whoever_has_no_role_has_no_name(loop: Loop) -> None:
    loop.start()
    assert loop.child("?").name == "?"


def test_it_does_what_it_is_told(loop: Loop) -> None:
    process = loop.start(FLODL_INTERNAL_LOCAL_RANK="0")
    child = loop.child("0")
    loop.crew.order(child, [{"write": {"text": "a", "times": 3}}, {"write": {"hex": "ff0a"}}])
    assert process.stdout is not None
    assert process.stdout.readline() == b"aaa\xff\n"
    loop.crew.order(child, [{"exit": 3}])
    loop.until(lambda: child.down)
    assert process.wait(PATIENCE) == 3
    loop.crew.order(child, [{"exit": 4}])
    assert [each.what for each in loop.trace.happenings] == ["up", "down"]


def test_it_ends_by_a_signal_and_can_be_deaf(loop: Loop) -> None:
    process = loop.start(FLODL_INTERNAL_LOCAL_RANK="0")
    child = loop.child("0")
    loop.crew.order(child, [{"ignore": "TERM"}, {"write": {"text": "deaf\n"}}])
    assert process.stdout is not None
    assert process.stdout.readline() == b"deaf\n"
    process.terminate()
    loop.crew.order(child, [{"signal": "KILL"}])
    assert process.wait(PATIENCE) == -9


def test_what_it_does_not_know_ends_it(loop: Loop) -> None:
    process = loop.start()
    loop.crew.order(loop.child("?"), [{"dance": 1}])
    assert process.wait(PATIENCE) == 99


@pytest.mark.parametrize("how", [{}, {"session": True, "deaf": True}, {"twice": True}])
def test_its_own_processes_tell_of_themselves_too(loop: Loop, how: dict[str, bool]) -> None:
    process = loop.start(FLODL_INTERNAL_LOCAL_RANK="0")
    child = loop.child("0")
    loop.crew.order(child, [{"fork": how}])
    grandchild = loop.child("0/1")
    assert grandchild.facts["parent"] == process.pid
    own = grandchild.facts["sid"] == grandchild.facts["pid"]
    assert own == bool(how.get("session"))
    loop.crew.order(child, [{"exit": 0}])
    loop.until(lambda: child.down)
    assert grandchild.down is None
    loop.crew.order(grandchild, [{"exit": 0}])
    loop.until(lambda: grandchild.down)


def test_a_process_of_its_own_may_hold_the_output(loop: Loop) -> None:
    process = loop.start(FLODL_INTERNAL_LOCAL_RANK="0")
    loop.crew.order(loop.child("0"), [{"fork": {"output": True}}, {"exit": 0}])
    grandchild = loop.child("0/1")
    assert process.wait(PATIENCE) == 0
    loop.crew.order(grandchild, [{"write": {"text": "late\n"}}, {"exit": 0}])
    assert process.stdout is not None
    assert process.stdout.read() == b"late\n"


def test_the_command_as_a_shell_takes_it(loop: Loop) -> None:
    assert tuple(shlex.split(loop.crew.command_line)) == loop.crew.command
