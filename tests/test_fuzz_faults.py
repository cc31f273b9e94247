"""The fuzz harness is tested itself: from a cold start it finds each seeded fault."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from joinproto.conformance.session import Settings
from joinproto.fuzzing.finding import Finding, read
from joinproto.fuzzing.harness import Harness
from joinproto.fuzzing.hunt import Plan
from joinproto.fuzzing.oracles import ORACLES
from tests.support.faults import FAULTS, Fault
from tests.support.mutants import COMMANDS

ROOT = Path(__file__).parents[1]

SECONDS = 240.0
"""A bound, not a measure: how long it takes depends on what else the machine does."""
SEED = 20
JOBS = 2


def plan_of(fault: Fault) -> Plan:
    program = (sys.executable, "-m", "tests.support.faults", fault.role, fault.name, "--")
    command = (*program, *COMMANDS[fault.role])
    settings = Settings(role=fault.role, command=command, scale=0.1, seed=SEED)
    return Plan(settings=settings, admission="open", wires=(2, 4), seconds=SECONDS)


def name_of(fault: Fault) -> str:
    return f"{fault.role}-{fault.name}"


def test_there_are_enough_and_most_oracles_have_one() -> None:
    assert len(FAULTS) >= 20
    assert Counter(map(name_of, FAULTS)).most_common(1)[0][1] == 1
    assert len({oracle for fault in FAULTS for oracle in fault.oracles} & ORACLES.keys()) >= 10


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS, ids=name_of)
def test_a_fault_is_found_and_its_file_repeats_it(
    fault: Fault, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    found: list[Finding] = []

    def tell(finding: Finding) -> None:
        found.append(finding)
        if finding.strike.oracle in fault.oracles and not finding.flaky:
            harness.interrupt()

    harness = Harness(plan_of(fault), jobs=JOBS, tell=tell)
    harness.run()
    told = [finding for finding in found if finding.strike.oracle in fault.oracles]
    assert told, [finding.summary for finding in found]
    file = told[-1].write(tmp_path)
    (regression,) = Harness(plan_of(fault), jobs=1).replay({file.name: read(file)})
    assert regression.again
