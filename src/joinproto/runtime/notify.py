"""Telling systemd how the agent is, where it asked to be told (sd_notify)."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from joinproto.runtime.environment import NOTIFY_VARIABLES

_SOCKET, *_WATCHDOG = NOTIFY_VARIABLES


class Notifier:
    """Sends datagrams to the service manager; does nothing where nobody asked for them.

    Args:
        environ: where NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID are looked for.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = _address(environ.get(_SOCKET, ""))
        self._socket: socket.socket | None = None
        if self._address is not None:
            kind = socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
            self._socket = socket.socket(socket.AF_UNIX, kind)
        self.interval = _interval(environ) if self._socket is not None else None
        """Seconds between two signs of life; None: none are asked for."""

    def send(self, *assignments: str) -> None:
        """Send assignments such as `READY=1`; a manager that cannot be reached is no failure."""
        if self._socket is not None and self._address is not None:
            # One assignment a line, so a line break in a value would begin another.
            lines = "\n".join(text.replace("\n", " ") for text in assignments)
            try:
                self._socket.sendto(lines.encode(errors="replace"), self._address)
            except OSError:
                return

    def alive(self) -> None:
        """Give a sign of life, where any are asked for."""
        if self.interval is not None:
            self.send("WATCHDOG=1")

    def close(self) -> None:
        """Stop."""
        if self._socket is not None:
            self._socket.close()


def _address(text: str) -> str | None:
    if text.startswith("@"):
        # An abstract address.
        return "\0" + text[1:]
    return text if text.startswith("/") else None


def _interval(environ: Mapping[str, str]) -> float | None:
    usec, pid = (environ.get(name, "") for name in _WATCHDOG)
    if not (usec.isascii() and usec.isdigit() and len(usec) < 20):
        return None
    if int(usec) == 0 or pid not in ("", str(os.getpid())):
        return None
    # Half of what is allowed, as systemd's manual advises.
    return int(usec) / 2_000_000
