"""What a window waits for, whom it admits, and what ends the run that it forms."""

from __future__ import annotations

from enum import StrEnum
from math import inf

from joinproto.errors import ConfigError
from joinproto.limits import JOIN_TIMEOUT, MAX_JOIN_TIMEOUT, whole_seconds
from joinproto.record import Record


class StartMode(StrEnum):
    """Who closes the window once quorum is met: the clock, the operator, or whoever is first."""

    AUTO = "auto"
    MANUAL = "manual"
    HYBRID = "hybrid"


class Check(StrEnum):
    """What members of one world must agree on; whoever does not say it is not asked."""

    VENDOR = "vendor"
    RUN_ID = "run-id"
    NCCL = "nccl"
    MODEL_SIG = "model-sig"


class WindowConfig(Record):
    """On what terms a world forms and runs.

    Attributes:
        min_ranks: the quorum: the fewest ranks that make a world.
        target_ranks: as many form a world at once; None waits for the join timeout.
        join_timeout: seconds (unscaled) for which the window stays open even with quorum.
        max_join_timeout: seconds (unscaled) after which a window without quorum fails; None: the
            larger of 600 and `join_timeout`.
        start_mode: who closes the window.
        checks: what members must agree on, beside the dataset signature.
        dataset_sig: what every Hello must carry; None: what the first member carried.
        mixed_wires: members of different versions may share a world.
        local_hosts: hosts whose link may end while their ranks run; the caller tells their ends.
        max_rejected: more dials turned away than this fail the window; None: they never do.
        max_failures: more ranks failed or lost than this end the run; None: they never do.
        scale: of both timeouts.

    Raises:
        ConfigError: the numbers contradict each other.
    """

    min_ranks: int = 1
    target_ranks: int | None = None
    join_timeout: float = JOIN_TIMEOUT
    max_join_timeout: float | None = None
    start_mode: StartMode = StartMode.AUTO
    checks: frozenset[Check] = frozenset(Check)
    dataset_sig: bytes | None = None
    mixed_wires: bool = False
    local_hosts: frozenset[str] = frozenset()
    max_rejected: int | None = None
    max_failures: int | None = None
    scale: float = 1.0

    def __post_init__(self) -> None:
        self._check_ranks()
        self._check_timeouts()
        for name, count in (("rejected", self.max_rejected), ("failures", self.max_failures)):
            if count is not None and count < 0:
                raise ConfigError(f"max {name} is {count}; it is 0 or more")

    def _check_ranks(self) -> None:
        if self.min_ranks < 1:
            raise ConfigError(f"min ranks is {self.min_ranks}; a world has at least 1 rank")
        if self.target_ranks is None:
            return
        if self.start_mode is StartMode.MANUAL:
            raise ConfigError(
                f"target ranks ({self.target_ranks}) would close the window, which in manual start "
                "mode only the operator does; leave it out, or take hybrid"
            )
        if self.target_ranks < self.min_ranks:
            raise ConfigError(
                f"target ranks ({self.target_ranks}) is below min ranks ({self.min_ranks})"
            )

    def _check_timeouts(self) -> None:
        for name, value in (
            ("join timeout", self.join_timeout),
            ("max join timeout", self.max_join_timeout),
        ):
            if value is not None and not 0 <= value < inf:
                raise ConfigError(f"{name} is {value:g}; it is a number of seconds")
        if self.max_join_timeout is not None and self.max_join_timeout < self.join_timeout:
            raise ConfigError(
                f"max join timeout ({self.max_join_timeout:g} s) is below the join timeout "
                f"({self.join_timeout:g} s)"
            )

    @property
    def window(self) -> float:
        """Seconds, scaled, until quorum is enough."""
        return whole_seconds(self.join_timeout, self.scale)

    @property
    def cap(self) -> float:
        """Seconds, scaled, until a window without quorum fails."""
        unset = max(MAX_JOIN_TIMEOUT, self.join_timeout)
        base = unset if self.max_join_timeout is None else self.max_join_timeout
        return whole_seconds(base, self.scale)
