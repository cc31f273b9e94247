"""The journal of a run: what it holds, who may write it, and what a crash at any byte leaves."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from joinproto.errors import ConfigError
from joinproto.runtime.journal import CRASHED, Finished, Journal, JournalError, finish
from joinproto.runtime.past import Past, read, summary
from tests.support.journal import FINISHED, LISTENING, STORY, joined, written
from tests.support.python import run_python

# -- what it holds ----------------------------------------------------------------------------


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


def test_a_directory_that_is_closed(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    told = run_python(
        """
import os
from joinproto.errors import ConfigError
from joinproto.runtime.journal import Journal
if os.getuid() == 0:
    os.setuid(65534)
try:
    Journal.create(args[0])
except ConfigError as error:
    print(json.dumps(str(error)))
""",
        str(tmp_path / "j"),
    )
    assert told == f"{tmp_path / 'j'}: Permission denied"


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
