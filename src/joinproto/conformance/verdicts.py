"""What a case can come to, and what a run of cases ends with."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Verdict(StrEnum):
    """What a case came to, the worst last but for the three that say nothing of the target."""

    PASS = "PASS"
    """The target did what the clause says."""
    INFO = "INFO"
    """The case only tells what the target does where the clause leaves it free."""
    UNSUPPORTED = "UNSUPPORTED"
    """The target cannot be told what the case needs, or does not have it."""
    NON_STRICT = "NON-STRICT"
    """The target did what peers live with, but not what the clause says it should."""
    INCONCLUSIVE = "INCONCLUSIVE"
    """What the case is about was not reached."""
    FAIL = "FAIL"
    """The target broke a clause that it must keep."""
    HARNESS_ERROR = "HARNESS-ERROR"
    """The suite itself failed; the target is not to blame."""


_ORDER = tuple(Verdict)


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """The one that counts where a case has several; PASS where it has none."""
    return max(verdicts, key=_ORDER.index, default=Verdict.PASS)


class Level(StrEnum):
    """How much a case demands, by the strictest of its clauses."""

    MUST = "MUST"
    SHOULD = "SHOULD"
    MAY = "MAY"

    @property
    def on_failure(self) -> Verdict:
        """What it comes to when the target does otherwise."""
        return {
            Level.MUST: Verdict.FAIL,
            Level.SHOULD: Verdict.NON_STRICT,
            Level.MAY: Verdict.INFO,
        }[self]


CONFORMS = 0
"""Exit code: every case came out as it must, or as it was expected to."""
DEVIATES = 1
"""Exit code: a case failed that was not expected to, or one passed that was."""
UNDECIDED = 2
"""Exit code: nothing failed, but a case was inconclusive or the suite itself failed in one."""
MISUSED = 3
"""Exit code: wrong usage, or no case matches the selection."""
NO_TARGET = 4
"""Exit code: the target could not be started or reached."""
