"""artifacts: what controllers write, and how a wire 4 agent makes it its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from joinproto.errors import ArtifactError
from joinproto.keys import Salt
from joinproto.runtime.artifacts import (
    build_envelope,
    build_relay_spec,
    localize_envelope,
    localize_relay,
)

SALT = Salt(bytes(range(16)))
SALT_HEX = "000102030405060708090a0b0c0d0e0f"
RELAY: dict[str, object] = {
    "host": "worker-x",
    "controller_host": "192.168.1.1",
    "controller_port": 1337,
    "ranks": [3, 4],
    "salt_hex": SALT_HEX,
    "world_size": 5,
    "data_channel": True,
    "frame_ceiling_bytes": 1024,
}


def to_hex(document: object) -> str:
    return json.dumps(document).encode().hex()


def from_hex(digits: str) -> Any:
    return json.loads(bytes.fromhex(digits))


def envelope(**worker: object) -> dict[str, Any]:
    return {
        "controller": {"host": "10.0.0.1", "port": 1337, "later": [1]},
        "world_size": 5,
        "worker": {"host": "worker-x", "ranks": [3, 4], **worker},
        "rank_resources": True,
    }


def localized(
    document: object, data_path: str | None = None, gpu_ram_share: float | None = None
) -> Any:
    return from_hex(
        localize_envelope(
            to_hex(document),
            host="ctl",
            port=40_123,
            data_path=data_path,
            gpu_ram_share=gpu_ram_share,
        )
    )


# -- written ----------------------------------------------------------------------------------


def test_an_envelope_as_published() -> None:
    digits = build_envelope(
        controller_host="::1",
        controller_port=17_000,
        world_size=4,
        num_workers=2,
        host="hé",
        ranks=(2, 3),
        local_devices=(0, 7),
        salt=SALT,
    )
    assert from_hex(digits) == {
        "controller": {"host": "::1", "port": 17_000},
        "world_size": 4,
        "num_workers": 2,
        "worker": {
            "host": "hé",
            "ranks": [2, 3],
            "local_devices": [0, 7],
            "nccl_socket_ifname": "",
            "path": "",
        },
        "salt": SALT_HEX,
    }


def test_a_relay_spec_as_published() -> None:
    digits = build_relay_spec(
        controller_host="c", controller_port=17_000, world_size=4, host="h", ranks=(2, 3), salt=SALT
    )
    assert from_hex(digits) == {
        "host": "h",
        "controller_host": "c",
        "controller_port": 17_000,
        "ranks": [2, 3],
        "salt_hex": SALT_HEX,
        "world_size": 4,
        "data_channel": False,
        "frame_ceiling_bytes": 1 << 30,
    }
    assert list(from_hex(digits)) == list(RELAY)


# -- localized: the envelope ------------------------------------------------------------------


def test_the_address_is_the_one_that_was_dialed() -> None:
    expected = envelope(data_path="/roster", gpu_ram_share=0.25)
    got = localized(expected)
    expected["controller"] |= {"host": "ctl", "port": 40_123}
    assert got == expected


def test_what_only_this_host_knows_wins() -> None:
    got = localized(envelope(data_path="/roster"), data_path="/srv/c", gpu_ram_share=1.0)
    assert got["worker"] == envelope(data_path="/srv/c", gpu_ram_share=1.0)["worker"]
    assert isinstance(got["worker"]["gpu_ram_share"], float)


def test_a_worker_object_is_only_needed_to_write_into() -> None:
    bare: dict[str, object] = {"controller": {}}
    assert localized(bare) == {"controller": {"host": "ctl", "port": 40_123}}
    with pytest.raises(ArtifactError, match="it has no worker object"):
        localized(bare, data_path="/d")
    with pytest.raises(ArtifactError, match="it has no worker object"):
        localized(bare, gpu_ram_share=0.5)


@pytest.mark.parametrize(
    ("digits", "why"),
    [
        ("", "it is empty"),
        ("abc", "it has an odd number of hex digits"),
        ("zz", "it holds characters that are not hex digits"),
        (" 7b7d", "it holds characters that are not hex digits"),
        ("7b7d", "it has no controller object"),
        (to_hex([1]), "it has no controller object"),
        (to_hex(None), "it has no controller object"),
        (to_hex({"controller": []}), "it has no controller object"),
        (b'{"controller":{},"x":NaN}'.hex(), "it is not JSON: NaN"),
        (b'{"controller":{},"x":1e999}'.hex(), "it holds a number that is out of range"),
        (b'{"controller":{},"x":"\xff"}'.hex(), "it is not UTF-8 at byte 22"),
        (b'{"controller":{},"x":"\\ud800"}'.hex(), "it holds a string with a lone surrogate"),
        (b'{"controller":{}}{}'.hex(), "it is not JSON: Extra data"),
        ((b"[" * 200_000).hex(), "it is nested too deeply"),
    ],
)
def test_an_envelope_that_cannot_be_used(digits: str, why: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        localize_envelope(digits, host="ctl", port=1, data_path=None, gpu_ram_share=None)
    assert str(caught.value).startswith(f"the envelope from the controller is unusable: {why}")
    assert "\n" not in str(caught.value)


# -- localized: the relay's spec --------------------------------------------------------------


def test_the_relay_dials_the_same_address() -> None:
    got = localize_relay(to_hex(RELAY), host="ctl", port=40_123)
    assert from_hex(got) == RELAY | {"controller_host": "ctl", "controller_port": 40_123}


def test_a_relay_spec_in_other_published_forms() -> None:
    expected = RELAY | {"controller_host": "ctl", "controller_port": 1, "frame_ceiling_bytes": 0}
    short = {name: value for name, value in RELAY.items() if name != "frame_ceiling_bytes"}
    for form in (short, short | {"later": 1}, list(short.values())):
        assert from_hex(localize_relay(to_hex(form), host="ctl", port=1)) == expected


@pytest.mark.parametrize(
    ("digits", "why"),
    [
        ("", "it is empty"),
        ("7b7d", "host is missing"),
        ("zz", "it holds characters that are not hex digits"),
        (to_hex(None), "it is not a JSON object"),
        (to_hex(RELAY | {"ranks": None}), "ranks must be an array"),
        (to_hex(RELAY | {"ranks": [2**32]}), "ranks must be an array, each entry a whole number"),
        (to_hex(RELAY | {"controller_port": 65_536}), "controller_port must be a whole number"),
        (to_hex(RELAY | {"world_size": -1}), "world_size must be a whole number"),
        (to_hex(RELAY | {"data_channel": 1}), "data_channel must be true or false"),
        (to_hex(RELAY | {"salt_hex": [SALT_HEX]}), "salt_hex must be a string"),
    ],
)
def test_a_relay_spec_that_cannot_be_used(digits: str, why: str) -> None:
    with pytest.raises(ArtifactError) as caught:
        localize_relay(digits, host="ctl", port=1)
    assert str(caught.value).startswith(f"the relay spec from the controller is unusable: {why}")
    assert SALT_HEX not in str(caught.value)
