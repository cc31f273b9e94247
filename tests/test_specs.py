"""The schemas: that they are ones, what they take and what they refuse.

That controllers and agents write such things is tested where they are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

SPECS = Path(__file__).parents[1] / "specs"

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

AGENT_EVENTS: dict[str, dict[str, Any]] = {
    "started": {"host": "höst", "controller": "[::1]:7000", "pid": 17, "restarts": 0},
    "told": {"severity": "warning", "text": ""},
    "state": {"state": "AwaitAccept"},
    "joined": {"ranks": [4, 2], "devices": [0, 255], "wire": 4},
    "spawned": {"rank": None, "device": None, "pid": 1},
    "exited": {
        "rank": 4,
        "device": 0,
        "pid": 18,
        "code": -9,
        "signal": "SIGKILL",
        "by_agent": False,
        "out_of_memory": True,
        "seconds": 0.25,
    },
    "dropped": {"bytes": 80, "lines": 1},
    "stopping": {"reason": "run aborted: no"},
    "finished": {"exit_code": 1, "error": "run aborted: no"},
}

STATUS: dict[str, Any] = {
    "host": "höst",
    "controller": "c.lan:7000",
    "pid": 17,
    "restarts": 2,
    "state": "Supervising",
    "wire": 4,
    "ranks": [
        {"rank": 4, "device": 0, "pid": 18, "code": -9},
        {"rank": 2, "device": 255, "pid": None, "code": None},
    ],
    "relay": {"pid": 19, "code": None},
    "exit_code": None,
    "error": None,
    "time": "2026-01-31T23:59:59.001Z",
}


class Schema:
    """A schema, and examples of what it takes."""

    def __init__(self, file: str, examples: dict[str, dict[str, Any]]) -> None:
        self.document: dict[str, Any] = json.loads((SPECS / file).read_text())
        self.examples = examples
        self._validator = Draft202012Validator(self.document)

    def example(self, name: str, **changes: Any) -> dict[str, Any]:
        """The event of that name, or the one of the schema's examples that has it."""
        time = "2026-01-31T23:59:59.001Z"
        return {"event": name, "time": time, **self.examples[name], **changes}

    def takes(self, value: object) -> bool:
        return self._validator.is_valid(value)


CONTROLLER = Schema("events.schema.json", EVENTS)
AGENT = Schema("agent-events.schema.json", AGENT_EVENTS)
SCHEMAS = {"controller": CONTROLLER, "agent": AGENT}
STATUS_SCHEMA = Schema("agent-status.schema.json", {})
RESULTS_SCHEMA = Schema("conformance-results.schema.json", {})
EACH = [(schema, name) for schema in SCHEMAS.values() for name in schema.examples]

every_event = pytest.mark.parametrize(("schema", "name"), EACH)


def test_the_schemas_are_these() -> None:
    assert {path.name for path in SPECS.glob("*.json")} == {
        "events.schema.json",
        "agent-events.schema.json",
        "agent-status.schema.json",
        "conformance-results.schema.json",
        "conformance-cases.schema.json",
        "fuzz-finding.schema.json",
        "fuzz-results.schema.json",
    }


@pytest.mark.parametrize("schema", [CONTROLLER, AGENT, STATUS_SCHEMA, RESULTS_SCHEMA])
def test_a_schema_is_a_schema_with_a_version(schema: Schema) -> None:
    document = schema.document
    Draft202012Validator.check_schema(document)
    assert document["$schema"] == Draft202012Validator.META_SCHEMA["$id"]
    assert document["$id"].rpartition(":")[2] == document["title"].rpartition(" ")[2]


@pytest.mark.parametrize(
    ("schema", "parts"),
    [
        (
            CONTROLLER,
            {
                *("time", "host", "peer", "rank", "ranks", "wire"),
                *("seconds", "host_report", "rank_report"),
            },
        ),
        (AGENT, {"time", "rank", "device", "pid", "code"}),
    ],
    ids=SCHEMAS,
)
def test_an_example_of_every_event_is_here(schema: Schema, parts: set[str]) -> None:
    assert list(schema.examples) == schema.document["properties"]["event"]["enum"]
    assert set(schema.examples) | parts == set(schema.document["$defs"])


