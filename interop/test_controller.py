"""Published agents in worlds of our controller."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from interop.environments import DUMP, as_host, read_environment, without_added
from interop.peers import WIRES, Controller, agent_spec, our_agent, our_controller, published_agent
from interop.processes import Watched, ended

pytestmark = pytest.mark.interop

SALT = "c0ffee00" * 4
SLEEP = "echo pid $$; exec sleep 600"


@pytest.fixture(params=["open", "pre-shared"])
def trust(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[list[str], dict[str, str]]:
    """The controller's options and the agents' fields of each kind of admission."""
    if request.param == "open":
        return [], {}
    return salted(tmp_path)


def salted(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Options and fields with which both ends hold one salt."""
    (folder / "salt").write_text(f"{SALT}\n")
    (folder / "salt").chmod(0o600)
    return ["--salt-file", str(folder / "salt")], {"salt_hex": SALT}


def rank_pid(agent: Watched) -> int:
    """The pid of the first rank that runs `SLEEP`."""
    return int(agent.wait_line(r"\] pid (\d+)$")[1])


# -- one version alone ------------------------------------------------------------------------


def test_a_world_that_ends_well(version: str, trust: tuple[list[str], dict[str, str]]) -> None:
    options, fields = trust
    with our_controller(*options, ranks=3) as controller:
        port = controller.port
        with (
            published_agent(version, agent_spec("a", port, [4, 6], **fields)) as first,
            published_agent(version, agent_spec("b", port, [0], **fields)) as second,
        ):
            assert controller.wait_exit() == 0
            assert first.wait_exit() == second.wait_exit() == 0
            first.wait_line("finished cleanly")
        joined = {event["host"]: event["ranks"] for event in controller.events("joined")}
        assert joined in ({"a": [0, 1], "b": [2]}, {"b": [0], "a": [1, 2]})
        assert len(controller.events("formed")) == 1
        assert exit_codes(controller) == {0: 0, 1: 0, 2: 0}
        assert [event["event"] for event in controller.events()][-1] == "finished"


def test_exits_are_received(version: str) -> None:
    fails = "[ $FLODL_INTERNAL_LOCAL_RANK = 0 ] && exit 7; kill -9 $$"
    with our_controller(ranks=2) as controller:
        spec = agent_spec("a", controller.port, [4, 6])
        with published_agent(version, spec, rank=fails) as agent:
            assert controller.wait_exit() == 1
            assert agent.wait_exit() == 0
            agent.wait_line("finished DEGRADED — 2 rank")
        # A published agent reports any signal as -1.
        assert exit_codes(controller) == {0: 7, 1: -1}


def exit_codes(controller: Controller) -> dict[int, int]:
    """Rank → code of all exits so far."""
    return {event["rank"]: event["code"] for event in controller.events("rank_exited")}


def test_abort_kills_the_ranks(version: str) -> None:
    with our_controller(ranks=2) as controller:
        spec = agent_spec("a", controller.port, [4, 6])
        with published_agent(version, spec, rank=SLEEP) as agent:
            rank = rank_pid(agent)
            controller.signal(signal.SIGTERM)
            assert controller.wait_exit() == 1
            assert agent.wait_exit() == 1
            agent.wait_line(r'tearing down host "a" \((?!controller closed).+\); killing 2')
            assert ended(rank, within=0)
        assert [event["event"] for event in controller.events()][-1] == "finished"


def test_a_window_that_fails_aborts(version: str) -> None:
    short = ("--join-timeout", "1", "--max-join-timeout", "1")
    with (
        our_controller(*short, ranks=2) as controller,
        published_agent(version, agent_spec("a", controller.port, [4])) as agent,
    ):
        assert controller.wait_exit() == 3
        assert agent.wait_exit() == 1
        agent.wait_line("run aborted before world formation: ")


# -- turned away ------------------------------------------------------------------------------


