"""Cases, collected and numbered, and the file that they become."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from typing import Any

from making.clauses import CLAUSES
from making.flags import FLAGS
from making.wire import written, written_value

GIVEN = ("wire", "key", "kind", "tag", "input", "text", "steps")
"""What a reader is given of a case: two cases that differ in it are two cases."""

RESULTS = {
    "valid": "An encoder writes this; every decoder takes it and gives `value`.",
    "acceptable": (
        "Published decoders take this and give `value`; no encoder writes it.  A decoder may refuse"
        " it only if it says so."
    ),
    "invalid": "This is refused, at `stage`.",
}


class Book:
    """The cases of one file.

    A case's id is its prefix and its number under that prefix, so a new case goes behind the others
    of its prefix.
    """

    def __init__(self, group: str, about: str) -> None:
        self.group = group
        self.about = about
        self.tests: list[dict[str, Any]] = []
        self._counts: Counter[str] = Counter()

    def add(
        self,
        prefix: str,
        comment: str,
        *,
        clause: str,
        given: dict[str, Any],
        result: str = "valid",
        stage: str | None = None,
        flags: Iterable[str] = (),
        then: dict[str, Any] | None = None,
    ) -> None:
        """Add a case.

        Args:
            clause: names, separated by spaces, of groups of clauses.
            given: what a reader is given; bytes become hex.
            then: what comes of it; left out where nothing does.
        """
        assert (result == "invalid") == (stage is not None), comment
        self._counts[prefix] += 1
        case: dict[str, Any] = {
            "id": f"{prefix}-{self._counts[prefix]:03}",
            "clause": sorted({one for name in clause.split() for one in CLAUSES[name]}),
            "comment": comment,
            **{name: _plain(value) for name, value in given.items()},
            "result": result,
        }
        if stage is not None:
            case["stage"] = stage
        case |= {name: _plain(value) for name, value in (then or {}).items()}
        case["flags"] = sorted(flags)
        self.tests.append(case)

    def document(self) -> dict[str, Any]:
        """The whole file."""
        used = {flag for test in self.tests for flag in test["flags"]}
        return {
            "group": self.group,
            "about": self.about,
            "schema": "vectors.schema.json",
            "numberOfTests": len(self.tests),
            "results": RESULTS,
            "flags": {flag: FLAGS[flag] for flag in sorted(used)},
            "tests": self.tests,
        }

    def reassigned(self, stored: str) -> list[str]:
        """Ids that would say something else than in a file that was made before."""
        before = {test["id"]: test for test in json.loads(stored)["tests"]}
        return [
            test["id"]
            for test in self.tests
            if any(test.get(name) != before.get(test["id"], test).get(name) for name in GIVEN)
        ]

    def text(self) -> str:
        """The file as it is stored."""
        return json.dumps(self.document(), indent=1) + "\n"


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return written(value)
    if isinstance(value, dict) and "type" in value:
        return written_value(value)
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value
