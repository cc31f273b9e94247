"""notify: what a service manager hears, on sockets of its own."""

from __future__ import annotations

import os
import socket
import sys
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from joinproto.runtime.notify import Notifier
from tests.support.systemd import Manager


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    path = str(tmp_path / "notify")
    address = path if request.param == "path" else f"@joinproto-{uuid.uuid4().hex}"
    with Manager(address) as manager:
        yield manager


def test_assignments_come_one_a_line_and_together(manager: Manager) -> None:
    with closing(Notifier(manager.environment)) as notifier:
        notifier.send("READY=1", "STATUS=dialing")
        notifier.send("STATUS=a\nREADY=1")
        notifier.send("STATUS=\udcffö")
    assert manager.heard() == [
        ["READY=1", "STATUS=dialing"],
        ["STATUS=a READY=1"],
        ["STATUS=?ö"],
    ]


@pytest.mark.parametrize("pid", [None, "", str(os.getpid())], ids=["none", "empty", "ours"])
def test_signs_of_life_are_due_twice_as_often_as_the_manager_asks(
    manager: Manager, pid: str | None
) -> None:
    environment = manager.environment | {"WATCHDOG_USEC": "3000000"}
    if pid is not None:
        environment["WATCHDOG_PID"] = pid
    with closing(Notifier(environment)) as notifier:
        assert notifier.interval == 1.5
        notifier.alive()
    assert manager.heard() == [["WATCHDOG=1"]]


@pytest.mark.parametrize(
    "watchdog",
    [
        {},
        {"WATCHDOG_USEC": ""},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "-1"},
        {"WATCHDOG_USEC": "1.5"},
        {"WATCHDOG_USEC": "²"},
        {"WATCHDOG_USEC": "٣"},
        {"WATCHDOG_USEC": "9" * 5000},
        {"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"},
        {"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "x"},
    ],
    ids=lambda watchdog: " ".join(watchdog.values())[:20],
)
def test_signs_of_life_that_nobody_asks_for(manager: Manager, watchdog: dict[str, str]) -> None:
    with closing(Notifier(manager.environment | watchdog)) as notifier:
        assert notifier.interval is None
        notifier.alive()
    assert manager.heard() == []


@pytest.mark.parametrize("address", [None, "", "relative", "vsock:2:1", "-"])
def test_nobody_to_tell(address: str | None) -> None:
    environment = {} if address is None else {"NOTIFY_SOCKET": address}
    with closing(Notifier(environment | {"WATCHDOG_USEC": "2000000"})) as notifier:
        assert notifier.interval is None
        notifier.send("READY=1")
        notifier.alive()


def test_a_manager_that_cannot_be_reached_is_no_failure(tmp_path: Path) -> None:
    for address in (f"{tmp_path}/missing", f"{tmp_path}/{'x' * 200}", f"@{uuid.uuid4().hex}"):
        with closing(Notifier({"NOTIFY_SOCKET": address})) as notifier:
            notifier.send("READY=1")


def test_a_manager_that_does_not_read_holds_nobody_up(manager: Manager) -> None:
    with closing(Notifier(manager.environment)) as notifier:
        for _ in range(2000):
            notifier.send("STATUS=" + "x" * 1000)
    assert 0 < len(manager.heard()) < 2000


def test_it_comes_from_this_process(tmp_path: Path) -> None:
    """By default a manager takes it from the main process alone."""
    with Manager(str(tmp_path / "notify")) as manager:
        manager.socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        with closing(Notifier(manager.environment)) as notifier:
            notifier.send("READY=1")
        _, ancillary, _, _ = manager.socket.recvmsg(1024, socket.CMSG_SPACE(12))
    assert int.from_bytes(ancillary[0][2][:4], sys.byteorder) == os.getpid()
