"""Connections that are not admitted (yet): how many there may be, and what they may hold.

Anyone who reaches the port can open them.  What is let go first are the oldest: an honest agent is
through with its Hello in milliseconds, so an old one is silent, slow or somebody else.
"""

from __future__ import annotations

from joinproto.record import Record
from joinproto.runtime.addresses import is_loopback

MOST = 4096
MOST_PER_ADDRESS = 128
MOST_BYTES = 64 * 1024 * 1024
"""A Hello may announce 16 MiB, and only a whole frame has a tag that can be checked."""


class Limits(Record):
    """How many connections may be unadmitted at a time.

    Attributes:
        most: in all.
        most_per_address: of one address; loopback, where tunnels arrive from, has no such limit.
        most_bytes: that all of them have sent and that wait for the rest of their frames.
    """

    most: int = MOST
    most_per_address: int = MOST_PER_ADDRESS
    most_bytes: int = MOST_BYTES


class Unadmitted:
    """Keeps count of them, by the number of their connection.

    Args:
        limits: what they may come to.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        # In both, the oldest is the first.
        self._hosts: dict[int, str] = {}
        self._by_host: dict[str, dict[int, None]] = {}
        self._held: dict[int, int] = {}
        self._held_bytes = 0

    def __len__(self) -> int:
        return len(self._hosts)

    def __contains__(self, number: int) -> bool:
        return number in self._hosts

    @property
    def oldest(self) -> int | None:
        """The one that has been there longest."""
        return next(iter(self._hosts), None)

    def add(self, number: int, host: str) -> tuple[int, str] | None:
        """Count one more; returns which one is to be dropped for it, and why."""
        self._hosts[number] = host
        own = self._by_host.setdefault(host, {})
        own[number] = None
        if len(own) > self._limits.most_per_address and not is_loopback(host):
            return next(iter(own)), f"more than {self._limits.most_per_address} from {host}"
        if len(self._hosts) > self._limits.most:
            return next(iter(self._hosts)), f"more than {self._limits.most} in all"
        return None

    def holds(self, number: int, count: int) -> tuple[int, str] | None:
        """Take note of what one holds; returns which one is to be dropped for it, and why."""
        self._held_bytes += count - self._held.get(number, 0)
        self._held[number] = count
        if self._held_bytes <= self._limits.most_bytes:
            return None
        largest = max(self._held, key=lambda each: self._held[each])
        return largest, f"more than {self._limits.most_bytes} bytes held, most of them by this one"

    def remove(self, number: int) -> None:
        """One was admitted, or is gone; one that is not counted is fine too."""
        host = self._hosts.pop(number, None)
        if host is None:
            return
        self._held_bytes -= self._held.pop(number, 0)
        own = self._by_host[host]
        del own[number]
        if not own:
            del self._by_host[host]
