"""The signals that end an agent, wherever it is, and the names of those that end a child."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from joinproto.errors import Stopped

STOPS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def heeded() -> tuple[signal.Signals, ...]:
    """Those of `STOPS` that are not ignored: nohup has SIGHUP ignored, and a shell SIGINT for what
    it runs in the background."""
    return tuple(number for number in STOPS if signal.getsignal(number) != signal.SIG_IGN)


@contextmanager
def stoppable() -> Iterator[None]:
    """While this lasts, such a signal raises `Stopped` in the main thread, which must call this.

    For the time in which nothing runs that a signal has to be kept from interrupting; a host at
    work puts handlers of its own in the place of these, and takes them away again.
    """
    before = {number: signal.signal(number, _stop) for number in heeded()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def signal_name(code: int) -> str | None:
    """The name of the signal that an exit code −N stands for; None when it stands for none."""
    try:
        return signal.Signals(-code).name if code < 0 else None
    except ValueError:
        return None


def how_ended(code: int) -> str:
    """An exit code in words: the signal's name where it stands for one that has a name."""
    return signal_name(code) or f"code {code}"


def _stop(number: int, frame: object) -> None:
    raise Stopped(signal.Signals(number).name, number)
