"""One event loop: an epoll, and the clock that goes with it."""

from __future__ import annotations

import select
import time
from collections.abc import Callable

READ = select.EPOLLIN
WRITE = select.EPOLLOUT
ENDED = select.EPOLLHUP | select.EPOLLERR

LONGEST_WAIT = 3600.0
"""epoll takes milliseconds in an int; a deadline further away is waited for in steps."""


class Loop:
    """Calls back when descriptors are ready; nothing in it polls."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._callbacks: dict[int, Callable[[int], None]] = {}

    @staticmethod
    def now() -> float:
        """Seconds on a clock that only goes forward."""
        return time.monotonic()

    def watch(self, fd: int, events: int, callback: Callable[[int], None]) -> None:
        """Call `callback` with the events that `fd` is ready for.

        Raises:
            PermissionError: the descriptor is a plain file, which is always ready.
        """
        self._epoll.register(fd, events)
        self._callbacks[fd] = callback

    def change(self, fd: int, events: int) -> None:
        """Watch a descriptor for other events than before."""
        self._epoll.modify(fd, events)

    def forget(self, fd: int) -> None:
        """Watch a descriptor no more; one that is not watched is fine too."""
        if self._callbacks.pop(fd, None) is not None:
            self._epoll.unregister(fd)

    def watches(self, fd: int) -> bool:
        """Whether this descriptor is watched."""
        return fd in self._callbacks

    def run_once(self, until: float | None) -> None:
        """Wait for something to be ready, at most until the time `until`, and call back."""
        timeout = LONGEST_WAIT
        if until is not None:
            timeout = min(timeout, max(0.0, until - self.now()))
        ready = [(fd, events, self._callbacks[fd]) for fd, events in self._epoll.poll(timeout)]
        for fd, events, callback in ready:
            # An earlier callback of this round may have done away with it, and even have opened
            # another descriptor that got its number: these events are not that one's.
            if self._callbacks.get(fd) is callback:
                callback(events)

    def close(self) -> None:
        """Free the epoll; the descriptors watched are their owners' business."""
        self._callbacks.clear()
        self._epoll.close()
