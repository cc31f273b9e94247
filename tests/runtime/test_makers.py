"""makers: the artifacts of a world, as published controllers make them."""

from __future__ import annotations

import json
from typing import Any

from joinproto.keys import Salt
from joinproto.runtime.makers import HostPart, Made, PublishedMaker, World

SALT = Salt(bytes(range(16)))


def part(host: str, *ranks: int, group: int = 0) -> HostPart:
    return HostPart(
        host=host,
        ranks=ranks,
        local_devices=tuple(range(len(ranks))),
        gpus=(),
        libtorch="",
        wire=4,
        group_rank=group,
        peer_host="127.0.0.1",
        controller_host="head.lan",
        controller_port=7077,
    )


WORLD = World(
    world_size=3,
    num_hosts=2,
    hosts=(part("a", 0, 1), part("b", 2, group=1)),
    salt=SALT,
    master=("10.0.0.7", 29500),
)


def made(*, relay: bool) -> Made:
    found: list[Made | str] = []
    PublishedMaker(relay=relay).make(WORLD, found.append)
    (only,) = found
    assert not isinstance(only, str)
    return only


def read(artifact: str | None) -> Any:
    assert artifact is not None
    return json.loads(bytes.fromhex(artifact))


def test_every_host_has_an_envelope_of_its_own() -> None:
    found = made(relay=False)
    assert {host: relay for host, (_, relay) in found.items()} == {"a": None, "b": None}
    envelope = read(found["b"][0])
    assert envelope["controller"] == {"host": "head.lan", "port": 7077}
    assert (envelope["world_size"], envelope["num_workers"]) == (3, 2)
    assert (envelope["worker"]["host"], envelope["worker"]["ranks"]) == ("b", [2])
    assert (envelope["group_rank"], envelope["master_addr"]) == (1, "10.0.0.7")


def test_and_a_relay_spec_where_relays_run() -> None:
    spec = read(made(relay=True)["a"][1])
    assert (spec["host"], spec["ranks"], spec["salt_hex"]) == ("a", [0, 1], SALT.hex())


def test_the_salt_is_in_no_repr() -> None:
    assert SALT.hex() not in repr(WORLD)
    PublishedMaker(relay=False).cancel()
