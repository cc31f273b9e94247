"""A case of the fuzz harness as data: a sequence of steps, and on what terms the target runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, TypeAlias

Step: TypeAlias = dict[str, Any]
"""One step: a JSON object with exactly one of `VERBS`, in the words of conformance cases."""

VERBS: Final = frozenset(
    (
        *("dial", "accept", "say", "frame", "send"),
        *("half_close", "close", "reset", "wait", "look", "signal", "rank", "listen"),
    )
)
"""`look` is the one word that conformance cases do not have: wait until the target does something
on a connection, or until `within` seconds have passed."""

ALONE: Final = 1
"""A quorum at which a controller forms a world of the first host; such a case has its own one."""

CROWD: Final = 100_000
"""A quorum that is never reached: one controller can stand many cases before formation."""


@dataclass(frozen=True, kw_only=True)
class Sequence:
    """One case.

    Attributes:
        role: what is under test: agent or controller.
        wire: the version that the harness speaks.
        admission: open or pre-shared.
        quorum: of a controller; `ALONE` or `CROWD`.
        devices: how many devices an agent has.
        listening: an agent's dials are taken from the start, and not only after the step `listen`.
        steps: what is done, in order.
    """

    role: str
    wire: int
    admission: str = "open"
    quorum: int = CROWD
    devices: int = 1
    listening: bool = True
    steps: tuple[Step, ...] = field(default=())

    @property
    def own_target(self) -> bool:
        """Whether it needs a target of its own."""
        signals = any("signal" in step for step in self.steps)
        return self.role == "agent" or self.quorum != CROWD or signals

    @property
    def size(self) -> int:
        """Bytes of its steps as JSON, by which the smaller of two is chosen."""
        return len(json.dumps(self.steps))

    @property
    def sent_bytes(self) -> int:
        """Bytes that its steps give, without what is filled in."""
        return sum(len(_given(step)) // 2 for step in self.steps)

    def to_json(self) -> dict[str, Any]:
        """It as plain data."""
        return {**asdict(self), "steps": [dict(step) for step in self.steps]}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Sequence:
        """It out of plain data.

        Raises:
            ValueError: these are no values of a case; the text says why.
        """
        try:
            steps = tuple(dict(step) for step in values["steps"])
            made = cls(**{**values, "steps": steps})
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a case: {error!r}") from None
        for number, step in enumerate(steps, 1):
            if len(VERBS & step.keys()) != 1:
                raise ValueError(
                    f"step {number} has none, or several, of {', '.join(sorted(VERBS))}"
                )
        if made.role not in ("agent", "controller"):
            raise ValueError(f"role is agent or controller, not {made.role!r}")
        return made


def verb(step: Mapping[str, Any]) -> str:
    """The word that says what a step does."""
    return next(iter(VERBS & step.keys()))


def connection(step: Mapping[str, Any]) -> str:
    """The connection that a step is about; "" for those that are about none."""
    word = verb(step)
    if word in ("wait", "signal", "rank", "listen"):
        return ""
    return str(step.get("on", "c") if word in ("say", "frame", "send") else step[word])


def _given(step: Mapping[str, Any]) -> str:
    value = step.get("frame", step.get("send", ""))
    return value if isinstance(value, str) else ""
