"""persist: how long an agent that dials again pauses, and that a signal ends the pause."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from joinproto.errors import (
    Aborted,
    CommandNotFound,
    ConfigError,
    JoinprotoError,
    Rejected,
    RelayDied,
    SpawnFailed,
    Stopped,
    Unreachable,
)
from joinproto.runtime.notify import Notifier
from joinproto.runtime.persist import Backoff, goes_on, pause
from tests.support.python import PATIENCE

STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

# -- whether --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        None,
        Rejected("no"),
        Unreachable("nobody there"),
        Aborted("given up", formed=True),
        RelayDied("the relay ended with 1"),
        SpawnFailed("sh: no memory"),
    ],
    ids=repr,
)
def test_it_dials_again(error: JoinprotoError | None) -> None:
    assert goes_on(error)


@pytest.mark.parametrize(
    "error",
    [
        Stopped("SIGTERM", signal.SIGTERM),
        ConfigError("there are no devices"),
        CommandNotFound("train: No such file or directory"),
    ],
    ids=repr,
)
def test_it_does_not_where_that_cures_nothing(error: JoinprotoError) -> None:
    assert not goes_on(error)


# -- how long ---------------------------------------------------------------------------------


def test_pauses_double_up_to_a_minute() -> None:
    backoff = Backoff()
    pauses = [backoff.after(1.0, rejected=False) for _ in range(7)]
    assert pauses == [5, 10, 20, 40, 60, 60, 60]


def test_after_a_reject_they_double_up_to_five() -> None:
    backoff = Backoff()
    pauses = [backoff.after(1.0, rejected=True) for _ in range(7)]
    assert pauses == [30, 60, 120, 240, 300, 300, 300]


def test_the_two_do_not_hurry_each_other() -> None:
    backoff = Backoff()
    rejected = (False, True, False, True, False)
    assert [backoff.after(1.0, rejected=each) for each in rejected] == [5, 30, 10, 60, 20]


@pytest.mark.parametrize(("rejected", "first", "second"), [(False, 5, 10), (True, 30, 60)])
def test_a_long_stint_starts_over(rejected: bool, first: float, second: float) -> None:
    backoff = Backoff()
    for each in (False, True) * 5:
        backoff.after(1.0, rejected=each)
    assert backoff.after(119.9, rejected=rejected) > second
    assert backoff.after(120.0, rejected=rejected) == first
    assert backoff.after(119.9, rejected=rejected) == second
    assert backoff.after(1e6, rejected=rejected) == first


def test_backoffs_share_nothing() -> None:
    Backoff().after(1.0, rejected=False)
    assert Backoff().after(1.0, rejected=False) == 5


# -- a pause ----------------------------------------------------------------------------------


@pytest.fixture
def held_back() -> Iterator[None]:
    """What this thread is sent meanwhile waits, and has not been sent when nobody takes it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    yield
    while signal.sigtimedwait(STOPS, 0) is not None:
        pass
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def send(number: signal.Signals) -> None:
    signal.pthread_kill(threading.get_ident(), number)


@pytest.mark.parametrize("seconds", [0, 0.01])
def test_a_pause_ends(seconds: float) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    pause(seconds)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


@pytest.mark.parametrize("number", STOPS)
@pytest.mark.usefixtures("held_back")
def test_a_signal_ends_it(number: signal.Signals) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    send(number)
    with pytest.raises(Stopped) as caught:
        pause(PATIENCE)
    assert caught.value.number == number
    assert caught.value.exit_code == 128 + number
    assert str(caught.value) == f"stopped by {number.name}"
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


@pytest.mark.usefixtures("held_back")
def test_a_signal_that_is_ignored_does_not_end_it() -> None:
    """As SIGHUP is under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        send(signal.SIGHUP)
        pause(0)
    finally:
        signal.signal(signal.SIGHUP, before)


def manager(path: Path) -> socket.socket:
    """The socket of a service manager."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.bind(str(path))
    sock.setblocking(False)
    return sock


def told(sock: socket.socket) -> list[bytes]:
    """What it has been told."""
    said = []
    with suppress(BlockingIOError):
        while True:
            said.append(sock.recv(100))
    return said


def test_signs_of_life_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with manager(path) as sock:
        environ = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "2000"}
        with closing(Notifier(environ)) as notifier:
            assert notifier.interval == 0.001
            pause(0.02, notifier)
        # At least: how many fit depends on the machine.
        assert set(told(sock)) == {b"WATCHDOG=1"}


def test_no_signs_of_life_where_none_are_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "notify"
    with manager(path) as sock, closing(Notifier({"NOTIFY_SOCKET": str(path)})) as notifier:
        pause(0.01, notifier)
        assert told(sock) == []


@pytest.mark.usefixtures("held_back")
def test_a_signal_ends_it_between_two_signs_of_life(tmp_path: Path) -> None:
    environ = {"NOTIFY_SOCKET": str(tmp_path / "nobody"), "WATCHDOG_USEC": "2000"}
    send(signal.SIGTERM)
    with closing(Notifier(environ)) as notifier, pytest.raises(Stopped):
        pause(PATIENCE, notifier)


PAUSING = """
import signal, sys
from joinproto.errors import Stopped
from joinproto.runtime.persist import pause

# What comes before the pause waits for it, so that it does not matter which is first.
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT, signal.SIGHUP})
print("ready", flush=True)
try:
    pause(600)
except Stopped as stopped:
    sys.exit(stopped.exit_code)
"""


def test_a_signal_to_the_process_ends_it() -> None:
    command = [sys.executable, "-W", "error", "-c", PAUSING]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 128 + signal.SIGTERM
        finally:
            process.kill()
