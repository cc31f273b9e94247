"""rendering: made anew no more often than can be afforded."""

from __future__ import annotations

import time

import pytest

from joinproto.runtime.rendering import SHARE, Rendering


class Dear:
    """Something of which each making costs some time of the processor; `now` is a clock."""

    def __init__(self, cost: float) -> None:
        self.cost = cost
        self.now = 100.0
        self.made = 0
        self.rendering = Rendering(lambda: self.now, self._make)

    def _make(self) -> bytes:
        self.made += 1
        until = time.thread_time() + self.cost
        while time.thread_time() < until:
            continue
        return b"%d" % self.made


def test_what_is_dear_is_kept_for_a_multiple_of_its_price() -> None:
    dear = Dear(0.005)
    assert dear.rendering.recent() == b"1"
    assert dear.rendering.made_at == 100.0
    assert dear.rendering.apart >= SHARE * 0.005
    dear.now += dear.rendering.apart * 0.99
    assert dear.rendering.recent() == b"1"
    dear.now += dear.rendering.apart * 0.02
    assert dear.rendering.recent() == b"2"


def test_what_must_be_new_is_made_at_once() -> None:
    dear = Dear(0.005)
    dear.rendering.recent()
    assert (dear.rendering.fresh(), dear.rendering.last, dear.made) == (b"2", b"2", 2)


def test_a_failure_is_told_to_who_asked() -> None:
    def fail() -> bytes:
        raise LookupError("not yet")

    made = Rendering(time.monotonic, fail)
    with pytest.raises(LookupError, match="not yet"):
        made.recent()
    assert made.last == b""
