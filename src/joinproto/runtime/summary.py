"""What became of each child, told in full on this host; the wire carries a number only."""

from __future__ import annotations

from collections.abc import Iterator

from joinproto.runtime.signals import signal_name

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
        with_helper: it died since the helper did, which is its parent.
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
        self.with_helper = False
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
            return f"{self.name}: how it ended is not known"
        if self.code < 0:
            how = f"was killed by {signal_name(self.code) or f'signal {-self.code}'}"
        else:
            how = f"exited with {self.code}"
        ran = "" if self.seconds is None else f" after {self.seconds:.1f} s"
        whose = ""
        if self.out_of_memory:
            whose = " (out of memory)"
        elif self.by_agent:
            whose = " (stopped by the agent)"
        elif self.with_helper:
            whose = " (with the helper process)"
        return f"{self.name} {how}{ran}{whose}"

    def lines(self) -> Iterator[str]:
        """The summary's lines for a child that did not end well."""
        yield self.told()
        text = self.tail.decode(errors="replace").rstrip("\r\n")
        for line in text.split("\n")[-TAIL_LINES:] if text else ():
            # Of a progress bar, what stood there last.
            shown = line.rstrip("\r").rpartition("\r")[2]
            yield f"  | {shown}"
