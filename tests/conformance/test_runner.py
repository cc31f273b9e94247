from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from joinproto.conformance import runner as module
from joinproto.conformance.capabilities import Capabilities, Reach
from joinproto.conformance.case import Case
from joinproto.conformance.play import Outcome
from joinproto.conformance.results import Happening, Result
from joinproto.conformance.runner import Plan, Runner
from joinproto.conformance.selection import Expectations, Selection
from joinproto.conformance.session import CannotStart, Played, Settings
from joinproto.conformance.verdicts import Level, Verdict
from tests.support.conformance import case_of

SANITY = case_of({"listen": True}, id="agent/sanity/one", wires=(2, 4))
FIRST = case_of({"listen": True}, id="agent/a/first")
SECOND = case_of({"listen": True}, id="agent/a/second", clauses=("JP-FRM-002", "JP-FRM-001"))

Verdicts = Callable[[str, int], Verdict | Exception]


def outcome(verdict: Verdict) -> Played:
    happened = (Happening(at=0.0, who="suite", what="act"),)
    return Played(
        outcome=Outcome(behaviour=verdict, expected="x", got="y"),
        happenings=happened,
        stderr="",
        seconds=0.1,
    )


def plan(**values: Any) -> Plan:
    usual: dict[str, Any] = {
        "settings": Settings(role="agent", command=("agent", "{helper}"), seed=7),
        "reach": Reach(
            role="agent",
            command=("agent", "{helper}"),
            capabilities=values.pop("known", Capabilities()),
        ),
        "selection": values.pop("selection", Selection()),
        "expectations": Expectations(values.pop("expected", {}), values.pop("sometimes", ())),
    }
    return Plan(**(usual | values))


