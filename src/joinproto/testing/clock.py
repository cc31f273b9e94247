"""A clock that stands still until it is told to go on."""

from __future__ import annotations


class FakeClock:
    """Seconds that pass only when somebody says so.

    An instance may be called, so that it stands in for `time.monotonic`.

    Args:
        start: what it shows at first.

    Attributes:
        now: what it shows, in seconds.
    """

    def __init__(self, start: float = 0.0) -> None:
        self.now = float(start)

    def __call__(self) -> float:
        return self.now

    def __repr__(self) -> str:
        return f"FakeClock({self.now:g})"

    def advance(self, seconds: float) -> float:
        """Let `seconds` pass; returns the new time.

        Raises:
            ValueError: time would go backward.
        """
        if not seconds >= 0:
            raise ValueError(f"a clock goes forward, not {seconds} s")
        self.now += seconds
        return self.now

    def advance_to(self, time: float) -> float:
        """Go on to `time`, or stay where that has passed; returns the new time."""
        return self.advance(max(0.0, time - self.now))
