"""Plays cases again: whether what was found strikes every time, and which cases it takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from joinproto.conformance.world import Keys
from joinproto.fuzzing.execute import Executor, Observation
from joinproto.fuzzing.oracles import Strike, crash_of, judge
from joinproto.fuzzing.sequence import Sequence
from joinproto.fuzzing.shadow import foresee

TRIES: Final = 3
"""How often a finding must be found again to be none that depends on chance."""

REPEATS: Final = 40
"""How often a case is played against one target where its fault shows only in sum."""

PLAYS: Final = 600
"""Cases that are played to find out whether one among some has a fault that shows in sum."""


@dataclass(frozen=True, kw_only=True)
class Examined:
    """What a case came to.

    Attributes:
        strikes: everything that was wrong.
        seen: what the target did the last time.
    """

    strikes: list[Strike] = field(default_factory=list)
    seen: Observation = field(default_factory=Observation)

    def has(self, bucket: str) -> Strike | None:
        """The strike of a bucket, if it is among them."""
        return next((each for each in self.strikes if each.bucket == bucket), None)


class Examiner:
    """Plays cases whose target nothing was done to before.

    Args:
        executor: what plays them.
        keys: the secrets of the run.
        scale: of every network deadline.
    """

    def __init__(self, executor: Executor, keys: Keys, scale: float) -> None:
        self.executor = executor
        self.keys = keys
        self.scale = scale

    def examine(self, sequence: Sequence, *, repeats: int = 1) -> Examined:
        """Play a case, again and again until something is wrong or it was played `repeats` times.

        Raises:
            CannotStart: the target cannot be started.
        """
        self.executor.fresh()
        foreseen = foresee(sequence, self.keys, self.scale)
        seen = Observation()
        for turn in range(repeats):
            seen = self.executor.play(sequence, foreseen)
            if strikes := judge(sequence, foreseen, seen):
                return Examined(strikes=strikes, seen=seen)
            if turn == 0 and repeats > 1:
                self.executor.leaked()  # what is usual, before there is more of it
        return Examined(strikes=aftermath(self.executor, sequence.wire), seen=seen)

    def confirm(self, sequence: Sequence, bucket: str, repeats: int = 1) -> tuple[int, Examined]:
        """Play a case `TRIES` times; returns how often it struck, and what came of one that did."""
        found, last = 0, Examined()
        for _ in range(TRIES):
            examined = self.examine(sequence, repeats=repeats)
            if examined.has(bucket):
                found, last = found + 1, examined
        return found, last

    def strikes(self, sequence: Sequence, bucket: str) -> bool:
        """Whether one case strikes, on a target that stands where the last one did it no harm."""
        foreseen = foresee(sequence, self.keys, self.scale)
        found = judge(sequence, foreseen, self.executor.play(sequence, foreseen))
        if found:
            self.executor.fresh()
        return any(each.bucket == bucket for each in found)

    def strikes_in_sum(
        self, group: list[Sequence], bucket: str, over: Callable[[], bool] = lambda: False
    ) -> bool:
        """Whether cases, played in turn against one target, bring about a fault of that bucket.

        Args:
            group: the cases.
            bucket: of the fault.
            over: whether there is no more time to find out.
        """
        self.executor.fresh()
        foreseen = [foresee(each, self.keys, self.scale) for each in group]
        for turn in range(max(2, PLAYS // len(group))):
            for sequence, known in zip(group, foreseen, strict=True):
                if over():
                    return False
                seen = self.executor.play(sequence, known)
                if any(each.bucket == bucket for each in judge(sequence, known, seen)):
                    return True
            if turn == 0:
                self.executor.leaked()
        wire = group[-1].wire
        return any(each.bucket == bucket for each in aftermath(self.executor, wire))


def aftermath(executor: Executor, wire: int) -> list[Strike]:
    """What is wrong with a target when the cases are over: a sanity join, and what it holds."""
    if reason := executor.honest(wire):
        crash = crash_of(*executor.death())
        return [crash or Strike(oracle="deaf", what=reason)]
    if more := executor.leaked():
        return [Strike(oracle="leaked", what=more)]
    return []


def narrow(window: list[Sequence], strikes: Callable[[list[Sequence]], bool]) -> list[Sequence]:
    """As few of some cases as it takes, found by halving; all of them where none is enough.

    Args:
        window: the cases, oldest first.
        strikes: whether some of them bring it about.
    """
    while len(window) > 1:
        half = len(window) // 2
        for part in (window[half:], window[:half]):
            if strikes(part):
                window = part
                break
        else:
            return window
    return window
