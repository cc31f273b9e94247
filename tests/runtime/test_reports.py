"""reports: who else is told of a stint, where their lines go, and that they hear of its end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from joinproto.effects import Severity
from joinproto.errors import ConfigError, JoinprotoError, LinkLost, Stopped
from joinproto.runtime import reports as module
from joinproto.runtime.loop import READ, Loop
from joinproto.runtime.observe import Observer
from joinproto.runtime.output import Output
from joinproto.runtime.reports import Reports, observing
from joinproto.runtime.spec import AgentSpec
from tests.support import reports
from tests.support.systemd import Manager

SPEC = AgentSpec(host="a", controller_host="::1", controller_port=7000)


class Pipe:
    """A pipe whose reading end does not block."""

    def __init__(self) -> None:
        self.reader, self.fd = os.pipe()
        os.set_blocking(self.reader, False)

    def read(self) -> bytes:
        """What has come."""
        try:
            return os.read(self.reader, 1 << 20)
        except BlockingIOError:
            return b""

    def lines(self) -> list[bytes]:
        """The same, as lines."""
        return self.read().splitlines()


@contextmanager
def pipes(count: int) -> Iterator[list[Pipe]]:
    made = [Pipe() for _ in range(count)]
    try:
        yield made
    finally:
        for pipe in made:
            os.close(pipe.reader)
            os.close(pipe.fd)


@contextmanager
def stint(loop: Loop, given: Reports, out: int, err: int) -> Iterator[tuple[Observer, Output]]:
    output = Output(loop, out=out, err=err, resumed=lambda: None, mute=given.mute)
    with closing(output), observing(given, SPEC, loop, output) as observer:
        yield observer, output


def names(lines: Iterable[bytes]) -> list[str]:
    """Those of the events in these lines."""
    return [reports.event(line)["event"] for line in lines]


# -- settings ---------------------------------------------------------------------------------


def test_the_agents_own_lines_are_left_out_where_events_take_their_place() -> None:
    assert [Reports(events_fd=fd).mute for fd in (None, 1, 2)] == [False, False, True]


@pytest.mark.parametrize("fd", [-1, 10**6, 2**31, 2**63, -(2**63)])
def test_a_descriptor_that_is_not_open(fd: int) -> None:
    with pytest.raises(ConfigError, match=f"^--events-fd {fd}: no such descriptor is open$"):
        Reports(events_fd=fd)


def test_a_descriptor_that_is_only_read(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    not_for_writing = pytest.raises(ConfigError, match=": it is not open for writing$")
    with open(tmp_path / "file", "rb") as file, not_for_writing:
        Reports(events_fd=file.fileno())


@pytest.mark.parametrize("path", ["", "/dev/null/x", "{}/missing/x"])
def test_a_status_file_that_cannot_be_there(path: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="^--status-file "):
        Reports(status_file=path.format(tmp_path))


def test_a_status_file_that_is_a_directory(loop: Loop, tmp_path: Path) -> None:
    told = pytest.raises(ConfigError, match=f"^--status-file {tmp_path}: Is a directory$")
    given = Reports(status_file=str(tmp_path))
    with pipes(1) as (err,), told, stint(loop, given, err.fd, err.fd):
        pytest.fail("it began")


# -- where events go --------------------------------------------------------------------------


def test_events_have_a_descriptor_of_their_own(loop: Loop) -> None:
    with pipes(2) as (err, events):
        with stint(loop, Reports(events_fd=events.fd), err.fd, err.fd) as (observer, output):
            output.say("hello")
            observer.told(Severity.INFO, "hello")
        assert err.lines() == [b"joinproto agent: hello"]
        assert names(events.lines()) == ["started", "told", "finished"]


@pytest.mark.parametrize("which", ["out", "err"])
def test_events_share_the_sink_of_lines_that_go_the_same_way(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    """Two that write to one pipe would tear each other's lines when its reader stalls."""
    size = 1 << 21
    with pipes(2) as both:
        to = dict(zip(("out", "err"), both, strict=True))
        again = os.dup(to[which].fd)
        monkeypatch.setattr(module, "DRAIN", 0.0)
        with stint(loop, Reports(events_fd=again), to["out"].fd, to["err"].fd) as (observer, said):
            sink = getattr(said, which)
            sink.write(b"x" * size + b"\n")
            held = sink.held_bytes
            assert held
            observer.told(Severity.INFO, "y")
            assert sink.held_bytes > held
            lines = b""
            while sink.held_bytes:
                lines += to[which].read()
                loop.run_once(loop.now())
            lines += to[which].read()
        os.close(again)
        first, second, third = lines.splitlines()
        assert (reports.event(first)["event"], second) == ("started", b"x" * size)
        assert reports.event(third)["text"] == "y"


