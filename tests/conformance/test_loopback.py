from __future__ import annotations

import signal
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from joinproto.conformance import loopback as module
from joinproto.conformance.conversation import Over, Raw
from joinproto.conformance.loopback import Cancelled, LoopbackWorld
from joinproto.conformance.target import Target
from joinproto.conformance.world import Child, Flood, Unreachable
from tests.support.conformance import KEYS

PATIENCE = 10.0


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def made(stack: ExitStack, **values: object) -> LoopbackWorld:
    world = LoopbackWorld(KEYS, host="target", scale=0.1, **values)  # type: ignore[arg-type]
    stack.callback(world.end)
    return world


@pytest.fixture
def world(stack: ExitStack) -> LoopbackWorld:
    return made(stack)


def until(world: LoopbackWorld, condition: Callable[[], object]) -> None:
    due = world.now() + PATIENCE
    while not condition():
        assert world.now() < due, "it never came"
        world.run(world.now() + 0.05)


def dialed(world: LoopbackWorld, stack: ExitStack) -> socket.socket:
    """A target's dial, taken as connection c."""
    sock = stack.enter_context(socket.create_connection(world.address))
    until(world, lambda: world.dials_waiting)
    assert world.accept("c")
    return sock


def listening(world: LoopbackWorld) -> LoopbackWorld:
    world.reserve()
    world.listen()
    return world


def test_dials_are_refused_until_it_listens(world: LoopbackWorld, stack: ExitStack) -> None:
    world.reserve()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(world.address)
    assert not world.accept("c")
    world.listen()
    dialed(world, stack)
    assert [each.what for each in world.trace.happenings] == ["open"]


def test_bytes_in_both_directions(world: LoopbackWorld, stack: ExitStack) -> None:
    sock = dialed(listening(world), stack)
    world.send("c", b"abc", "letters")
    assert sock.recv(10) == b"abc"
    sock.sendall(bytes.fromhex("e3170df1"))
    until(world, lambda: world.conversations["c"].opened)
    sock.close()
    until(world, lambda: world.conversations["c"].ended)
    ended = world.conversations["c"].ended
    assert ended is not None
    assert ended.how == "fin"
    told = [(each.who, each.what) for each in world.trace.happenings]
    assert told == [("target", "open"), ("suite", "bytes"), ("target", "bytes"), ("target", "fin")]


def test_a_reset_is_told_from_an_end(world: LoopbackWorld, stack: ExitStack) -> None:
    sock = dialed(listening(world), stack)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()
    until(world, lambda: world.conversations["c"].ended)
    ended = world.conversations["c"].ended
    assert isinstance(ended, Over)
    assert ended.how == "rst"
    # Who writes into it meanwhile loses nothing but those bytes.
    world.send("c", b"x", "")
    world.half_close("c")
    world.close("c")
    world.reset("c")


def test_half_close_and_close(world: LoopbackWorld, stack: ExitStack) -> None:
    sock = dialed(listening(world), stack)
    world.send("c", b"x" * 3_000_000, "")
    world.half_close("c")
    sock.settimeout(PATIENCE)
    received = 0
    while True:
        world.run(world.now())
        try:
            data = sock.recv(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            continue
        if not data:
            break
        received += len(data)
    assert received == 3_000_000
    sock.sendall(b"answer")
    until(world, lambda: world.conversations["c"].received)
    world.close("c")
    assert world.conversations["c"].closed


def test_a_reset_of_the_suite(world: LoopbackWorld, stack: ExitStack) -> None:
    sock = dialed(listening(world), stack)
    world.reset("c")
    with pytest.raises(ConnectionResetError):
        sock.recv(1)


def test_a_controller_is_dialed(world: LoopbackWorld, stack: ExitStack) -> None:
    server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    world.address = server.getsockname()
    world.dial("a", raw=True)
    peer, _ = server.accept()
    with peer:
        peer.sendall(b"HTTP")
    until(world, lambda: world.conversations["a"].ended)
    assert isinstance(world.conversations["a"].take(), Raw)


def test_a_controller_that_is_not_there(stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "START", 0.05)
    world = made(stack)
    world.reserve()
    with pytest.raises(Unreachable, match="Connection refused"):
        world.dial("a", raw=False)


def test_a_controller_that_has_ended(world: LoopbackWorld) -> None:
    world.reserve()
    world.watch_target(Target([sys.executable, "-I", "-S", "-c", "raise SystemExit(4)"], {}))
    with pytest.raises(Unreachable, match="code 4"):
        world.dial("a", raw=False)


def test_what_a_target_writes_and_how_it_ends(world: LoopbackWorld) -> None:
    code = "import os, signal; os.write(1, b'one\\n'); os.write(2, b'two\\n'); signal.pause()"
    world.watch_target(Target([sys.executable, "-I", "-S", "-c", code], {}))
    until(world, lambda: len(world.lines) == 2)
    assert {(line.stream, line.text) for line in world.lines} == {
        ("stdout", "one"),
        ("stderr", "two"),
    }
    world.signal(15)
    until(world, lambda: world.exit)
    assert world.exit is not None
    assert world.exit.code == -15
    # Its pipes end too, and are watched no more.
    world.run(world.now() + 0.05)


def test_a_flood_of_output(world: LoopbackWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLOOD", 1000)
    code = "import os\nwhile True: os.write(1, b'x' * 100 + b'\\n')"
    world.watch_target(Target([sys.executable, "-I", "-S", "-c", code], {}))
    with pytest.raises(Flood):
        until(world, lambda: False)


def test_a_flood_on_a_connection(
    world: LoopbackWorld, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_HELD", 10)
    sock = dialed(listening(world), stack)
    sock.sendall(b"x" * 20)
    with pytest.raises(Flood):
        until(world, lambda: False)


def test_a_run_that_is_given_up(stack: ExitStack) -> None:
    world = made(stack, given_up=lambda: True)
    with pytest.raises(Cancelled):
        world.run(PATIENCE)


def test_a_slot_is_given_up_while_a_case_only_waits(stack: ExitStack) -> None:
    class Slot:
        said: list[str] = []  # noqa: RUF012 - of this test alone

        def acquire(self) -> None:
            self.said.append("acquire")

        def release(self) -> None:
            self.said.append("release")

    slot = Slot()
    world = made(stack, slot=slot)
    with world.resting(False):
        assert slot.said == []
    with world.resting(True):
        assert slot.said == ["release"]
    assert slot.said == ["release", "acquire"]


def test_processes_of_the_target_are_told_what_to_do(world: LoopbackWorld) -> None:
    world.order(Child(name="0", up=0.0), {"exit": 1})
    assert world.children == {}
    assert "exit" in world.trace.happenings[-1].text


def test_a_target_that_is_started_anew(world: LoopbackWorld) -> None:
    code = "import os, signal; os.write(1, b'one\\n'); signal.pause()"

    def start() -> None:
        world.watch_target(Target([sys.executable, "-I", "-S", "-c", code], {}))

    with socket.create_server(("127.0.0.1", 0)) as server:
        world.address = server.getsockname()
        world.start = start
        world.start()
        world.dial("a", raw=False)
        first = world.target
        world.restart()
        sock, _ = server.accept()
        with sock:
            assert sock.recv(1) == b""
    assert first is not None
    assert first.code == -signal.SIGKILL
    assert world.exit is None
    until(world, lambda: world.lines)
    assert world.target is not first
