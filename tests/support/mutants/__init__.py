"""Our agent and our controller with one seeded fault apiece, to test the suite with."""

from __future__ import annotations

from tests.support.mutants.agent import AGENT_MUTANTS
from tests.support.mutants.changes import Mutant
from tests.support.mutants.controller import CONTROLLER_MUTANTS
from tests.support.mutants.programs import PROGRAM_MUTANTS

__all__ = ["MUTANTS", "Mutant", "mutant"]

MUTANTS = (*AGENT_MUTANTS, *CONTROLLER_MUTANTS, *PROGRAM_MUTANTS)


def mutant(role: str, name: str) -> Mutant:
    """The mutant of that name."""
    return next(each for each in MUTANTS if (each.role, each.name) == (role, name))