class Stage:
    """Gives cases the verdicts of a test, and takes down which were played."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, verdict: Verdicts) -> None:
        self.played: list[tuple[str, int]] = []
        self._verdict = verdict
        monkeypatch.setattr(module, "play_for_real", self._play)

    def _play(self, settings: Settings, case: Case, *, wire: int, **others: Any) -> Played:
        self.played.append((case.id, wire))
        found = self._verdict(case.id, wire)
        if isinstance(found, Exception):
            raise found
        return outcome(found)


def all_pass(case: str, wire: int) -> Verdict:
    return Verdict.PASS


def ran(
    plan: Plan, cases: Sequence[Case] = (SANITY, FIRST, SECOND)
) -> tuple[Any, dict[str, Result], Runner]:
    told: list[Result] = []
    runner = Runner(plan, cases, told.append)
    summary = runner.run()
    assert told == runner.results
    return summary, {f"{each.case}@{each.wire}": each for each in told}, runner


def test_all_is_well(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, all_pass)
    summary, results, runner = ran(plan())
    assert summary.exit_code == 0
    assert summary.counts == {"PASS": 4}
    assert runner.wires == (2, 4)
    assert {case for case, _ in stage.played[:2]} == {SANITY.id}
    assert sorted(stage.played[2:]) == [(FIRST.id, 4), (SECOND.id, 4)]
    assert results["agent/a/first@4"].broken == ""


def test_a_version_that_the_target_does_not_speak_is_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def verdict(case: str, wire: int) -> Verdict:
        return Verdict.UNSUPPORTED if wire == 4 else Verdict.PASS

    Stage(monkeypatch, verdict)
    summary, results, runner = ran(plan())
    assert summary.exit_code == 0
    assert runner.wires == (2,)
    assert "agent/a/first@2" in results


def test_a_target_that_speaks_no_version_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, lambda case, wire: Verdict.UNSUPPORTED)
    summary, results, _ = ran(plan())
    assert summary.exit_code == 1
    assert results["agent/sanity/one@2"].verdict is Verdict.FAIL
    assert results["agent/a/first@4"].verdict is Verdict.INCONCLUSIVE
    assert {case for case, _ in stage.played} == {SANITY.id}


def test_a_failure_names_clause_and_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def verdict(case: str, wire: int) -> Verdict:
        return Verdict.FAIL if case == SECOND.id else Verdict.PASS

    Stage(monkeypatch, verdict)
    summary, results, _ = ran(plan())
    assert summary.exit_code == 1
    assert summary.unexpected == ("agent/a/second@4-open",)
    failed = results["agent/a/second@4"]
    assert failed.broken.startswith("JP-FRM-002: ")
    assert (failed.expected, failed.got) == ("x", "y")
    assert failed.repeat == (
        "joinproto conform agent agent/a/second@4-open --time-scale 1 --seed 7 -- agent '{helper}'"
    )


def test_commands_that_repeat_a_controller_s_case(monkeypatch: pytest.MonkeyPatch) -> None:
    Stage(monkeypatch, all_pass)
    started = Settings(role="controller", command=("c", "{port}"))
    running = Settings(role="controller", address=("127.0.0.1", 5))
    case = case_of({"listen": True}, id="controller/sanity/one", setup={"harmless": True})
    for settings, words in (
        (started, "--start 'c '\"'\"'{port}'\"'\"''"),
        (running, "--address 127.0.0.1:5"),
    ):
        reach = Reach(role="controller", command=settings.command, capabilities=Capabilities())
        _, results, _ = ran(plan(settings=settings, reach=reach), (case,))
        assert results["controller/sanity/one@4"].repeat.endswith(words)


def test_an_expected_failure_is_none_and_an_expected_pass_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def verdict(case: str, wire: int) -> Verdict:
        return Verdict.FAIL if case == SECOND.id else Verdict.PASS

    Stage(monkeypatch, verdict)
    summary, results, _ = ran(plan(expected={SECOND.id: "known"}))
    assert summary.exit_code == 0
    assert results["agent/a/second@4"].expected_failure == "known"
    summary, _, _ = ran(plan(expected={SECOND.id: "known", FIRST.id: "gone"}))
    assert summary.exit_code == 1
    assert summary.unexpectedly_passed == ("agent/a/first@4-open",)
    summary, _, _ = ran(plan(expected={SECOND.id: "known", "agent/old": "gone"}))
    assert (summary.exit_code, summary.stale) == (1, ("agent/old",))


def test_what_fails_only_sometimes_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    Stage(monkeypatch, all_pass)
    summary, _, _ = ran(plan(expected={FIRST.id: "a race"}, sometimes=[FIRST.id]))
    assert (summary.exit_code, summary.unexpectedly_passed) == (0, ())


def test_an_expectation_of_another_selection_is_not_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    Stage(monkeypatch, all_pass)
    selected = Selection(patterns=(FIRST.id,))
    summary, results, _ = ran(plan(expected={SECOND.id: "known"}, selection=selected))
    assert (summary.exit_code, summary.stale) == (0, ())
    # The sanity case comes first all the same.
    assert set(results) == {"agent/sanity/one@2", "agent/sanity/one@4", "agent/a/first@4"}


def test_what_says_nothing_is_run_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def verdict(case: str, wire: int) -> Verdict:
        seen.append(case)
        first = case == FIRST.id and seen.count(case) == 1
        return Verdict.INCONCLUSIVE if first or case == SECOND.id else Verdict.PASS

    Stage(monkeypatch, verdict)
    summary, results, _ = ran(plan())
    assert summary.exit_code == 2
    assert results["agent/a/first@4"].attempts == 2
    assert results["agent/a/first@4"].verdict is Verdict.PASS
    assert results["agent/a/second@4"].verdict is Verdict.INCONCLUSIVE


def test_a_mistake_of_the_suite_costs_one_case(monkeypatch: pytest.MonkeyPatch) -> None:
    def verdict(case: str, wire: int) -> Verdict | Exception:
        return KeyError("oops") if case == FIRST.id else Verdict.PASS

    Stage(monkeypatch, verdict)
    summary, results, _ = ran(plan())
    assert summary.exit_code == 2
    assert results["agent/a/first@4"].verdict is Verdict.HARNESS_ERROR
    assert "oops" in results["agent/a/first@4"].got
    assert results["agent/a/second@4"].verdict is Verdict.PASS


def test_a_target_that_cannot_be_started_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    Stage(monkeypatch, lambda case, wire: CannotStart("no such file"))
    with pytest.raises(CannotStart):
        ran(plan())


def test_what_the_target_lacks_is_not_played(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, all_pass)
    needy = case_of({"listen": True}, id="agent/a/needy", needs=("wings",))
    summary, results, _ = ran(plan(), (SANITY, needy))
    assert results["agent/a/needy@4"].verdict is Verdict.UNSUPPORTED
    assert "wings" in results["agent/a/needy@4"].got
    assert ("agent/a/needy", 4) not in stage.played
    assert summary.exit_code == 0


def test_nothing_that_was_played_is_no_conformance(monkeypatch: pytest.MonkeyPatch) -> None:
    Stage(monkeypatch, all_pass)
    needy = case_of({"listen": True}, id="agent/sanity/needy", needs=("wings",))
    summary, _, _ = ran(plan(), (needy,))
    assert summary.exit_code == 2


def test_words_that_a_capability_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[tuple[str, ...]] = []

    def play(settings: Settings, case: Case, **others: Any) -> Played:
        commands.append(settings.command)
        return outcome(Verdict.PASS)

    monkeypatch.setattr(module, "play_for_real", play)
    needy = case_of({"listen": True}, id="agent/a/needy", needs=("wings",))
    known = Capabilities(options={"wings": "--wings 2"}, wires=(4,))
    ran(plan(known=known), (SANITY, needy))
    assert commands == [("agent", "{helper}"), ("agent", "{helper}", "--wings", "2")]


def test_declared_versions_are_not_tried_out(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, all_pass)
    ran(plan(known=Capabilities(wires=(2,))))
    assert {wire for _, wire in stage.played} == {2}


def test_fail_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    many = [case_of({"listen": True}, id=f"agent/a/{n}") for n in range(20)]
    stage = Stage(
        monkeypatch, lambda case, wire: Verdict.PASS if "sanity" in case else Verdict.FAIL
    )
    summary, _, _ = ran(plan(fail_fast=True, jobs=1), (SANITY, *many))
    assert summary.exit_code == 1
    assert len(stage.played) < 10


def test_who_waits_out_the_margin_begins_first(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(monkeypatch, all_pass)
    slow = case_of({"listen": True}, id="agent/z/slow", waits_margin=True)
    ran(plan(jobs=1), (SANITY, FIRST, SECOND, slow))
    assert stage.played[2] == ("agent/z/slow", 4)


def test_whoever_only_waits_holds_no_slot(monkeypatch: pytest.MonkeyPatch) -> None:
    second_ran = threading.Event()

    def play(settings: Settings, case: Case, *, slot: Any, **others: Any) -> Played:
        if case.id == FIRST.id:
            slot.release()
            try:
                assert second_ran.wait(10)
            finally:
                slot.acquire()
        if case.id == SECOND.id:
            second_ran.set()
        return outcome(Verdict.PASS)

    monkeypatch.setattr(module, "play_for_real", play)
    summary, _, _ = ran(plan(jobs=1))
    assert summary.counts == {"PASS": 4}


def test_an_interrupt_ends_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()

    def play(settings: Settings, case: Case, *, given_up: Any, **others: Any) -> Played:
        while not given_up():
            pass
        ended.set()
        return outcome(Verdict.PASS)

    monkeypatch.setattr(module, "play_for_real", play)
    runner = Runner(plan(jobs=1), (SANITY,))
    real, acquired = threading.Semaphore, []

    class Interrupted:
        """A semaphore whose second `acquire` the user interrupts."""

        def __init__(self, count: int) -> None:
            self._real = real(count)
            self._slots = count == 1

        def acquire(self) -> None:
            if self._slots:
                acquired.append(1)
                if len(acquired) == 2:
                    raise KeyboardInterrupt
            self._real.acquire()

        def release(self) -> None:
            self._real.release()

    monkeypatch.setattr(threading, "Semaphore", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        runner.run()
    assert ended.is_set()


def test_what_there_is_to_run() -> None:
    runner = Runner(plan(selection=Selection(levels=frozenset((Level.MUST,)))), (SANITY, FIRST))
    assert runner.count() == 3
    assert runner.listed()[2] == ("agent/a/first@4-open", "It is done.")
    assert Runner(plan(known=Capabilities(wires=())), (SANITY,)).count() == 0
