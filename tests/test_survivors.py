"""Nothing survives an agent, however it ends, wherever it is, and whatever its ranks are like."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from interop.processes import MARK, Watched, clean_environment, variables
from joinproto.errors import Rejected
from joinproto.messages import Hello, Reject
from joinproto.runtime.cgroup import make_cgroup
from joinproto.testing.fakes import FakeController
from joinproto.testing.script import Expect, Say, Until, WaitEnd
from tests.support.life import RANKS, Life
from tests.support.processes import bystander, children, helper_of, state, wait_for_end, zombies
from tests.support.python import PATIENCE, wait_until
from tests.support.roles import OURS, shell

KILLED_WITHIN = 2.0
"""Seconds from a SIGKILL of the agent, or of its helper, until nothing of it is left."""

GRACE = 0.5
SPARE = 2.0
"""Seconds beyond the grace that an agent may take to end.  It takes a few hundredths; machines that
run tests are busy."""

NO_GRACE = 600.0
"""A grace that nothing can have waited for."""

STUBBORN = "ignoring SIGTERM"
ALL_KINDS = tuple(RANKS)


@dataclass(frozen=True)
class Means:
    """A way to end an agent.

    Attributes:
        act: does it.
        code: with which the agent ends.
        within: seconds, from then on, after which nothing may be left; None: nothing may be once
            the agent has ended, which the grace bounds.
        is_prompt: no grace is waited for when the agent is stopping already.
    """

    act: Callable[[Life], None]
    code: int
    within: float | None = None
    is_prompt: bool = False


def send(number: signal.Signals) -> Callable[[Life], None]:
    return lambda life: life.send(number)


MEANS = {
    "normal end": Means(Life.end_ranks, 0),
    "Abort": Means(Life.abort, 1),
    "lost link": Means(Life.hang_up, 1),
    "relay death": Means(Life.kill_relay, 1),
    "SIGTERM": Means(send(signal.SIGTERM), 143, is_prompt=True),
    "SIGINT": Means(send(signal.SIGINT), 130, is_prompt=True),
    "SIGHUP": Means(send(signal.SIGHUP), 129, is_prompt=True),
    "a fault of our own": Means(Life.fail, 1, is_prompt=True),
    "SIGKILL": Means(send(signal.SIGKILL), -9, KILLED_WITHIN, is_prompt=True),
    "SIGKILL of the helper": Means(Life.kill_helper, 1, KILLED_WITHIN, is_prompt=True),
}
STOPPED = 143
"""The exit code of an agent that was stopping since a SIGTERM when something else came."""

KILLS_THE_AGENT = ("SIGKILL", "a fault of our own")

POINTS = {
    "before the world": ("normal end", "relay death"),
    "between two spawns": ("normal end",),
    "running": (),
    "stopping": ("normal end",),
}
"""Points of its life, and the means that there are none of there."""

MATRIX = [
    (point, means) for point, without in POINTS.items() for means in MEANS if means not in without
]


@pytest.fixture(autouse=True)
def unrelated() -> Iterator[None]:
    """Somebody else, whom no agent may touch."""
    with bystander():
        yield


def end(
    folder: Path, point: str, name: str, kinds: tuple[str, ...], *, control_group: bool = False
) -> None:
    """Bring an agent to some point, end it, and look for what is left."""
    means = MEANS[name]
    gate = len(kinds) // 2 + 1
    stopping = point == "stopping"
    life = Life(
        folder,
        kinds,
        relay=name == "relay death",
        gate=gate if point == "between two spawns" else None,
        grace=NO_GRACE if stopping and means.is_prompt else GRACE,
        control_group=control_group,
    )
    with life:
        bring(life, point)
        means.act(life)
        if point == "between two spawns" and name not in KILLS_THE_AGENT:
            life.open_gate()
        if means.within is not None:
            assert life.left(means.within) == [], "somebody survived"
        code = STOPPED if stopping and name not in KILLS_THE_AGENT else means.code
        assert life.agent.wait_exit(within=GRACE + SPARE) == code
        assert life.left() == [], "somebody survived"
        if point == "between two spawns":
            # The last one that was asked for may have been started or not; one more may have been
            # asked for before the helper came to tell of the relay.
            assert len(life.spawned) <= gate


def bring(life: Life, point: str) -> None:
    match point:
        case "before the world":
            life.waiting()
        case "between two spawns":
            life.reach_gate()
        case "running":
            life.run()
        case "stopping":
            life.stop()


@pytest.mark.parametrize(("point", "means"), MATRIX)
def test_nothing_is_left(tmp_path: Path, point: str, means: str) -> None:
    end(tmp_path, point, means, ALL_KINDS)


def test_nothing_waits_before_the_host_is_admitted() -> None:
    """A Reject meets an agent that has forked nothing but its helper."""
    looked = threading.Event()
    script = [Expect(Hello), Until(looked.is_set), Say(Reject(reason="full")), WaitEnd()]
    with FakeController(script, wires=(2,)) as fake:
        where = ("--controller", fake.address, "--host", "a", "--devices", "0,1")
        argv = (*OURS, "agent", *where, "--wire", "2", "--", "true")
        with Watched(argv, environment=clean_environment()) as agent:
            helper = helper_of(agent.pid)
            assert children(helper) == []
            looked.set()
            assert agent.wait_exit() == Rejected.exit_code
            assert state(helper) == ""


def test_one_that_is_killed_while_it_waits_for_the_world_does_no_harm(tmp_path: Path) -> None:
    with Life(tmp_path, ALL_KINDS) as life:
        one = life.waiting()[0]
        os.kill(one, signal.SIGKILL)
        # Until then it may still be told to run, and would end as a rank that was killed.
        wait_until(lambda: state(one) in ("", "Z"), "it has ended")
        life.run()
        life.end_ranks()
        assert life.agent.wait_exit(within=SPARE) == 0
        assert life.left() == []


def test_a_start_that_hangs_ends_with_the_grace_and_keeps_no_other_from_running(
    tmp_path: Path,
) -> None:
    with Life(tmp_path, ("well-behaved",) * 3) as life:
        os.kill(life.waiting()[1], signal.SIGSTOP)
        life.form()
        life.agent.wait_for(lambda: len(life.leaders) == 2 or None, "the others run")
        life.send(signal.SIGTERM)
        assert life.agent.wait_exit(within=GRACE + SPARE) == 143
        assert life.left() == []


def test_a_helper_that_starts_a_rank_and_dies_at_once(tmp_path: Path) -> None:
    """The agent hears of both in one turn, with the next rank on its mind."""
    with Life(tmp_path, ALL_KINDS, gate=3) as life:
        life.reach_gate()

        def told() -> bool:
            ranks = children(life.helper)
            running = [pid for pid in ranks if MARK in variables(pid)]
            return len(running) >= 3 and state(life.helper) == "S"

        wait_until(told, "the helper has started three ranks, and said so")
        life.kill_helper()
        wait_for_end(life.helper, time.monotonic() + KILLED_WITHIN)
        life.open_gate()
        assert life.agent.wait_exit(within=SPARE) == 1
        assert life.left() == []
        lines = life.agent.lines("stderr")
    assert any("the helper process was ended from outside" in line for line in lines)
    assert not any("cannot happen" in line for line in lines)


@pytest.mark.parametrize(("means", "code"), [("normal end", 0), ("Abort", 1), ("SIGINT", 130)])
def test_a_signal_that_comes_at_the_very_end_changes_nothing(
    tmp_path: Path, means: str, code: int
) -> None:
    """It must not keep the agent from telling all there is to tell."""
    with Life(tmp_path, ALL_KINDS, signal_while_closing=True) as life:
        life.run()
        MEANS[means].act(life)
        assert life.agent.wait_exit(within=GRACE + SPARE) == code
        assert life.left() == []
        lines = life.agent.lines("stderr")
    assert '"event": "finished"' in lines[-1]
    assert sum(" was killed by SIG" in line for line in lines) == (6 if code else 0)


@pytest.fixture(scope="session")
def control_groups() -> None:
    """Skips where an agent has to do without."""
    made = make_cgroup(f"joinproto-test-{os.getpid()}")
    if made.path is None:
        pytest.skip("no control group of version 2 may be made here")
    made.remove()


@pytest.mark.usefixtures("control_groups")
@pytest.mark.parametrize("means", ["normal end", "SIGTERM", "SIGKILL", "SIGKILL of the helper"])
def test_nothing_is_left_in_a_control_group(tmp_path: Path, means: str) -> None:
    end(tmp_path, "running", means, ALL_KINDS, control_group=True)


@pytest.mark.long
@pytest.mark.parametrize("kind", RANKS)
@pytest.mark.parametrize(("point", "means"), MATRIX)
def test_nothing_is_left_of_any_sort(tmp_path: Path, point: str, means: str, kind: str) -> None:
    end(tmp_path, point, means, (kind, STUBBORN, kind))


@pytest.mark.long
@pytest.mark.usefixtures("control_groups")
@pytest.mark.parametrize("kind", RANKS)
@pytest.mark.parametrize(("point", "means"), MATRIX)
def test_nothing_is_left_of_any_sort_in_a_control_group(
    tmp_path: Path, point: str, means: str, kind: str
) -> None:
    end(tmp_path, point, means, (kind, STUBBORN, kind), control_group=True)


# -- who else there is ------------------------------------------------------------------------


def test_a_kill_of_the_agents_whole_group_leaves_nothing(tmp_path: Path) -> None:
    with Life(tmp_path, ALL_KINDS) as life:
        life.run()
        os.killpg(life.agent.pid, signal.SIGKILL)
        assert life.left(KILLED_WITHIN) == []


def test_children_die_when_all_of_ours_are_killed_at_once(tmp_path: Path) -> None:
    """What is below them is nobody's then, which docs/supervision.md says."""
    with Life(tmp_path, ALL_KINDS, relay=True) as life:
        life.run()
        direct = set(life.leaders.values()) & set(children(life.helper))
        assert len(direct) >= len(ALL_KINDS)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            os.kill(life.helper, number)
            life.send(number)
        until = time.monotonic() + KILLED_WITHIN
        assert life.agent.wait_exit() == -signal.SIGKILL
        for pid in direct:
            wait_for_end(pid, until)
        assert {pid: state(pid) for pid in direct if state(pid) not in ("", "Z", "X")} == {}


