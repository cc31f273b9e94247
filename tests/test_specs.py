"""The schema of a controller's events: that it is one, what it takes and what it refuses.

That a controller emits such events is tested where it is.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

SCHEMA: dict[str, Any] = json.loads(
    (Path(__file__).parents[1] / "specs" / "events.schema.json").read_text()
)
VALIDATOR = Draft202012Validator(SCHEMA)

EVENTS: dict[str, dict[str, Any]] = {
    "listening": {"host": "127.0.0.1", "port": 4711},
    "joined": {
        "host": "höst",
        "ranks": [0, 1],
        "devices": [0, 3],
        "gpus": ["NVIDIA H100 (79GB, sm_90)", "cuda:3"],
        "libtorch": "",
        "wire": 2,
        "peer": "[::1]:50000",
        "joined_ranks": 2,
        "min_ranks": 2,
        "target_ranks": None,
    },
    "rejected": {
        "peer": "127.0.0.1:50000",
        "host": None,
        "reason": "closed before Hello",
        "suppressed": 3,
    },
    "formed": {
        "reason": "target reached",
        "world_size": 2,
        "hosts": [{"host": "a", "ranks": [0, 1], "wire": 4}],
    },
    "rank_exited": {"rank": 1, "host": "a", "code": -9, "signal": "SIGKILL"},
    "member_lost": {"host": "a", "ranks": [0], "cause": "closed", "formed": False},
    "finished": {
        "outcome": "failed",
        "exit_code": 1,
        "failed_ranks": [1],
        "lost_hosts": ["a"],
        "reason": None,
    },
}
WELL = {"outcome": "ok", "exit_code": 0, "failed_ranks": [], "lost_hosts": []}


def event(name: str, **changes: Any) -> dict[str, Any]:
    return {"event": name, "time": "2026-01-31T23:59:59.001Z", **EVENTS[name], **changes}


def test_the_schema_is_a_schema_with_a_version() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert SCHEMA["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    assert SCHEMA["$id"].rpartition(":")[2] == SCHEMA["title"].rpartition(" ")[2]


def test_an_example_of_every_event_is_here() -> None:
    assert list(EVENTS) == SCHEMA["properties"]["event"]["enum"]
    assert set(EVENTS) | {"time", "host", "peer", "rank", "ranks", "wire"} == set(SCHEMA["$defs"])


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_is_taken(name: str) -> None:
    VALIDATOR.validate(event(name))


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_lacks_nothing_and_holds_nothing_else(name: str) -> None:
    for field in event(name):
        less = {key: value for key, value in event(name).items() if key != field}
        assert not VALIDATOR.is_valid(less), field
    assert not VALIDATOR.is_valid(event(name, more=1))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("joined", {"target_ranks": 8}),
        ("rejected", {"host": "", "suppressed": 0}),
        ("rank_exited", {"code": 0, "signal": None}),
        ("rank_exited", {"code": -34, "signal": "SIGRTMIN"}),
        ("rank_exited", {"code": -1000, "signal": None}),
        ("finished", WELL),
        ("finished", {"outcome": "window-failed", "exit_code": 3, "reason": "quorum not met"}),
    ],
)
def test_a_variant_is_taken(name: str, changes: dict[str, Any]) -> None:
    VALIDATOR.validate(event(name, **changes))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("listening", {"event": "listened"}),
        ("listening", {"event": "formed"}),
        ("listening", {"port": 0}),
        ("listening", {"port": "4711"}),
        ("listening", {"time": 1769903999.001}),
        ("listening", {"time": "2026-01-31T23:59:59Z"}),
        ("listening", {"time": "2026-01-31 23:59:59.001Z"}),
        ("joined", {"ranks": []}),
        ("joined", {"ranks": [0, 0]}),
        ("joined", {"devices": [256]}),
        ("joined", {"peer": "127.0.0.1"}),
        ("formed", {"hosts": [{"host": "a", "ranks": [0]}]}),
        ("formed", {"hosts": [{"host": "a", "ranks": [0], "wire": 2, "salt": ""}]}),
        ("rank_exited", {"code": 9}),
        ("rank_exited", {"signal": "killed"}),
        ("finished", {**WELL, "exit_code": 1}),
        ("finished", {**WELL, "failed_ranks": [0]}),
        ("finished", {**WELL, "reason": "aborted"}),
        ("finished", {"exit_code": 2}),
        ("finished", {"outcome": "window-failed"}),
    ],
)
def test_a_variant_is_refused(name: str, changes: dict[str, Any]) -> None:
    assert not VALIDATOR.is_valid(event(name, **changes))
