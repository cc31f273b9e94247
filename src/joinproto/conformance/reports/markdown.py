"""The record as a Markdown summary, for the page that a CI system shows of a job.

It is GitHub's Markdown.  Text of the target stands in it inside `<code>`, with every character that
Markdown or HTML could take for its own as a numeric reference, which is never markup.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from joinproto.conformance.reports.facts import (
    UNEXPECTED,
    Standing,
    by_group,
    by_reason,
    conforms,
    counts,
    headline,
    name,
    standing,
    with_standing,
)
from joinproto.conformance.reports.text import one_line
from joinproto.conformance.results import Record, Result
from joinproto.conformance.verdicts import Verdict

MOST_ROWS = 200
"""Of a table; GitHub takes a megabyte in all."""

MOST_CHARACTERS = 300
"""Of one cell."""

_MARKUP = re.compile(r"[^\w\s/,.;=-]|_|\bwww(?=\.)")
"""Characters that mean something to Markdown or HTML, and what it takes for an address."""

MARKS = {True: "✅", False: "❌"}


def render(record: Record) -> str:
    """The summary."""
    return "\n\n".join(_parts(record)) + "\n"


def escaped(text: str, most: int = MOST_CHARACTERS) -> str:
    """`text` on one line, as text of Markdown that is no markup."""
    return _MARKUP.sub(_referenced, one_line(text, most))


def _referenced(hit: re.Match[str]) -> str:
    return "".join(f"&#{ord(char)};" for char in hit[0])


def _code(text: str, most: int = MOST_CHARACTERS) -> str:
    shown = escaped(text, most)
    return f"<code>{shown}</code>" if shown.strip() else ""


def _parts(record: Record) -> Iterator[str]:
    unexpected = with_standing(record, *UNEXPECTED)
    yield f"## {MARKS[conforms(record)]} joinproto conform {record.run.role}"
    yield f"**{escaped(headline(record))}**"
    yield _about(record)
    yield _overview(record)
    if unexpected:
        yield "### Unexpected"
        yield _table(
            ("case", "verdict", "clause", "expected", "got", "repeat"),
            [_unexpected(result) for result in unexpected],
        )
    if expected := with_standing(record, Standing.EXPECTED):
        yield "### Failed as expected"
        yield _table(
            ("case", "verdict", "clause", "reason"), [_expected(result) for result in expected]
        )
    if lax := with_standing(record, Standing.NON_STRICT):
        yield "### Non-strict"
        yield _table(("case", "clause", "got"), [_lax(result) for result in lax])
    if unsupported := by_reason(with_standing(record, Standing.UNSUPPORTED)):
        yield "### Unsupported"
        yield _table(
            ("reason", "cases", ""),
            [_unsupported(reason, results) for reason, results in unsupported.items()],
        )
    if record.summary and record.summary.stale:
        yield "### Expectations that no case matches"
        yield _table(("expectation",), [(_code(entry),) for entry in record.summary.stale])


def _about(record: Record) -> str:
    run = record.run
    told = [
        f"target {_code(run.target)}",
        f"wire {', '.join(map(str, run.wires)) or 'unknown'}",
        f"joinproto {escaped(run.version)}",
        f"seed {run.seed}",
        f"time scale {run.time_scale:g}",
        f"retries of inconclusive cases {run.retries}",
        f"started {escaped(run.started)}",
    ]
    return "Run: " + ", ".join(told)


def _overview(record: Record) -> str:
    verdicts = [verdict for verdict, count in counts(record.results).items() if count]
    rows = [
        (_code(name), *_counted(results, verdicts))
        for name, results in by_group(record.results).items()
    ]
    return _table(("group", *verdicts), [*rows, ("**all**", *_counted(record.results, verdicts))])


def _counted(results: Sequence[Result], verdicts: Iterable[Verdict]) -> list[str]:
    found = counts(results)
    return [str(found[verdict] or "") for verdict in verdicts]


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows[:MOST_ROWS]]
    shown = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    left = len(rows) - MOST_ROWS
    return f"{shown}\n\n{left} more are in the other reports." if left > 0 else shown


def _clause(result: Result) -> str:
    return _code(result.broken or ", ".join(result.clauses))


def _unexpected(result: Result) -> Sequence[str]:
    passed = standing(result) == Standing.PASSED
    expected = f"to fail: {result.expected_failure}" if passed else result.expected
    return (
        _code(name(result)),
        result.verdict.value,
        _clause(result),
        _code(expected),
        _code(result.got),
        _code(result.repeat, 2 * MOST_CHARACTERS),
    )


def _expected(result: Result) -> Sequence[str]:
    return (
        _code(name(result)),
        result.verdict.value,
        _clause(result),
        _code(result.expected_failure),
    )


def _lax(result: Result) -> Sequence[str]:
    return (_code(name(result)), _clause(result), _code(result.got))


def _unsupported(reason: str, results: Sequence[Result]) -> Sequence[str]:
    cases = list(dict.fromkeys(result.case for result in results))
    shown = ", ".join(map(_code, cases[:20]))
    more = f" and {len(cases) - 20} more" if len(cases) > 20 else ""
    return _code(reason), str(len(results)), shown + more
