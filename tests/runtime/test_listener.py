"""listener: the port, and what the system does to it."""

from __future__ import annotations

import errno
import os
import socket
import time
from typing import Any

import pytest

from joinproto.effects import Severity
from joinproto.runtime import listener as module
from joinproto.runtime.listener import listen
from joinproto.testing.fakes import FakeAgent
from tests.support.server import (
    ENDS_WELL,
    RESET,
    Running,
    hello,
    joins,
)
from tests.support.sockets import answer, dial

# -- accepting --------------------------------------------------------------------------------


class Failing(socket.socket):
    """A listener whose `accept` fails with these errors first."""

    failures: list[int]

    def accept(self) -> tuple[socket.socket, Any]:
        if self.failures:
            code = self.failures.pop(0)
            raise OSError(code, os.strerror(code))
        return super().accept()


def failing(*codes: int) -> Failing:
    listener = Failing(fileno=listen("127.0.0.1", 0).detach())
    listener.failures = list(codes)
    return listener


def test_out_of_descriptors_it_pauses_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ACCEPT_PAUSE", 0.02)
    listener = failing(errno.EMFILE, errno.ENFILE, errno.EMFILE)
    with Running(listener=listener) as running:
        began = time.monotonic()
        joins(running)
        told = running.done()
        assert time.monotonic() - began >= 3 * 0.02
    assert told[0] == (
        "told",
        Severity.WARNING,
        "cannot accept a connection (Too many open files); pausing",
    )
    assert [each[0] for each in told[1:]] == ENDS_WELL
    assert listener.failures == []


def test_it_is_said_again_when_they_run_out_long_after(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ACCEPT_PAUSE", 0.02)
    monkeypatch.setattr(module, "WARN_PAUSE", 0.0)
    listener = failing(errno.EMFILE)
    with (
        Running(listener=listener, ranks=2) as running,
        FakeAgent.joining(host="a").dial(*running.address),
    ):
        running.watcher.wait_for("joined", "a")
        listener.failures.append(errno.ENOMEM)
        with FakeAgent.joining(host="b").dial(*running.address):
            told = running.done()
    assert [each[2] for each in told if each[0] == "told"] == [
        "cannot accept a connection (Too many open files); pausing",
        "cannot accept a connection (Cannot allocate memory); pausing",
    ]


def test_a_stranger_makes_room_for_the_next_one() -> None:
    listener = failing()
    with Running(listener=listener) as running:
        silent = dial(running.address)
        other = dial(running.address, b"garbage")
        assert answer(other) == b""
        # Both have been accepted: the next dialer finds no descriptor left.
        listener.failures.append(errno.EMFILE)
        joins(running)
        assert answer(silent) == b""
        told = running.done()
    assert ("rejected", None, "dropped: this controller is out of descriptors") in told
    text = "cannot accept a connection (Too many open files); dropping the oldest that is not"
    assert any(each[2].startswith(text) for each in told if each[0] == "told")


def test_a_dialer_that_is_gone_when_its_turn_comes_is_nothing_to_pause_for() -> None:
    with Running(listener=failing(errno.ECONNABORTED, errno.EINTR)) as running:
        joins(running)
        assert [each[0] for each in running.done()] == ENDS_WELL


def test_dialers_that_broke_off_before_it_looked_are_not_told() -> None:
    running = Running()
    for _ in range(3):
        sock = dial(running.address, hello())
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        sock.close()
    with running:
        joins(running)
        assert [each[0] for each in running.done()] == ENDS_WELL


def test_more_dialers_than_one_round_takes() -> None:
    running = Running()
    socks = [dial(running.address, b"garbage") for _ in range(module.ACCEPTS_PER_ROUND + 10)]
    with running:
        assert {answer(sock) for sock in socks} == {b""}
        joins(running)
        assert len(running.watcher.rejections()) == len(socks)


def test_it_listens_on_a_name() -> None:
    with listen("localhost", 0) as sock:
        assert sock.getsockname()[0] in ("127.0.0.1", "::1")
