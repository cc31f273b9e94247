"""What a journal says: to its last whole line, for people, and what is refused of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joinproto.errors import ConfigError
from joinproto.runtime.journal import Journal, finish
from joinproto.runtime.past import BEGINNING, Entry, Past, read, summary
from tests.support.journal import (
    FINISHED,
    LISTENING,
    STORY,
    event,
    exited,
    formed,
    joined,
    lost,
    written,
)


def test_a_run_that_was_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    content = written(path, STORY)
    past = read(path)
    assert past == Past(
        run=json.loads(content.splitlines()[0])["run"],
        listening=("127.0.0.1", 7077),
        members=(
            Entry(host="a", ranks=(0, 1), devices=(0, 1), wire=4, peer="127.0.0.1:5000"),
            Entry(host="b", ranks=(2,), devices=(0,), wire=4, peer="127.0.0.1:5000"),
        ),
        formed=True,
        world_size=3,
        exits={0: 0, 1: -9},
        lost={"b": "reset"},
        size=len(content),
    )
    assert summary(past) == [
        f"run {past.run} on 127.0.0.1:7077",
        "a world of 3 rank(s) on 2 host(s) had formed",
        "host 'a' (127.0.0.1:5000): rank 0 ended with code 0, rank 1 ended with SIGKILL",
        "host 'b' (127.0.0.1:5000): rank 2 had not ended; the host was lost: reset",
        "it did not come to its end",
    ]


def test_the_world_has_the_order_in_which_it_was_formed(tmp_path: Path) -> None:
    path = tmp_path / "j"
    written(path, [joined("a", 0), joined("b", 1), formed(b=[1], a=[0])])
    assert [member.host for member in read(path).members] == ["b", "a"]


@given(tail=st.binary(max_size=40))
def test_bytes_behind_the_last_line_end(
    tmp_path_factory: pytest.TempPathFactory, tail: bytes
) -> None:
    path = tmp_path_factory.mktemp("j") / "j"
    content = written(path, STORY)
    tail = tail.replace(b"\n", b"")
    path.write_bytes(content + tail)
    past = read(path)
    assert (past.size, past.cut, past.formed) == (len(content), bool(tail), True)


# -- what cannot have been --------------------------------------------------------------------

WRONG: dict[str, tuple[list[Any], str]] = {
    "no JSON": (["{nonsense"], "line 2: it is not JSON"),
    "no event": ([[1]], "line 2: it is no event"),
    "an event without a name": ([{"event": 3}], "line 2: it is no event"),
    "deep": (["[" * 100_000], "line 2: it is not JSON"),
    "a host without ranks": ([joined("a")], "its ranks are not numbers"),
    "a rank that is none": ([{**joined("a", 0), "ranks": [True]}], "its ranks are not numbers"),
    "no wire": ([{**joined("a", 0), "wire": None}], "its wire is missing or of another type"),
    "one rank twice": ([joined("a", 0, 0)], "a rank is given to two"),
    "a rank of two hosts": ([joined("a", 0), joined("b", 0)], "line 3: a rank is given to two"),
    "a host twice": ([joined("a", 0), joined("a", 1)], "host 'a' is in already"),
    "a host after formation": ([joined("a", 0), formed(a=[0]), joined("b", 1)], "had formed"),
    "formed twice": ([joined("a", 0), formed(a=[0]), formed(a=[0])], "line 4: the world had"),
    "a world of strangers": ([formed(a=[0])], "not made of the hosts that joined"),
    "a world of another size": ([joined("a", 0), formed(a=[0, 1])], "not made of the hosts"),
    "an exit before the world": ([joined("a", 0), exited(0, 0)], "there is no rank 0"),
    "an exit of no rank": ([joined("a", 0), formed(a=[0]), exited(1, 0)], "there is no rank 1"),
    "a stranger lost": ([lost("a", formed=False)], "host 'a' is not in"),
    "more after the end": ([FINISHED, LISTENING], "line 3: the run had ended before"),
    "an exit code of none": ([{**FINISHED, "exit_code": 7}], "its exit_code is none"),
    "an outcome of none": ([{**FINISHED, "outcome": 7}], "its outcome is missing"),
}


@pytest.mark.parametrize(("events", "told"), WRONG.values(), ids=WRONG)
def test_what_cannot_have_been_is_refused_with_its_line(
    tmp_path: Path, events: list[Any], told: str
) -> None:
    path = tmp_path / "j"
    content = written(path, [])
    for each in events:
        content += (each if isinstance(each, str) else json.dumps(each)).encode() + b"\n"
    path.write_bytes(content)
    for attempt in (read, finish, Journal.create):
        with pytest.raises(ConfigError, match=told):
            attempt(path)
    assert path.read_bytes() == content


def test_a_journal_of_another_version(tmp_path: Path) -> None:
    path = tmp_path / "j"
    path.write_bytes(BEGINNING + b'2026", "version": 2, "run": "x"}\n')
    with pytest.raises(ConfigError, match="line 1: it is a journal of version 2; this reads 1"):
        read(path)


def test_events_of_other_kinds_change_nothing(tmp_path: Path) -> None:
    written(tmp_path / "j", [event("armed", peer="x"), joined("a", 0)])
    assert len(read(tmp_path / "j").members) == 1
