"""How a run goes and what it came to, on a terminal or in the log that stands for one.

What is shown came from the target.  It is put out as text, never as markup, with nothing in it that
steers a terminal.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.live import Live
from rich.text import Text

from joinproto.conformance.reports.facts import sentence
from joinproto.conformance.reports.terminal import put
from joinproto.conformance.reports.text import one_line
from joinproto.fuzzing.finding import Finding
from joinproto.fuzzing.harness import Progress
from joinproto.fuzzing.hunt import Plan, target_text
from joinproto.fuzzing.outcome import Outcome
from joinproto.fuzzing.reports.facts import headline
from joinproto.fuzzing.reports.machine import title
from joinproto.fuzzing.shadow import out_of_reach, rows_of

EVERY = 10.0
"""Seconds between lines of progress where there is no terminal."""

WIDE = 300


class Terminal:
    """Shows a run between entering and leaving it.

    Args:
        plan: of the run.
        console: where to; None: standard output.
    """

    def __init__(self, plan: Plan, console: Console | None = None) -> None:
        self._plan = plan
        self._console = Console() if console is None else console
        self._live: Live | None = None
        self._told = 0.0
        role = plan.settings.role
        self._reachable = sum(not out_of_reach(role, row) for row in rows_of(role))

    def __enter__(self) -> Terminal:
        settings = self._plan.settings
        target = one_line(target_text(settings), WIDE)
        put(self._console, f"fuzzing {target} (seed {settings.seed})", "")
        if self._console.is_terminal:
            self._live = Live(Text(""), console=self._console, transient=True)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def progress(self, now: Progress) -> None:
        """Show how it goes."""
        rate = now.cases / now.seconds if now.seconds else 0.0
        told = (
            f"{now.seconds:.0f} of {self._plan.seconds:.0f} s  {now.cases} cases"
            f" ({rate:.0f} a second)  {now.covered} of {self._reachable} rows"
            f"  {now.findings} finding{'s' * (now.findings != 1)}"
        )
        if self._live is not None:
            self._live.update(Text(told))
        elif now.seconds - self._told >= EVERY:
            self._told = now.seconds
            put(self._console, told, "")

    def tell(self, finding: Finding, path: Path) -> None:
        """Tell of a finding as soon as it is there."""
        clause = finding.strike.clause
        lines = {
            "FOUND": finding.id,
            "  what": one_line(finding.summary, WIDE),
            "  clause": f"{clause}: {sentence(clause)}" if clause else "",
            "  steps": f"{len(finding.sequence.steps)}",
            "  file": str(path),
        }
        shown = "\n".join(f"{name:<9} {text}" for name, text in lines.items() if text)
        if self._live is not None:
            self._live.console.print(Text(shown, "bold red"), soft_wrap=True)
        else:
            put(self._console, shown, "bold red")

    def summary(self, outcome: Outcome) -> None:
        """Say what it came to."""
        for regression in outcome.struck_again:
            finding = one_line(regression.finding.summary, WIDE)
            put(self._console, f"STRIKES AGAIN {one_line(regression.file)}: {finding}", "bold red")
        for bucket, reason in outcome.known.items():
            put(self._console, f"known: {one_line(bucket)}: {one_line(reason)}", "yellow")
        if outcome.missing:
            rows = "; ".join(map(title, outcome.missing))
            put(self._console, f"not reached: {rows}", "yellow")
        put(self._console, headline(outcome), "bold red" if outcome.exit_code else "bold")
