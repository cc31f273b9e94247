"""What a target can be told and has, and which cases that leaves out."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any, Final

from joinproto.conformance.case import ADMISSIONS, Case
from joinproto.conformance.target import PLACEHOLDERS, check, placeholders_in
from joinproto.grammar import WIRES

CHILDREN: Final = ("up", "down", "rank")
"""Words of steps and patterns about what an agent starts."""

USUAL: Final[Mapping[str, object]] = {"join_timeout": 300, "max_join_timeout": 600}
"""What every controller takes when it is told nothing (JP-WIN-008)."""

_LISTS = ("wires", "admissions", "reads", "has")
_KEYS = {*_LISTS, "with", "fixed", "command"}


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What is declared of a target; what is not declared is found out, or taken from its command.

    Attributes:
        wires: the wire versions that it speaks; None: the sanity case finds out.
        admissions: the trust modes that it can be run in; None: those that its command can tell.
        reads: values of JOINPROTO_CASE that it obeys, JOINPROTO_HELPER (`helper`) included.
        has: capabilities that cases may need.
        options: further capabilities → words that its command line then needs.
        fixed: values that it cannot be told, by the name of their placeholder.
        command: how it is started; "" where that is given otherwise.
    """

    wires: tuple[int, ...] | None = None
    admissions: tuple[str, ...] | None = None
    reads: frozenset[str] = frozenset()
    has: frozenset[str] = frozenset()
    options: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, object] = field(default_factory=dict)
    command: str = ""

    def words_for(self, case: Case) -> tuple[str, ...]:
        """What the command line needs besides for this case."""
        needed = (self.options[name] for name in case.needs if name in self.options)
        return tuple(word for words in needed for word in shlex.split(words))


def read(text: str) -> Capabilities:
    """Capabilities out of a file.

    Raises:
        ValueError: it is none; the text says what is wrong.
    """
    try:
        values: Any = json.loads(text)
    except ValueError as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(values, dict):
        raise ValueError("not a JSON object")
    for problem in _problems(values):
        raise ValueError(problem)
    return Capabilities(
        wires=tuple(values["wires"]) if "wires" in values else None,
        admissions=tuple(values["admissions"]) if "admissions" in values else None,
        reads=frozenset(values.get("reads", ())),
        has=frozenset(values.get("has", ())),
        options=values.get("with", {}),
        fixed=values.get("fixed", {}),
        command=values.get("command", ""),
    )


def _problems(values: Mapping[str, Any]) -> Iterator[str]:
    for name in values.keys() - _KEYS:
        yield f"{name!r} is none of {', '.join(sorted(_KEYS))}"
    for name in _LISTS:
        if not isinstance(values.get(name, []), list):
            yield f"{name} is not an array"
    for name in ("with", "fixed"):
        if not isinstance(values.get(name, {}), dict):
            yield f"{name} is not an object"
    known: dict[str, set[Any]] = {
        "wires": set(WIRES),
        "admissions": set(ADMISSIONS),
        "reads": set(PLACEHOLDERS),
    }
    for name, there in known.items():
        for value in values.get(name, ()):
            if value not in there:
                yield f"{name}: {value!r} is none of {', '.join(map(str, sorted(there)))}"
    if not isinstance(values.get("command", ""), str):
        yield "command is not a string"


def of_ourselves(role: str) -> Capabilities:
    """Those of our own agent or controller, with its command."""
    file = resources.files(__package__) / "data" / f"self-{role}.json"
    return read(file.read_text(encoding="utf-8"))


def split(command: str) -> tuple[str, ...]:
    """The words of a command with its placeholders.

    Raises:
        ValueError: the shell could not read it either, or its placeholders are wrong.
    """
    words = tuple(shlex.split(command))
    check(words)
    return words


@dataclass(frozen=True, kw_only=True)
class Reach:
    """What of the cases can reach a target.

    Attributes:
        role: agent or controller.
        command: how it is started; empty: it is up already.
        capabilities: what is declared of it.
        admission: of a target that is up already.
    """

    role: str
    command: Sequence[str]
    capabilities: Capabilities
    admission: str = "open"

    def admissions(self) -> tuple[str, ...]:
        """The trust modes that the target can be run in."""
        if self.capabilities.admissions is not None:
            return self.capabilities.admissions
        if not self.command:
            return (self.admission,)
        if self.role == "agent" or self.can_tell("admission"):
            return ADMISSIONS
        if not self.can_tell("salt_file"):
            return ("open",)
        return ADMISSIONS if self._optional("salt_file") else ("pre-shared",)

    def missing(self, case: Case, admission: str) -> str:
        """Why a case cannot be played; "" where it can."""
        if admission not in self.admissions():
            return f"the target cannot be told to run with {admission} admission"
        known = self.capabilities.has | self.capabilities.options.keys()
        lacks = [name for name in case.needs if name not in known]
        if lacks:
            return f"the target is not declared to have: {', '.join(lacks)}"
        if not self.command and not case.setup.get("harmless"):
            return "the case needs a controller of its own (--start)"
        untold = [name for name in self._needed(case) if not self._told(case, name)]
        if untold:
            how = "in braces in its command, or declared in a file of capabilities"
            return f"the target cannot be told: {', '.join(untold)} ({how})"
        return ""

    # -- inside -------------------------------------------------------------------------------

    def _needed(self, case: Case) -> list[str]:
        """Names of the values on which a case depends."""
        if self.role == "agent":
            return ["helper"] if uses_children(case) else []
        needed = [] if case.setup.get("harmless") else ["min_ranks", "target_ranks"]
        return needed + [
            name
            for name in ("join_timeout", "max_join_timeout", "dataset_sig")
            if name in case.setup and name not in needed
        ]

    def _told(self, case: Case, name: str) -> bool:
        if name in USUAL and case.setup.get(name, 0) is None:  # it is to be told nothing
            return (
                self._optional(name) if self.can_tell(name) else name not in self.capabilities.fixed
            )
        if self.can_tell(name):
            return True
        quorum = case.setup.get("min_ranks", 1)
        values = {**USUAL, "min_ranks": quorum, "target_ranks": quorum, **case.setup}
        fixed = {**USUAL, **self.capabilities.fixed}
        return name in fixed and fixed[name] == values.get(name)

    def can_tell(self, name: str) -> bool:
        """Whether the target can be told the value of a placeholder."""
        return name in placeholders_in(self.command) or name in self.capabilities.reads

    def _optional(self, name: str) -> bool:
        """Whether the command leaves the value out where a case has none."""
        if name in self.capabilities.reads:
            return True
        depth = 0
        for word in self.command:
            depth += word.startswith("[")
            if f"{{{name}}}" in word:
                return depth > 0
            depth -= word.endswith("]")
        return False


def uses_children(case: Case) -> bool:
    """Whether a case looks at what the agent starts."""
    return _mentions([*case.given, *case.steps])


def _mentions(value: Any) -> bool:
    if isinstance(value, Mapping):
        return any(word in value for word in CHILDREN) or any(map(_mentions, value.values()))
    return isinstance(value, list) and any(map(_mentions, value))
