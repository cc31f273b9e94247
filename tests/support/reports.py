"""What agents tell programs, held against the schemas and against common sense."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

SPECS = Path(__file__).parents[2] / "specs"

USUAL = ("Dialing", "Hello", "AwaitAccept", "AwaitFormed", "Supervising", "Done")
"""The states of an agent that does its job; one that it only passes through is not told."""


def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((SPECS / name).read_text()))


_EVENT = _validator("agent-events.schema.json")
_STATUS = _validator("agent-status.schema.json")


def event(line: str | bytes) -> dict[str, Any]:
    """An event, once the schema takes it."""
    found: dict[str, Any] = json.loads(line)
    _EVENT.validate(found)
    return found


def status(path: Path) -> dict[str, Any]:
    """What is in a status file, once the schema takes it."""
    found: dict[str, Any] = json.loads(path.read_bytes())
    _STATUS.validate(found)
    return found


def stint(lines: Iterable[str | bytes]) -> list[dict[str, Any]]:
    """The events of one whole stint, once their order makes sense."""
    events = [event(line) for line in lines]
    names = [each["event"] for each in events]
    assert (names[0], names[-1]) == ("started", "finished")
    for once in ("started", "joined", "stopping", "finished"):
        assert names.count(once) <= 1, once
    _check_children(events)
    _check_end(events)
    return events


def named(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Those of this name."""
    return [each for each in events if each["event"] == name]


def states(events: list[dict[str, Any]]) -> list[str]:
    """The states, in order."""
    return [each["state"] for each in named(events, "state")]


def _check_children(events: list[dict[str, Any]]) -> None:
    """Ranks are known before they run, and each that runs ends once."""
    ranks: set[int | None] = {None}
    running: dict[int | None, int] = {}
    for each in events:
        if each["event"] == "joined":
            ranks |= set(each["ranks"])
        elif each["event"] == "spawned":
            assert each["rank"] in ranks, each
            ranks.remove(each["rank"])
            running[each["rank"]] = each["pid"]
        elif each["event"] == "exited":
            assert running.pop(each["rank"]) == each["pid"], each
    assert not running


def _check_end(events: list[dict[str, Any]]) -> None:
    """It ends for the reason for which it is stopped, and does its job only if it is not."""
    (end,) = named(events, "finished")
    stopping = named(events, "stopping")
    assert all(each["reason"] == end["error"] for each in stopping)
    if end["error"] is None:
        assert stopping == []
        assert states(events)[-1] == "Done"
    else:
        assert "Done" not in states(events)
