"""Our agent in worlds of the published launcher."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pytest

from interop.environments import DUMP, as_host, read_environment, without_added
from interop.peers import (
    OURS,
    WIRES,
    Worker,
    agent_spec,
    launcher,
    our_agent,
    our_agent_argv,
)
from interop.processes import Watched, clean_environment, ended

pytestmark = pytest.mark.interop

DEVICES = (4, 6)
THEIRS = "theirs"
OUR_HOSTS = ("ours-a", "ours-b")
OPEN = {"open_admission": True}

RANK = f"""{DUMP}
echo "runs on $CUDA_VISIBLE_DEVICES"
case $FLODL_HOST_NAME.$FLODL_INTERNAL_LOCAL_RANK in
    {OUR_HOSTS[0]}.0) exit 7;;
    {OUR_HOSTS[1]}.1) kill -9 $$;;
esac"""


# -- two hosts of ours beside a published agent -----------------------------------------------


@dataclass(frozen=True)
class Run:
    """A world that has run to its end, and what the launcher said of it."""

    version: str
    ranks: dict[str, list[int]]
    exit_codes: dict[int, int]
    launcher_exit: int
    stdout: list[str]
    stderr: list[str]
    dumps: Path


@pytest.fixture(scope="module", params=["pre-shared", "open"])
def admission(request: pytest.FixtureRequest) -> str:
    """How the launcher knows its workers."""
    return str(request.param)


@pytest.fixture(scope="module")
def run(version: str, admission: str, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A world of two hosts of ours and a published agent, under each launcher."""
    dumps = tmp_path_factory.mktemp("dumps")
    ours = [Worker(host=h, devices=DEVICES, argv=our_agent_argv(rank=RANK)) for h in OUR_HOSTS]
    with launcher(
        version,
        [Worker(host=THEIRS, devices=DEVICES), *ours],
        join=OPEN if admission == "open" else None,
        rank=RANK,
        extra={"DUMPS": str(dumps)},
    ) as world:
        ranks = {host: world.ranks(host) for host in (THEIRS, *OUR_HOSTS)}
        return Run(
            version=version,
            ranks=ranks,
            launcher_exit=world.wait_exit(),
            exit_codes=world.exit_codes(),
            stdout=world.lines("stdout"),
            stderr=world.lines("stderr"),
            dumps=dumps,
        )


def test_all_hosts_join_one_world(run: Run) -> None:
    assert sorted(chain(*run.ranks.values())) == list(range(6))
    assert any("world formed — 6 ranks across 3 host(s)" in line for line in run.stderr)


def test_ranks_run_on_their_devices_behind_their_prefixes(run: Run) -> None:
    expected = [
        f"[{host}:{device}:r{rank}] runs on {device}"
        for host, ranks in run.ranks.items()
        for device, rank in zip(DEVICES, ranks, strict=True)
    ]
    assert sorted(run.stdout) == sorted(expected)


@pytest.mark.parametrize("host", OUR_HOSTS)
@pytest.mark.parametrize("slot", range(len(DEVICES)))
def test_a_rank_finds_the_environment_that_a_published_agent_gives_it(
    run: Run, host: str, slot: int
) -> None:
    theirs = read_environment(run.dumps, THEIRS, slot)
    ours = read_environment(run.dumps, host, slot)
    assert without_added(ours) == as_host(theirs, host, run.ranks[host])


def test_exit_codes_and_signals_reach_the_launcher(run: Run) -> None:
    failed, killed = run.ranks[OUR_HOSTS[0]][0], run.ranks[OUR_HOSTS[1]][1]
    assert run.exit_codes == {failed: 7, killed: -9}


def test_the_launcher_ends_well(run: Run) -> None:
    assert run.launcher_exit == 0


def test_the_wire_version_is_found_unaided(run: Run) -> None:
    """An older launcher refuses the newest version once for each host of ours; no one else."""
    refused = [line for line in run.stderr if "rejected a join attempt" in line]
    expected = "rejected a join attempt: wire: ControlFrame version 4 != 2"
    assert [expected in line for line in refused] == [True] * {2: 2, 4: 0}[WIRES[run.version]]


