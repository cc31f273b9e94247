"""Something that is made of the state, at a price: kept for as long as it is dear."""

from __future__ import annotations

import time
from collections.abc import Callable

SHARE = 20.0
"""Making it may take one part in so many of the time."""


class Rendering:
    """The bytes that a function makes.

    Args:
        now: the clock.
        make: makes them; what it raises goes to whoever asked.
    """

    def __init__(self, now: Callable[[], float], make: Callable[[], bytes]) -> None:
        self._now = now
        self._make = make
        self.last = b""
        self.made_at = float("-inf")
        """When it was made last."""
        self.apart = 0.0
        """Seconds that one should lie behind another."""

    def recent(self) -> bytes:
        """As it is now, or was just now where it is dear to make."""
        return self.last if self._now() < self.made_at + self.apart else self.fresh()

    def fresh(self) -> bytes:
        """As it is now."""
        # The time of this thread alone: what a busy machine takes is not the rendering's.
        began = time.thread_time()
        self.last = self._make()
        self.apart = SHARE * (time.thread_time() - began)
        self.made_at = self._now()
        return self.last
