"""A service manager's end of the notification socket (sd_notify)."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tests.support.python import PATIENCE


class Manager:
    """Hears what a service says; a context manager that closes its socket.

    `address` is a path, or `@NAME` for an abstract one.
    """

    def __init__(self, address: str) -> None:
        self.environment = {"NOTIFY_SOCKET": address}
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self._heard: list[list[str]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.socket.close()

    def heard(self) -> list[list[str]]:
        """Everything said so far, the assignments of each datagram."""
        self.socket.settimeout(0)
        while True:
            try:
                self._take()
            except BlockingIOError:
                return list(self._heard)

    def wait(self, wanted: Callable[[list[str]], object], *, after: int = 0) -> list[str]:
        """The first datagram that is wanted, past or to come, behind so many others."""
        self.socket.settimeout(PATIENCE)
        place = after
        while True:
            for said in self._heard[place:]:
                if wanted(said):
                    return said
            place = max(place, len(self._heard))
            self._take()

    def _take(self) -> None:
        self._heard.append(os.fsdecode(self.socket.recv(65536)).split("\n"))