# -- a host of ours that the launcher does not know -------------------------------------------


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A FIFO that nobody can open for reading until the test has opened it for writing."""
    path = tmp_path / "gate"
    os.mkfifo(path)
    return path


def walk_in(port: int, *options: str, rank: str = ":") -> Watched:
    """Our agent as host `walk-in`, told by options alone."""
    address = ("--controller", f"127.0.0.1:{port}", "--host", "walk-in", "--devices", "5")
    return Watched(
        (*OURS, "agent", *address, *options, "--", "/bin/sh", "-c", rank),
        environment=clean_environment(),
    )


def test_a_walk_in_joins_by_options_alone(version: str, gate: Path) -> None:
    room_for_one_more = {**OPEN, "min_rank_start": 3, "target_ranks": 3}
    known = Worker(host=THEIRS, devices=DEVICES)
    with (
        launcher(version, [known], join=room_for_one_more, rank=f": < {gate}") as world,
        walk_in(world.port, rank='echo "on $CUDA_VISIBLE_DEVICES"; exit 7') as agent,
    ):
        (rank,) = world.ranks("walk-in")
        world.wait_line(f'host "walk-in" reports rank {rank} exited with code 7')
        assert agent.wait_exit() == 0
        assert agent.lines("stdout") == [f"[walk-in:5:r{rank}] on 5"]
        agent.wait_line("finished DEGRADED")
        # The launcher ends with the agents that it started, so these had to wait for ours.
        writer = os.open(gate, os.O_RDWR)
        try:
            assert world.wait_exit() == 0
        finally:
            os.close(writer)


def test_a_reject_is_passed_on_word_for_word(version: str) -> None:
    with launcher(
        version, [Worker(host="walk-in", devices=(0,))], join={**OPEN, "target_ranks": 2}
    ) as world:
        world.ranks("walk-in")
        with walk_in(world.port) as agent:
            assert agent.wait_exit() == 3
            reason = world.wait_line(r'rejected a join attempt: host "walk-in": (.+)')[1]
            assert any(reason in line for line in agent.lines("stderr"))


def test_a_window_that_fails_aborts_with_its_reason(version: str) -> None:
    absent = Worker(host="absent", devices=(0,), argv=("sleep", "600"))
    knobs = {"min_rank_start": 2, "target_ranks": 2, "join_timeout": 5, "max_join_timeout": 5}
    with launcher(version, [absent], join={**OPEN, **knobs}) as world, walk_in(world.port) as agent:
        assert world.ranks("walk-in") == [0]
        reason = world.wait_line("FAILED — (quorum not met: .+)")[1]
        assert agent.wait_exit() == 1
        assert any(reason in line for line in agent.lines("stderr"))


def test_a_launcher_that_dies_takes_our_ranks_with_it(version: str) -> None:
    known = Worker(host=THEIRS, devices=(0,))
    sleeps = "echo pid $$; exec sleep 600"
    with (
        launcher(version, [known], join={**OPEN, "target_ranks": 2}, rank=sleeps) as world,
        walk_in(world.port, rank=sleeps) as agent,
    ):
        rank = int(agent.wait_line(r"^\[walk-in:5:r\d\] pid (\d+)$")[1])
        world.signal(signal.SIGKILL)
        assert agent.wait_exit() == 1
        assert ended(rank, within=0)


def test_torch_is_told_by_options_what_the_launcher_does_not_say(version: str, gate: Path) -> None:
    names = "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK MASTER_ADDR MASTER_PORT"
    options = ("--torch", "--master-addr", "10.1.2.3", "--master-port", "4000")
    shown = f'echo "{" ".join("$" + name for name in names.split())}"'
    known = Worker(host=THEIRS, devices=(0,))
    with (
        launcher(version, [known], join={**OPEN, "target_ranks": 2}, rank=f": < {gate}") as world,
        walk_in(world.port, *options, rank=shown) as agent,
    ):
        (rank,) = world.ranks("walk-in")
        assert agent.wait_exit() == 0
        said = f"[walk-in:5:r{rank}] {rank} 0 2 1 {rank} 10.1.2.3 4000"
        assert agent.lines("stdout") == [said]


def test_torch_without_those_options_is_an_error_that_names_them(version: str) -> None:
    known = Worker(host=THEIRS, devices=(0,))
    with (
        launcher(version, [known], join={**OPEN, "target_ranks": 2}, rank="sleep 600") as world,
        walk_in(world.port, "--torch", rank="echo it runs") as agent,
    ):
        assert agent.wait_exit() == 1
        assert agent.lines("stdout") == []
        agent.wait_line("does not say where rank 0 listens; give --master-addr and --master-port")


def test_a_wrong_salt_is_told_as_the_likely_cause(version: str) -> None:
    known = Worker(host=THEIRS, devices=(0,))
    with launcher(version, [known], join={"target_ranks": 2}, scale=0.1) as world:
        world.ranks(THEIRS)
        spec = agent_spec("walk-in", world.port, [5], salt_hex="5a" * 16)
        with our_agent(spec, "--net-timeout-scale", "0.1") as agent:
            assert agent.wait_exit() == 1
            agent.wait_line("salt")
            assert not any("5a5a" in line for line in agent.lines())
            world.wait_line("rejected a join attempt: wire: ControlFrame HMAC")
