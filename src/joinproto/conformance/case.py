"""Cases as data: what one says, and the files they are read from.

A file holds one group of cases of one role (`cases/agent/framing.json`); the schema of the files is
`specs/conformance-cases.schema.json`, which also says what each step means.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from typing import Any, TypeAlias

from joinproto.conformance.verdicts import Level

Step: TypeAlias = Mapping[str, Any]
"""One step: a JSON object with exactly one of the words of `VERBS`."""

VERBS = frozenset(
    (
        *("accept", "hello", "listen", "dial"),
        *("say", "frame", "send", "half_close", "close", "reset"),
        *("await", "all", "quiet", "wait", "gone", "forwarded"),
        *("signal", "rank", "honest", "repeat", "restart"),
    )
)

ADMISSIONS = ("open", "pre-shared")


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How the connection must have ended when the steps are through.

    Attributes:
        on: its name.
        how: fin, rst, or both.
        within: seconds after the last step by which it must have.
    """

    on: str
    how: tuple[str, ...]
    within: float


@dataclass(frozen=True, kw_only=True)
class Case:
    """One case.

    Attributes:
        id: `role/group/name`.
        title: one sentence: what is done, and what must come of it.
        clauses: those it is about, the most important first.
        level: how much it demands.
        wires: the versions that it is run in, one by one; empty: in the newest that the target has.
        admissions: the trust modes that it is run in, one by one.
        needs: capabilities that the target must have.
        memory: it can also be played against machines in memory.
        waits_margin: it waits out the formation margin of 30 s, which does not scale.
        setup: what the target is started with.
        given: steps that lead to what the case is about; where one fails, it is inconclusive.
        steps: what it is about.
        ending: how the connection must have ended; None: that is left open.
    """

    id: str
    title: str
    clauses: tuple[str, ...]
    level: Level
    wires: tuple[int, ...] = ()
    admissions: tuple[str, ...] = ("open",)
    needs: tuple[str, ...] = ()
    memory: bool = True
    waits_margin: bool = False
    setup: Mapping[str, Any] = field(default_factory=dict)
    given: Sequence[Step] = ()
    steps: Sequence[Step] = ()
    ending: Ending | None = None

    @property
    def role(self) -> str:
        """What it tests: agent or controller."""
        return self.id.split("/")[0]

    @property
    def group(self) -> str:
        """The file that it is from."""
        return self.id.split("/")[1]

    @property
    def sanity(self) -> bool:
        """Whether it is run before the others, which mean nothing without it."""
        return self.group == "sanity"


@cache
def load(role: str) -> tuple[Case, ...]:
    """All cases of a role, sanity first, then by group."""
    found = [case for name, text in files(role) for case in parse(role, name, text)]
    return tuple(sorted(found, key=lambda case: not case.sanity))


def files(role: str) -> Iterator[tuple[str, str]]:
    """Name and text of each file of a role, by name."""
    folder = resources.files(__package__) / "cases" / role
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        if file.name.endswith(".json"):
            yield file.name, file.read_text(encoding="utf-8")


def parse(role: str, name: str, text: str) -> tuple[Case, ...]:
    """The cases of one file.

    Raises:
        ValueError: it is none; the text says where.
    """
    try:
        content = json.loads(text)
        group = name.removesuffix(".json")
        return tuple(_case(f"{role}/{group}", entry) for entry in content["cases"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"{role}/{name} is no file of cases: {error!r}") from error


def _case(prefix: str, entry: dict[str, Any]) -> Case:
    admission = entry.get("admission", "open")
    clauses = tuple(entry["clauses"])
    return Case(
        id=f"{prefix}/{entry['id']}",
        title=entry["title"],
        clauses=clauses,
        level=Level(entry["level"]) if "level" in entry else _strictest(clauses),
        wires=tuple(entry.get("wires", ())),
        admissions=ADMISSIONS if admission == "both" else (admission,),
        needs=tuple(entry.get("needs", ())),
        memory=entry.get("memory", True),
        waits_margin=entry.get("waits_margin", False),
        setup=entry.get("setup", {}),
        given=tuple(_checked(step) for step in entry.get("given", ())),
        steps=tuple(_checked(step) for step in entry["steps"]),
        ending=_ending(entry["ending"]) if "ending" in entry else None,
    )


def _strictest(clauses: Sequence[str]) -> Level:
    from joinproto.conformance.clauses import load as load_clauses

    known = load_clauses()
    order = list(Level)
    levels = (Level(known[clause].level.split()[0]) for clause in clauses)
    return min(levels, key=order.index)


def _checked(step: Step) -> Step:
    if len(VERBS & step.keys()) != 1:
        raise ValueError(f"a step has one of {sorted(VERBS)}, not {dict(step)}")
    return step


def _ending(entry: Mapping[str, Any]) -> Ending:
    return Ending(
        on=entry.get("on", "c"),
        how=tuple(entry.get("how", ("fin",))),
        within=float(entry.get("within", 3)),
    )
