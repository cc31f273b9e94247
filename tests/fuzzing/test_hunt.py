from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from joinproto.conformance.session import CannotStart, Settings
from joinproto.fuzzing import hunt as hunt_module
from joinproto.fuzzing.confirm import REPEATS
from joinproto.fuzzing.execute import BRIEF, PATIENCE, Observation
from joinproto.fuzzing.finding import Finding
from joinproto.fuzzing.hunt import Hunt, Plan, first_look, keys_of, reason_in, target_text
from joinproto.fuzzing.sequence import Sequence
from joinproto.fuzzing.shadow import Foreseen, Row, foresee
from joinproto.keys import Salt

SETTINGS = Settings(role="controller", command=("x", "{port}"), scale=0.1, seed=1)
ADDRESS = Settings(role="controller", command=(), address=("127.0.0.1", 4000), scale=0.1, seed=1)
PLAN = Plan(settings=ADDRESS, admission="open", wires=(4,), cases=60)
"""At an address no case needs a target of its own, which makes them quick to choose."""


class Target:
    """Does what our own machines do, but for a fault, in place of the executor."""

    fault = ""
    mute = False
    refuses = False

    def __init__(self, settings: Settings, admission: str, keys: Any) -> None:
        self.keys = keys
        self.started = 0
        self.unending: set[str] = set()
        self.patience = PATIENCE
        self.patient: list[float] = []
        self.since = 0
        self.played: list[Sequence] = []
        self.closed = False

    def play(self, sequence: Sequence, foreseen: Foreseen | None = None) -> Observation:
        if self.refuses:
            raise CannotStart("there is no such program")
        self.played.append(sequence)
        self.patient.append(self.patience)
        self.since += 1
        known = foreseen or foresee(sequence, self.keys, 0.1)
        if self.mute:
            return Observation()
        seen = Observation(heard=dict(known.heard), exit=known.exit, started=known.children)
        strikes = self.fault == "flaky" and len(self.played) % 7 == 0
        strikes |= self.fault == "dies" and any("send" in step for step in sequence.steps)
        if strikes:
            seen.exit = 70
        if self.fault == "hangs":
            seen.heard = {name: replace(each, events=[]) for name, each in seen.heard.items()}
        return seen

    def fresh(self) -> None:
        self.since = 0

    def honest(self, wire: int) -> str:
        return ""

    def death(self) -> tuple[int | None, str]:
        return None, ""

    def leaked(self) -> str:
        return "9 more children" if self.fault == "leaks" and self.since >= REPEATS else ""

    def close(self) -> None:
        self.closed = True


