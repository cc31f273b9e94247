from __future__ import annotations

import json
import random
from typing import Any

import pytest

from joinproto.conformance.session import Settings
from joinproto.fuzzing.generate import MAX_STEPS, Generator, Mutator, seeds, waits
from joinproto.fuzzing.hunt import keys_of
from joinproto.fuzzing.sequence import Sequence

KEYS = keys_of(Settings(role="agent", seed=1), "open")


def generator(role: str, seed: int = 1, **values: Any) -> Generator:
    usual: dict[str, Any] = {
        "wires": (2, 4),
        "admission": "open",
        "keys": KEYS,
        "scale": 0.1,
        "chance": random.Random(seed),
    }
    return Generator(role, **{**usual, **values})


def taken(made: Generator, count: int, **values: Any) -> list[Sequence]:
    return [made.next(**values)[0] for _ in range(count)]


def test_a_seed_means_the_same_cases() -> None:
    first, second, other = (generator("controller", seed) for seed in (5, 5, 6))
    assert taken(first, 60) == taken(second, 60)
    assert taken(other, 60) != taken(second, 60)


@pytest.mark.slow
@pytest.mark.parametrize(("role", "most"), [("agent", 900), ("controller", 1500)])
def test_every_row_that_can_be_reached_is(role: str, most: int) -> None:
    made = generator(role)
    for _ in range(most):
        made.next(tries=20)
        if not made.missing:
            break
    assert made.missing == []


def test_a_case_that_reaches_something_new_is_kept() -> None:
    made = generator("controller", wires=(4,))
    sequence, foreseen = made.next()
    assert made.corpus[-1].sequence == sequence
    assert foreseen.rows <= made.covered


def test_plain_cases_are_shared_out() -> None:
    whole = taken(generator("controller"), len(seeds("controller", 2)) * 2)
    shares = [generator("controller", share=(place, 2)) for place in (0, 1)]
    parts = [taken(each, len(whole) // 2) for each in shares]
    assert sorted(map(repr, parts[0] + parts[1])) == sorted(map(repr, whole))


def test_what_another_has_kept_is_taken_in_once() -> None:
    made = generator("controller", wires=(4,))
    sequence = seeds("controller", 4)[1]
    made.absorb(sequence)
    made.absorb(sequence)
    assert [entry.sequence for entry in made.corpus] == [sequence]


def test_a_case_that_is_added_comes_next() -> None:
    made = generator("controller")
    made.add(seeds("controller", 4)[2])
    assert made.next()[0] == seeds("controller", 4)[2]


def test_cases_for_a_crowd_stay_ones_for_a_crowd() -> None:
    made = generator("controller")
    taken(made, len(seeds("controller", 2)) * 2)
    assert not any(each.own_target for each in taken(made, 150, own_target=False))


@pytest.mark.parametrize("role", ["agent", "controller"])
def test_whatever_is_changed_stays_a_case(role: str) -> None:
    mutator = Mutator(random.Random(3), KEYS)
    for plain in seeds(role, 4):
        changed = plain
        for _ in range(60):
            changed = mutator.change(changed)
            assert len(changed.steps) <= MAX_STEPS
            assert Sequence.from_json(json.loads(json.dumps(changed.to_json()))) == changed


def test_payloads_are_almost_what_they_were() -> None:
    mutator = Mutator(random.Random(4), KEYS)
    made = {mutator.payload(b"\0\3abc\1\0") for _ in range(300)}
    assert len(made) > 100
    assert any(b"\xfd" in each for each in made)
    assert max(map(len, made)) < 30


def test_how_long_a_case_waits() -> None:
    steps = ({"wait": 30, "scaled": True}, {"wait": 0.5}, {"send": "00", "chunk": 3, "pause": 0.1})
    assert waits(Sequence(role="agent", wire=4, steps=steps), 0.1) == pytest.approx(13.5)
