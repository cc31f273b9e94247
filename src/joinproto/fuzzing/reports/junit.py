"""The outcome as JUnit XML, in the shape that Jenkins' schema (junit-10.xsd) allows.

There is a test case for each oracle, which fails where it struck anew, and one for each finding
that was replayed, which fails where it struck again.
"""

from __future__ import annotations

from io import BytesIO

import junitparser

from joinproto.conformance.reports.text import one_line, visible
from joinproto.fuzzing.finding import Finding
from joinproto.fuzzing.oracles import ORACLES
from joinproto.fuzzing.outcome import Outcome, Regression
from joinproto.fuzzing.reports.facts import headline, replay


def render(outcome: Outcome) -> bytes:
    """The file."""
    root = junitparser.JUnitXml(f"joinproto fuzz {outcome.role}")
    suite = junitparser.TestSuite(f"fuzz.{outcome.role}")
    suite.timestamp = one_line(outcome.started)
    properties = {
        "target": outcome.target,
        "admission": outcome.admission,
        "wires": ", ".join(map(str, outcome.wires)),
        "seed": str(outcome.seed),
        "time scale": str(outcome.scale),
        "outcome of the run": headline(outcome),
    }
    for key, value in properties.items():
        suite.add_property(key, one_line(value))
    cases = [_of_oracle(name, outcome) for name in ORACLES]
    cases += [_of_regression(each, outcome) for each in outcome.regressions]
    cases[0].time = round(outcome.seconds, 3)
    suite.add_testcases(cases)
    root.add_testsuite(suite)
    root.tests, root.failures, root.errors = suite.tests, suite.failures, suite.errors
    root.time = round(outcome.seconds, 3)
    file = BytesIO()
    root.write(file)
    return file.getvalue()


def _of_oracle(name: str, outcome: Outcome) -> junitparser.TestCase:
    case = junitparser.TestCase(name=name, classname=f"fuzz.{outcome.role}", time=0.0)
    found = [each for each in outcome.findings if each.strike.oracle == name]
    if found:
        case.result = _failure(found[0], [details(each) for each in found])
    return case


def _of_regression(regression: Regression, outcome: Outcome) -> junitparser.TestCase:
    case = junitparser.TestCase(
        name=one_line(regression.file), classname=f"fuzz.{outcome.role}.regressions", time=0.0
    )
    if regression in outcome.struck_again:
        case.result = _failure(regression.finding, [details(regression.finding)])
    elif regression.again:
        reason = outcome.known[regression.finding.bucket]
        case.result = junitparser.Skipped(f"strikes as expected: {one_line(reason)}", "known")
    return case


def _failure(finding: Finding, texts: list[str]) -> junitparser.Failure:
    failure = junitparser.Failure(one_line(finding.summary), finding.strike.oracle)
    failure.text = visible("\n\n".join(texts))
    return failure


def details(finding: Finding) -> str:
    """A finding in some lines."""
    told = {
        "finding": finding.id,
        "what": finding.summary,
        "clause": finding.strike.clause,
        "steps": str(len(finding.sequence.steps)),
        "exit": "" if finding.exit is None else str(finding.exit),
        "replay": replay(finding),
        "stderr": finding.stderr,
    }
    return "\n".join(f"{label}: {value}" for label, value in told.items() if value)