def test_the_descriptor_stays_open(loop: Loop) -> None:
    with pipes(2) as (err, events):
        for _ in range(2):
            with stint(loop, Reports(events_fd=events.fd), err.fd, err.fd):
                pass
        assert len(events.lines()) == 4


def test_a_reader_of_events_that_stalls_is_given_some_time(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pipes(2) as (err, events):
        with stint(loop, Reports(events_fd=events.fd), err.fd, err.fd) as (observer, _):
            observer.told(Severity.INFO, "x" * (1 << 21))
            monkeypatch.setattr(module, "DRAIN", 0.01)
        # It took none of it, and is waited for no longer.
        assert events.lines()


def test_all_events_are_with_a_reader_that_takes_its_time(loop: Loop) -> None:
    got = bytearray()
    with pipes(2) as (err, events):
        with stint(loop, Reports(events_fd=events.fd), err.fd, err.fd) as (observer, _):
            for _ in range(3):
                observer.told(Severity.INFO, "x" * (1 << 20))
            loop.watch(events.reader, READ, lambda _: got.extend(events.read()))
        loop.forget(events.reader)
        got += events.read()
    assert names(bytes(got).splitlines()) == ["started", "told", "told", "told", "finished"]


# -- how it ends ------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [LinkLost("gone"), Stopped("SIGTERM", 15)])
def test_what_ends_a_stint_is_told_and_raised(loop: Loop, error: JoinprotoError) -> None:
    ends: list[Any] = []
    with pipes(2) as (err, events):
        given = Reports(events_fd=events.fd, ended=ends.append)
        with pytest.raises(type(error)) as caught, stint(loop, given, err.fd, err.fd):
            raise error
        last = reports.stint(events.lines())[-1]
    assert caught.value is error
    assert ends == [error]
    assert (last["exit_code"], last["error"]) == (error.exit_code, str(error))


def test_a_stint_that_does_its_job_is_told_to_have(loop: Loop, tmp_path: Path) -> None:
    ends: list[Any] = []
    path = tmp_path / "status"
    given = Reports(status_file=str(path), ended=ends.append)
    with pipes(1) as (err,), stint(loop, given, err.fd, err.fd):
        assert reports.status(path)["exit_code"] is None
    assert ends == [None]
    assert reports.status(path)["exit_code"] == 0
    assert reports.status(path)["controller"] == "[::1]:7000"


def test_a_fault_of_our_own_is_not_told_as_an_end(loop: Loop) -> None:
    with pipes(2) as (err, events):
        given = Reports(events_fd=events.fd)
        with pytest.raises(ZeroDivisionError), stint(loop, given, err.fd, err.fd):
            raise ZeroDivisionError
        assert names(events.lines()) == ["started"]


@pytest.mark.parametrize(("restarts", "ends"), [(None, True), (0, False), (4, False)])
def test_the_service_manager_hears_of_an_end_that_is_one(
    loop: Loop,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    restarts: int | None,
    ends: bool,
) -> None:
    with Manager(str(tmp_path / "notify")) as manager, pipes(1) as (err,):
        monkeypatch.setenv("NOTIFY_SOCKET", manager.environment["NOTIFY_SOCKET"])
        with stint(loop, Reports(restarts=restarts), err.fd, err.fd):
            pass
        assert manager.heard() == [["STOPPING=1", "STATUS=done"] if ends else ["STATUS=done"]]
