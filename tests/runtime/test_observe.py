"""observe: what programs are told when, and that none of them can hold an agent up."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from joinproto.effects import Severity
from joinproto.errors import Aborted, ConfigError, JoinprotoError, LinkLost, Rejected, Stopped
from joinproto.machines.agent import AgentState, Plan
from joinproto.machines.agent.context import AgentContext
from joinproto.messages import Hello
from joinproto.record import replace
from joinproto.runtime.notify import Notifier
from joinproto.runtime.observe import Observer, replace_file, timestamp, told_line
from joinproto.runtime.persist import goes_on
from joinproto.runtime.summary import Fate
from tests.support import reports
from tests.support.reports import named, states, status
from tests.support.systemd import Manager

PLAN = Plan(hello=Hello(host="a", local_devices=(5, 2)), wires=(4, 2))
BEGIN = AgentContext(plan=PLAN)
IN = replace(BEGIN, ranks=(8, 3))
STOP = Stopped("SIGTERM", 15)


class Watch:
    """An observer with everything that it can tell."""

    def __init__(self, folder: Path, manager: Manager, **settings: Any) -> None:
        self.path = folder / "status.json"
        self.lines: list[bytes] = []
        self.said: list[str] = []
        self.manager = manager
        self.notifier = Notifier(manager.environment | {"WATCHDOG_USEC": "4000000"})
        self.observer = Observer(
            **{
                "host": "höst",
                "controller": "c:7000",
                "write_event": self.lines.append,
                "status_file": str(self.path),
                "notifier": self.notifier,
                "say": self.said.append,
                **settings,
            }
        )

    @property
    def events(self) -> list[dict[str, Any]]:
        return [reports.event(line) for line in self.lines]

    @property
    def status(self) -> dict[str, Any]:
        return status(self.path)

    @property
    def notified(self) -> list[list[str]]:
        """What the service manager heard, but for signs of life."""
        return [said for said in self.manager.heard() if said != ["WATCHDOG=1"]]


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    with Manager(str(tmp_path / "notify")) as manager:
        yield manager


@pytest.fixture
def watch(tmp_path: Path, manager: Manager) -> Iterator[Watch]:
    made = Watch(tmp_path, manager)
    with closing(made.notifier):
        yield made


def ended(code: int, **facts: Any) -> Fate:
    fate = Fate("rank")
    fate.pid, fate.started, fate.ended, fate.code = 70, 10.0, 11.2346, code
    for name, value in facts.items():
        setattr(fate, name, value)
    return fate


# -- a stint ----------------------------------------------------------------------------------


def test_a_stint_that_goes_well(watch: Watch) -> None:
    observer = watch.observer
    context = BEGIN
    for state in ("Dialing", "Hello", "AwaitAccept"):
        observer.follow(AgentState(state), context)
    for state in ("AwaitFormed", "Supervising"):
        observer.follow(AgentState(state), IN)
    observer.spawned(None, None, 69)
    observer.spawned(8, 5, 70)
    observer.exited(8, ended(7))
    observer.exited(None, ended(0, pid=69))
    observer.follow(AgentState.DONE, IN)
    observer.finished(None)
    events = reports.stint(watch.lines)
    assert states(events) == list(reports.USUAL)
    (started,) = named(events, "started")
    assert (started["host"], started["controller"]) == ("höst", "c:7000")
    assert (started["pid"], started["restarts"]) == (os.getpid(), 0)
    (joined,) = named(events, "joined")
    assert (joined["ranks"], joined["devices"], joined["wire"]) == ([8, 3], [5, 2], 4)
    first, _ = named(events, "exited")
    del first["time"], first["event"]
    assert first == {
        "rank": 8,
        "device": 5,
        "pid": 70,
        "code": 7,
        "signal": None,
        "by_agent": False,
        "out_of_memory": False,
        "seconds": 1.235,
    }


def test_every_line_is_ascii_and_one_line(watch: Watch) -> None:
    watch.observer.told(Severity.ERROR, "a\nb\u2028\udcff")
    assert all(line.isascii() and line.index(b"\n") == len(line) - 1 for line in watch.lines)
    assert watch.events[-1]["text"] == "a\nb\u2028\\udcff"
    assert json.loads(told_line(Severity.DEBUG, "x"))["severity"] == "debug"


def test_a_state_is_told_when_it_is_another(watch: Watch) -> None:
    for state in (AgentState.DIALING, AgentState.DIALING, AgentState.HELLO, AgentState.DIALING):
        watch.observer.follow(state, BEGIN)
    assert states(watch.events) == ["Dialing", "Hello", "Dialing"]


def test_an_agent_that_joins_and_starts_in_one_step_still_tells_that_it_joined(
    watch: Watch,
) -> None:
    watch.observer.follow(AgentState.AWAIT_ACCEPT, BEGIN)
    watch.observer.follow(AgentState.SUPERVISING, IN)
    names = [event["event"] for event in watch.events]
    assert names == ["started", "state", "joined", "state"]


def test_why_it_stops_is_told_once_and_before_anything_ends(watch: Watch) -> None:
    failed = replace(IN, failure=Aborted("no", formed=True))
    watch.observer.follow(AgentState.SUPERVISING, IN)
    watch.observer.spawned(8, 5, 70)
    watch.observer.follow(AgentState.SUPERVISING, failed)
    watch.observer.exited(8, ended(-15, by_agent=True))
    watch.observer.follow(AgentState.ABORTED, failed)
    watch.observer.finished(failed.failure)
    events = reports.stint(watch.lines)
    names = [event["event"] for event in events]
    assert names[3:] == ["spawned", "stopping", "exited", "state", "finished"]
    assert named(events, "stopping")[0]["reason"] == "run aborted: no"
    assert (events[-1]["exit_code"], events[-1]["error"]) == (1, "run aborted: no")


@pytest.mark.parametrize(
    ("code", "facts", "name"),
    [
        (-15, {"by_agent": True}, "SIGTERM"),
        (-9, {"out_of_memory": True}, "SIGKILL"),
        (-35, {}, None),
        (137, {"out_of_memory": True}, None),
    ],
)
def test_how_a_child_ended(
    watch: Watch, code: int, facts: dict[str, bool], name: str | None
) -> None:
    watch.observer.follow(AgentState.SUPERVISING, IN)
    watch.observer.spawned(3, 2, 70)
    watch.observer.exited(3, ended(code, **facts))
    event = watch.events[-1]
    assert (event["code"], event["signal"]) == (code, name)
    assert {key: event[key] for key in facts} == facts


def test_what_was_dropped(watch: Watch) -> None:
    watch.observer.dropped(80, 2)
    event = watch.events[-1]
    assert (event["event"], event["bytes"], event["lines"]) == ("dropped", 80, 2)


def test_nobody_needs_to_be_told() -> None:
    observer = Observer(host="a", controller="c:1")
    observer.told(Severity.INFO, "x")
    observer.follow(AgentState.SUPERVISING, IN)
    observer.spawned(8, 5, 70)
    observer.exited(8, ended(0))
    observer.dropped(1, 1)
    observer.alive(1e12)
    observer.finished(STOP)
    assert observer.next_timer is None


# -- the status file --------------------------------------------------------------------------


def test_a_status_file_is_there_from_the_beginning(watch: Watch) -> None:
    assert watch.status["state"] == "Starting"
    assert (watch.status["ranks"], watch.status["wire"]) == ([], None)
    assert watch.status["pid"] == os.getpid()


def test_a_status_file_is_up_to_date(watch: Watch) -> None:
    observer = watch.observer
    observer.follow(AgentState.AWAIT_FORMED, IN)
    rank = {"rank": 8, "device": 5, "pid": None, "code": None}
    other = {"rank": 3, "device": 2, "pid": None, "code": None}
    assert (watch.status["state"], watch.status["wire"]) == ("AwaitFormed", 4)
    assert (watch.status["ranks"], watch.status["relay"]) == ([rank, other], None)
    observer.spawned(None, None, 69)
    assert watch.status["relay"] == {"pid": 69, "code": None}
    observer.spawned(3, 2, 70)
    assert watch.status["ranks"] == [rank, other | {"pid": 70}]
    observer.exited(3, ended(-9))
    assert watch.status["ranks"] == [rank, other | {"pid": 70, "code": -9}]
    observer.finished(STOP)
    assert (watch.status["exit_code"], watch.status["error"]) == (143, "stopped by SIGTERM")


def test_a_status_file_can_be_read_by_anyone_whatever_the_umask_is(
    tmp_path: Path, manager: Manager
) -> None:
    before = os.umask(0o077)
    try:
        watch = Watch(tmp_path, manager)
    finally:
        os.umask(before)
    with closing(watch.notifier):
        assert stat.S_IMODE(watch.path.stat().st_mode) == 0o644


def test_a_status_file_that_cannot_be_written_from_the_beginning() -> None:
    with pytest.raises(NotADirectoryError):
        Observer(host="a", controller="c:1", status_file="/dev/null/x")


def test_a_status_file_that_cannot_be_written_any_more_is_told_once(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(fd: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = watch.status
    monkeypatch.setattr(os, "write", full)
    watch.observer.follow(AgentState.DIALING, BEGIN)
    monkeypatch.undo()
    watch.observer.follow(AgentState.HELLO, BEGIN)
    text = f"--status-file {watch.path}: No space left on device; it is kept no further"
    assert watch.said == [text]
    told = named(watch.events, "told")
    assert [(event["severity"], event["text"]) for event in told] == [("warning", text)]
    assert watch.status == before
    assert sorted(os.listdir(watch.path.parent)) == ["notify", "status.json"]


# -- a file that is replaced ------------------------------------------------------------------


def test_a_reader_sees_the_old_or_the_new_and_the_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = [bytes([letter]) * size for letter, size in ((97, 9000), (98, 20))]
    replace_file(str(path), contents[0])
    done = threading.Event()
    seen = set()

    def read() -> None:
        while not done.is_set():
            seen.add(path.read_bytes())

    reader = threading.Thread(target=read)
    reader.start()
    for turn in range(50):
        replace_file(str(path), contents[turn % 2])
    done.set()
    reader.join()
    assert seen <= set(contents)
    assert os.listdir(tmp_path) == ["file"]


def test_what_a_killed_process_left_is_in_nobodys_way(tmp_path: Path) -> None:
    path = tmp_path / "file"
    left = tmp_path / f"file.{os.getpid()}.new"
    precious = tmp_path / "precious"
    precious.write_bytes(b"precious")
    left.symlink_to(precious)
    replace_file(str(path), b"new")
    assert path.read_bytes() == b"new"
    assert precious.read_bytes() == b"precious"
    assert not left.exists()


def test_a_disk_that_is_almost_full_leaves_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file"
    replace_file(str(path), b"old")
    monkeypatch.setattr(os, "write", lambda fd, data: len(data) - 1)
    with pytest.raises(OSError, match="No space left"):
        replace_file(str(path), b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_directory_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        replace_file(str(tmp_path / "file"), b"new")
    assert os.listdir(tmp_path) == ["file"]


def test_the_time() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", timestamp())


# -- the service manager ----------------------------------------------------------------------


def test_the_service_manager_hears_of_every_change(watch: Watch) -> None:
    for state in AgentState:
        if state is not AgentState.ABORTED:
            watch.observer.follow(state, BEGIN)
    watch.observer.finished(None)
    assert watch.notified == [
        ["READY=1", "STATUS=dialing the controller"],
        ["STATUS=sending the Hello"],
        ["STATUS=waiting to be admitted"],
        ["STATUS=waiting for the world to form"],
        ["STATUS=supervising ranks"],
        ["STATUS=done"],
        ["STOPPING=1", "STATUS=done"],
    ]


def test_the_service_manager_hears_why_it_stops(watch: Watch) -> None:
    watch.observer.follow(AgentState.SUPERVISING, IN)
    failed = replace(IN, failure=STOP)
    watch.observer.follow(AgentState.SUPERVISING, failed)
    watch.observer.follow(AgentState.ABORTED, failed)
    watch.observer.finished(STOP)
    assert watch.notified[1:] == [
        ["STOPPING=1", "STATUS=stopping: stopped by SIGTERM"],
        ["STATUS=aborted"],
        ["STOPPING=1", "STATUS=stopped by SIGTERM"],
    ]


@pytest.mark.parametrize(
    ("error", "ends"),
    [
        (None, False),
        (LinkLost("gone"), False),
        (Rejected("full"), False),
        (STOP, True),
        (ConfigError("wrong"), True),
    ],
    ids=str,
)
def test_an_agent_that_dials_again_does_not_say_that_it_stops(
    tmp_path: Path, manager: Manager, error: JoinprotoError | None, ends: bool
) -> None:
    """A manager that was told so would wait for the end, and then bring it about."""
    watch = Watch(tmp_path, manager, restarts=3, goes_on=goes_on)
    with closing(watch.notifier):
        watch.observer.follow(AgentState.SUPERVISING, replace(IN, failure=error))
        watch.observer.finished(error)
        said = [line for lines in watch.notified for line in lines]
        assert ("STOPPING=1" in said) == ends
        assert said[-1] == f"STATUS={error or 'done'}"
        assert watch.events[0]["restarts"] == watch.status["restarts"] == 3


def test_signs_of_life_come_at_half_the_interval(watch: Watch) -> None:
    def signs() -> int:
        return watch.manager.heard().count(["WATCHDOG=1"])

    observer = watch.observer
    first = observer.next_timer
    assert first is not None
    assert signs() == 1
    observer.alive(first - 0.001)
    assert (signs(), observer.next_timer) == (1, first)
    observer.alive(first)
    assert (signs(), observer.next_timer) == (2, first + 2)
    observer.alive(first + 5)
    assert (signs(), observer.next_timer) == (3, first + 7)
