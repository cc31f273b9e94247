"""The reports of a run of the harness, all made from its outcome."""

from __future__ import annotations

import json
from pathlib import Path

from joinproto.fuzzing.outcome import Outcome
from joinproto.fuzzing.reports import html, junit, sarif


def write_all(outcome: Outcome, directory: Path) -> list[Path]:
    """Write every report into `directory`, which is made where there is none.

    | file | what it is |
    | --- | --- |
    | `results.json` | the outcome, as `specs/fuzz-results.schema.json` says |
    | `report.html` | for people, without a network |
    | `junit.xml` | for CI systems |
    | `results.sarif` | for those who show findings beside the code |

    Returns:
        The files that were written.

    Raises:
        OSError: one of them cannot be.
    """
    contents = {
        "results.json": (json.dumps(outcome.to_json(), indent=1) + "\n").encode(),
        "report.html": html.render(outcome).encode(),
        "junit.xml": junit.render(outcome),
        "results.sarif": (json.dumps(sarif.render(outcome), indent=1) + "\n").encode(),
    }
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, content in contents.items():
        written.append(directory / name)
        written[-1].write_bytes(content)
    return written
