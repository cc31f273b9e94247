"""What became of each child, told in full on this host; the wire carries a number only."""

from __future__ import annotations

import signal
from collections.abc import Iterator

TAIL_BYTES = 2048
TAIL_LINES = 5
"""How much of a failed child's standard error the summary repeats, at most."""


class Fate:
    """One child's story.

    Attributes:
        name: for people, such as `rank 3 (device 1)`.
        pid: its process number, once it runs.
        started: when it ran, on the loop's clock.
        ended: when it was gone.
        code: how; −N for signal N.
        by_agent: the agent had sent it a signal.
        out_of_memory: the kernel killed it for want of memory.
        tail: the end of what it wrote to standard error.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.pid: int | None = None
        self.started: float | None = None
        self.ended: float | None = None
        self.code: int | None = None
        self.by_agent = False
        self.out_of_memory = False
        self.tail = b""

    def add_error(self, block: bytes) -> None:
        """Keep the end of what it wrote to standard error."""
        self.tail = (self.tail + block[-TAIL_BYTES:])[-TAIL_BYTES:]

    @property
    def seconds(self) -> float | None:
        """How long it ran."""
        if self.started is None or self.ended is None:
            return None
        return self.ended - self.started

    def told(self) -> str:
        """Its end, in words."""
        if self.code is None:
            return f"{self.name} did not end" if self.started is not None else ""
        how = f"exited with {self.code}" if self.code >= 0 else f"was killed by {_name(self.code)}"
        whose = ""
        if self.out_of_memory:
            whose = ", the kernel being out of memory"
        elif self.by_agent:
            whose = ", the agent having stopped it"
        ran = "" if self.seconds is None else f" after {self.seconds:.1f} s"
        return f"{self.name} {how}{whose}{ran}"

    def lines(self) -> Iterator[str]:
        """The summary's lines for a child that did not end well by itself."""
        yield self.told()
        last = self.tail.decode(errors="replace").splitlines()[-TAIL_LINES:]
        for line in last:
            yield f"  | {line}"


def _name(code: int) -> str:
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
