from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from joinproto.conformance.clauses import load
from joinproto.fuzzing.acting import Heard
from joinproto.fuzzing.execute import Observation
from joinproto.fuzzing.oracles import CLAUSES, MEMORY, ORACLES, Strike, death_place, judge
from joinproto.fuzzing.sequence import Sequence, Step
from joinproto.fuzzing.shadow import Foreseen
from joinproto.messages import Accept, RankExited

DIAL: Step = {"dial": "c"}
ACCEPT = Accept(ranks=(0,), salt_hex="00" * 16, formation_wait_secs=1)

PANIC = """\
thread 'main' panicked at src/codec.rs:12:5:
capacity overflow
"""
TRACEBACK = """\
Traceback (most recent call last):
  File "/x/server.py", line 10, in run
  File "/x/codec.py", line 77, in read
MemoryError
"""


def heard(*events: str, **values: Any) -> Heard:
    return Heard(events=list(events), **values)


def foreseen(*events: str, **values: Any) -> Foreseen:
    usual: dict[str, Any] = {
        "rows": frozenset(),
        "heard": {"c": heard(*events)},
        "looks": (),
        "due": (),
        "states": {"c": "AwaitHello"},
        "exit": None,
    }
    return Foreseen(**{**usual, **values})


def seen(*events: str, on: dict[str, Any] | None = None, **values: Any) -> Observation:
    return Observation(heard={"c": heard(*events, **(on or {}))}, **values)


def strikes(
    should: Foreseen, did: Observation, *steps: Step, role: str = "controller"
) -> list[str]:
    sequence = Sequence(role=role, wire=4, steps=(DIAL, *steps))
    return [strike.bucket for strike in judge(sequence, should, did)]


def test_what_is_as_foreseen_is_no_fault() -> None:
    assert strikes(foreseen("Reject", "fin"), seen("Reject", "fin")) == []


def test_what_says_less_than_foreseen_is_none_either() -> None:
    assert strikes(foreseen("Reject", "fin"), seen("fin")) == []


def test_an_answer_to_a_peer_without_a_key_and_to_one_with() -> None:
    assert strikes(foreseen("fin"), seen("Reject", "fin")) == ["answered:AwaitHello, Reject"]
    known = seen("Reject", "fin", on={"authenticated": True})
    assert strikes(foreseen("fin"), known) == ["obeyed:AwaitHello, Reject"]


def test_a_world_that_is_formed_twice() -> None:
    should = foreseen("Accept", "WorldFormed", "fin")
    did = seen("Accept", "WorldFormed", "WorldFormed", "fin")
    assert strikes(should, did)[0].startswith("formed-twice:")


def test_bytes_that_are_no_message() -> None:
    assert strikes(foreseen("fin"), seen("garbled", "fin")) == ["garbled:AwaitHello"]


def test_a_connection_that_does_not_end() -> None:
    assert strikes(foreseen("fin"), seen()) == ["hung:AwaitHello"]
    assert strikes(foreseen("fin"), seen(on={"closed": True})) == []


def test_a_connection_that_ends_only_when_no_more_is_sent() -> None:
    should = foreseen(heard={"c": heard("fin", early=True)})
    assert strikes(should, seen("fin")) == ["hung:AwaitHello"]
    assert strikes(should, seen("fin", on={"early": True})) == []


def test_a_process_that_does_not_end() -> None:
    should = foreseen("Accept", "fin", exit=1)
    assert strikes(should, seen("Accept", "fin")) == ["hung:AwaitHello, process"]
    # What never came so far as to end has another reason.
    assert strikes(should, seen("fin")) == []


def test_a_rank_that_two_hosts_have_at_the_same_time() -> None:
    both = {name: heard("Accept", messages=[ACCEPT]) for name in ("c", "d")}
    should = foreseen(heard={name: heard("Accept") for name in both})
    assert [each.split(":")[0] for each in strikes(should, Observation(heard=both))] == [
        "rank-twice"
    ]
    one_gone = {**both, "d": replace(both["d"], stays=False)}
    assert strikes(should, Observation(heard=one_gone)) == []


def test_a_rank_whose_end_is_reported_twice() -> None:
    report = RankExited(rank=0, code=0)
    did = seen("RankExited", "RankExited", on={"messages": [report, report]})
    should = foreseen("RankExited", children=frozenset(("0",)))
    assert strikes(should, did, role="agent") == ["told-twice:AwaitHello"]


def test_when_ranks_end_is_not_foreseen_but_that_there_are_some_is() -> None:
    did = seen("Hello", "RankExited", on={"authenticated": True})
    ranks = foreseen("Hello", children=frozenset(("0",)))
    assert strikes(ranks, did, role="agent") == []
    none = strikes(foreseen("Hello"), did, role="agent")
    assert none == ["obeyed:AwaitHello, RankExited"]


def test_processes_that_should_not_be() -> None:
    assert strikes(foreseen("fin"), seen("fin", started=frozenset(("0",))), role="agent") == [
        "started:AwaitHello"
    ]
    left = seen("fin", exit=1, left=("0",))
    assert strikes(foreseen("fin", exit=1), left, role="agent") == ["left-behind:AwaitHello"]


def test_memory_out_of_proportion() -> None:
    grown = seen("fin", grown=MEMORY + 9, sent=1)
    assert strikes(foreseen("fin"), grown) == ["memory:AwaitHello"]
    assert strikes(foreseen("fin"), seen("fin", grown=MEMORY, sent=1)) == []


def test_a_flood() -> None:
    assert strikes(foreseen("fin"), seen(flood="more than 9 bytes")) == ["flooded:AwaitHello"]


@pytest.mark.parametrize(
    ("did", "bucket"),
    [
        (seen(exit=-6), "died:signal 6"),
        (seen(exit=-6, stderr=PANIC), "died:src/codec.rs:12"),
        (seen(stderr=PANIC), "died:src/codec.rs:12"),
        (seen(stderr=TRACEBACK), "died:codec.py:77"),
        (seen(exit=1), "died:AwaitHello, 1"),
    ],
)
def test_a_target_that_died_and_where(did: Observation, bucket: str) -> None:
    assert strikes(foreseen("fin"), did) == [bucket]


def test_a_target_that_was_ended_has_not_died() -> None:
    term: Step = {"signal": "TERM"}
    assert strikes(foreseen(exit=-15), seen(exit=-15), term) == []
    assert strikes(foreseen(exit=1), seen(exit=1), term) == []


def test_a_target_that_takes_no_dials_any_more() -> None:
    assert strikes(foreseen("fin"), seen(unreachable="refused")) == ["deaf:AwaitHello"]


def test_connections_elsewhere_are_nobody_s_business() -> None:
    assert strikes(foreseen(), seen("garbled", elsewhere=frozenset("c"))) == []


def test_no_place_where_none_is_told() -> None:
    assert death_place("it went wrong") == ""


def test_every_oracle_has_words_and_its_clause_is_there() -> None:
    assert CLAUSES.keys() <= ORACLES.keys()
    assert set(CLAUSES.values()) <= load().keys()
    assert Strike(oracle="died", what="").clause == "JP-PAY-017"
    assert Strike(oracle="obeyed", what="").clause == ""
