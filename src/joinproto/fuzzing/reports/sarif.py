"""The outcome as SARIF 2.1.0, which code hosts show beside the code."""

from __future__ import annotations

from typing import Any, Final

from joinproto.conformance.reports.facts import sentence
from joinproto.conformance.reports.text import one_line, visible
from joinproto.fuzzing.finding import Finding
from joinproto.fuzzing.oracles import CLAUSES, ORACLES
from joinproto.fuzzing.outcome import Outcome
from joinproto.fuzzing.reports.facts import file_of, replay
from joinproto.fuzzing.reports.junit import details

SCHEMA: Final = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)


def render(outcome: Outcome) -> dict[str, Any]:
    """The file, as plain data."""
    findings = [*outcome.findings, *(each.finding for each in outcome.struck_again)]
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "joinproto fuzz",
                        "semanticVersion": outcome.versions.get("joinproto", "0"),
                        "rules": [_rule(name) for name in ORACLES],
                    }
                },
                "automationDetails": {"id": f"joinproto-fuzz/{outcome.role}/"},
                "invocations": [
                    {
                        "executionSuccessful": True,
                        "startTimeUtc": outcome.started.replace("+00:00", "Z"),
                        "exitCode": outcome.exit_code,
                    }
                ],
                "results": [_result(each) for each in findings],
            }
        ],
    }


def _rule(name: str) -> dict[str, Any]:
    clause = CLAUSES.get(name, "")
    rule: dict[str, Any] = {
        "id": name,
        "shortDescription": {"text": ORACLES[name]},
        "defaultConfiguration": {"level": "error"},
    }
    if clause:
        rule["help"] = {"text": f"{clause}: {sentence(clause)}"}
    return rule


def _result(finding: Finding) -> dict[str, Any]:
    return {
        "ruleId": finding.strike.oracle,
        "ruleIndex": list(ORACLES).index(finding.strike.oracle),
        "level": "warning" if finding.flaky else "error",
        "message": {"text": visible(details(finding))},
        "locations": [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": file_of(finding)},
                    "region": {"startLine": 1},
                }
            }
        ],
        "partialFingerprints": {"bucket/v1": finding.id},
        "properties": {"replay": one_line(replay(finding)), "flaky": finding.flaky},
    }
