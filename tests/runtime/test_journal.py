"""The journal of a run: what it holds, who may write it, and what a crash at any byte leaves."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joinproto.errors import ConfigError
from joinproto.runtime.journal import (
    BEGINNING,
    CRASHED,
    Entry,
    Finished,
    Journal,
    JournalError,
    Past,
    finish,
    read,
    summary,
)
from tests.support.python import run_python

TIME = "2026-12-01T00:00:00.000Z"


def event(name: str, **members: Any) -> dict[str, Any]:
    return {"event": name, "time": TIME, **members}


def joined(host: str, *ranks: int, wire: int = 4) -> dict[str, Any]:
    return event(
        "joined",
        host=host,
        ranks=list(ranks),
        devices=list(range(len(ranks))),
        gpus=[],
        libtorch="",
        wire=wire,
        peer="127.0.0.1:5000",
    )


def formed(**hosts: Sequence[int]) -> dict[str, Any]:
    size = sum(map(len, hosts.values()))
    world = [{"host": host, "ranks": list(ranks), "wire": 4} for host, ranks in hosts.items()]
    return event("formed", reason="target reached", world_size=size, hosts=world)


def exited(rank: int, code: int) -> dict[str, Any]:
    return event("rank_exited", rank=rank, host="?", code=code, signal=None)


def lost(host: str, *, formed: bool) -> dict[str, Any]:
    return event("member_lost", host=host, ranks=[0], cause="reset", formed=formed)


FINISHED = event("finished", outcome="ok", exit_code=0, failed_ranks=[], lost_hosts=[], reason=None)
LISTENING = event("listening", host="127.0.0.1", port=7077)
STORY = (
    LISTENING,
    joined("a", 0, 1),
    event("rejected", peer="127.0.0.1:9", host=None, reason="no frame", suppressed=0),
    joined("gone", 2),
    lost("gone", formed=False),
    joined("b", 2),
    formed(a=[0, 1], b=[2]),
    exited(0, 0),
    exited(1, -9),
    lost("b", formed=True),
)
SYNCED = ("joined", "formed")


def written(path: Path, events: Sequence[Mapping[str, Any]]) -> bytes:
    """A journal of these events in `path`, and its content."""
    with closing(Journal.create(path)) as journal:
        for each in events:
            journal.write(each, sync=each["event"] in SYNCED)
    return path.read_bytes()


# -- what it holds ----------------------------------------------------------------------------


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


def test_every_run_has_an_id_of_its_own(tmp_path: Path) -> None:
    runs = []
    for name in ("a", "b"):
        with closing(Journal.create(tmp_path / name)) as journal:
            runs.append(journal.run)
    assert len(set(runs)) == 2


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    (tmp_path / "there").touch(0o666)
    for name in ("new", "there"):
        written(tmp_path / name, [])
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_lines_are_on_the_disk_when_they_are_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    with closing(Journal.create(tmp_path / "j")) as journal:
        monkeypatch.setattr(os, "fdatasync", lambda fd: synced.append(os.fstat(fd).st_size))
        journal.write(LISTENING, sync=False)
        assert synced == []
        journal.write(joined("a", 0), sync=True)
        assert synced == [(tmp_path / "j").stat().st_size]


def test_a_closed_journal_can_be_closed_again(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "j")
    journal.close()
    journal.close()
    with pytest.raises(JournalError, match="cannot be written: Bad file descriptor"):
        journal.write(LISTENING, sync=False)


# -- a crash at every byte --------------------------------------------------------------------


def claims(past: Past) -> list[str]:
    """The least that must have been synced for this to be told."""
    return [*(f"{m.host}{list(m.ranks)}" for m in past.members), *["formed"] * past.formed]


@pytest.mark.slow
@pytest.mark.parametrize("ending", [(), (FINISHED,)], ids=["crashed", "ended"])
def test_cut_at_every_byte(tmp_path: Path, ending: tuple[Any, ...]) -> None:
    path = tmp_path / "whole"
    content = written(path, [*STORY, *ending])
    ends = [0, *(hit.end() for hit in re.finditer(rb"\n", content))]
    cut_file = tmp_path / "cut"
    for size in range(len(content) + 1):
        cut_file.write_bytes(content[:size])
        whole = max(end for end in ends if end <= size)
        past = read(cut_file)
        assert (past.size, past.cut) == (whole, whole < size)
        events = [json.loads(line) for line in content[:whole].splitlines()]
        names = [each["event"] for each in events]
        assert past.formed == ("formed" in names)
        told = set(claims(past)) - {"formed"}
        assert told <= {f"{e['host']}{e['ranks']}" for e in events if e["event"] == "joined"}
        check_finish(cut_file, past, content[:whole])


def check_finish(path: Path, past: Past, whole: bytes) -> None:
    """`finish` answers by what was whole, leaves a valid file, and answers alike again."""
    done = finish(path)
    assert done == Finished(past=past, lines=tuple(summary(past)), exit_code=done.exit_code)
    after = path.read_bytes()
    again = read(path)
    if past.run is None:
        assert (after, done.exit_code) == (b"", 3)
        with closing(Journal.create(path)):
            pass
        return
    assert after.startswith(whole)
    assert (again.cut, again.members, again.exits) == (False, past.members, past.exits)
    if past.ended is not None:
        assert after == whole
        assert done.exit_code == past.exit_code
    else:
        assert done.exit_code == (1 if past.formed else 3)
        assert again.ended == ("failed" if past.formed else "window-failed")
        assert again.reason == CRASHED
        assert len(after[len(whole) :].splitlines()) == 1
    assert finish(path).exit_code == done.exit_code
    assert path.read_bytes() == after
    with pytest.raises(ConfigError, match="has ended .*; name another file"):
        Journal.create(path)


def test_what_finish_writes_is_an_event_as_others(tmp_path: Path) -> None:
    path = tmp_path / "j"
    written(path, STORY)
    finish(path)
    last = json.loads(path.read_bytes().splitlines()[-1])
    del last["time"]
    assert last == {
        "event": "finished",
        "outcome": "failed",
        "exit_code": 1,
        "failed_ranks": [1],
        "lost_hosts": ["b"],
        "reason": CRASHED,
    }
    assert summary(read(path))[-1] == f"it ended: failed: {CRASHED}"


def test_a_window_that_crashed(tmp_path: Path) -> None:
    path = tmp_path / "j"
    written(path, [joined("a", 0)])
    done = finish(path)
    assert done.exit_code == 3
    assert done.lines[1:] == (
        "no world had formed; hosts that were in: 'a' (127.0.0.1:5000)",
        "it did not come to its end",
    )


def test_a_run_that_never_began(tmp_path: Path) -> None:
    (tmp_path / "j").touch()
    assert finish(tmp_path / "j").lines == ("no run had begun: nobody was admitted",)


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


# -- who may write it -------------------------------------------------------------------------


def test_two_controllers_cannot_share_one(tmp_path: Path) -> None:
    path = tmp_path / "j"
    with closing(Journal.create(path)) as journal:
        journal.write(joined("a", 0), sync=True)
        before = path.read_bytes()
        for attempt in (Journal.create, finish):
            with pytest.raises(ConfigError, match="the controller that writes it still runs"):
                attempt(path)
        assert path.read_bytes() == before
        assert len(read(path).members) == 1


def test_a_run_that_has_not_ended_is_not_written_over(tmp_path: Path) -> None:
    path = tmp_path / "j"
    before = written(path, STORY)
    with pytest.raises(ConfigError, match=f"see what .* --resume {re.escape(str(path))}, and name"):
        Journal.create(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"notes\n", b"notes", b'{"event": "ran"', b"\0\0"])
def test_another_file_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes"
    path.write_bytes(content)
    for attempt in (Journal.create, finish, read):
        with pytest.raises(ConfigError, match="line 1: it does not begin as a journal does"):
            attempt(path)
    assert path.read_bytes() == content


def test_what_is_no_plain_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/full")):
        for attempt in (Journal.create, finish, read):
            with pytest.raises(ConfigError, match="it is no plain file"):
                attempt(path)


@pytest.mark.parametrize(
    ("path", "told"),
    [("missing/j", "No such file"), (".", "Is a directory|no plain file"), ("a\0b", "null byte")],
)
def test_a_path_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for attempt in (Journal.create, finish, read):
        with pytest.raises(ConfigError, match=told):
            attempt(path)


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_a_directory_that_is_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(ConfigError, match="Permission denied"):
        Journal.create(tmp_path / "j")


def test_permission_denied_as_anybody(tmp_path: Path) -> None:
    told = run_python(
        """
