"""The outcome as one HTML file that needs no network.

What a target wrote is escaped by the template, and first spelt out where it cannot be seen, as on
the page of the conformance suite, whose parts this one shares.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from joinproto.conformance.reports import html as suite
from joinproto.conformance.reports.facts import sentence
from joinproto.conformance.reports.html import MOST_PIECES, Heard, hash_of, heard, part, template
from joinproto.conformance.reports.sequence import Diagram, diagram
from joinproto.fuzzing.finding import Finding
from joinproto.fuzzing.outcome import Outcome
from joinproto.fuzzing.reports.facts import file_of, headline, replay
from joinproto.fuzzing.reports.machine import count, drawing, title
from joinproto.fuzzing.shadow import rows_of

PACKAGE: Final = __package__ or ""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A finding and what the page shows with it.

    Attributes:
        finding: itself.
        again: where its file was replayed; "" for what is new.
        sentence: of the clause that is broken.
        steps: each step, as JSON.
        file: where it lies.
        replay: the command that plays it once more.
        wire: what was on the wire.
        wire_left_out: pieces that are too many.
        diagram: who said what when; None: nothing happened.
    """

    finding: Finding
    again: str
    sentence: str
    steps: tuple[str, ...]
    file: str
    replay: str
    wire: tuple[Heard, ...]
    wire_left_out: int
    diagram: Diagram | None


def render(outcome: Outcome) -> str:
    """The file."""
    style = part(suite.__name__.rpartition(".")[0], "report.css") + part(PACKAGE, "fuzz.css")
    findings = [_shown(each) for each in outcome.findings]
    findings += [_shown(each.finding, each.file) for each in outcome.struck_again]
    return template(PACKAGE).render(
        outcome=outcome,
        headline=headline(outcome),
        findings=findings,
        machine=drawing(outcome),
        rows=[
            (title(row), count(outcome, row), row in outcome.covered, row in outcome.missing)
            for row in rows_of(outcome.role)
        ],
        style=Markup(style),
        style_hash=hash_of(style),
    )


def _shown(finding: Finding, again: str = "") -> Shown:
    wire = list(heard(finding.happenings))
    return Shown(
        finding=finding,
        again=again,
        sentence=sentence(finding.strike.clause),
        steps=tuple(json.dumps(step) for step in finding.sequence.steps),
        file=file_of(finding),
        replay=replay(finding),
        wire=tuple(wire[:MOST_PIECES]),
        wire_left_out=max(0, len(wire) - MOST_PIECES),
        diagram=diagram(finding.happenings) if finding.happenings else None,
    )
