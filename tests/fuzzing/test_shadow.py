from __future__ import annotations

import pytest

from joinproto.conformance.session import Settings
from joinproto.fuzzing.hunt import keys_of
from joinproto.fuzzing.sequence import ALONE, Sequence, Step
from joinproto.fuzzing.shadow import Foreseen, foresee, out_of_reach, rows_of

SCALE = 0.1


def play(
    role: str, *steps: Step, wire: int = 4, admission: str = "open", quorum: int = 9
) -> Foreseen:
    keys = keys_of(Settings(role=role, seed=1), admission)
    sequence = Sequence(role=role, wire=wire, admission=admission, quorum=quorum, steps=steps)
    return foresee(sequence, keys, SCALE)


@pytest.mark.parametrize("admission", ["open", "pre-shared"])
@pytest.mark.parametrize("wire", [2, 4])
def test_an_honest_host_at_our_controller(wire: int, admission: str) -> None:
    steps: tuple[Step, ...] = ({"dial": "c"}, {"say": "Hello"}, {"look": "c"}, {"look": "c"})
    known = play("controller", *steps, wire=wire, admission=admission)
    assert known.heard["c"].events == ["Accept", "fin"]
    assert known.heard["c"].wire == wire
    # The second look waits for what does not come.
    assert known.looks == (True, False)
    assert known.states == {"c": "Admitted"}
    assert known.exit is None
    assert ("AwaitHello", "Hello", "") in known.rows


def test_what_is_due_before_each_step() -> None:
    known = play("controller", {"dial": "c"}, {"say": "Hello"}, {"wait": 0.1})
    assert known.due == ({}, {"c": 0}, {"c": 1}, {"c": 1})


def test_a_world_of_one_and_its_end() -> None:
    steps: tuple[Step, ...] = ({"dial": "c"}, {"say": "Hello"}, {"say": "RankExited"})
    known = play("controller", *steps, quorum=ALONE)
    assert known.heard["c"].events == ["Accept", "WorldFormed", "fin"]
    assert known.exit == 0


@pytest.mark.parametrize("wire", [2, 4])
def test_our_agent_and_what_it_starts(wire: int) -> None:
    steps: tuple[Step, ...] = (
        {"accept": "c"},
        {"say": "Accept"},
        {"say": "WorldFormed"},
        {"rank": 0, "do": {"exit": 3}},
        {"look": "c"},
    )
    known = play("agent", *steps, wire=wire)
    assert known.heard["c"].events == ["Hello", "RankExited", "fin"]
    assert known.children == {"0"}
    assert known.exit == 0


def test_a_wrong_tag_reaches_another_row_than_a_right_one() -> None:
    right = play("controller", {"dial": "c"}, {"say": "Hello"})
    wrong = play("controller", {"dial": "c"}, {"say": "Hello", "tag": "flipped"})
    assert wrong.heard["c"].events == ["fin"]
    assert right.rows - wrong.rows
    assert wrong.rows - right.rows


@pytest.mark.parametrize("role", ["agent", "controller"])
def test_rows_are_named_once_and_few_are_out_of_reach(role: str) -> None:
    rows = rows_of(role)
    assert len(rows) == len(set(rows))
    beyond = [row for row in rows if out_of_reach(role, row)]
    assert 0 < len(beyond) < len(rows) / 2
