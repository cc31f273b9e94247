"""torch: a rank's place in the world, as torch.distributed wants to be told it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from joinproto.errors import ArtifactError
from joinproto.keys import Salt
from joinproto.runtime.artifacts import build_envelope, localize_envelope
from joinproto.runtime.torch import MASTER_PORT, TorchSettings, torch_environment

SALT = Salt(b"sixteen bytes ok")
NO_SETTINGS = TorchSettings()


def envelope(ranks: list[int], **fields: Any) -> str:
    """An envelope as our controller makes it, of a world of 6 on 3 hosts."""
    settings = {"world_size": 6, "num_workers": 3, "group_rank": 1, "master": ("10.0.0.1", 4000)}
    return build_envelope(
        controller_host="c",
        controller_port=1,
        host="a",
        ranks=ranks,
        local_devices=list(range(len(ranks))),
        salt=SALT,
        **{**settings, **fields},
    )


def published(ranks: Any, **fields: Any) -> str:
    """An envelope without what is ours."""
    whole = {"world_size": 6, "num_workers": 3, "worker": {"ranks": ranks}, **fields}
    return json.dumps(whole).encode().hex()


@pytest.mark.parametrize("local", [0, 1])
def test_what_our_controller_says(local: int) -> None:
    found = torch_environment(envelope([5, 2]), local_rank=local, settings=NO_SETTINGS)
    assert found == {
        "RANK": str([5, 2][local]),
        "LOCAL_RANK": str(local),
        "WORLD_SIZE": "6",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "4000",
    }


def test_it_is_still_there_when_the_envelope_has_been_made_the_hosts_own() -> None:
    given = envelope([0])
    local = localize_envelope(given, host="x", port=2, data_path="/d", gpu_ram_share=0.5)
    there, then = (
        torch_environment(each, local_rank=0, settings=NO_SETTINGS) for each in (given, local)
    )
    assert there == then


def test_the_usual_port_is_that_of_torchs_own_launcher() -> None:
    assert MASTER_PORT == 29500


def test_settings_win_over_the_envelope() -> None:
    settings = TorchSettings(master_addr="m", master_port=9)
    found = torch_environment(envelope([0]), local_rank=0, settings=settings)
    assert (found["MASTER_ADDR"], found["MASTER_PORT"]) == ("m", "9")
    only_port = torch_environment(
        envelope([0]), local_rank=0, settings=TorchSettings(master_port=9)
    )
    assert (only_port["MASTER_ADDR"], only_port["MASTER_PORT"]) == ("10.0.0.1", "9")


@pytest.mark.parametrize(
    ("ranks", "fields", "group"),
    [
        ([0, 1], {}, "0"),
        ([4, 5], {}, "2"),
        ([0, 1, 2, 3, 4, 5], {"num_workers": 1}, "0"),
        ([1, 2], {}, None),
        ([3, 4, 5], {}, None),
        ([0], {"num_workers": 2, "world_size": 3}, None),
        ([0], {"num_workers": None}, None),
    ],
)
def test_the_number_of_a_host_under_a_published_controller(
    ranks: list[int], fields: dict[str, Any], group: str | None
) -> None:
    """It does not say; where all hosts are alike there is but one answer."""
    found = torch_environment(
        published(ranks, **fields),
        local_rank=0,
        settings=TorchSettings(master_addr="m", master_port=9),
    )
    assert found.get("GROUP_RANK") == group


@pytest.mark.parametrize(
    "settings",
    [NO_SETTINGS, TorchSettings(master_addr="m"), TorchSettings(master_port=9)],
    ids=["neither", "address alone", "port alone"],
)
def test_a_controller_that_does_not_say_where_rank_0_is(settings: TorchSettings) -> None:
    with pytest.raises(ArtifactError, match="; give --master-addr and --master-port$"):
        torch_environment(published([0]), local_rank=0, settings=settings)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("no hex", "the envelope cannot be read: "),
        (b"{".hex(), "the envelope cannot be read: it is not JSON"),
        (b"[]".hex(), "the envelope is no JSON object"),
        (published([0], worker=[]), "the envelope's worker is no JSON object"),
        (published(None), "the envelope's worker.ranks is no list of numbers"),
        (published([]), "the envelope's worker.ranks is no list of numbers"),
        (published([0, "1"]), "the envelope's worker.ranks is no list of numbers"),
        (published([True]), "the envelope's worker.ranks is no list of numbers"),
        (published([0], world_size=None), "the envelope's world_size is no number"),
        (published([0], world_size=True), "the envelope's world_size is no number"),
        (published([0], world_size="6"), "the envelope's world_size is no number"),
        (published([0], master_addr=5, master_port=9), "the controller does not say where rank 0"),
        (published([0], master_addr="", master_port=9), "the controller does not say where rank"),
        (published([0], master_addr="m", master_port="9"), "the controller does not say where"),
        (published([0], master_addr="m", master_port=True), "the controller does not say where"),
        (published([0], master_addr="m", master_port=0), "the controller does not say where"),
    ],
)
def test_an_envelope_that_cannot_be_used(given: str, told: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        torch_environment(given, local_rank=0, settings=NO_SETTINGS)
    assert str(caught.value).startswith(told)
    assert SALT.hex() not in str(caught.value)


def test_a_rank_that_the_envelope_does_not_know() -> None:
    with pytest.raises(ArtifactError, match="names 2 rank.s. for this host, not more"):
        torch_environment(envelope([0, 1]), local_rank=2, settings=NO_SETTINGS)
