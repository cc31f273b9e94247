"""Our agent and our controller with one seeded fault apiece, to test the suite with.

What each fault is, and which cases are about it, stands in `mutants.json`; how it is seeded, in the
modules.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from joinproto.conformance.verdicts import Verdict
from tests.support.mutants import (
    agent_joining,
    agent_running,
    controller_admission,
    controller_running,
    programs,
    wire,
)
from tests.support.mutants.changes import Mutant

__all__ = ["CHANGES", "COMMANDS", "MUTANTS", "Mutant", "mutant"]

CHANGES = {
    "agent": {
        **wire.AGENT_FRAMES,
        **agent_joining.JOINING,
        **agent_running.RUNNING,
        **programs.AGENT_PROGRAMS,
    },
    "controller": {
        **wire.CONTROLLER_FRAMES,
        **controller_admission.ADMISSION,
        **controller_running.RUNNING,
        **programs.CONTROLLER_PROGRAMS,
    },
}
"""Role → name → what seeds the fault."""


COMMANDS: dict[str, tuple[str, ...]] = {
    "agent": ("agent", "--", "{helper}"),
    "controller": (
        *("controller", "--bind", "127.0.0.1:{port}", "--min-ranks", "{min_ranks}"),
        *("[--target-ranks", "{target_ranks}]", "[--join-timeout", "{join_timeout}]"),
        *("[--max-join-timeout", "{max_join_timeout}]", "[--salt-file", "{salt_file}]"),
        *("[--dataset-sig", "{dataset_sig}]", "--events", "json"),
    ),
}
"""Role → our program's command line, with placeholders of the suite."""


def _mutant(role: str, entry: dict[str, Any]) -> Mutant:
    return Mutant(
        name=entry["name"],
        role=role,
        what=entry["what"],
        change=CHANGES[role][entry["name"]],
        named=entry["told_by"],
        related=tuple(entry.get("related", ())),
        verdict=Verdict(entry.get("verdict", "FAIL")),
        real=entry.get("real", False),
    )


MUTANTS = tuple(
    _mutant(role, entry)
    for role, entries in json.loads(Path(__file__).with_name("mutants.json").read_text()).items()
    for entry in entries
)


def mutant(role: str, name: str) -> Mutant:
    """The mutant of that name."""
    return next(each for each in MUTANTS if (each.role, each.name) == (role, name))
