from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from joinproto.conformance.session import CannotStart, Settings
from joinproto.fuzzing import harness as harness_module
from joinproto.fuzzing.execute import Observation
from joinproto.fuzzing.finding import Finding
from joinproto.fuzzing.harness import Harness, Progress
from joinproto.fuzzing.hunt import Plan
from joinproto.fuzzing.oracles import Strike
from joinproto.fuzzing.outcome import FOUND, NOTHING_NEW, Regression
from joinproto.fuzzing.sequence import Sequence

SETTINGS = Settings(role="controller", command=("x", "{port}"), scale=0.1, seed=1)
PLAN = Plan(settings=SETTINGS, admission="open", wires=(2, 4))
CASE = Sequence(role="controller", wire=4, steps=({"dial": "c"},))
SHORT = {"cases": 50, "sessions": 70, "targets": 2, "rows": [["Routing", "EndOfStream", "", 3]]}

WORKER = """
import json, sys
plan = json.loads(sys.stdin.readline())
lines, code, heard = json.loads(sys.argv[1])
if plan["look"]:
    lines, code, heard = [{"spoken": [4]}], 0, 0
for line in lines:
    print(json.dumps(line), flush=True)
for _ in range(heard):
    line = sys.stdin.readline()
    print(json.dumps({"doubt": line.strip()}), flush=True)
if lines and "cases" in lines[-1]:
    sys.stdin.read()
sys.exit(code)
"""
"""A worker that says what it is told to say, hears so many lines, and, when it has told of cases,
stays until it is told to stop."""

Says: TypeAlias = Callable[..., None]


@pytest.fixture
def says(monkeypatch: pytest.MonkeyPatch) -> Says:
    """Has the workers say something, in place of looking for faults."""
    popen = subprocess.Popen

    def fake(*lines: dict[str, Any], code: int = 0, heard: int = 0) -> None:
        def start(command: list[str], **others: Any) -> Any:
            told = json.dumps([lines, code, heard])
            return popen([sys.executable, "-I", "-S", "-c", WORKER, told], **others)

        monkeypatch.setattr(subprocess, "Popen", start)

    return fake


def finding(*, steps: int = 1, where: str = "Routing") -> Finding:
    sequence = Sequence(role="controller", wire=4, steps=({"dial": "c"},) * steps)
    strike = Strike(oracle="hung", what="it said nothing", where=where)
    return Finding(sequence=sequence, strike=strike, seed=1, number=1, scale=0.1)


def said(*, steps: int = 1, where: str = "Routing") -> dict[str, Any]:
    return {"finding": finding(steps=steps, where=where).to_json()}


def harness(**values: Any) -> Harness:
    return Harness(PLAN, **{"jobs": 2, "stop_after": 1, **values})


def test_what_workers_come_to_is_put_together(says: Says) -> None:
    says(said(), {"known": ["died:x", "it is known"]}, {"kept": CASE.to_json()}, SHORT)
    heard: list[Finding] = []
    run = harness(tell=heard.append)
    outcome = run.run()
    assert outcome.wires == (4,)
    assert [each.bucket for each in outcome.findings] == ["hung:Routing"]
    assert heard == [finding()]
    assert outcome.known == {"died:x": "it is known"}
    assert outcome.exit_code == FOUND
    assert CASE in run.kept
    assert not outcome.interrupted


def test_of_two_findings_of_a_bucket_the_smaller_one_stays(says: Says) -> None:
    says(said(steps=3), said(steps=1), said(steps=2), SHORT)
    heard: list[Finding] = []
    outcome = harness(jobs=1, tell=heard.append).run()
    assert [len(each.sequence.steps) for each in outcome.findings] == [1]
    assert [len(each.sequence.steps) for each in heard] == [3, 1]


def test_counts_add_up_and_progress_is_told(says: Says) -> None:
    says(SHORT, SHORT)
    heard: list[Progress] = []
    run = Harness(PLAN, jobs=2, progress=heard.append)

    def told(progress: Progress) -> None:
        heard.append(progress)
        if progress.cases == 200:
            run.interrupt()

    run = Harness(PLAN, jobs=2, progress=told)
    outcome = run.run()
    assert (outcome.cases, outcome.sessions, outcome.targets) == (200, 280, 8)
    assert outcome.covered == {("Routing", "EndOfStream", ""): 12}
    assert outcome.interrupted
    assert outcome.exit_code == NOTHING_NEW
    assert heard[-1].covered == 1


def test_a_worker_hears_what_others_have_kept(says: Says) -> None:
    says({"bucket": "died:x"}, heard=1)
    outcome = harness().run()
    assert outcome.doubts == {'{"bucket": "died:x"}': 2}


def test_no_target_ends_the_run(says: Says) -> None:
    says({"cannot": "there is no such program"}, code=1)
    with pytest.raises(CannotStart, match="there is no such program"):
        harness().run()


def test_a_worker_that_fails_is_no_success(says: Says) -> None:
    says(code=3)
    with pytest.raises(CannotStart, match="a worker of the harness failed"):
        harness().run()


def test_cases_are_shared_out() -> None:
    run = Harness(PLAN, jobs=3)
    shares = [run._share(Plan(**{**vars_of(PLAN), "cases": 10}), number) for number in range(3)]
    assert [each.cases for each in shares] == [4, 3, 3]
    assert [each.worker for each in shares] == [0, 1, 2]


def vars_of(plan: Plan) -> dict[str, Any]:
    return {name: getattr(plan, name) for name in plan.__dataclass_fields__}


# -- regressions ------------------------------------------------------------------------------


class Target:
    """Hangs, or does not, in place of the executor."""

    hangs = True
    closed = 0

    def __init__(self, *arguments: Any) -> None: ...

    def fresh(self) -> None: ...

    def play(self, sequence: Sequence, foreseen: Any) -> Observation:
        return Observation(exit=None if not self.hangs else 1)

    def honest(self, wire: int) -> str:
        return ""

    def leaked(self) -> str:
        return ""

    def close(self) -> None:
        Target.closed += 1


@pytest.mark.parametrize("hangs", [True, False])
def test_findings_of_earlier_runs_are_replayed(
    hangs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness_module, "Executor", Target)
    monkeypatch.setattr(Target, "hangs", hangs)
    monkeypatch.setattr(Target, "closed", 0)
    old = Finding(
        sequence=CASE,
        strike=Strike(oracle="died", what="exit code 1", where="AwaitHello, 1"),
        seed=1,
        number=1,
        scale=0.1,
    )
    (regression,) = harness().replay({"old.json": old})
    assert regression.file == "old.json"
    assert regression.again is hangs
    assert Target.closed == 1


def test_a_regression_is_no_new_finding(says: Says) -> None:
    plans: list[dict[str, Any]] = []
    says(SHORT)
    regression = Regression(file="old.json", finding=finding(), again=True)
    run = harness(stop_after=None)
    share = run._share

    def shared(plan: Plan, number: int) -> Plan:
        plans.append(dict(plan.known))
        run.interrupt()
        return share(plan, number)

    run._share = shared  # type: ignore[method-assign]
    outcome = run.run((regression,))
    assert plans[0] == {"hung:Routing": "a regression"}
    assert outcome.exit_code == FOUND
    assert outcome.findings == ()
