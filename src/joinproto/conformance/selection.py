"""Which cases are run, in which versions and modes, and what is expected of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from joinproto.conformance.case import Case
from joinproto.conformance.results import Result
from joinproto.conformance.verdicts import Level, Verdict
from joinproto.grammar import WIRES


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A case in one wire version and one trust mode."""

    case: Case
    wire: int
    admission: str

    @property
    def name(self) -> str:
        """`agent/framing/length-over-cap@4-open`; patterns match it, or the part before the @."""
        return name_of(self.case.id, self.wire, self.admission)


def name_of(case: str, wire: int, admission: str) -> str:
    """The name of an instance."""
    return f"{case}@{wire}-{admission}"


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern means an instance: a glob of its name, of its case's id, or a group."""
    case = name.partition("@")[0]
    whole = f"{pattern.rstrip('/')}/*"
    return any(fnmatchcase(*pair) for pair in ((name, pattern), (case, pattern), (case, whole)))


@dataclass(frozen=True, kw_only=True)
class Selection:
    """What the user wants run.

    Attributes:
        patterns: globs, one of which an instance must match; empty: all do.
        levels: of the cases.
        wires: the versions.
    """

    patterns: tuple[str, ...] = ()
    levels: frozenset[Level] = frozenset(Level)
    wires: tuple[int, ...] = tuple(WIRES)

    def takes(self, instance: Instance) -> bool:
        """Whether an instance is wanted."""
        wanted = not self.patterns or any(matches(instance.name, each) for each in self.patterns)
        return wanted and instance.case.level in self.levels and instance.wire in self.wires


def instances(cases: Iterable[Case], wires: Sequence[int]) -> list[Instance]:
    """The cases in all that they are run in, for a target that speaks these versions."""
    found = []
    for case in cases:
        # One that is about no version in particular is run in the newest.
        spoken = [wire for wire in case.wires if wire in wires] if case.wires else [max(wires)]
        found += [
            Instance(case=case, wire=wire, admission=admission)
            for wire in spoken
            for admission in case.admissions
        ]
    return found


class Expectations:
    """Deviations that are known, with the reason of each.

    Args:
        reasons: pattern → reason.
        sometimes: the patterns among them whose cases may pass as well.
    """

    def __init__(self, reasons: Mapping[str, str], sometimes: Iterable[str] = ()) -> None:
        self.reasons = dict(reasons)
        self._sometimes = frozenset(sometimes)

    @classmethod
    def read(cls, text: str) -> Expectations:
        """Expectations out of a file: a JSON object, pattern → reason.

        In place of a reason an object `{"reason": …, "sometimes": true}` may stand.

        Raises:
            ValueError: it is none; the text says what is wrong.
        """
        try:
            values = json.loads(text)
        except ValueError as error:
            raise ValueError(f"not JSON: {error}") from None
        if not isinstance(values, dict):
            raise ValueError("not a JSON object of patterns and reasons")
        objects = {
            pattern: value if isinstance(value, dict) else {"reason": value}
            for pattern, value in values.items()
        }
        for pattern, value in objects.items():
            reason = value.get("reason")
            if not isinstance(reason, str) or not reason.strip():
                raise ValueError(f"{pattern!r} has no reason")
            if value.keys() - {"reason", "sometimes"} or value.get("sometimes", True) is not True:
                raise ValueError(f'{pattern!r}: beside "reason", only "sometimes": true may stand')
        return cls(
            {pattern: value["reason"] for pattern, value in objects.items()},
            (pattern for pattern, value in objects.items() if "sometimes" in value),
        )

    def reason(self, name: str) -> str:
        """Why an instance is expected to deviate; "" where it is not."""
        return self.reasons.get(self._pattern(name), "")

    def may_pass(self, name: str) -> bool:
        """Whether an instance may also pass: it does not deviate each time."""
        return self._pattern(name) in self._sometimes

    def _pattern(self, name: str) -> str:
        return next((pattern for pattern in self.reasons if matches(name, pattern)), "")

    def stale(self, names: Iterable[str]) -> tuple[str, ...]:
        """The patterns that mean none of these instances."""
        known = list(names)
        return tuple(
            pattern for pattern in self.reasons if not any(matches(name, pattern) for name in known)
        )


def written(results: Iterable[Result]) -> str:
    """An expectations file of all that failed; each reason tells what was seen, to be explained."""
    failed = {
        name_of(each.case, each.wire, each.admission): (
            each.expected_failure or f"not explained yet: expected {each.expected}, got {each.got}"
        )
        for each in results
        if each.verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE)
    }
    return json.dumps(dict(sorted(failed.items())), indent=2, ensure_ascii=False) + "\n"
