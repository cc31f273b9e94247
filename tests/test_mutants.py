"""The conformance suite is tested itself: each seeded fault is told by the case about it alone."""

from __future__ import annotations

import fnmatch
import json
import sys
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from joinproto.conformance.case import Case, load
from joinproto.conformance.memory import NotInMemory, play_in_memory
from joinproto.conformance.session import Settings, play_for_real
from joinproto.conformance.verdicts import Verdict, worst
from tests.support.mutants import CHANGES, COMMANDS, MUTANTS, Mutant

ROOT = Path(__file__).parents[1]

IN_MEMORY = [mutant for mutant in MUTANTS if not mutant.real]
PROGRAMS = [mutant for mutant in MUTANTS if mutant.real]

GOOD = (Verdict.PASS, Verdict.INFO)
TOLD = (Verdict.FAIL, Verdict.NON_STRICT)

UNRELATED = {
    "agent": ("sanity/joins-and-ends", "output/streams", "teardown/abort"),
    "controller": ("sanity/admits-and-forms", "status/unknown-path", "running/foreign-rank"),
}
"""Cases that a program with a fault is held against, beside those about it."""


def name_of(mutant: Mutant) -> str:
    return f"{mutant.role}-{mutant.name}"


@cache
def cases(role: str) -> tuple[Case, ...]:
    """Those that can be played in memory."""
    return tuple(case for case in load(role) if case.memory)


def case_of(role: str, name: str) -> Case:
    return next(case for case in load(role) if case.id == f"{role}/{name}")


def large(case: Case) -> bool:
    """Whether a case sends megabytes."""
    steps = json.dumps([*case.given, *case.steps])
    return any(len(word) > 5 and word.isdigit() for word in steps.replace("]", " ").split())


def verdict_of(case: Case) -> Verdict:
    """The worst of all the ways in which a case is played."""
    verdicts = []
    for wire in case.wires or (4,):
        for admission in case.admissions:
            try:
                outcome, _ = play_in_memory(case, wire=wire, admission=admission)
            except NotInMemory:
                continue
            verdicts.append(outcome.verdict)
    return worst(verdicts) if verdicts else Verdict.INFO


def unrelated(mutant: Mutant) -> dict[str, Verdict]:
    """Cases that tell of a mutant although they are about something else."""
    found = {}
    with mutant.change():
        for case in cases(mutant.role):
            if large(case) and not mutant.concerns(case.id):
                continue
            verdict = verdict_of(case)
            if verdict in TOLD and not mutant.concerns(case.id):
                found[case.id] = verdict
    return found


@pytest.mark.parametrize("role", ["agent", "controller"])
def test_there_are_enough_of_them_each_with_a_name(role: str) -> None:
    names = Counter(mutant.name for mutant in MUTANTS if mutant.role == role)
    assert len(names) >= 35
    assert names == dict.fromkeys(CHANGES[role], 1)


def test_related_cases_are_there() -> None:
    names = {case.id.partition("/")[2] for role in CHANGES for case in load(role)}
    globs = {(mutant.name, glob) for mutant in MUTANTS for glob in mutant.related}
    assert [pair for pair in sorted(globs) if not fnmatch.filter(names, pair[1])] == []


@pytest.mark.slow
@pytest.mark.parametrize("role", ["agent", "controller"])
def test_without_a_fault_every_case_is_well(role: str) -> None:
    found = {case.id: verdict_of(case) for case in cases(role)}
    assert {name: verdict for name, verdict in found.items() if verdict not in GOOD} == {}


@pytest.mark.parametrize("mutant", IN_MEMORY, ids=name_of)
def test_the_case_about_a_fault_tells(mutant: Mutant) -> None:
    case = case_of(mutant.role, mutant.named)
    with mutant.change():
        assert verdict_of(case) == mutant.verdict
    assert verdict_of(case) in GOOD


@pytest.mark.long
@pytest.mark.parametrize("mutant", IN_MEMORY, ids=name_of)
def test_no_unrelated_case_tells(mutant: Mutant) -> None:
    assert unrelated(mutant) == {}


def real_verdict(mutant: Mutant, case: Case) -> Verdict:
    """What a case comes to against a program with the fault."""
    program = (sys.executable, "-m", "tests.support.mutants", mutant.role, mutant.name, "--")
    settings = Settings(
        role=mutant.role,
        command=(*program, *COMMANDS[mutant.role]),
        scale=0.1,
        extra={"PYTHONPATH": str(ROOT)},
    )
    played = play_for_real(
        settings, case, wire=(case.wires or (4,))[-1], admission=case.admissions[0]
    )
    return played.outcome.verdict


@pytest.mark.long
@pytest.mark.parametrize("mutant", PROGRAMS, ids=name_of)
def test_the_case_about_a_fault_of_a_program_tells(mutant: Mutant) -> None:
    assert real_verdict(mutant, case_of(mutant.role, mutant.named)) == mutant.verdict


@pytest.mark.long
@pytest.mark.parametrize("mutant", PROGRAMS, ids=name_of)
def test_no_unrelated_case_tells_of_a_program(mutant: Mutant) -> None:
    verdicts = {
        name: real_verdict(mutant, case_of(mutant.role, name)) for name in UNRELATED[mutant.role]
    }
    assert {name: verdict for name, verdict in verdicts.items() if verdict not in GOOD} == {}
