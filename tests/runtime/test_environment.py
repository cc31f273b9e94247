"""environment: exactly what published agents give their children, and no pre-shared salt."""

from __future__ import annotations

import pytest

from joinproto.runtime.environment import rank_environment, relay_environment

OWN = {"PATH": "/bin", "HOME": "/root", "LD_LIBRARY_PATH": "/lib", "FLODL_NET_TIMEOUT_SCALE": "2"}
ROLES = {
    "FLODL_INTERNAL_AGENT_JSON": "agent",
    "FLODL_INTERNAL_FULL_CLUSTER_JSON": "full",
    "FLODL_INTERNAL_CLUSTER_JSON": "slim",
    "FLODL_INTERNAL_LOCAL_RANK": "99",
    "JOINPROTO_SALT": "00112233445566778899aabbccddeeff",
}
MASKS = {
    "CUDA_VISIBLE_DEVICES": "0,1,2",
    "CUDA_DEVICE_ORDER": "FASTEST_FIRST",
    "HIP_VISIBLE_DEVICES": "0,1",
    "ROCR_VISIBLE_DEVICES": "1",
    "GPU_DEVICE_ORDINAL": "0",
}


def rank(base: dict[str, str], wire: int, extra: dict[str, str] | None = None) -> dict[str, str]:
    return rank_environment(
        base, envelope_hex="7b7d", local_rank=1, device=7, wire=wire, extra=extra or {}
    )


SET_FOR_RANKS = {
    "FLODL_INTERNAL_CLUSTER_JSON": "7b7d",
    "FLODL_INTERNAL_LOCAL_RANK": "1",
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
    "CUDA_VISIBLE_DEVICES": "7",
    "PYTHONUNBUFFERED": "1",
}


@pytest.mark.parametrize("base", [OWN, OWN | ROLES])
def test_a_rank_under_wire_2(base: dict[str, str]) -> None:
    assert rank(base, 2) == OWN | SET_FOR_RANKS
    # The masks of the other vendor are wire 4's business.
    assert rank(base | MASKS, 2) == OWN | MASKS | SET_FOR_RANKS


@pytest.mark.parametrize("base", [OWN, OWN | ROLES, OWN | ROLES | MASKS])
def test_a_rank_under_wire_4(base: dict[str, str]) -> None:
    assert rank(base, 4) == OWN | SET_FOR_RANKS | {"HIP_VISIBLE_DEVICES": "7"}


def test_the_relay() -> None:
    got = relay_environment(OWN | ROLES | MASKS, relay_hex="ab", extra={})
    assert got == OWN | MASKS | {"FLODL_INTERNAL_RELAY_JSON": "ab"}


@pytest.mark.parametrize("wire", [2, 4])
def test_extra_lies_over_everything(wire: int) -> None:
    extra = {"CUDA_VISIBLE_DEVICES": "all", "HOME": "/x", "FLODL_INTERNAL_LOCAL_RANK": "5"}
    assert rank(OWN, wire, extra) == rank(OWN, wire) | extra
    own = {"FLODL_INTERNAL_RELAY_JSON": "cd", "HOME": "/x"}
    got = relay_environment(OWN, relay_hex="ab", extra=own)
    assert got == OWN | own


@pytest.mark.parametrize("value", ["", "0", "x"])
def test_an_explicit_buffering_is_kept(value: str) -> None:
    explicit = {"PYTHONUNBUFFERED": value}
    assert rank(OWN | explicit, 2)["PYTHONUNBUFFERED"] == value
    assert rank(OWN, 2, explicit)["PYTHONUNBUFFERED"] == value
    assert "PYTHONUNBUFFERED" not in relay_environment(OWN, relay_hex="ab", extra={})


def test_the_base_is_left_alone() -> None:
    base = OWN | ROLES | MASKS
    before = dict(base)
    rank(base, 4, {"A": "b"})
    relay_environment(base, relay_hex="ab", extra={"A": "b"})
    assert base == before
