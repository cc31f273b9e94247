"""What every report tells of a record: which results matter, in which order, and what was said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from joinproto.conformance import clauses
from joinproto.conformance.results import Happening, Record, Result
from joinproto.conformance.selection import name_of
from joinproto.conformance.verdicts import CONFORMS, Verdict

SUITE = "suite"
TARGET = "target"


class Standing(StrEnum):
    """What a result means for the run, what needs a look first."""

    FAILED = "failed"
    """A clause was broken, and nobody expected it."""
    PASSED = "passed unexpectedly"
    """It was expected to fail: the expectation has to go."""
    UNDECIDED = "undecided"
    """The case was not reached, or the suite itself failed."""
    EXPECTED = "failed as expected"
    """It deviates, or comes to nothing, and the expectation says why."""
    NON_STRICT = "non-strict"
    """It deviates from what the clause says it should do."""
    UNSUPPORTED = "unsupported"
    """It could not be run against this target."""
    FINE = "fine"
    """It passed, or only informs."""


UNEXPECTED = (Standing.FAILED, Standing.PASSED, Standing.UNDECIDED)
"""What keeps a run from ending with 0."""

_UNEXPECTED_OF = {
    Verdict.FAIL: Standing.FAILED,
    Verdict.INCONCLUSIVE: Standing.UNDECIDED,
    Verdict.HARNESS_ERROR: Standing.UNDECIDED,
    Verdict.UNSUPPORTED: Standing.UNSUPPORTED,
    Verdict.NON_STRICT: Standing.NON_STRICT,
}
_EXPECTED_OF = _UNEXPECTED_OF | {
    Verdict.FAIL: Standing.EXPECTED,
    Verdict.NON_STRICT: Standing.EXPECTED,
    Verdict.INCONCLUSIVE: Standing.EXPECTED,
    Verdict.HARNESS_ERROR: Standing.EXPECTED,
    Verdict.PASS: Standing.PASSED,
    Verdict.INFO: Standing.PASSED,
}


def standing(result: Result) -> Standing:
    """What a result means for the run."""
    table = _EXPECTED_OF if result.expected_failure else _UNEXPECTED_OF
    return table.get(result.verdict, Standing.FINE)


def with_standing(record: Record, *wanted: Standing) -> list[Result]:
    """The results that stand so, in the order of the record."""
    return [result for result in record.results if standing(result) in wanted]


def what_matters_first(record: Record) -> list[Result]:
    """All results in the order of their standings, and those of one in that of the record."""
    order = tuple(Standing)
    return sorted(record.results, key=lambda result: order.index(standing(result)))


def group(result: Result) -> str:
    """The group of a case: its id but for the last part."""
    return result.case.rpartition("/")[0] or result.case


def name(result: Result) -> str:
    """What was run, as commands and expectations name it: case, wire version and trust mode."""
    return name_of(result.case, result.wire, result.admission)


def by_group(results: Iterable[Result]) -> dict[str, list[Result]]:
    """The results of each group, groups in the order in which they first come."""
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(group(result), []).append(result)
    return found


def by_reason(results: Iterable[Result]) -> dict[str, list[Result]]:
    """Results by what they got; of those that could not be run, that is why."""
    found: dict[str, list[Result]] = {}
    for result in results:
        found.setdefault(why_unsupported(result), []).append(result)
    return found


def why_unsupported(result: Result) -> str:
    """Why a case could not be run."""
    return result.got or "; ".join(result.notes) or "no reason was given"


def counts(results: Iterable[Result]) -> dict[Verdict, int]:
    """How many results have each verdict, those included that none has."""
    found = Counter(result.verdict for result in results)
    return {verdict: found[verdict] for verdict in Verdict}


def tally(record: Record) -> tuple[int, int]:
    """How many results passed or only inform, of how many that the target could be asked for."""
    found = counts(record.results)
    passed = found[Verdict.PASS] + found[Verdict.INFO]
    return passed, len(record.results) - found[Verdict.UNSUPPORTED]


def conforms(record: Record) -> bool:
    """Whether the run was whole and everything in it came out as it must, or as expected."""
    ended_well = record.summary is not None and record.summary.exit_code == CONFORMS
    return ended_well and not with_standing(record, *UNEXPECTED)


def headline(record: Record) -> str:
    """The outcome in one sentence."""
    passed, asked = tally(record)
    found = Counter(map(standing, record.results))
    told = [f"{found[each]} {each}" for each in Standing if found[each] and each != Standing.FINE]
    if record.summary is None:
        told.append(f"the run was cut short after {len(record.results)} results")
    elif stale := len(record.summary.stale):
        told.append(f"{stale} of the expectations match{'es' * (stale == 1)} no case")
    return "; ".join([f"{passed} of {asked} passed", *told])


def sentence(clause: str) -> str:
    """The sentence of a clause of the specification; "" where this joinproto has no such clause."""
    known = clauses.load().get(clause)
    return known.text if known else ""


# -- what was said ----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One or more happenings that are told as one.

    Attributes:
        first: the first of them.
        text: what they mean.
        data: their bytes, as far as the record has them.
        size: how many those were.
        count: how many happenings.
    """

    first: Happening
    text: str
    data: bytes = b""
    size: int = 0
    count: int = 1


def pieces(happenings: Sequence[Happening]) -> Iterator[Piece]:
    """The happenings, with bytes that come one after the other up to a message put together."""
    held: list[Happening] = []
    for happening in happenings:
        if held and not _goes_on(held[-1], happening):
            yield _together(held)
            held = []
        held.append(happening)
    if held:
        yield _together(held)


def _goes_on(before: Happening, after: Happening) -> bool:
    same = (before.who, before.what, before.connection) == (after.who, "bytes", after.connection)
    return same and not before.text and before.size * 2 == len(before.hex)


def _together(held: Sequence[Happening]) -> Piece:
    return Piece(
        first=held[0],
        text=held[-1].text,
        data=b"".join(bytes.fromhex(each.hex) for each in held),
        size=sum(each.size for each in held),
        count=len(held),
    )


def peers(happenings: Iterable[Happening]) -> dict[str, str]:
    """Who is at the other end of each connection from the suite: who did something on it."""
    found: dict[str, str] = {}
    for happening in happenings:
        if happening.connection and happening.who != SUITE:
            found.setdefault(happening.connection, happening.who)
    return found


def receiver(happening: Happening, known: dict[str, str]) -> str:
    """Who a happening on a connection reaches."""
    return known.get(happening.connection, TARGET) if happening.who == SUITE else SUITE
