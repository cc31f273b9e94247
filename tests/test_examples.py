"""The scripts in examples: that they run as they say."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from interop.peers import free_port
from tests.support.python import PATIENCE
from tests.support.roles import agent, controller

EXAMPLES = Path(__file__).parents[1] / "examples"
PYTHON = "/usr/bin/python3"
"""Debian's, which has python3-torch; there is no need for it in the environment of the tests."""


@pytest.fixture(scope="module")
def torch() -> None:
    """PyTorch; skips where it is not installed, or fails if it is required."""
    find = "import importlib.util as u, sys; sys.exit(u.find_spec('torch') is None)"
    if Path(PYTHON).exists() and not subprocess.run([PYTHON, "-c", find]).returncode:
        return
    missing = f"{PYTHON} has no torch (Debian: apt-get install python3-torch, or make torch)"
    if os.environ.get("JOINPROTO_REQUIRE_PEERS") == "1":
        pytest.fail(missing, pytrace=False)
    pytest.skip(missing)


@pytest.mark.slow
@pytest.mark.usefixtures("torch")
def test_torch_gloo_over_two_agents() -> None:
    # Three processes that load PyTorch on a busy machine take their time.
    within = 3 * PATIENCE
    train = (PYTHON, str(EXAMPLES / "torch_gloo" / "train.py"))
    with controller("--master-port", str(free_port()), ranks=3) as head:
        # One thread each: by default every rank would take all processors.
        threads = ("--env", "OMP_NUM_THREADS=1")
        network = ("--env", "GLOO_SOCKET_IFNAME=lo")
        options = ("--controller", head.where, "--torch", *network, *threads)
        with (
            agent(*options, "--host", "a", "--devices", "0,1", command=train) as first,
            agent(*options, "--host", "b", "--devices", "0", command=train) as second,
        ):
            ends = [each.wait_exit(within=within) for each in (first, second)]
            assert ends == [0, 0], first.lines() + second.lines()
            lines = {"a": first.lines("stdout"), "b": second.lines("stdout")}
        events = head.ended(0)
    joined = {event["host"]: event["ranks"] for event in events if event["event"] == "joined"}
    assert sorted(joined["a"] + joined["b"]) == [0, 1, 2]
    for host, ranks in joined.items():
        for local, rank in enumerate(ranks):
            prefix = f"[{host}:{local}:r{rank}] "
            said = [line.removeprefix(prefix) for line in lines[host] if line.startswith(prefix)]
            assert said == [
                f"rank {rank} of 3, local rank {local}",
                f"rank {rank}: y = 3.00x + 1.00",
            ]
    codes = {event["rank"]: event["code"] for event in events if event["event"] == "rank_exited"}
    assert codes == {0: 0, 1: 0, 2: 0}
