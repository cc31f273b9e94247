"""An agent that dials again: how long it pauses, and a pause that a signal ends."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from joinproto.errors import Stopped
from joinproto.limits import (
    REJECT_FIRST,
    REJECT_LAST,
    RESTART_FIRST,
    RESTART_LAST,
    RESTART_RESET,
)
from joinproto.runtime.signals import heeded


@dataclass
class Backoff:
    """Pauses between two stints: doubling, longer ones after a Reject, over again after a long
    stint."""

    _restart: float = RESTART_FIRST
    _reject: float = REJECT_FIRST

    def after(self, stint: float, *, rejected: bool) -> float:
        """Seconds to pause after a stint that took `stint` seconds."""
        if stint >= RESTART_RESET:
            self._restart, self._reject = RESTART_FIRST, REJECT_FIRST
        if rejected:
            pause, self._reject = self._reject, min(2 * self._reject, REJECT_LAST)
        else:
            pause, self._restart = self._restart, min(2 * self._restart, RESTART_LAST)
        return pause


def pause(seconds: float) -> None:
    """Wait, unless a signal comes.

    Raises:
        Stopped: SIGTERM, SIGINT or SIGHUP came, and was not ignored when the program started.
    """
    numbers = heeded()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    try:
        came = signal.sigtimedwait(numbers, seconds)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if came is not None:
        raise Stopped(signal.Signals(came.si_signo).name, came.si_signo)