@every_event
def test_an_event_is_taken(schema: Schema, name: str) -> None:
    assert schema.takes(schema.example(name))


@every_event
def test_an_event_lacks_nothing_and_holds_nothing_else(schema: Schema, name: str) -> None:
    whole = schema.example(name)
    for field in whole:
        less = {key: value for key, value in whole.items() if key != field}
        assert not schema.takes(less), field
    assert not schema.takes({**whole, "more": 1})


# -- a controller's ---------------------------------------------------------------------------


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
    assert CONTROLLER.takes(CONTROLLER.example(name, **changes))


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
    assert not CONTROLLER.takes(CONTROLLER.example(name, **changes))


# -- an agent's -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("told", {"severity": "debug"}),
        ("spawned", {"rank": 0, "device": 0}),
        ("exited", {"rank": None, "device": None}),
        ("exited", {"code": 0, "signal": None, "by_agent": True, "out_of_memory": False}),
        ("exited", {"code": -35, "signal": None, "seconds": 0}),
        ("finished", {"exit_code": 0, "error": None}),
        ("finished", {"exit_code": 143, "error": "stopped by SIGTERM"}),
    ],
)
def test_a_variant_of_an_agents_event_is_taken(name: str, changes: dict[str, Any]) -> None:
    assert AGENT.takes(AGENT.example(name, **changes))


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("started", {"event": "told"}),
        ("started", {"controller": "c"}),
        ("started", {"restarts": None}),
        ("started", {"pid": 0}),
        ("told", {"severity": "WARNING"}),
        ("told", {"severity": 30}),
        ("state", {"state": "Starting"}),
        ("joined", {"ranks": [], "devices": []}),
        ("joined", {"ranks": [None]}),
        ("spawned", {"pid": None}),
        ("spawned", {"device": 256}),
        ("exited", {"code": None}),
        ("exited", {"code": 9}),
        ("exited", {"seconds": None}),
        ("exited", {"seconds": -1}),
        ("dropped", {"bytes": 0}),
        ("finished", {"exit_code": 0}),
        ("finished", {"error": None}),
        ("finished", {"exit_code": -15}),
        ("finished", {"time": 1769903999.001}),
    ],
)
def test_a_variant_of_an_agents_event_is_refused(name: str, changes: dict[str, Any]) -> None:
    assert not AGENT.takes(AGENT.example(name, **changes))


def test_a_status_lacks_nothing_and_holds_nothing_else() -> None:
    assert STATUS_SCHEMA.takes(STATUS)
    for field in STATUS:
        less = {key: value for key, value in STATUS.items() if key != field}
        assert not STATUS_SCHEMA.takes(less), field
    assert not STATUS_SCHEMA.takes({**STATUS, "more": 1})


@pytest.mark.parametrize(
    "changes",
    [
        {"state": "Starting", "wire": None, "ranks": [], "relay": None},
        {"state": "Done", "exit_code": 0},
        {"state": "Aborted", "exit_code": 143, "error": "stopped by SIGTERM"},
        {"relay": {"pid": None, "code": None}},
    ],
)
def test_a_variant_of_a_status_is_taken(changes: dict[str, Any]) -> None:
    assert STATUS_SCHEMA.takes({**STATUS, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"state": ""},
        {"pid": None},
        {"restarts": None},
        {"wire": 0},
        {"ranks": None},
        {"ranks": [{"rank": None, "device": 0, "pid": 1, "code": None}]},
        {"ranks": [{"rank": 0, "device": 0, "pid": 1}]},
        {"relay": {"pid": 1}},
        {"relay": {"pid": 1, "code": None, "rank": None}},
        {"exit_code": 256},
        {"time": None},
    ],
)
def test_a_variant_of_a_status_is_refused(changes: dict[str, Any]) -> None:
    assert not STATUS_SCHEMA.takes({**STATUS, **changes})
