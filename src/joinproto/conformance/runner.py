"""Runs instances of cases, several at a time, and makes results of them."""

from __future__ import annotations

import shlex
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from joinproto.conformance.capabilities import Reach
from joinproto.conformance.case import Case
from joinproto.conformance.clauses import load as load_clauses
from joinproto.conformance.loopback import Cancelled
from joinproto.conformance.play import Outcome
from joinproto.conformance.results import Result, Summary
from joinproto.conformance.selection import Expectations, Instance, Selection, instances, name_of
from joinproto.conformance.session import CannotStart, Played, Settings, play_for_real
from joinproto.conformance.verdicts import CONFORMS, DEVIATES, UNDECIDED, Verdict

RETRIES = 1
"""How often a case that said nothing of the target is run again; one that failed never is."""

AT_ONCE = 64
"""Cases in flight, those that only wait included."""

SAYS_NOTHING = (Verdict.INCONCLUSIVE, Verdict.HARNESS_ERROR)
SAYS_NOTHING_OF_TARGET = (*SAYS_NOTHING, Verdict.UNSUPPORTED)
DEVIATIONS = (Verdict.FAIL, *SAYS_NOTHING, Verdict.NON_STRICT)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run is to do.

    Attributes:
        settings: what holds for all cases.
        reach: what can be told to the target.
        selection: what the user wants run.
        expectations: deviations that are known.
        jobs: how many cases run at a time, those that only wait not counted.
        fail_fast: begin nothing more after the first failure that was not expected.
    """

    settings: Settings
    reach: Reach
    selection: Selection
    expectations: Expectations
    jobs: int = 2
    fail_fast: bool = False


class Runner:
    """One run.

    Args:
        plan: what to do.
        cases: all cases of the role.
        tell: takes each result as soon as there is one; called by one thread at a time.
        begun: told how many instances are to come, once that is known and when it changes.
    """

    def __init__(
        self,
        plan: Plan,
        cases: Sequence[Case],
        tell: Callable[[Result], None] = lambda result: None,
        begun: Callable[[int], None] = lambda count: None,
    ) -> None:
        self.plan = plan
        self.results: list[Result] = []
        self.wires: tuple[int, ...] = ()
        self._cases = cases
        self.tell = tell
        self.begun = begun
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._given_up = threading.Event()
        self._held: list[Result] | None = []
        self._failure: BaseException | None = None
        self._threads: list[threading.Thread] = []

    def count(self) -> int:
        """How many instances the selection takes, if the target speaks every version asked for."""
        return len(self._taken(self._cases, self._possible_wires()))

    def listed(self) -> list[tuple[str, str]]:
        """Name and title of each of them."""
        taken = self._taken(self._cases, self._possible_wires())
        return [(each.name, each.case.title) for each in taken]

    def run(self) -> Summary:
        """Run the sanity cases, then all others.

        Raises:
            CannotStart: the target cannot be started at all.
        """
        try:
            return self._run()
        finally:
            # Nothing that was started may stay when the user interrupts.
            self._given_up.set()
            for thread in self._threads:
                thread.join()

    def _run(self) -> Summary:
        began = time.monotonic()
        possible = self._possible_wires()
        sanity = [case for case in self._cases if case.sanity]
        others = [case for case in self._cases if not case.sanity]
        first = self._taken(sanity, possible)
        first = first or self._unselected_sanity(sanity, possible)
        self.begun(len(first) + len(self._taken(others, possible)))
        self._run_all(first)
        self._found_out(possible)
        rest = self._taken(others, self.wires or possible)
        self.begun(len(first) + len(rest))
        if self.wires:
            self._run_all(rest)
        else:
            for instance in rest:
                self._take(instance, self._not_run(instance, "the sanity case did not pass"))
        return self._summary(time.monotonic() - began)

    # -- what is run --------------------------------------------------------------------------

    def _possible_wires(self) -> tuple[int, ...]:
        declared = self.plan.reach.capabilities.wires
        wanted = self.plan.selection.wires
        return tuple(wire for wire in wanted if declared is None or wire in declared)

    def _taken(self, cases: Iterable[Case], wires: Sequence[int]) -> list[Instance]:
        if not wires:
            return []
        return [each for each in instances(cases, wires) if self.plan.selection.takes(each)]

    def _unselected_sanity(self, sanity: Sequence[Case], wires: Sequence[int]) -> list[Instance]:
        """The sanity cases, where the user named others: they come first all the same."""
        return instances(sanity, wires) if wires else []

    def _found_out(self, possible: Sequence[int]) -> None:
        """Take from the sanity cases which versions the target speaks."""
        results = self._held or []
        passed = {each.wire for each in results if each.verdict is Verdict.PASS}
        failed = {each.wire for each in results if each.verdict is not Verdict.UNSUPPORTED}
        self.wires = tuple(wire for wire in possible if wire in passed)
        held, self._held = self._held or [], None
        for each in held:
            # A target that speaks no version at all lacks nothing: it fails.
            mute = not failed and each.verdict is Verdict.UNSUPPORTED and each.happenings
            self._give_out(replace(each, verdict=Verdict.FAIL) if mute else each)

    def _run_all(self, todo: Sequence[Instance]) -> None:
        slots = threading.Semaphore(self.plan.jobs)
        in_flight = threading.Semaphore(AT_ONCE)
        # Those that wait out the margin go first: nothing else takes as long.
        for instance in sorted(todo, key=lambda each: not each.case.waits_margin):
            in_flight.acquire()
            slots.acquire()
            if self._stopped.is_set():
                slots.release()
                break
            thread = threading.Thread(target=self._one, args=(instance, slots, in_flight))
            thread.start()
            self._threads.append(thread)
        for thread in self._threads:
            thread.join()
        if self._failure is not None:
            raise self._failure

    def _one(
        self, instance: Instance, slots: threading.Semaphore, in_flight: threading.Semaphore
    ) -> None:
        try:
            self._take(instance, self._result(instance, slots))
        except BaseException as error:
            self._failure = error
            self._stopped.set()
        finally:
            slots.release()
            in_flight.release()

    # -- one instance -------------------------------------------------------------------------

    def _result(self, instance: Instance, slots: threading.Semaphore) -> Result:
        missing = self.plan.reach.missing(instance.case, instance.admission)
        if missing:
            return self._not_run(instance, missing, Verdict.UNSUPPORTED)
        attempts = 1
        played = self._played(instance, slots)
        while played.outcome.verdict in SAYS_NOTHING and attempts <= RETRIES:
            attempts += 1
            played = self._played(instance, slots)
        return self._made(instance, played, attempts)

    def _played(self, instance: Instance, slots: threading.Semaphore) -> Played:
        words = self.plan.reach.capabilities.words_for(instance.case)
        settings = self.plan.settings
        if settings.command:
            settings = replace(settings, command=(*settings.command, *words))
        try:
            return play_for_real(
                settings,
                instance.case,
                wire=instance.wire,
                admission=instance.admission,
                slot=slots,
                given_up=self._given_up.is_set,
            )
        except (CannotStart, Cancelled):
            raise
        except Exception:
            # The suite's own mistake must cost no more than this one case.
            outcome = Outcome(behaviour=Verdict.HARNESS_ERROR, got=traceback.format_exc(limit=-3))
            return Played(outcome=outcome, happenings=(), stderr="", seconds=0.0)

    def _not_run(
        self, instance: Instance, why: str, verdict: Verdict = Verdict.INCONCLUSIVE
    ) -> Result:
        outcome = Outcome(behaviour=verdict, got=why)
        return self._made(instance, Played(outcome=outcome, happenings=(), stderr="", seconds=0), 0)

    def _made(self, instance: Instance, played: Played, attempts: int) -> Result:
        outcome = played.outcome
        case = instance.case
        deviates = outcome.verdict in DEVIATIONS
        broken = (outcome.broken or case.clauses[0]) if deviates else ""
        return Result(
            case=case.id,
            wire=instance.wire,
            admission=instance.admission,
            title=case.title,
            level=case.level,
            clauses=case.clauses,
            verdict=outcome.verdict,
            behaviour=outcome.behaviour,
            ending=outcome.ending,
            broken=f"{broken}: {load_clauses()[broken].text}" if broken else "",
            expected=outcome.expected,
            got=outcome.got,
            notes=tuple(outcome.notes),
            expected_failure=self.plan.expectations.reason(instance.name),
            seconds=round(played.seconds, 3),
            attempts=attempts,
            repeat=self.repeat(instance),
            stderr=played.stderr,
            happenings=played.happenings,
        )

    def repeat(self, instance: Instance) -> str:
        """The command that runs one instance again."""
        settings = self.plan.settings
        words = ["joinproto", "conform", settings.role, instance.name]
        words += ["--time-scale", f"{settings.scale:g}", "--seed", str(settings.seed)]
        if settings.role == "agent":
            return shlex.join([*words, "--", *settings.command])
        if settings.address is not None:
            return shlex.join([*words, "--address", "{}:{}".format(*settings.address)])
        return shlex.join([*words, "--start", shlex.join(settings.command)])

    def _take(self, instance: Instance, result: Result) -> None:
        with self._lock:
            # What the sanity cases come to depends on all of them.
            if self._held is not None:
                self._held.append(result)
            else:
                self._give_out(result)
        if self.plan.fail_fast and result.verdict is Verdict.FAIL and not result.expected_failure:
            self._stopped.set()

    def _give_out(self, result: Result) -> None:
        self.results.append(result)
        self.tell(result)

    # -- what it comes to ---------------------------------------------------------------------

    def _summary(self, seconds: float) -> Summary:
        unexpected = [each for each in self.results if not each.expected_failure]
        failed = [each for each in unexpected if each.verdict is Verdict.FAIL]
        undecided = [each for each in unexpected if each.verdict in SAYS_NOTHING]
        passed = [
            each
            for each in self.results
            if each.expected_failure
            and each.verdict in (Verdict.PASS, Verdict.INFO)
            and not self.plan.expectations.may_pass(_name(each))
        ]
        stale = self.plan.expectations.stale(self._all_names())
        seen = any(each.verdict not in SAYS_NOTHING_OF_TARGET for each in self.results)
        undecided_code = CONFORMS if seen and not undecided else UNDECIDED
        code = DEVIATES if failed or passed or stale else undecided_code
        return Summary(
            counts=dict(Counter(each.verdict.value for each in self.results)),
            unexpected=tuple(map(_name, failed + undecided)),
            unexpectedly_passed=tuple(map(_name, passed)),
            stale=stale,
            exit_code=code,
            seconds=round(seconds, 3),
        )

    def _all_names(self) -> list[str]:
        wires = self.wires or self._possible_wires()
        everything = instances(self._cases, wires) if wires else []
        return [each.name for each in everything] + list(map(_name, self.results))


def _name(result: Result) -> str:
    return name_of(result.case, result.wire, result.admission)
