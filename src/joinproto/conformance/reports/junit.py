"""The record as JUnit XML, in the shape that Jenkins' schema (junit-10.xsd) allows.

| result | in JUnit |
| --- | --- |
| FAIL; a pass where a failure was expected | `failure` |
| INCONCLUSIVE, HARNESS-ERROR | `error` |
| UNSUPPORTED | `skipped`, with the reason |
| anything but a pass where a failure was expected | `skipped`, with the reason of the expectation |
| PASS, INFO, NON-STRICT | passed; the last two say what was seen in `system-out` |

A test suite is a group of cases.
"""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO

import junitparser
from junitparser.junitparser import FinalResult

from joinproto.conformance.reports.facts import (
    Standing,
    by_group,
    headline,
    name,
    standing,
    why_unsupported,
)
from joinproto.conformance.reports.text import one_line, visible
from joinproto.conformance.results import Record, Result, Run
from joinproto.conformance.verdicts import Verdict


def render(record: Record) -> bytes:
    """The file."""
    root = junitparser.JUnitXml(f"joinproto conform {record.run.role}")
    suites = [_suite(group, results, record) for group, results in by_group(record.results).items()]
    for suite in suites:
        root.add_testsuite(suite)
    root.tests = sum(suite.tests for suite in suites)
    root.failures = sum(suite.failures for suite in suites)
    root.errors = sum(suite.errors for suite in suites)
    root.time = round(sum(result.seconds for result in record.results), 3)
    file = BytesIO()
    root.write(file)
    return file.getvalue()


def _suite(group: str, results: Sequence[Result], record: Record) -> junitparser.TestSuite:
    suite = junitparser.TestSuite(one_line(group))
    suite.timestamp = one_line(record.run.started)
    for key, value in _properties(record.run).items():
        suite.add_property(key, one_line(value))
    suite.add_property("outcome of the run", headline(record))
    suite.add_testcases([_case(result) for result in results])
    return suite


def _properties(run: Run) -> dict[str, str]:
    return {
        "role": run.role,
        "target": run.target,
        "joinproto": run.version,
        "wires": ", ".join(map(str, run.wires)),
        "seed": str(run.seed),
        "time scale": str(run.time_scale),
        "retries of inconclusive cases": str(run.retries),
    }


def _case(result: Result) -> junitparser.TestCase:
    folder, _, last = name(result).rpartition("/")
    case = junitparser.TestCase(
        name=one_line(last),
        classname=one_line(folder.replace("/", ".")),
        time=round(result.seconds, 3),
    )
    if (outcome := _outcome(result)) is not None:
        case.result = outcome
    elif result.verdict != Verdict.PASS:
        case.system_out = visible(details(result))
    if result.stderr:
        case.system_err = visible(result.stderr)
    return case


def _outcome(result: Result) -> FinalResult | None:
    """What is in the case that did not simply pass."""
    stands = standing(result)
    reason = one_line(result.expected_failure)
    if stands in (Standing.NON_STRICT, Standing.FINE):
        return None
    if stands == Standing.UNSUPPORTED:
        return junitparser.Skipped(one_line(why_unsupported(result)), result.verdict.value)
    made: FinalResult
    if stands == Standing.EXPECTED:
        made = junitparser.Skipped(f"fails as expected: {reason}", result.verdict.value)
    elif stands == Standing.PASSED:
        made = junitparser.Failure(f"passes although expected to fail: {reason}", "UNEXPECTED-PASS")
    elif stands == Standing.UNDECIDED:
        made = junitparser.Error(one_line(result.got or result.broken), result.verdict.value)
    else:
        made = junitparser.Failure(one_line(result.broken or result.got), result.verdict.value)
    made.text = visible(details(result))
    return made


def details(result: Result) -> str:
    """All that the record says of a result in words."""
    told = {
        "verdict": result.verdict.value,
        "behaviour": result.behaviour.value,
        "ending": result.ending.value,
        "case": result.title,
        "clauses": ", ".join(result.clauses),
        "broken": result.broken,
        "expected": result.expected,
        "got": result.got,
        "attempts": str(result.attempts),
        "repeat": result.repeat,
    }
    lines = [f"{label}: {value}" for label, value in told.items() if value]
    return "\n".join([*lines, *(f"note: {note}" for note in result.notes)])
