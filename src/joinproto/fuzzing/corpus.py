"""What runs of the harness hand on to later ones: cases worth changing, and findings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

from joinproto.fuzzing.finding import Finding, read
from joinproto.fuzzing.sequence import Sequence

CASES = "cases"
FINDINGS = "findings"


def read_cases(folder: Path, role: str) -> tuple[Sequence, ...]:
    """The cases for a role below a corpus folder; none where there is no such folder.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file holds no case; the text names it and says why.
    """
    cases = []
    for path in sorted((folder / CASES).glob("*.json")):
        try:
            sequence = Sequence.from_json(json.loads(path.read_text(encoding="utf-8")))
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if sequence.role == role:
            cases.append(sequence)
    return tuple(cases)


def read_findings(folder: Path, role: str) -> dict[str, Finding]:
    """The findings about a role below a corpus folder, by file name.

    Raises:
        OSError: a file cannot be read.
        ValueError: a file holds no finding; the text names it and says why.
    """
    findings = {}
    for path in sorted((folder / FINDINGS).glob("*.json")):
        try:
            finding = read(path)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from None
        if finding.sequence.role == role:
            findings[path.name] = finding
    return findings


def write_cases(folder: Path, cases: Iterable[Sequence]) -> int:
    """Add cases to a corpus folder; returns how many were new there.

    Raises:
        OSError: a file cannot be written.
    """
    (folder / CASES).mkdir(parents=True, exist_ok=True)
    new = 0
    for sequence in cases:
        text = json.dumps(sequence.to_json(), indent=1, sort_keys=True) + "\n"
        path = folder / CASES / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
        if not path.exists():
            path.write_text(text, encoding="utf-8")
            new += 1
    return new
