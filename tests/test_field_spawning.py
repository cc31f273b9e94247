"""What went wrong in the field where children are started and ended, with real processes.

Each test names the case it is of; what is right there is what it asserts.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from interop.processes import Watched, clean_environment
from joinproto.agent import join_and_spawn_local
from joinproto.errors import Unkillable
from joinproto.limits import KILL_WAIT
from joinproto.machines.agent import Plan
from joinproto.messages import Abort, Hello, WorldFormed
from joinproto.runtime.local import LocalChild
from joinproto.runtime.spec import AgentSpec
from joinproto.testing.clock import FakeClock
from joinproto.testing.fakes import FakeController
from joinproto.testing.memory import MemoryHost
from joinproto.testing.processes import Behaviour
from joinproto.testing.script import Admit, Expect, ExpectExits, Pause, Say, Until, WaitEnd
from tests.support.life import Life
from tests.support.python import PATIENCE
from tests.support.roles import OURS, shell

WORLD = WorldFormed(envelope_hex="")
GRACE = 0.5
SPARE = 2.0


def devices(count: int) -> str:
    return ",".join(map(str, range(count)))


# -- A2: signals that follow a thread, and forks of a process with threads --------------------


def test_a2_ranks_outlive_the_thread_that_started_them(tmp_path: Path) -> None:
    go = tmp_path / "go"
    started: list[LocalChild] = []

    def start(fake: FakeController) -> None:
        spec = AgentSpec(
            host="a", controller_host=fake.host, controller_port=fake.port, local_devices=(0, 1)
        )
        script = f"read x < {go}.$FLODL_INTERNAL_LOCAL_RANK; exit 7"
        started.extend(join_and_spawn_local(spec, shell(script), scale=1.0))

    for rank in (0, 1):
        os.mkfifo(f"{go}.{rank}")
    with FakeController([Expect(Hello), Admit(), Say(WORLD), WaitEnd()], wires=(2,)) as fake:
        thread = threading.Thread(target=start, args=(fake,))
        thread.start()
        thread.join()
    assert len(started) == 2
    for rank, child in enumerate(started):
        # One that is dead reads no more, and this would wait for ever.
        os.close(os.open(f"{go}.{rank}", os.O_WRONLY))
        assert child.wait(PATIENCE) == 7
        assert child.forwarder.join(PATIENCE)


BUSY = """
import hashlib, sys, threading
from joinproto.agent import run_agent
from joinproto.runtime.spec import AgentSpec

def work():
    block = bytes(100_000)
    while not over:
        # It holds and gives back the lock of the interpreter, and that of the allocator, in turn.
        hashlib.sha256(block).digest()
        [bytes(size) for size in range(100)]

over = []
threads = [threading.Thread(target=work) for _ in range(16)]
for thread in threads:
    thread.start()
try:
    run_agent(
        AgentSpec(
            host="a",
            controller_host=sys.argv[1],
            controller_port=int(sys.argv[2]),
            local_devices=tuple(range(64)),
        ),
        ["true"],
        wires=[2],
    )
finally:
    over.append(True)
    for thread in threads:
        thread.join()
"""


def start_amid_busy_threads() -> None:
    with FakeController.admitting(codes=dict.fromkeys(range(64), 0), timeout=60.0) as fake:
        argv = [sys.executable, "-W", "error", "-c", BUSY, fake.host, str(fake.port)]
        with Watched(argv, environment=clean_environment()) as process:
            assert process.wait_exit() == 0


@pytest.mark.slow
def test_a2_busy_threads_keep_no_rank_from_being_started() -> None:
    start_amid_busy_threads()


@pytest.mark.long
@pytest.mark.parametrize("time", range(100))
def test_a2_busy_threads_keep_no_rank_from_being_started_a_hundred_times(time: int) -> None:
    start_amid_busy_threads()


# -- A5: signals between two spawns -----------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a5_no_rank_is_started_once_a_signal_has_come(
    tmp_path: Path, number: signal.Signals
) -> None:
    """The news of a child's end come with it, as they do in a host that falls apart."""
    with Life(tmp_path, ("well-behaved",) * 8, gate=3) as life:
        life.reach_gate()
        life.send(signal.SIGCHLD)
        life.send(number)
        os.kill(life.first_child(), signal.SIGKILL)
        life.send(signal.SIGCHLD)
        life.open_gate()
        assert life.agent.wait_exit(within=GRACE + SPARE) == 128 + number
        assert life.left() == []
        assert sorted(life.spawned) == [0, 1, 2]


# -- A6: what fails half-way ------------------------------------------------------------------


def test_a6_a_host_that_has_no_room_for_all_its_ranks_runs_none(tmp_path: Path) -> None:
    """The relay and three ranks run when the system has no process left for the fourth of 8."""
    with Life(tmp_path, ("well-behaved",) * 8, relay=True, fork_fails=4) as life:
        life.form()
        assert life.agent.wait_exit(within=GRACE + SPARE) == 1
        assert life.left() == []
        assert sorted(life.spawned) == [0, 1, 2]
        told = "rank 3 could not be started: /bin/sh: Resource temporarily unavailable"
        assert any(told in line for line in life.agent.lines("stderr"))


