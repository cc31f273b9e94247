"""The record on a terminal, or in the log that stands for one: failures in full, then a table.

What is shown came from the target.  It is put out as text, never as markup, with nothing in it that
steers a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from joinproto.conformance.reports.facts import (
    UNEXPECTED,
    Standing,
    by_group,
    by_reason,
    conforms,
    counts,
    headline,
    name,
    sentence,
    standing,
    with_standing,
)
from joinproto.conformance.reports.text import one_line, visible
from joinproto.conformance.results import Record, Result
from joinproto.conformance.verdicts import Verdict

STYLES = {
    Verdict.PASS: "green",
    Verdict.INFO: "cyan",
    Verdict.UNSUPPORTED: "bright_black",
    Verdict.NON_STRICT: "yellow",
    Verdict.INCONCLUSIVE: "magenta",
    Verdict.FAIL: "bold red",
    Verdict.HARNESS_ERROR: "bold magenta",
}

STDERR_LINES = 8
"""Of a failed case, the last that are shown; the record has more."""


def print_record(console: Console, record: Record) -> None:
    """Print what was not expected, each in full, what could not be run, and the table."""
    for result in with_standing(record, *UNEXPECTED):
        print_result(console, result)
    _print_unsupported(console, with_standing(record, Standing.UNSUPPORTED))
    if record.summary:
        for entry in record.summary.stale:
            put(console, f"no case matches the expectation {one_line(entry)}", "yellow")
    console.print(_table(record))
    put(console, headline(record), "bold" if conforms(record) else "bold red")


def print_result(console: Console, result: Result) -> None:
    """Print one result in full: the clause, its sentence, what was expected, and so on."""
    put(console, f"{result.verdict}  {one_line(name(result))}", STYLES[result.verdict])
    for label, value in _lines(result):
        words = visible(value).replace("\n", "\n" + " " * 12)
        console.print(Text.assemble((f"  {label:<9} ", "bold"), words), soft_wrap=True)
    console.print()


def put(console: Console, text: str, style: str = "") -> None:
    """Print text that is no markup, in lines as they are: no width breaks a command in two."""
    console.print(Text(text, style), soft_wrap=True)


def _lines(result: Result) -> Iterator[tuple[str, str]]:
    yield "case", result.title
    broken = result.broken.partition(":")[0]
    for clause in result.clauses:
        if clause != broken:
            yield "clause", f"{clause}: {sentence(clause)}".rstrip(": ")
    if result.broken:
        yield "broken", result.broken
    if standing(result) == Standing.PASSED:
        yield "expected", f"a failure: {result.expected_failure}"
    elif result.expected:
        yield "expected", result.expected
    if result.got:
        yield "got", result.got
    for note in result.notes:
        yield "note", note
    if result.stderr:
        yield "stderr", "\n".join(result.stderr.rstrip("\n").split("\n")[-STDERR_LINES:])
    if result.repeat:
        yield "repeat", result.repeat


def _print_unsupported(console: Console, results: Sequence[Result]) -> None:
    for reason, cases in by_reason(results).items():
        put(console, f"UNSUPPORTED  {len(cases)} × {one_line(reason)}", "bright_black")
    if results:
        console.print()


def _table(record: Record) -> Table:
    verdicts = [verdict for verdict, count in counts(record.results).items() if count]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_footer=True)
    table.add_column("group", footer="all")
    whole = counts(record.results)
    for verdict in verdicts:
        table.add_column(
            Text(verdict, STYLES[verdict]), footer=str(whole[verdict]), justify="right"
        )
    for group, results in by_group(record.results).items():
        found = counts(results)
        table.add_row(Text(one_line(group)), *(str(found[each] or "") for each in verdicts))
    return table