class Heard:
    """What a hunt has told."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.buckets: list[str] = []
        self.doubts: list[str] = []
        self.reasons: dict[str, str] = {}
        self.cases = 0
        self.rows: Counter[Row] = Counter()
        self.sequences: list[Sequence] = []

    def kept(self, sequence: Sequence) -> None:
        self.sequences.append(sequence)

    def bucket(self, bucket: str) -> None:
        self.buckets.append(bucket)

    def doubt(self, bucket: str) -> None:
        self.doubts.append(bucket)

    def finding(self, finding: Finding) -> None:
        self.findings.append(finding)

    def known(self, bucket: str, reason: str) -> None:
        self.reasons[bucket] = reason

    def counts(self, cases: int, sessions: int, targets: int, rows: Mapping[Row, int]) -> None:
        self.cases += cases
        self.rows.update(rows)


@pytest.fixture(autouse=True)
def target(monkeypatch: pytest.MonkeyPatch) -> type[Target]:
    class Fresh(Target):
        pass

    monkeypatch.setattr(hunt_module, "Executor", Fresh)
    return Fresh


def hunted(plan: Plan, notes: Any = tuple) -> Heard:
    heard = Heard()
    now = iter(range(10**6))
    Hunt(plan, heard, notes, clock=lambda: next(now) / 1000).run()
    return heard


def test_a_target_that_does_all_as_it_should_has_no_finding() -> None:
    heard = hunted(PLAN)
    assert heard.cases == 60
    assert (heard.findings, heard.doubts, heard.buckets) == ([], [], [])
    assert sum(heard.rows.values()) > heard.cases
    assert heard.sequences


def test_a_seed_means_the_same_cases_always_and_another_others() -> None:
    def cases(plan: Plan) -> list[Sequence]:
        return hunted(plan).sequences

    assert cases(PLAN) == cases(PLAN)
    assert cases(PLAN) != cases(replace(PLAN, settings=replace(ADDRESS, seed=2)))
    assert cases(PLAN) != cases(replace(PLAN, worker=1))


def test_a_fault_is_one_finding_and_made_small(target: type[Target]) -> None:
    target.fault = "dies"
    heard = hunted(PLAN)
    buckets = [each.bucket for each in heard.findings]
    assert buckets
    assert len({*buckets}) == len(buckets)
    assert {each.strike.oracle for each in heard.findings} == {"died"}
    smallest = min(heard.findings, key=lambda each: len(each.sequence.steps))
    assert len(smallest.sequence.steps) <= 3
    assert not smallest.flaky
    assert {*buckets} == {*heard.buckets}


def test_what_comes_and_goes_is_flaky(target: type[Target]) -> None:
    target.fault = "flaky"
    heard = hunted(PLAN)
    assert heard.findings
    assert all(each.flaky for each in heard.findings)


def test_what_is_known_is_no_news(target: type[Target]) -> None:
    target.fault = "dies"
    heard = hunted(replace(PLAN, cases=60, known={"died:*": "it is known to die"}))
    assert heard.findings == []
    assert {*heard.reasons.values()} == {"it is known to die"}


def test_what_another_worker_has_seen_is_not_looked_into(target: type[Target]) -> None:
    target.fault = "dies"
    buckets = [each.bucket for each in hunted(PLAN).findings]
    assert buckets
    assert hunted(PLAN, lambda: buckets).findings == []


def test_a_leak_that_shows_in_sum_is_found(target: type[Target]) -> None:
    target.fault = "leaks"
    (finding,) = hunted(replace(PLAN, cases=120)).findings
    assert finding.strike.oracle == "leaked"
    assert finding.repeats == REPEATS


def test_who_is_known_not_to_end_connections_is_not_waited_for(target: type[Target]) -> None:
    target.fault = "hangs"
    heard = Heard()
    hunt = Hunt(PLAN, heard, clock=lambda: 0.0)
    hunt.run()
    oracles = {each.strike.oracle for each in heard.findings}
    assert oracles == {"hung"}
    played = hunt._executor
    assert isinstance(played, Target)
    assert played.unending == {each.strike.where for each in heard.findings}
    # Each is confirmed with patience all the same.
    assert played.patient[-1] == BRIEF
    assert {*played.patient} == {BRIEF, PATIENCE}


def test_it_stops_when_it_is_told_to_and_when_the_time_is_over() -> None:
    assert hunted(PLAN, lambda: [None]).cases == 0
    assert hunted(replace(PLAN, cases=None, seconds=0.05)).cases < 60


def test_what_cannot_be_started_ends_it(target: type[Target]) -> None:
    target.refuses = True
    with pytest.raises(CannotStart, match="no such program"):
        hunted(PLAN)


def test_what_another_worker_kept_is_changed_further() -> None:
    kept = hunted(PLAN).sequences
    told = [kept]
    again = hunted(PLAN, lambda: told.pop() if told else ())
    assert len(again.sequences) < len(kept)
    assert not {str(each.steps) for each in again.sequences} & {str(each.steps) for each in kept}


def test_the_first_look_tells_versions_or_that_there_is_none(target: type[Target]) -> None:
    plan = replace(PLAN, wires=(2, 4))
    target.mute = True
    with pytest.raises(CannotStart, match="does not take part as an honest peer speaks to it"):
        first_look(plan)


# -- what stands beside it --------------------------------------------------------------------


def test_secrets_follow_from_the_seed_and_a_given_salt_is_the_session_s() -> None:
    assert keys_of(SETTINGS, "open") == keys_of(SETTINGS, "open")
    assert keys_of(SETTINGS, "open") != keys_of(replace(SETTINGS, seed=2), "open")
    salt = Salt(b"p" * 16)
    given = keys_of(replace(SETTINGS, salt=salt), "pre-shared")
    assert given.join == given.session == salt


def test_reasons_stand_for_ids_buckets_and_globs() -> None:
    known = {"died:a": "bucket", "controller-hung-*": "id"}
    assert reason_in(known, "controller-died-00", "died:a") == "bucket"
    assert reason_in(known, "controller-hung-00", "hung:x") == "id"
    assert reason_in(known, "controller-died-00", "died:b") == ""


def test_a_target_is_called_as_it_was_given() -> None:
    assert target_text(SETTINGS) == "x '{port}'"
    assert target_text(ADDRESS) == "127.0.0.1:4000"