def test_a6_the_controller_is_told_of_those_that_had_started() -> None:
    with FakeController([Expect(Hello), Admit(), Say(WORLD), WaitEnd()], wires=(2,)) as fake:
        where = ("--controller", fake.address, "--host", "a", "--devices", devices(8))
        argv = (*OURS, "agent", *where, "--", "./missing")
        with Watched(argv, environment=clean_environment()) as process:
            assert process.wait_exit() == 2
            assert " could not be started: ./missing: No such file" in process.lines()[-1]


def test_a6_a_soft_limit_is_lifted_as_far_as_it_goes(tmp_path: Path) -> None:
    """Ranks find the one that was set."""
    with FakeController.admitting(codes=dict.fromkeys(range(40), 0), timeout=30.0) as fake:
        where = ("--controller", fake.address, "--host", "a", "--devices", devices(40))
        agent = (*OURS, "agent", *where, "--", *shell("ulimit -Sn"))
        argv = (*shell('ulimit -Sn 48; exec "$@"'), "sh", *agent)
        with Watched(argv, environment=clean_environment()) as process:
            assert process.wait_exit() == 0
            lines = process.lines("stdout")
    assert sorted(lines) == sorted(f"[a:{rank}:r{rank}] 48" for rank in range(40))


# -- A10: children that do not want to end ----------------------------------------------------


@pytest.mark.slow
def test_a10_ranks_that_ignore_sigterm_share_one_grace(tmp_path: Path) -> None:
    with Life(tmp_path, ("ignoring SIGTERM",) * 8, grace=1.0) as life:
        life.run()
        start = time.monotonic()
        life.abort()
        assert life.agent.wait_exit(within=1.0 + SPARE) == 1
        assert time.monotonic() - start >= 1.0
        assert life.left() == []
        assert sum(line.endswith("asked") for line in life.agent.lines("stdout")) == 8


@pytest.mark.slow
def test_a10_a_rank_that_cannot_be_killed_is_named_and_left(tmp_path: Path) -> None:
    with Life(tmp_path, ("well-behaved", "well-behaved"), grace=0.1, unkillable=True) as life:
        life.run()
        life.abort()
        assert life.agent.wait_exit(within=10.0) == 1
        lines = life.agent.lines("stderr")
    assert any("rank 0 is still there after SIGKILL; leaving it" in line for line in lines)
    assert any("rank 0, rank 1 of host 'a' could not be killed" in line for line in lines)


def test_a10_nobody_waits_for_ever_for_a_rank_that_cannot_be_killed(
    joinproto_clock: FakeClock,
) -> None:
    """A stub in the place of a process that hangs in a driver."""
    script = [Expect(Hello), Admit(), Say(WORLD), Pause(1.0), Say(Abort(reason="no")), WaitEnd()]
    fake = FakeController(script, wires=(2,))
    plan = Plan(hello=Hello(host="a", local_devices=(0, 1)), wires=(2,), grace=5.0)
    behaviours: dict[int | None, Behaviour] = {1: Behaviour(unkillable=True)}
    host = MemoryHost(
        plan, joinproto_clock, lambda dial: fake.end(joinproto_clock), behaviours=behaviours
    )
    host.start()
    host.run()
    assert isinstance(host.error, Unkillable)
    assert "rank 1 of host 'a' could not be killed" in str(host.error)
    assert host.error.exit_code == 1
    assert joinproto_clock.now == 1.0 + 5.0 + KILL_WAIT


# -- as many ranks as there may be ------------------------------------------------------------


@pytest.mark.slow
def test_as_many_ranks_as_a_host_may_have_under_the_usual_limit() -> None:
    """All of them at once."""
    codes = dict.fromkeys(range(256), -signal.SIGTERM)
    up = threading.Event()
    script = [Expect(Hello), Admit(), Say(WORLD), Until(up.is_set)]
    script += [Say(Abort(reason="enough")), ExpectExits(codes), WaitEnd()]
    with FakeController(script, wires=(2,), timeout=60.0) as fake:
        where = ("--controller", fake.address, "--host", "a", "--devices", devices(256))
        agent = (*OURS, "agent", *where, "--wire", "2", "--", *shell("echo up; exec sleep 600"))
        argv = (*shell('ulimit -n 1024; exec "$@"'), "sh", *agent)
        with Watched(argv, environment=clean_environment()) as process:
            process.wait_for(lambda: len(process.lines("stdout")) == 256 or None, "256 ranks")
            up.set()
            assert process.wait_exit() == 1
            assert sorted(process.lines("stdout")) == sorted(
                f"[a:{rank}:r{rank}] up" for rank in range(256)
            )
        fake.join()
