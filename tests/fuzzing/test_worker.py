from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator

import pytest

from joinproto.conformance.session import Settings
from joinproto.fuzzing.finding import Finding
from joinproto.fuzzing.hunt import Plan
from joinproto.fuzzing.oracles import Strike
from joinproto.fuzzing.sequence import Sequence
from joinproto.fuzzing.worker import Reader, Writer, plan_from_json, plan_to_json
from joinproto.keys import Salt

CASE = Sequence(role="controller", wire=4, steps=({"dial": "c"},))


@pytest.fixture
def pipe() -> Iterator[tuple[Reader, io.FileIO]]:
    here, there = os.pipe()
    with io.FileIO(here), io.FileIO(there, "w") as out:
        yield Reader(here), out


@pytest.mark.parametrize("address", [None, ("127.0.0.1", 4000)])
@pytest.mark.parametrize("salt", [None, Salt(b"x" * 16)])
def test_a_plan_arrives_as_it_was_sent(address: tuple[str, int] | None, salt: Salt | None) -> None:
    plan = Plan(
        settings=Settings(
            role="controller",
            command=("x", "{port}"),
            address=address,
            scale=0.5,
            seed=3,
            salt=salt,
        ),
        admission="open" if salt is None else "pre-shared",
        wires=(2, 4),
        worker=1,
        seconds=5.0,
        cases=100,
        known={"hung:*": "is known"},
        ourselves=True,
        corpus=(CASE,),
    )
    sent = json.dumps(plan_to_json(plan))
    assert plan_from_json(json.loads(sent)) == plan


def test_what_a_hunt_comes_to_is_a_line_each() -> None:
    out = io.StringIO()
    writer = Writer(out)
    strike = Strike(oracle="died", what="exit code 1", where="Routing, 1")
    finding = Finding(sequence=CASE, strike=strike, seed=1, number=1, scale=0.1)
    writer.kept(CASE)
    writer.bucket("a")
    writer.doubt("b")
    writer.finding(finding)
    writer.known("c", "why")
    writer.counts(5, 6, 1, {("Routing", "EndOfStream", ""): 2})
    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert Sequence.from_json(lines[0]["kept"]) == CASE
    assert lines[1:3] == [{"bucket": "a"}, {"doubt": "b"}]
    assert Finding.from_json(lines[3]["finding"]) == finding
    assert lines[4] == {"known": ["c", "why"]}
    rows = [["Routing", "EndOfStream", "", 2]]
    assert lines[5] == {"cases": 5, "sessions": 6, "targets": 1, "rows": rows}


def test_nothing_is_waited_for_but_the_plan(pipe: tuple[Reader, io.FileIO]) -> None:
    reader, out = pipe
    out.write(b'{"plan": 1}\n{"buck')
    assert reader.first() == {"plan": 1}
    assert list(reader.notes()) == []
    out.write(b'et": "died:x"}\n')
    out.write(json.dumps({"kept": CASE.to_json()}).encode() + b"\n")
    assert list(reader.notes()) == ["died:x", CASE]
    assert list(reader.notes()) == []


def test_the_end_says_stop(pipe: tuple[Reader, io.FileIO]) -> None:
    reader, out = pipe
    out.write(b'{"plan": 1}\n{"bucket": "died:x"}\n')
    reader.first()
    out.close()
    assert list(reader.notes()) == ["died:x", None]


def test_no_plan_is_an_error(pipe: tuple[Reader, io.FileIO]) -> None:
    reader, out = pipe
    out.close()
    with pytest.raises(ValueError, match="no plan came"):
        reader.first()
