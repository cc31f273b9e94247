"""What counts as a fault: what a target did in a case, held against what it should have done."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from joinproto.conformance.telling import exit_text
from joinproto.fuzzing.acting import Heard
from joinproto.fuzzing.execute import CRASHED, Observation
from joinproto.fuzzing.sequence import Sequence
from joinproto.fuzzing.shadow import Foreseen
from joinproto.messages import Accept, RankExited

ORACLES: Final = {
    "died": "the process died",
    "hung": "it did not do what it had to within its deadline",
    "answered": "it answered a peer that had shown no key",
    "obeyed": "it did something that the specification does not let it do there",
    "garbled": "it sent bytes that are no message",
    "formed-twice": "it formed the world twice",
    "rank-twice": "it gave one rank to two hosts",
    "told-twice": "it reported the end of a rank twice",
    "started": "it started processes that it must not",
    "left-behind": "it ended and left processes behind",
    "memory": "it took far more memory than it was sent",
    "leaked": "it did not let go of descriptors or processes",
    "flooded": "it sent or wrote without end",
    "deaf": "an honest host could not join any more",
}
"""Name → what is wrong when it strikes."""

CLAUSES: Final = {
    "died": "JP-PAY-017",
    "answered": "JP-FRM-013",
    "garbled": "JP-FRM-001",
    "formed-twice": "JP-WIN-012",
    "left-behind": "JP-SUP-013",
    "memory": "JP-FRM-017",
    "deaf": "JP-CHN-007",
}
"""Oracle → the clause that is broken, where one always is."""

MEMORY: Final = 48 * 2**20
"""Bytes that a target may take in a case, besides `PER_BYTE` for each that it is sent."""
PER_BYTE: Final = 8

_PLACES: Final = (
    re.compile(r"panicked at (?:'[^\n]*?', )?([\w./-]+:\d+)"),
    re.compile(r'File "[^"\n]*?([\w.-]+\.py)", line (\d+)(?!.*File ")', re.DOTALL),
)


@dataclass(frozen=True, kw_only=True)
class Strike:
    """A fault that was seen.

    Attributes:
        oracle: what struck.
        what: what was seen.
        where: in which state of the machine, and where in the program it died, if it did.
    """

    oracle: str
    what: str
    where: str = ""

    @property
    def bucket(self) -> str:
        """One fault is one finding: strikes of one bucket are taken for the same."""
        return f"{self.oracle}:{self.where}"

    @property
    def clause(self) -> str:
        """The clause that is broken; "" where none always is."""
        return CLAUSES.get(self.oracle, "")


def judge(sequence: Sequence, foreseen: Foreseen, seen: Observation) -> list[Strike]:
    """Everything that is wrong with what a target did."""
    if seen.flood:
        return [Strike(oracle="flooded", what=seen.flood, where=_state(foreseen))]
    crash = list(_crashes(sequence, foreseen, seen))
    if crash:
        # All else that went wrong went wrong for that.
        return crash
    return [*_on_connections(sequence, foreseen, seen), *_on_host(foreseen, seen)]


def death_place(stderr: str) -> str:
    """Where in a program a crash happened, as far as it says so itself; else ""."""
    for pattern in _PLACES:
        found = pattern.search(stderr)
        if found is not None:
            return ":".join(found.groups())
    return ""


def crash_of(code: int | None, stderr: str) -> Strike | None:
    """A crash, as exit code and last words tell of it; None where they tell of none."""
    place = death_place(stderr)
    if code is not None and code < 0:
        return Strike(oracle="died", what=exit_text(code), where=place or f"signal {-code}")
    if not CRASHED.search(stderr):
        return None
    lines = [line for line in stderr.splitlines() if line.strip()]
    return Strike(oracle="died", what=lines[-1][:300], where=place)


# -- the process ------------------------------------------------------------------------------


def _crashes(sequence: Sequence, foreseen: Foreseen, seen: Observation) -> Iterator[Strike]:
    state = _state(foreseen)
    signals = any("signal" in step for step in sequence.steps)
    crash = None
    if not (signals and seen.exit in (-15, -2)):
        crash = crash_of(seen.exit, seen.stderr)
    if crash is not None:
        yield crash
    elif sequence.role == "controller" and foreseen.exit is None and not signals:
        if seen.exit is not None:
            yield Strike(oracle="died", what=exit_text(seen.exit), where=f"{state}, {seen.exit}")
        elif seen.unreachable:
            yield Strike(oracle="deaf", what=seen.unreachable, where=state)


def _on_host(foreseen: Foreseen, seen: Observation) -> Iterator[Strike]:
    state = _state(foreseen)
    if seen.exit is None and foreseen.exit is not None and _got_there(foreseen, seen):
        yield Strike(oracle="hung", what="it did not end", where=f"{state}, process")
    strange = seen.started - foreseen.children
    if strange and not foreseen.children:
        yield Strike(oracle="started", what=f"it started {', '.join(sorted(strange))}", where=state)
    if seen.left:
        yield Strike(oracle="left-behind", what=", ".join(seen.left), where=state)
    if seen.grown > MEMORY + PER_BYTE * seen.sent:
        grown = f"{seen.grown >> 20} MiB for {seen.sent} bytes"
        yield Strike(oracle="memory", what=grown, where=state)


def _got_there(foreseen: Foreseen, seen: Observation) -> bool:
    """Whether the target has said all that leads to its end."""
    return all(
        name in seen.heard and not Counter(_messages(should)) - Counter(_messages(seen.heard[name]))
        for name, should in foreseen.heard.items()
    )


def _state(foreseen: Foreseen) -> str:
    return "+".join(sorted(set(foreseen.states.values())))


# -- connections ------------------------------------------------------------------------------


def _on_connections(sequence: Sequence, foreseen: Foreseen, seen: Observation) -> Iterator[Strike]:
    for name, heard in seen.heard.items():
        should = foreseen.heard.get(name, Heard())
        state = foreseen.states.get(name, _state(foreseen))
        if name not in seen.elsewhere:
            yield from _on_connection(should, heard, state, ranks=bool(foreseen.children))
    yield from _ranks(seen, _state(foreseen))


def _on_connection(should: Heard, heard: Heard, state: str, *, ranks: bool) -> Iterator[Strike]:
    if "garbled" in heard.events:
        yield Strike(oracle="garbled", what=_told(heard), where=state)
        return
    more = Counter(_messages(heard)) - Counter(_messages(should))
    if ranks:
        # When a process ends, and whether before the connection does, is not for us to foresee.
        del more["RankExited"]
    if more:
        oracle = "obeyed" if heard.authenticated else "answered"
        if more.get("WorldFormed") and "WorldFormed" in should.events:
            oracle = "formed-twice"
        names = ", ".join(sorted(more))
        yield Strike(oracle=oracle, what=f"it said {_told(heard)}", where=f"{state}, {names}")
    late = should.early and not heard.early
    if (late or (should.ended and not heard.ended)) and not heard.closed:
        said = _told(heard) or "nothing"
        until = " before no more was sent" if heard.ended else ""
        what = f"it did not end the connection{until}; it said {said}"
        yield Strike(oracle="hung", what=what, where=state)
    reports = Counter(each.rank for each in heard.messages if isinstance(each, RankExited))
    if any(count > 1 for count in reports.values()):
        yield Strike(oracle="told-twice", what=_told(heard), where=state)


def _messages(heard: Heard) -> list[str]:
    return [event for event in heard.events if event not in ("fin", "rst", "garbled")]


def _told(heard: Heard) -> str:
    return ", ".join(heard.events)


def _ranks(seen: Observation, state: str) -> Iterator[Strike]:
    """Ranks of hosts that were in at the same time."""
    given: Counter[int] = Counter()
    for heard in seen.heard.values():
        accepts = [each for each in heard.messages if isinstance(each, Accept)]
        if accepts and heard.stays:
            given.update(accepts[0].ranks)
    twice = sorted(rank for rank, count in given.items() if count > 1)
    if twice:
        yield Strike(oracle="rank-twice", what=f"rank {twice[0]} was given twice", where=state)
