"""loop: calls back what is ready, and never for a descriptor that is gone."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from joinproto.runtime.loop import ENDED, LONGEST_WAIT, READ, WRITE, Loop


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        yield one, other


Ends = tuple[socket.socket, socket.socket]


def unexpected(events: int) -> NoReturn:
    pytest.fail(f"called back with {events}")


def once(loop: Loop) -> None:
    """One round, without waiting."""
    loop.run_once(loop.now())


def test_calls_back_with_what_it_is_ready_for(loop: Loop, ends: Ends) -> None:
    one, other = ends
    seen: list[int] = []
    loop.watch(one.fileno(), READ | WRITE, seen.append)
    once(loop)
    other.send(b"x")
    once(loop)
    assert seen == [WRITE, READ | WRITE]


def test_calls_nobody_back_when_nothing_is_ready(loop: Loop, ends: Ends) -> None:
    loop.watch(ends[0].fileno(), READ, unexpected)
    once(loop)


def test_other_events_than_before(loop: Loop, ends: Ends) -> None:
    seen: list[int] = []
    loop.watch(ends[0].fileno(), READ, seen.append)
    loop.change(ends[0].fileno(), WRITE)
    once(loop)
    loop.change(ends[0].fileno(), READ)
    once(loop)
    assert seen == [WRITE]


def test_a_hang_up_is_told_unasked(loop: Loop, ends: Ends) -> None:
    one, other = ends
    seen: list[int] = []
    loop.watch(one.fileno(), 0, seen.append)
    once(loop)
    other.close()
    once(loop)
    assert [events & ENDED for events in seen] == [select.EPOLLHUP]


def test_what_is_forgotten_is_not_watched(loop: Loop, ends: Ends) -> None:
    fd = ends[0].fileno()
    assert not loop.watches(fd)
    loop.watch(fd, WRITE, unexpected)
    assert loop.watches(fd)
    loop.forget(fd)
    assert not loop.watches(fd)
    once(loop)
    loop.forget(fd)


def test_a_plain_file_cannot_be_watched(loop: Loop, tmp_path: Path) -> None:
    with (tmp_path / "plain").open("w") as plain:
        with pytest.raises(PermissionError):
            loop.watch(plain.fileno(), WRITE, unexpected)
        assert not loop.watches(plain.fileno())


def test_an_earlier_callback_may_do_away_with_a_later_one(loop: Loop, ends: Ends) -> None:
    called: list[int] = []

    def forget(fd: int) -> None:
        called.append(fd)
        loop.forget(fd)

    one, other = (end.fileno() for end in ends)
    loop.watch(one, WRITE, lambda _: forget(other))
    loop.watch(other, WRITE, lambda _: forget(one))
    once(loop)
    assert len(called) == 1


def test_events_of_a_descriptor_do_not_go_to_its_successor(loop: Loop, ends: Ends) -> None:
    """A callback closes another descriptor, and opens one that gets the same number."""
    successors: list[int] = []

    def replace(fd: int) -> None:
        if not successors:
            loop.forget(fd)
            reader, writer = os.pipe()
            os.dup2(reader, fd)  # closes what was there
            os.close(reader)
            os.close(writer)
            loop.watch(fd, READ, successors.append)
            successors.append(-fd)

    one, other = (end.fileno() for end in ends)
    loop.watch(one, WRITE, lambda _: replace(other))
    loop.watch(other, WRITE, lambda _: replace(one))
    once(loop)
    assert len(successors) == 1
    loop.run_once(None)
    # Its own event: its other end is closed.
    assert successors[1:] == [select.EPOLLHUP]


def test_a_callback_may_pause_and_resume_what_comes_later(loop: Loop, ends: Ends) -> None:
    seen: list[int] = []
    fds = [end.fileno() for end in ends]

    def restart(_: int) -> None:
        seen.append(0)
        for fd in fds:
            loop.forget(fd)
            loop.watch(fd, WRITE, seen.append)

    for fd in fds:
        loop.watch(fd, WRITE, restart)
    once(loop)
    assert seen == [0]
    once(loop)
    assert seen == [0, WRITE, WRITE]


def test_waits_until_the_time_and_no_longer(loop: Loop) -> None:
    until = loop.now() + 0.01
    loop.run_once(until)
    assert loop.now() >= until


@pytest.mark.parametrize(
    ("ahead", "waited"),
    [(None, LONGEST_WAIT), (-5.0, 0.0), (2.5, 2.5), (10 * LONGEST_WAIT, LONGEST_WAIT)],
)
def test_how_long_it_waits(
    monkeypatch: pytest.MonkeyPatch, ahead: float | None, waited: float
) -> None:
    asked: list[float] = []

    class Epoll:
        def poll(self, timeout: float) -> list[Any]:
            asked.append(timeout)
            return []

        def close(self) -> None:
            pass

    monkeypatch.setattr(select, "epoll", Epoll)
    monkeypatch.setattr(Loop, "now", staticmethod(lambda: 1000.0))
    Loop().run_once(None if ahead is None else 1000.0 + ahead)
    assert asked == [waited]


def test_when_it_is_closed_it_watches_nothing(ends: Ends) -> None:
    loop = Loop()
    loop.watch(ends[0].fileno(), WRITE, unexpected)
    loop.close()
    assert not loop.watches(ends[0].fileno())
    loop.forget(ends[0].fileno())
    loop.close()
