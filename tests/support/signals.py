"""Signals that a test sends to its own process."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

from joinproto.runtime.signals import STOPS


@contextmanager
def unheeded() -> Iterator[None]:
    """While this lasts, signals that nobody heeds end nothing, least of all the tests.

    Whoever puts handlers of its own in the place of these must take them away again.
    """
    before = {number: signal.signal(number, _ignore) for number in STOPS}
    try:
        yield
        after = {number: signal.getsignal(number) for number in STOPS}
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert set(after.values()) == {_ignore}, f"not restored: {after}"


def _ignore(number: int, frame: object) -> None:
    """Nobody was there for it."""
