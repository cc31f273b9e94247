"""How far a run is: a bar with an estimate on a terminal, else one line for each result."""

from __future__ import annotations

from collections import Counter
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as Bar
from rich.text import Text

from joinproto.conformance.reports.facts import UNEXPECTED, Standing, name, standing
from joinproto.conformance.reports.terminal import STYLES, put
from joinproto.conformance.reports.text import one_line
from joinproto.conformance.results import Result
from joinproto.conformance.verdicts import Verdict

TOLD_ON_TERMINAL = (*UNEXPECTED, Standing.NON_STRICT)
"""What gets a line above the bar as soon as it is known."""


class Progress:
    """Shows how far a run is, between entering and leaving it.

    Args:
        total: how many results are to come.
        console: where to.
    """

    def __init__(self, total: int, console: Console) -> None:
        self._console = console
        self._counts: Counter[Verdict] = Counter()
        self._total = total
        self._bar: Bar | None = None
        self._task = TaskID(0)
        if console.is_terminal:
            self._bar = Bar(
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.description}"),
                TimeElapsedColumn(),
                TextColumn("left"),
                TimeRemainingColumn(),
                console=console,
                transient=True,
            )
            self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def expect(self, total: int) -> None:
        """Say how many results are to come, now that it is known better."""
        self._total = total
        if self._bar is not None:
            self._bar.update(self._task, total=total)

    def add(self, result: Result) -> None:
        """Count a result, and show that."""
        self._counts[result.verdict] += 1
        if self._bar is None:
            self._tell(result)
            return
        if standing(result) in TOLD_ON_TERMINAL:
            self._tell(result)
        self._bar.update(self._task, advance=1, description=self.counted)

    @property
    def counted(self) -> str:
        """How many results have each verdict so far."""
        found = ((verdict, self._counts[verdict]) for verdict in Verdict)
        return "  ".join(f"{verdict} {count}" for verdict, count in found if count)

    def _tell(self, result: Result) -> None:
        why = one_line(_why(result), 160)
        shown = f"{result.verdict:<13} {one_line(name(result))}" + (f": {why}" if why else "")
        if self._bar is None:
            shown = f"{self._counts.total()}/{self._total}  {shown}"
            put(self._console, shown, STYLES[result.verdict])
        else:
            self._bar.print(Text(shown, STYLES[result.verdict]), soft_wrap=True)


def _why(result: Result) -> str:
    match standing(result):
        case Standing.FINE:
            return ""
        case Standing.PASSED:
            return f"expected to fail: {result.expected_failure}"
        case Standing.EXPECTED:
            return f"as expected: {result.expected_failure}"
        case _:
            return result.got or result.broken
