"""An agent that dials again: when, how long it pauses, and a pause that a signal ends."""

from __future__ import annotations

import math
import signal
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from joinproto.errors import ConfigError, JoinprotoError, Stopped
from joinproto.limits import (
    REJECT_FIRST,
    REJECT_LAST,
    RESTART_FIRST,
    RESTART_LAST,
    RESTART_RESET,
)
from joinproto.runtime.signals import heeded

if TYPE_CHECKING:
    from joinproto.runtime.notify import Notifier


def goes_on(error: JoinprotoError | None) -> bool:
    """Whether to dial again after a stint that ended so; None: it ended well."""
    if error is None:
        return True
    return not isinstance(error, Stopped) and error.exit_code != ConfigError.exit_code


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


def pause(seconds: float, notifier: Notifier | None = None) -> None:
    """Wait, unless a signal comes.

    Args:
        seconds: how long.
        notifier: given signs of life meanwhile, as often as it wants them.

    Raises:
        Stopped: SIGTERM, SIGINT or SIGHUP came, and was not ignored when the program started.
    """
    numbers = heeded()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, numbers)
    interval = notifier.interval if notifier is not None and notifier.interval else math.inf
    until = time.monotonic() + seconds
    came = None
    try:
        while came is None and (left := until - time.monotonic()) > 0:
            came = signal.sigtimedwait(numbers, min(left, interval))
            if notifier is not None:
                notifier.alive()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if came is not None:
        raise Stopped(signal.Signals(came.si_signo).name, came.si_signo)
