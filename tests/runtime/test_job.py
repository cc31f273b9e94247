"""What a host's children run, and in which environment."""

from __future__ import annotations

import json
from typing import Any

import pytest

from joinproto.effects import Spawn
from joinproto.errors import ArtifactError
from joinproto.runtime.job import Job
from joinproto.runtime.torch import TorchSettings

ENVELOPE = b'{"controller":{}}'.hex()


def spawn(rank: int | None = 4, *, wire: int = 4, artifact: str | None = None) -> Spawn:
    return Spawn(
        slot=0,
        artifact_hex=ENVELOPE if artifact is None else artifact,
        rank=rank,
        local_rank=None if rank is None else 1,
        device=None if rank is None else 6,
        wire=wire,
    )


def job(**fields: Any) -> Job:
    nothing: dict[str, Any] = {"command": (), "environ": {}, "extra": {}}
    return Job(controller=("c", 1), **nothing | fields)


def test_ranks_and_relay_may_run_different_commands() -> None:
    two = job(command=("rank",), relay_command=("relay", "x"))
    assert (two.argv(spawn()), two.argv(spawn(None))) == (("rank",), ("relay", "x"))
    one = job(command=("both",))
    assert (one.argv(spawn()), one.argv(spawn(None))) == (("both",), ("both",))


def test_what_a_rank_of_the_older_wire_is_handed_is_not_touched() -> None:
    given = job(data_path="/data", extra={"MORE": "1"})
    environment = given.environment(spawn(wire=2, artifact="no hex"))
    assert environment["FLODL_INTERNAL_CLUSTER_JSON"] == "no hex"
    assert environment["FLODL_INTERNAL_LOCAL_RANK"] == "1"
    assert (environment["CUDA_VISIBLE_DEVICES"], environment["MORE"]) == ("6", "1")
    relay = given.environment(spawn(None, wire=2, artifact=""))
    assert relay == {"FLODL_INTERNAL_RELAY_JSON": "", "MORE": "1"}


def test_what_a_rank_of_the_newer_wire_is_handed_is_made_its_own() -> None:
    given = job(data_path="/data", gpu_ram_share=0.5)
    raw = {"controller": {"host": "x", "port": 9}, "worker": {"host": "a"}}
    artifact = json.dumps(raw).encode().hex()
    environment = given.environment(spawn(artifact=artifact))
    assert json.loads(bytes.fromhex(environment["FLODL_INTERNAL_CLUSTER_JSON"])) == {
        "controller": {"host": "c", "port": 1},
        "worker": {"host": "a", "data_path": "/data", "gpu_ram_share": 0.5},
    }


def test_what_the_relay_of_the_newer_wire_is_handed_is_made_its_own() -> None:
    raw = {
        "host": "a",
        "controller_host": "x",
        "controller_port": 9,
        "ranks": [0],
        "salt_hex": "00",
        "world_size": 1,
        "data_channel": False,
    }
    environment = job().environment(spawn(None, artifact=json.dumps(raw).encode().hex()))
    spec = json.loads(bytes.fromhex(environment["FLODL_INTERNAL_RELAY_JSON"]))
    assert (spec["controller_host"], spec["controller_port"]) == ("c", 1)


@pytest.mark.parametrize("rank", [0, None])
def test_what_cannot_be_read_is_handed_to_nobody(rank: int | None) -> None:
    with pytest.raises(ArtifactError, match="from the controller is unusable"):
        job().environment(spawn(rank, artifact="no hex"))


def test_a_job_shows_no_variables_in_its_repr() -> None:
    assert "hush" not in repr(job(environ={"A": "hush"}, extra={"B": "hush"}))


def test_ranks_that_run_torch_are_told_their_places_and_what_is_set_by_hand_wins() -> None:
    world = {"controller": {}, "worker": {"ranks": [3, 4]}, "world_size": 6}
    artifact = json.dumps(world).encode().hex()
    torch = TorchSettings(master_addr="m", master_port=29500)
    environment = job(torch=torch, extra={"MASTER_PORT": "1"}).environment(spawn(artifact=artifact))
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
    assert [environment[name] for name in names] == ["4", "1", "6", "m", "1"]
    assert "RANK" not in job().environment(spawn(artifact=artifact))
