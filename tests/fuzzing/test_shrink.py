from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from joinproto.fuzzing.sequence import Sequence
from joinproto.fuzzing.shrink import shrink


def case(*steps: dict[str, Any], **terms: Any) -> Sequence:
    return Sequence(role="controller", wire=4, steps=steps, **terms)


LONG = case(
    {"dial": "c"},
    {"say": "Hello", "with": {"host": "x", "run_id": "bad"}, "chunk": 3, "pause": 0.001},
    {"look": "c", "within": 0.5},
    {"dial": "d"},
    {"frame": "0011223344bb55", "on": "d", "key": "join"},
    {"wait": 0.8},
    {"close": "c"},
    devices=3,
)


def words(sequence: Sequence) -> list[set[str]]:
    return [set(step) for step in sequence.steps]


def test_steps_that_do_not_matter_go_first() -> None:
    assert shrink(LONG, lambda each: {"dial": "d"} in each.steps).steps == ({"dial": "d"},)


def test_terms_that_do_not_matter_go() -> None:
    def strikes(each: Sequence) -> bool:
        return {"dial": "c"} in each.steps

    assert shrink(LONG, strikes).devices == 1


def test_words_of_a_step_go_and_fields_that_do_not_matter() -> None:
    def strikes(each: Sequence) -> bool:
        return any(step.get("with", {}).get("run_id") == "bad" for step in each.steps)

    assert shrink(LONG, strikes).steps == ({"say": "Hello", "with": {"run_id": "bad"}},)


def test_bytes_go_and_those_that_stay_become_zero() -> None:
    def strikes(each: Sequence) -> bool:
        return any("bb" in step.get("frame", "") for step in each.steps)

    (step,) = shrink(LONG, strikes).steps
    assert step["frame"] == "bb"

    def second(each: Sequence) -> bool:
        return any(len(step.get("frame", "")) >= 4 for step in each.steps)

    (step,) = shrink(LONG, second).steps
    assert step["frame"] == "0000"


def test_waits_become_shorter() -> None:
    def strikes(each: Sequence) -> bool:
        return any(step.get("wait", 0) >= 0.3 for step in each.steps)

    assert shrink(LONG, strikes).steps == ({"wait": 0.4},)


def test_a_deadline_stays_one_or_is_none() -> None:
    deadline = case({"wait": 5, "scaled": True})

    def late(each: Sequence) -> bool:
        return any(step.get("scaled") for step in each.steps)

    assert shrink(deadline, late) == deadline
    assert shrink(deadline, lambda each: bool(each.steps)).steps == ({"wait": 0.01},)


def test_a_case_of_which_nothing_can_go_stays() -> None:
    assert shrink(LONG, lambda each: False) == LONG


@pytest.mark.parametrize("seconds", [0, 5])
def test_it_takes_no_longer_than_it_may(seconds: int) -> None:
    now = [0.0]
    played = []

    def strikes(each: Sequence) -> bool:
        now[0] += 1.0
        played.append(each)
        return False

    clock: Callable[[], float] = lambda: now[0]  # noqa: E731
    shrink(LONG, strikes, budget=seconds, clock=clock)
    assert len(played) == seconds
