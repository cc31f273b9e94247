from __future__ import annotations

import json
from typing import Any

import pytest

from joinproto.fuzzing.sequence import ALONE, Sequence, connection, verb

CASE = Sequence(role="controller", wire=4, steps=({"dial": "c"}, {"say": "Hello"}))


def test_it_is_read_as_it_was_written() -> None:
    for made in (CASE, Sequence(role="agent", wire=2, devices=3, listening=False)):
        assert Sequence.from_json(json.loads(json.dumps(made.to_json()))) == made


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"role": "relay"}, "role is agent or controller, not 'relay'"),
        ({"more": 1}, "not a case: "),
        ({"steps": 7}, "not a case: "),
        ({"steps": [{"dial": "c"}, {}]}, "step 2 has none, or several, of accept, close"),
        ({"steps": [{"dial": "c", "wait": 1}]}, "step 1 has none, or several"),
    ],
)
def test_what_is_no_case(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Sequence.from_json({**CASE.to_json(), **change})


def test_a_member_is_missing() -> None:
    with pytest.raises(ValueError, match="not a case: KeyError"):
        Sequence.from_json({"role": "agent"})


def test_which_cases_need_a_target_of_their_own() -> None:
    assert not CASE.own_target
    assert Sequence(role="agent", wire=4).own_target
    assert Sequence(role="controller", wire=4, quorum=ALONE).own_target
    signals = ({"dial": "c"}, {"signal": "TERM"})
    assert Sequence(role="controller", wire=4, steps=signals).own_target


def test_size_and_bytes() -> None:
    steps = ({"dial": "c"}, {"send": "0102"}, {"frame": "03"}, {"send": {"repeat": ["00", 9]}})
    made = Sequence(role="controller", wire=4, steps=steps)
    assert made.sent_bytes == 3
    assert made.size > CASE.size


def test_what_a_step_is_about() -> None:
    assert (verb({"say": "Hello", "on": "d"}), connection({"say": "Hello", "on": "d"})) == (
        "say",
        "d",
    )
    assert connection({"frame": "00"}) == "c"
    assert connection({"reset": "e"}) == "e"
    assert connection({"wait": 1.0}) == ""
