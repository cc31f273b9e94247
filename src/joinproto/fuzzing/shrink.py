"""Makes a case as small as it can be while it still strikes: steps, then bytes, then time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from joinproto.fuzzing.sequence import Sequence, Step, verb

BUDGET: Final = 30.0
"""Seconds, at most, that making one case smaller takes."""

SMALL_BUDGET: Final = 6.0
"""Seconds where it is not about the death of the target: there is more to look for."""

PLAIN: Final[Mapping[str, Any]] = {"devices": 1, "listening": True}
"""Terms of a case that need no reason."""

EXTRAS: Final = frozenset(
    (
        *("with", "tag", "key", "wire", "kind", "magic", "length", "cut", "behind", "speak"),
        *("chunk", "pause", "within", "channel", "answer_within"),
    )
)
"""Words of a step without which it is a plainer one."""

TIMES: Final = ("wait", "within", "pause")


def shrink(
    sequence: Sequence,
    strikes: Callable[[Sequence], bool],
    *,
    budget: float = BUDGET,
    clock: Callable[[], float] = time.monotonic,
) -> Sequence:
    """The smallest case that was found in the time given.

    Args:
        sequence: a case that strikes.
        strikes: whether another one does.
        budget: seconds.
        clock: what tells them.
    """
    due = clock() + budget
    for candidates in (_fewer_steps, _plainer, _fewer_bytes, _less_time):
        again = True
        while again:
            again = False
            for candidate in candidates(sequence):
                if clock() >= due:
                    return sequence
                if strikes(candidate):
                    sequence, again = candidate, True
                    break
    return sequence


# -- candidates, the boldest first ------------------------------------------------------------


def _fewer_steps(sequence: Sequence) -> Iterator[Sequence]:
    steps = sequence.steps
    size = len(steps) // 2
    while size:
        # From the end: what comes first is mostly what opens the connection.
        for start in range(len(steps) - size, -1, -1):
            yield replace(sequence, steps=steps[:start] + steps[start + size :])
        size //= 2


def _plainer(sequence: Sequence) -> Iterator[Sequence]:
    for name, plain in PLAIN.items():
        if getattr(sequence, name) != plain:
            yield replace(sequence, **{name: plain})
    for place, step in enumerate(sequence.steps):
        for name in sorted(EXTRAS & step.keys()):
            yield _with(sequence, place, {n: v for n, v in step.items() if n != name})
        fields = step.get("with", {})
        if len(fields) > 1:
            for name in sorted(fields):
                fewer = {n: v for n, v in fields.items() if n != name}
                yield _with(sequence, place, {**step, "with": fewer})


def _fewer_bytes(sequence: Sequence) -> Iterator[Sequence]:
    for place, step in enumerate(sequence.steps):
        for name in ("frame", "send", "behind"):
            value = step.get(name)
            if isinstance(value, str):
                for shorter in _shorter(bytes.fromhex(value)):
                    yield _with(sequence, place, {**step, name: shorter.hex()})


def _shorter(data: bytes) -> Iterator[bytes]:
    size = len(data) // 2
    while size:
        for start in range(len(data) - size, -1, -size):
            yield data[:start] + data[start + size :]
        size //= 2
    for place in range(len(data)):
        if data[place]:
            yield data[:place] + b"\0" + data[place + 1 :]


def _less_time(sequence: Sequence) -> Iterator[Sequence]:
    for place, step in enumerate(sequence.steps):
        for name in TIMES:
            value = step.get(name)
            if isinstance(value, int | float) and value > 0.01:
                yield _with(sequence, place, _quicker(step, name, value))


def _quicker(step: Step, name: str, value: Any) -> Step:
    # A deadline is one, or it is none: half of it would say nothing.
    if verb(step) == "wait" and step.get("scaled"):
        return {"wait": 0.01}
    return {**step, name: round(value / 2, 4)}


def _with(sequence: Sequence, place: int, step: Step) -> Sequence:
    steps = sequence.steps
    return replace(sequence, steps=(*steps[:place], step, *steps[place + 1 :]))
