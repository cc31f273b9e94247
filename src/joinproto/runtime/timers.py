"""Many deadlines on one loop, at a cost that does not grow with how many there are."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from itertools import count


class Timers:
    """Deadlines by owner, one each; setting one anew takes the place of the earlier."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int]] = []
        self._entries: dict[int, Hashable] = {}
        self._set: dict[Hashable, tuple[float, int, Callable[[float], None]]] = {}
        self._numbers = count()

    def set(self, owner: Hashable, at: float | None, call: Callable[[float], None]) -> None:
        """Call `call` with the time, once, when `at` has come; None: not at all."""
        found = self._set.get(owner)
        if at is None:
            self.clear(owner)
        elif found is None or found[0] != at:
            self.clear(owner)
            number = next(self._numbers)
            self._set[owner] = at, number, call
            self._entries[number] = owner
            heapq.heappush(self._heap, (at, number))

    def clear(self, owner: Hashable) -> None:
        """Forget the deadline of this owner, should it have one."""
        found = self._set.pop(owner, None)
        if found is not None:
            del self._entries[found[1]]
            self._forget_old()

    @property
    def next(self) -> float | None:
        """When `run` wants to be called; None: not at all."""
        while self._heap and self._heap[0][1] not in self._entries:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def run(self, now: float) -> None:
        """Call for every deadline that has come, the earliest first; each may set new ones."""
        while (at := self.next) is not None and at <= now:
            owner = self._entries[self._heap[0][1]]
            call = self._set[owner][2]
            self.clear(owner)
            call(now)

    def _forget_old(self) -> None:
        # What was cleared stays in the heap until its time comes; a flood must not pile up there.
        if len(self._heap) > 64 and len(self._heap) > 2 * len(self._entries):
            self._heap = [entry for entry in self._heap if entry[1] in self._entries]
            heapq.heapify(self._heap)
