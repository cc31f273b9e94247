"""Which clauses of the specification the cases are about, and why some have none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from joinproto.conformance.case import Case
from joinproto.conformance.clauses import ROLES, Clause


@dataclass(frozen=True, kw_only=True)
class Row:
    """One clause, for one of the roles that it binds.

    Attributes:
        clause: the clause.
        role: agent or controller.
        cases: ids of the cases that name it.
        unseen: why it has none; "" where it can be seen from outside.
    """

    clause: Clause
    role: str
    cases: tuple[str, ...]
    unseen: str

    @property
    def missing(self) -> bool:
        """It can be seen from outside, and no case looks."""
        return not self.cases and not self.unseen


def rows(clauses: Iterable[Clause], cases: Sequence[Case]) -> list[Row]:
    """A row for each clause and each role that it binds, in the order of the specification."""
    found = []
    for clause in clauses:
        for role in ROLES:
            if role in clause.binds:
                about = (c.id for c in cases if c.role == role and clause.id in c.clauses)
                unseen = "" if role in clause.seen else clause.unseen
                found.append(Row(clause=clause, role=role, cases=tuple(about), unseen=unseen))
    return found


def markdown(clauses: Iterable[Clause], cases: Sequence[Case]) -> str:
    """The report: how many, what has no case and why, then every clause with its cases."""
    all_rows = rows(clauses, cases)
    lines = ["# What the conformance suite covers", ""]
    lines += ["Made by `joinproto conform coverage` from the specification and the cases.", ""]
    lines += ["| role | clauses | with cases | not seen from outside | missing | cases |"]
    lines += ["| --- | --- | --- | --- | --- | --- |"]
    lines += [_counts(role, all_rows, cases) for role in ROLES]
    lines += ["", "## Clauses without a case", "", "| clause | role | why |", "| --- | --- | --- |"]
    lines += [
        f"| {row.clause.id} | {row.role} | {row.unseen or 'missing'} |"
        for row in all_rows
        if not row.cases
    ]
    for role in ROLES:
        lines += ["", f"## Cases of the {role}", "", "| clause | level | cases |"]
        lines += ["| --- | --- | --- |"]
        lines += [
            f"| {row.clause.id} | {row.clause.level} | {_names(row)} |"
            for row in all_rows
            if row.role == role and row.cases
        ]
    return "\n".join(lines) + "\n"


def _counts(role: str, all_rows: Sequence[Row], cases: Sequence[Case]) -> str:
    mine = [row for row in all_rows if row.role == role]
    numbers = (
        len(mine),
        sum(bool(row.cases) for row in mine),
        sum(bool(row.unseen and not row.cases) for row in mine),
        sum(row.missing for row in mine),
        sum(case.role == role for case in cases),
    )
    return f"| {role} | {' | '.join(map(str, numbers))} |"


def _names(row: Row) -> str:
    return ", ".join(f"`{case.removeprefix(f'{row.role}/')}`" for case in row.cases)
