from __future__ import annotations

from typing import Any

import pytest

from joinproto.conformance.world import Keys
from joinproto.fuzzing.acting import Heard
from joinproto.fuzzing.confirm import TRIES, Examiner, aftermath, narrow
from joinproto.fuzzing.execute import Observation
from joinproto.fuzzing.sequence import Sequence
from joinproto.keys import OPEN, Salt

KEYS = Keys(join=OPEN, session=Salt(b"s" * 16), other=Salt(b"o" * 16), open=True)
PLAIN = Sequence(role="controller", wire=4, steps=({"dial": "c"},))
BAD = Sequence(role="controller", wire=4, steps=({"dial": "c"}, {"send": "00"}))


class Stage:
    """Stands in for the executor: a target that dies of some plays, and leaks of others.

    Args:
        deadly: which plays of `BAD` kill it, from 1.
        leak_at: cases since its start, after which it holds too much; 0: it never does.
        deaf: why no honest host can join.
    """

    def __init__(self, *deadly: int, leak_at: int = 0, deaf: str = "") -> None:
        self.deadly = deadly
        self.leak_at = leak_at
        self.deaf = deaf
        self.bad = 0
        self.since = 0
        self.starts = 0

    def fresh(self) -> None:
        self.since = 0
        self.starts += 1

    def death(self) -> tuple[int | None, str]:
        return None, ""

    def play(self, sequence: Sequence, foreseen: Any = None) -> Observation:
        self.since += 1
        quiet = Observation(heard={"c": Heard(events=["fin"], closed=False)})
        if sequence != BAD:
            return quiet
        self.bad += 1
        return Observation(exit=1) if self.bad in self.deadly else quiet

    def honest(self, wire: int) -> str:
        return self.deaf

    def leaked(self) -> str:
        return "40 more open descriptors" if 0 < self.leak_at <= self.since else ""


def examiner(stage: Stage) -> Examiner:
    return Examiner(stage, KEYS, 0.1)  # type: ignore[arg-type]


def test_what_strikes_is_told_with_what_was_seen() -> None:
    examined = examiner(Stage(1)).examine(BAD)
    strike = examined.strikes[0]
    assert strike.oracle == "died"
    assert examined.has(strike.bucket) is strike
    assert examined.has("other") is None
    assert examined.seen.exit == 1


@pytest.mark.parametrize(("deadly", "found"), [((1, 2, 3), 3), ((2,), 1), ((), 0)])
def test_a_finding_is_tried_three_times(deadly: tuple[int, ...], found: int) -> None:
    stage = Stage(*deadly)
    bucket = examiner(Stage(1)).examine(BAD).strikes[0].bucket
    times, last = examiner(stage).confirm(BAD, bucket)
    assert times == found
    assert bool(last.has(bucket)) is bool(found)
    assert stage.bad == stage.starts == TRIES


def test_one_that_shows_in_sum_is_played_again_and_again() -> None:
    stage = Stage(leak_at=30)
    examined = examiner(stage).examine(PLAIN, repeats=40)
    assert [each.oracle for each in examined.strikes] == ["leaked"]
    assert stage.since == 40
    assert examiner(Stage(leak_at=41)).examine(PLAIN, repeats=40).strikes == []


def test_a_target_that_was_harmed_is_not_used_again() -> None:
    stage = Stage(1)
    looked = examiner(stage)
    bucket = examiner(Stage(1)).examine(BAD).strikes[0].bucket
    assert looked.strikes(BAD, bucket)
    assert stage.starts == 1
    assert not looked.strikes(BAD, bucket)
    assert stage.starts == 1


def test_some_cases_strike_in_sum() -> None:
    assert examiner(Stage(leak_at=90)).strikes_in_sum([PLAIN, PLAIN], "leaked:")
    assert not examiner(Stage()).strikes_in_sum([PLAIN] * 200, "leaked:")
    stage = Stage(leak_at=1)
    assert not examiner(stage).strikes_in_sum([PLAIN], "leaked:", lambda: stage.since >= 5)
    assert stage.since == 5


def test_the_aftermath() -> None:
    assert aftermath(Stage(), 4) == []  # type: ignore[arg-type]
    (strike,) = aftermath(Stage(deaf="an honest host got fin"), 4)  # type: ignore[arg-type]
    assert (strike.oracle, strike.what) == ("deaf", "an honest host got fin")


def cases(count: int) -> list[Sequence]:
    return [Sequence(role="controller", wire=4, steps=({"wait": n},)) for n in range(count)]


@pytest.mark.parametrize("guilty", [0, 5, 12])
def test_the_one_case_among_many_is_found(guilty: int) -> None:
    window = cases(13)
    assert narrow(window, lambda some: window[guilty] in some) == [window[guilty]]


def test_cases_that_are_it_only_together_stay_together() -> None:
    window = cases(8)
    pair = {4, 7}
    found = narrow(window, lambda some: pair <= {each.steps[0]["wait"] for each in some})
    assert found == window[4:]