def test_orphans_are_reaped_while_the_ranks_run(tmp_path: Path) -> None:
    with Life(tmp_path, ("double-forking",) * 3) as life:
        life.run()
        orphans = [pid for pid in children(life.helper) if pid not in life.leaders.values()]
        assert orphans
        for pid in orphans:
            os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + PATIENCE
        for pid in orphans:
            wait_for_end(pid, until)
        wait_until(lambda: zombies(life.helper) == [], "the helper has reaped them")
        assert zombies(life.agent.pid) == []


@pytest.mark.parametrize("run", ['"$@"; echo over; wait', 'exec "$@"'], ids=["beside", "its own"])
@pytest.mark.parametrize("means", ["SIGTERM", "SIGKILL of the helper"])
def test_what_was_there_before_the_agent_stays(tmp_path: Path, run: str, means: str) -> None:
    """In its session and its group, or even its own child, as with `monitor & exec joinproto …`."""
    start = f"sleep 600 >/dev/null 2>&1 & echo beside $!; {run}"
    with Life(tmp_path, ALL_KINDS, wrapper=shell(start)) as life:
        beside = int(life.agent.wait_line(r"^beside (\d+)$")[1])
        life.run()
        MEANS[means].act(life)
        if "exec" in run:
            life.agent.wait_exit()
        else:
            life.agent.wait_line("^over$")
        assert set(life.left()) - {life.agent.pid} == {beside}
        assert state(beside) == "S"
