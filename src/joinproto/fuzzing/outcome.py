"""What a run of the harness came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from joinproto.fuzzing.finding import Finding
from joinproto.fuzzing.shadow import Row, out_of_reach, rows_of

NOTHING_NEW: Final = 0
FOUND: Final = 1
USAGE: Final = 3
NO_TARGET: Final = 4
"""Exit codes."""


@dataclass(frozen=True, kw_only=True)
class Regression:
    """A finding of an earlier run that was replayed.

    Attributes:
        file: where it is.
        finding: what it is.
        again: whether it struck again.
    """

    file: str
    finding: Finding
    again: bool


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """See the module's first line.

    Attributes:
        role: what is under test: agent or controller.
        target: its command or address, as it was given.
        admission: open or pre-shared.
        wires: the versions that cases were spoken in.
        seed: of the run.
        scale: of every network deadline.
        started: when it began, ISO 8601 in UTC.
        seconds: how long it took.
        cases: how many were played, those of confirming and shrinking not counted.
        sessions: how many connections there were in them.
        targets: how often a target was started.
        findings: those that are new.
        known: the bucket of what was seen and expected → the reason.
        doubts: the bucket of what seemed wrong and was never found again → how often.
        regressions: what was replayed first.
        covered: row of the machine's table → how many cases reached it.
        interrupted: it was ended from outside before its time.
        versions: of what it ran on.
    """

    role: str
    target: str
    admission: str
    wires: tuple[int, ...]
    seed: int
    scale: float
    started: str
    seconds: float
    cases: int
    sessions: int
    targets: int
    findings: tuple[Finding, ...] = ()
    known: Mapping[str, str] = field(default_factory=dict)
    doubts: Mapping[str, int] = field(default_factory=dict)
    regressions: tuple[Regression, ...] = ()
    covered: Mapping[Row, int] = field(default_factory=dict)
    interrupted: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def reachable(self) -> list[Row]:
        """The rows that a peer can have taken, in the order of the table."""
        return [row for row in rows_of(self.role) if not out_of_reach(self.role, row)]

    @property
    def missing(self) -> list[Row]:
        """Those among them that no case has reached."""
        return [row for row in self.reachable if row not in self.covered]

    @property
    def unreachable(self) -> dict[Row, str]:
        """The rows that no peer can have taken, and why."""
        reasons = {row: out_of_reach(self.role, row) for row in rows_of(self.role)}
        return {row: reason for row, reason in reasons.items() if reason}

    @property
    def rate(self) -> float:
        """Cases a second."""
        return self.cases / self.seconds if self.seconds else 0.0

    @property
    def struck_again(self) -> list[Regression]:
        """The regressions that are there again, but for those that are expected."""
        return [
            each
            for each in self.regressions
            if each.again and each.finding.bucket not in self.known
        ]

    @property
    def exit_code(self) -> int:
        """0: nothing new; 1: a finding, or an old one that is there again."""
        return FOUND if self.findings or self.struck_again else NOTHING_NEW

    def to_json(self) -> dict[str, Any]:
        """It as plain data, as `specs/fuzz-results.schema.json` says; findings by their ids."""
        return {
            "role": self.role,
            "target": self.target,
            "admission": self.admission,
            "wires": list(self.wires),
            "seed": self.seed,
            "time_scale": self.scale,
            "started": self.started,
            "seconds": round(self.seconds, 3),
            "cases": self.cases,
            "cases_per_second": round(self.rate, 1),
            "sessions": self.sessions,
            "targets": self.targets,
            "findings": [
                {
                    "id": each.id,
                    "bucket": each.bucket,
                    "oracle": each.strike.oracle,
                    "what": each.strike.what,
                    "clause": each.strike.clause,
                    "flaky": each.flaky,
                    "steps": len(each.sequence.steps),
                    "file": f"findings/{each.id}.json",
                }
                for each in self.findings
            ],
            "known": dict(self.known),
            "doubts": dict(self.doubts),
            "regressions": [
                {"file": each.file, "id": each.finding.id, "again": each.again}
                for each in self.regressions
            ],
            "coverage": {
                "reachable": len(self.reachable),
                "covered": len(self.reachable) - len(self.missing),
                "rows": [
                    {
                        "state": row[0],
                        "input": row[1],
                        "when": row[2],
                        "cases": self.covered.get(row, 0),
                        "unreachable": out_of_reach(self.role, row),
                    }
                    for row in rows_of(self.role)
                ],
            },
            "interrupted": self.interrupted,
            "exit_code": self.exit_code,
            "versions": dict(self.versions),
        }
