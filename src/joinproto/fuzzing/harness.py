"""Runs workers side by side for as long as was asked for, and puts together what they find."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final

from joinproto.conformance.session import CannotStart
from joinproto.fuzzing.confirm import TRIES, Examiner
from joinproto.fuzzing.execute import Executor
from joinproto.fuzzing.finding import Finding, versions
from joinproto.fuzzing.hunt import Plan, keys_of, target_text
from joinproto.fuzzing.outcome import Outcome, Regression
from joinproto.fuzzing.sequence import Sequence
from joinproto.fuzzing.shadow import Row
from joinproto.fuzzing.worker import plan_to_json

LOOK: Final = 0.2
"""Seconds after which somebody who waits is told how it goes."""

PATIENCE: Final = 90.0
"""Seconds that a worker has to finish what it is about: a finding that is being made smaller."""

IMPATIENCE: Final = 5.0
"""Seconds that it has when the run was ended from outside."""

CHUNK: Final = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How a run goes.

    Attributes:
        seconds: since it began.
        cases: that were played.
        covered: rows of the machine's table that were reached.
        findings: new ones.
    """

    seconds: float
    cases: int
    covered: int
    findings: int


class _Worker:
    """A worker's process, and what it has said that is not a whole line yet."""

    def __init__(self, plan: Plan, *, look: bool) -> None:
        # `-P`: what lies in the directory that somebody works in is not what is meant.
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "joinproto.fuzzing.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.held = b""
        self.say({"plan": plan_to_json(plan), "look": look})

    def say(self, values: Mapping[str, Any]) -> None:
        """Tell it something, if it still hears."""
        assert self.process.stdin is not None
        with suppress(OSError, ValueError):
            self.process.stdin.write(json.dumps(values).encode() + b"\n")
            self.process.stdin.flush()

    def stop(self) -> None:
        """Tell it to stop."""
        assert self.process.stdin is not None
        with suppress(OSError):
            self.process.stdin.close()

    def lines(self) -> list[dict[str, Any]] | None:
        """What it says; None: it has ended."""
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), CHUNK)
        *lines, self.held = (self.held + data).split(b"\n")
        return [json.loads(line) for line in lines] if data else None

    def close(self) -> None:
        """End it, if it has not ended."""
        self.stop()
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(IMPATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


@dataclass(kw_only=True)
class _Sum:
    cases: int = 0
    sessions: int = 0
    targets: int = 0
    rows: Counter[Row] = field(default_factory=Counter)
    findings: dict[str, Finding] = field(default_factory=dict)
    known: dict[str, str] = field(default_factory=dict)
    doubts: Counter[str] = field(default_factory=Counter)
    kept: list[Sequence] = field(default_factory=list)
    cannot: str = ""


class Harness:
    """Looks for faults in a target.

    Args:
        plan: what all workers do; `cases` are those of all together.
        jobs: how many there are.
        stop_after: findings after which it is enough; None: never.
        tell: hears of every finding at once.
        progress: hears now and then how it goes.

    Attributes:
        kept: the cases that reached something new, when the run is over.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        jobs: int,
        stop_after: int | None = None,
        tell: Callable[[Finding], None] = lambda _: None,
        progress: Callable[[Progress], None] = lambda _: None,
    ) -> None:
        self._plan = plan
        self._jobs = jobs
        self._stop_after = stop_after
        self._tell = tell
        self._progress = progress
        self._sum = _Sum()
        self._began = time.monotonic()
        self._interrupted = False
        self._stopping: float | None = None

    @property
    def kept(self) -> list[Sequence]:
        """See above."""
        return self._sum.kept

    def interrupt(self) -> None:
        """End the run; what was found so far counts.  May be called in a signal handler."""
        self._interrupted = True

    def replay(self, findings: Mapping[str, Finding]) -> tuple[Regression, ...]:
        """Play findings of earlier runs, by file, and say which strike again.

        Raises:
            CannotStart: the target cannot be started.
        """
        settings = self._plan.settings
        keys = keys_of(settings, self._plan.admission)
        executor = Executor(settings, self._plan.admission, keys)
        examiner = Examiner(executor, keys, settings.scale)
        done = []
        try:
            for file, finding in findings.items():
                if self._interrupted:
                    break
                done.append(Regression(file=file, finding=finding, again=_again(examiner, finding)))
        finally:
            executor.close()
        return tuple(done)

    def run(self, regressions: tuple[Regression, ...] = ()) -> Outcome:
        """Look for faults until the time is over.

        Args:
            regressions: what was replayed before.

        Raises:
            CannotStart: the target cannot be started, or does not speak with an honest peer.
        """
        started = datetime.now(UTC).isoformat(timespec="seconds")
        self._began = time.monotonic()
        plan = replace(self._plan, wires=self._first_look())
        for each in regressions:
            # Old news is none, and is not looked into again.
            plan = replace(plan, known={**plan.known, each.finding.bucket: "a regression"})
        self._hunt(plan)
        found = self._sum
        old = {each.finding.bucket for each in regressions}
        return Outcome(
            role=plan.settings.role,
            target=target_text(plan.settings),
            admission=plan.admission,
            wires=plan.wires,
            seed=plan.settings.seed,
            scale=plan.settings.scale,
            started=started,
            seconds=time.monotonic() - self._began,
            cases=found.cases,
            sessions=found.sessions,
            targets=found.targets,
            findings=tuple(found.findings.values()),
            known={bucket: why for bucket, why in found.known.items() if bucket not in old},
            doubts=dict(found.doubts),
            regressions=regressions,
            covered=dict(found.rows),
            interrupted=self._interrupted,
            versions=versions(),
        )

    # -- workers ------------------------------------------------------------------------------

    def _first_look(self) -> tuple[int, ...]:
        worker = _Worker(self._plan, look=True)
        try:
            while (lines := worker.lines()) is not None:
                for values in lines:
                    if "cannot" in values:
                        raise CannotStart(values["cannot"])
                    return tuple(values["spoken"])
        finally:
            worker.close()
        raise CannotStart("the harness itself failed; the lines above say how")

    def _hunt(self, plan: Plan) -> None:
        selector = selectors.DefaultSelector()
        workers = []
        try:
            for number in range(self._jobs):
                worker = _Worker(self._share(plan, number), look=False)
                workers.append(worker)
                assert worker.process.stdout is not None
                selector.register(worker.process.stdout, selectors.EVENT_READ, worker)
            while selector.get_map() and not self._too_long():
                for key, _ in selector.select(LOOK):
                    self._heard(selector, workers, key)
                if self._enough():
                    for worker in workers:
                        worker.stop()
                self._progress(self._so_far())
        finally:
            for worker in workers:
                worker.close()
            selector.close()
        if self._sum.cannot:
            raise CannotStart(self._sum.cannot)

    def _share(self, plan: Plan, number: int) -> Plan:
        plan = replace(plan, worker=number, workers=self._jobs)
        if plan.cases is None:
            return plan
        more = number < plan.cases % self._jobs
        return replace(plan, cases=plan.cases // self._jobs + more)

    def _heard(self, selector: selectors.BaseSelector, workers: list[_Worker], key: Any) -> None:
        lines = key.data.lines()
        if lines is None:
            selector.unregister(key.fileobj)
            if key.data.process.wait() and not self._sum.cannot:
                self._sum.cannot = "a worker of the harness failed; the lines above say how"
            return
        for values in lines:
            self._take(values)
            if values.keys() & {"kept", "bucket"}:
                for other in workers:
                    if other is not key.data:
                        other.say(values)

    def _take(self, values: Mapping[str, Any]) -> None:
        total = self._sum
        match values:
            case {"cases": cases, "sessions": sessions, "targets": targets, "rows": rows}:
                total.cases += cases
                total.sessions += sessions
                total.targets += targets
                for *row, count in rows:
                    total.rows[row[0], row[1], row[2]] += count
            case {"kept": sequence}:
                total.kept.append(Sequence.from_json(sequence))
            case {"finding": finding}:
                self._found(Finding.from_json(finding))
            case {"known": [bucket, reason]}:
                total.known[bucket] = reason
            case {"doubt": bucket}:
                total.doubts[bucket] += 1
            case {"cannot": text}:
                total.cannot = text

    def _found(self, finding: Finding) -> None:
        before = self._sum.findings.get(finding.bucket)
        if before is None or finding.sequence.size < before.sequence.size:
            self._sum.findings[finding.bucket] = finding
            self._tell(finding)

    def _enough(self) -> bool:
        enough = self._interrupted or bool(self._sum.cannot)
        enough |= self._stop_after is not None and len(self._sum.findings) >= self._stop_after
        enough |= time.monotonic() - self._began > self._plan.seconds
        if enough and self._stopping is None:
            self._stopping = time.monotonic()
        return enough

    def _too_long(self) -> bool:
        if self._stopping is None:
            return False
        brief = self._interrupted or self._sum.cannot or self._stop_after is not None
        patience = IMPATIENCE if brief else PATIENCE
        return time.monotonic() - self._stopping > patience

    def _so_far(self) -> Progress:
        return Progress(
            seconds=time.monotonic() - self._began,
            cases=self._sum.cases,
            covered=len(self._sum.rows),
            findings=len(self._sum.findings),
        )


def _again(examiner: Examiner, finding: Finding) -> bool:
    """Whether a finding strikes in one of as many tries as it was confirmed with."""
    return any(
        examiner.examine(finding.sequence, repeats=finding.repeats).has(finding.bucket)
        for _ in range(TRIES)
    )