def test_a_wrong_salt_is_turned_away(version: str, tmp_path: Path) -> None:
    options, fields = salted(tmp_path)
    with our_controller(*options, ranks=1) as controller:
        stranger = agent_spec("stranger", controller.port, [0], salt_hex="5a" * 16)
        with published_agent(version, stranger) as agent:
            assert agent.wait_exit() == 1
            agent.wait_line("controller closed the connection before replying")
        with published_agent(version, agent_spec("a", controller.port, [0], **fields)) as agent:
            assert agent.wait_exit() == controller.wait_exit() == 0
        assert [event["host"] for event in controller.events("joined")] == ["a"]
        assert not any(SALT in line or "5a5a" in line for line in controller.lines())


def test_a_wrong_dataset_signature_is_turned_away(version: str) -> None:
    right, wrong = "ab" * 32, "cd" * 32
    with our_controller("--dataset-sig", right, ranks=1) as controller:
        port = controller.port
        stranger = agent_spec("stranger", port, [0], dataset_sig_hex=wrong)
        with published_agent(version, stranger) as agent:
            assert agent.wait_exit() == 1
            reason = agent.wait_line("join REJECTED by the controller: (.+)")[1]
        assert "dataset signature" in reason
        assert controller.wait_event("rejected")["reason"] == reason
        fitting = agent_spec("a", port, [0], dataset_sig_hex=right)
        with published_agent(version, fitting) as agent:
            assert agent.wait_exit() == controller.wait_exit() == 0


# -- both versions ----------------------------------------------------------------------------


def test_mixed_wires(both_versions: list[str], tmp_path: Path) -> None:
    extra = {"DUMPS": str(tmp_path)}
    with our_controller("--mixed-wires", ranks=2) as controller:
        port = controller.port
        old, new = (
            published_agent(v, agent_spec(v, port, [5]), rank=DUMP, extra=extra)
            for v in both_versions
        )
        with old, new:
            assert controller.wait_exit() == 0
            assert old.wait_exit() == new.wait_exit() == 0
        assert exit_codes(controller) == {0: 0, 1: 0}
    envelopes = [
        read_environment(tmp_path, v, 0)["FLODL_INTERNAL_CLUSTER_JSON"] for v in both_versions
    ]
    assert [envelope["world_size"] for envelope in envelopes] == [2, 2]
    assert envelopes[0]["salt"] == envelopes[1]["salt"]


@pytest.mark.parametrize("first", [0, 1])
def test_another_wire_than_the_first_members_is_closed_unanswered(
    both_versions: list[str], first: int
) -> None:
    member, stranger = both_versions[first], both_versions[1 - first]
    with our_controller(ranks=2) as controller:
        port = controller.port
        with published_agent(member, agent_spec("a", port, [0])) as a:
            controller.wait_event("joined", host="a")
            with published_agent(stranger, agent_spec("stranger", port, [0])) as agent:
                assert agent.wait_exit() == 1
                agent.wait_line("controller closed the connection before replying")
            with published_agent(member, agent_spec("b", port, [0])) as b:
                assert a.wait_exit() == b.wait_exit() == controller.wait_exit() == 0


# -- the same children as a published agent's -------------------------------------------------


def test_ours_gives_its_children_the_environment_of_the_published_agent(
    version: str, tmp_path: Path
) -> None:
    """Under our controller, which sends what no published launcher does here: a relay spec."""
    local = {"data_path": "/srv/data", "gpu_ram_share": 0.5} if WIRES[version] == 4 else {}
    extra = {"DUMPS": str(tmp_path), "HIP_VISIBLE_DEVICES": "9", "ROCR_VISIBLE_DEVICES": "9"}
    with our_controller("--relay", ranks=4) as controller:
        spec = agent_spec("theirs", controller.port, [4, 6], **local)
        with (
            published_agent(version, spec, rank=DUMP, relay=DUMP, extra=extra) as theirs,
            our_agent({**spec, "host": "ours"}, rank=DUMP, relay=DUMP, extra=extra) as ours,
        ):
            assert theirs.wait_exit() == ours.wait_exit() == controller.wait_exit() == 0
        (ranks,) = (e["ranks"] for e in controller.events("joined") if e["host"] == "ours")
    for slot in (0, 1, "relay"):
        expected = as_host(read_environment(tmp_path, "theirs", slot), "ours", ranks)
        assert without_added(read_environment(tmp_path, "ours", slot)) == expected
