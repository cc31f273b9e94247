from __future__ import annotations

from pathlib import Path

from joinproto.conformance.case import load
from joinproto.conformance.clauses import Clause
from joinproto.conformance.clauses import load as load_clauses
from joinproto.conformance.coverage import markdown, rows
from tests.support.conformance import case_of

ROOT = Path(__file__).parents[2]
ALL = [*load("agent"), *load("controller")]


def clause(id: str, *, seen: tuple[str, ...], unseen: str = "") -> Clause:
    return Clause(
        id=id,
        level="MUST",
        text="It MUST.",
        section="Frames",
        binds=("agent", "controller"),
        seen=seen,
        unseen=unseen,
        published="",
    )


def test_every_clause_that_can_be_seen_has_a_case() -> None:
    missing = [
        f"{row.clause.id} ({row.role})" for row in rows(load_clauses().values(), ALL) if row.missing
    ]
    assert not missing


def test_the_report_is_current() -> None:
    there = (ROOT / "docs" / "coverage.md").read_text()
    assert there == markdown(load_clauses().values(), ALL), "make specs"


def test_what_has_a_case_and_what_has_none() -> None:
    clauses = [
        clause("JP-FRM-001", seen=("agent", "controller")),
        clause("JP-FRM-002", seen=("agent",), unseen="it is silent"),
    ]
    cases = [case_of({"listen": True}, id="agent/framing/one")]
    found = {(row.clause.id, row.role): row for row in rows(clauses, cases)}
    assert found["JP-FRM-001", "agent"].cases == ("agent/framing/one",)
    assert found["JP-FRM-001", "controller"].missing
    assert not found["JP-FRM-002", "controller"].missing
    text = markdown(clauses, cases)
    assert "| agent | 2 | 1 | 0 | 1 | 1 |" in text
    assert "| JP-FRM-002 | controller | it is silent |" in text
    assert "| JP-FRM-001 | MUST | `framing/one` |" in text