import os
from joinproto.errors import ConfigError
from joinproto.runtime.journal import Journal
if os.getuid() == 0:
    os.setuid(65534)
try:
    Journal.create("/proc/1/journal")
except ConfigError as error:
    print(json.dumps(str(error)))
"""
    )
    assert re.match("/proc/1/journal: (No such file|Permission denied|Operation not)", told)


# -- a full disk ------------------------------------------------------------------------------


@pytest.fixture
def full() -> Iterator[Journal]:
    with closing(Journal(os.open("/dev/full", os.O_WRONLY), "j", "run")) as journal:
        yield journal


def test_a_full_disk_is_an_error(full: Journal) -> None:
    with pytest.raises(JournalError, match="^j: cannot be written: No space left on device$"):
        full.write(LISTENING, sync=True)


def test_half_a_line_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "j"
    told = run_python(
        """
import resource
from joinproto.runtime.journal import Journal, JournalError
journal = Journal.create(args[0])
resource.setrlimit(resource.RLIMIT_FSIZE, (200, resource.RLIM_INFINITY))
try:
    journal.write({"event": "listening", "host": "x" * 200}, sync=True)
except JournalError as error:
    print(json.dumps(str(error)))
journal.write({"event": "noted"}, sync=True)
""",
        str(path),
    )
    assert told == f"{path}: cannot be written: File too large"
    past = read(path)
    assert not past.cut
    assert path.read_bytes().endswith(b'\n{"event": "noted"}\n')


def test_a_disk_that_is_full_from_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(fd: int) -> None:
        raise OSError(5, "Input/output error")

    for call in ("fdatasync", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, fail)
            with pytest.raises(JournalError, match="Input/output error"):
                Journal.create(tmp_path / call)


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
