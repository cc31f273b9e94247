"""Looks for faults: makes cases, plays them, and makes a finding of what is wrong."""

from __future__ import annotations

import random
import shlex
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Final, Protocol

from joinproto.conformance.session import CannotStart, Settings
from joinproto.conformance.world import Keys
from joinproto.fuzzing.confirm import (
    REPEATS,
    TRIES,
    Examined,
    Examiner,
    aftermath,
    narrow,
)
from joinproto.fuzzing.execute import BRIEF, PATIENCE, Executor
from joinproto.fuzzing.finding import Finding
from joinproto.fuzzing.generate import Generator, waits
from joinproto.fuzzing.lines import Lines
from joinproto.fuzzing.oracles import Strike, judge
from joinproto.fuzzing.sequence import Sequence
from joinproto.fuzzing.shadow import Row
from joinproto.fuzzing.shrink import BUDGET, SMALL_BUDGET, shrink
from joinproto.keys import OPEN, Salt
from joinproto.limits import SALT_BYTES

SANITY: Final = 50
"""Cases after which an honest host must still be able to join."""

LIFETIME: Final = 500
"""Cases that one controller stands; a published one gives up at 1024 dials turned away."""

OWN_SHARE: Final = 0.5
SMALL_SHARE: Final = 0.1
"""Of the time goes into cases for controllers that need a target of their own, as long as rows of
the machine are missing, and then.  It is reckoned and not measured, so that a seed means the same
cases on every machine."""

START_COST: Final = 0.6
PLAY_COST: Final = 0.004
"""Seconds that a start, and a case that waits for nothing, take."""

PATIENT: Final = 40
"""Cases that are made, at most, for one such case to reach something new."""

NARROWING: Final = 15.0
"""Seconds, at most, in which the case is looked for that has harmed a target in sum."""

TRACED: Final = 8
"""Of so many cases of a crowd one is looked at line by line, which takes longer."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What one worker is to do.

    Attributes:
        settings: how the target is started, or where it is.
        admission: open or pre-shared.
        wires: the versions that cases are spoken in.
        worker: which one it is, from 0 …
        workers: … of how many.
        seconds: how long it looks for faults.
        cases: how many it plays, at most; None: as many as there is time for.
        known: pattern of ids or buckets → why what is found there is no news.
        ourselves: the target is joinproto's own: what code of it is reached counts too.
        corpus: cases to begin with.
    """

    settings: Settings
    admission: str
    wires: tuple[int, ...]
    worker: int = 0
    workers: int = 1
    seconds: float = 60.0
    cases: int | None = None
    known: Mapping[str, str] = field(default_factory=dict)
    ourselves: bool = False
    corpus: tuple[Sequence, ...] = ()


EARLIER: Final = 3
"""Cases before the one in which a target died that are tried as well."""

SUSPECTS: Final = 10
"""Cases after which a target held more than before that are tried as what it leaks at."""

DOUBTS: Final = 3
"""How often what was never found again is looked into anew."""


class Listener(Protocol):
    """Who hears what a hunt comes to."""

    def kept(self, sequence: Sequence) -> None:
        """A case was kept: it reached something new."""

    def bucket(self, bucket: str) -> None:
        """A fault was seen, and is being looked into."""

    def doubt(self, bucket: str) -> None:
        """Something seemed wrong, and was not found again in any try."""

    def finding(self, finding: Finding) -> None:
        """A finding."""

    def known(self, bucket: str, reason: str) -> None:
        """A fault was seen that was expected."""

    def counts(self, cases: int, sessions: int, targets: int, rows: Mapping[Row, int]) -> None:
        """What there is since the last time: cases, connections in them, starts, rows reached."""


def keys_of(settings: Settings, admission: str) -> Keys:
    """The secrets of a run: the same whenever it is run with this seed."""
    chance = random.Random(f"{settings.seed} {admission}")
    session, other = (Salt(chance.randbytes(SALT_BYTES)) for _ in range(2))
    session = settings.salt or session
    is_open = admission == "open"
    return Keys(join=OPEN if is_open else session, session=session, other=other, open=is_open)


def reason_in(known: Mapping[str, str], finding_id: str, bucket: str) -> str:
    """Why a finding was expected; "" where it was not."""
    return next(
        (
            reason
            for pattern, reason in known.items()
            if pattern == bucket or fnmatchcase(finding_id, pattern) or fnmatchcase(bucket, pattern)
        ),
        "",
    )


class Hunt:
    """See the module's first line.

    Args:
        plan: what to do.
        listener: who hears of it.
        notes: what other workers have kept and seen since the last time; None among it: stop.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        plan: Plan,
        listener: Listener,
        notes: Callable[[], Iterable[Any]] = tuple,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._plan = plan
        self._listener = listener
        self._notes = notes
        self._clock = clock
        settings = plan.settings
        keys = keys_of(settings, plan.admission)
        self._executor = Executor(settings, plan.admission, keys)
        self._examiner = Examiner(self._executor, keys, settings.scale)
        self._lines = Lines() if plan.ourselves else None
        self._generator = Generator(
            settings.role,
            wires=plan.wires,
            admission=plan.admission,
            keys=keys,
            scale=settings.scale,
            chance=random.Random(f"{settings.seed} {plan.worker}"),
            share=(plan.worker, plan.workers),
        )
        for sequence in plan.corpus:
            self._generator.add(sequence)
        self._buckets: set[str] = set()
        self._doubts: Counter[str] = Counter()
        self._window: list[Sequence] = []
        self._suspects: list[Sequence] = []
        self._number = 0
        self._cost = self._own_cost = 0.0
        self._sessions = 0
        self._told = (0, 0, 0)
        self._rows: Counter[Row] = Counter()
        self._stopped = False

    def run(self) -> None:
        """Look for faults until the time is over, or somebody says stop.

        Raises:
            CannotStart: the target cannot be started.
        """
        due = self._clock() + self._plan.seconds
        most = self._plan.cases
        try:
            while self._clock() < due and (most is None or self._number < most):
                self._hear()
                if self._stopped:
                    break
                self._one()
        finally:
            self._executor.close()
            self.tell()

    def tell(self) -> None:
        """Have the listener know what was done since the last time."""
        now = (self._number, self._sessions, self._executor.started)
        cases, sessions, targets = (new - old for new, old in zip(now, self._told, strict=True))
        self._listener.counts(cases, sessions, targets, self._rows)
        self._told = now
        self._rows = Counter()

    # -- one case -----------------------------------------------------------------------------

    def _one(self) -> None:
        sequence = self._next()
        if sequence is None:
            return
        self._number += 1
        if self._number % SANITY == 0:
            self.tell()
        if sequence.own_target and self._plan.settings.address is None:
            return
        self._window.append(sequence)
        if len(self._window) % SANITY == 0:
            self._sane()
        if len(self._window) >= LIFETIME:
            self._anew()

    def _next(self) -> Sequence | None:
        """Make a case and play it; None: it was none for this target."""
        settings, generator = self._plan.settings, self._generator
        kept = len(generator.corpus)
        crowd = settings.role == "controller" and (
            settings.address is not None or self._own_cost > self._share * self._cost
        )
        lines = self._lines if not crowd or self._number % TRACED == 0 else None
        with lines or nullcontext():
            sequence, foreseen = generator.next(own_target=not crowd, tries=1 if crowd else PATIENT)
        if lines is not None and lines.new() and len(generator.corpus) == kept:
            generator.keep(sequence, foreseen)
        for entry in generator.corpus[kept:]:
            self._listener.kept(entry.sequence)
        if settings.address is not None and sequence.own_target:
            return None
        self._reckon(sequence)
        self._rows.update(foreseen.rows)
        seen = self._executor.play(sequence, foreseen)
        self._sessions += len(seen.heard)
        if seen.held > 0:
            self._suspects.append(sequence)
        for strike in judge(sequence, foreseen, seen):
            if self._found(sequence, strike, Examined(strikes=[strike], seen=seen)):
                break
        return sequence

    @property
    def _share(self) -> float:
        return OWN_SHARE if self._generator.missing else SMALL_SHARE

    def _reckon(self, sequence: Sequence) -> None:
        cost = waits(sequence, self._plan.settings.scale) + PLAY_COST
        if sequence.own_target:
            cost += START_COST
            self._own_cost += cost
        self._cost += cost

    def _hear(self) -> None:
        for note in self._notes():
            match note:
                case None:
                    self._stopped = True
                case Sequence():
                    self._generator.absorb(note)
                case str():
                    self._know(note)

    def _know(self, bucket: str) -> None:
        """A fault is there: it is not looked into again, and not waited for either."""
        self._buckets.add(bucket)
        oracle, _, state = bucket.partition(":")
        if oracle == "hung":
            self._executor.unending.add(state)
            self._executor.patience = BRIEF

    # -- what is wrong ------------------------------------------------------------------------

    def _found(self, sequence: Sequence, strike: Strike, first: Examined, repeats: int = 1) -> bool:
        """Make a finding of a fault that was seen; returns whether it is a new one."""
        bucket = strike.bucket
        if bucket in self._buckets:
            return False
        self._buckets.add(bucket)
        finding = self._finding(sequence, strike, first, repeats)
        if reason := reason_in(self._plan.known, finding.id, bucket):
            self._listener.known(bucket, reason)
            self._know(bucket)
            return False
        patience = self._executor.patience
        if strike.oracle == "hung":
            # Whether it only took its time, or never comes, is now the question.
            self._executor.patience = PATIENCE
        try:
            return self._look_into(sequence, strike, first, repeats)
        finally:
            self._executor.patience = min(patience, self._executor.patience)

    def _look_into(self, sequence: Sequence, strike: Strike, first: Examined, repeats: int) -> bool:
        """Try a fault again, make its case smaller, and tell; returns whether it is one."""
        bucket = strike.bucket
        found, last = self._examiner.confirm(sequence, bucket, repeats)
        if not found and strike.oracle == "died":
            # What a target dies of may show only in the next case.
            for earlier in self._window[: -EARLIER - 1 : -1]:
                found, last = self._examiner.confirm(earlier, bucket)
                if found:
                    sequence = earlier
                    break
        if found:
            self._listener.bucket(bucket)
        if found == TRIES:
            sequence = self._smaller(sequence, bucket, repeats)
            last = self._examiner.examine(sequence, repeats=repeats)
            if not last.has(bucket):
                found, last = self._examiner.confirm(sequence, bucket, repeats)
        if not found and strike.oracle != "died":
            # Nothing was wrong, or the machine was too busy for the answer to come in time.
            self._doubts[bucket] += 1
            if self._doubts[bucket] < DOUBTS:
                self._buckets.discard(bucket)
            self._listener.doubt(bucket)
            self._anew()
            return False
        if not last.has(bucket):
            last = first
        strike = last.has(bucket) or strike
        self._know(bucket)
        self._listener.finding(
            self._finding(sequence, strike, last, repeats, found=found, tried=TRIES)
        )
        self._anew()
        self._sane()
        return True

    def _finding(
        self,
        sequence: Sequence,
        strike: Strike,
        examined: Examined,
        repeats: int,
        *,
        found: int = 0,
        tried: int = 0,
    ) -> Finding:
        settings = self._plan.settings
        seen = examined.seen
        return Finding(
            sequence=sequence,
            strike=strike,
            seed=settings.seed,
            number=self._number,
            scale=settings.scale,
            repeats=repeats,
            found=found,
            tried=tried,
            target=target_text(settings),
            exit=seen.exit,
            stderr=seen.stderr,
            happenings=seen.happenings,
        )

    def _smaller(self, sequence: Sequence, bucket: str, repeats: int) -> Sequence:
        budget = BUDGET if bucket.startswith("died:") else SMALL_BUDGET
        if repeats > 1:
            return shrink(
                sequence,
                lambda each: self._examiner.examine(each, repeats=repeats).has(bucket) is not None,
                budget=budget,
                clock=self._clock,
            )
        self._executor.fresh()
        return shrink(
            sequence,
            lambda each: self._examiner.strikes(each, bucket),
            budget=budget,
            clock=self._clock,
        )

    # -- the target that stands ---------------------------------------------------------------

    def _anew(self) -> None:
        self._window.clear()
        self._suspects.clear()
        self._executor.fresh()

    def _sane(self) -> None:
        """Whether the target is still well after all the cases that it stood."""
        strikes = aftermath(self._executor, self._plan.wires[-1])
        if not strikes:
            return
        strike, window, suspects = strikes[0], list(self._window), self._suspects[:]
        if not window or strike.bucket in self._buckets:
            self._anew()
            return
        for suspect in {repr(each): each for each in suspects[: -SUSPECTS - 1 : -1]}.values():
            if self._examiner.examine(suspect, repeats=REPEATS).has(strike.bucket):
                window = [suspect]
                break
        due = self._clock() + NARROWING
        group = narrow(
            window,
            lambda some: self._examiner.strikes_in_sum(
                some, strike.bucket, lambda: self._clock() >= due
            ),
        )
        self._found(group[-1], strike, Examined(strikes=strikes), repeats=REPEATS)


def target_text(settings: Settings) -> str:
    """A target as it was given: its command, or its address."""
    if settings.address is not None:
        host, port = settings.address
        return f"{host}:{port}"
    return shlex.join(settings.command)


def first_look(plan: Plan) -> tuple[int, ...]:
    """The versions among those of a plan that the target speaks.

    Raises:
        CannotStart: it cannot be started, or speaks none of them with an honest peer.
    """
    settings = plan.settings
    executor = Executor(settings, plan.admission, keys_of(settings, plan.admission))
    try:
        spoken = tuple(wire for wire in plan.wires if _speaks(executor, plan, wire))
    finally:
        executor.close()
    if not spoken:
        versions = " or ".join(map(str, plan.wires))
        raise CannotStart(
            f"{target_text(settings)} does not take part as an honest peer speaks to it"
            f" (wire {versions}, {plan.admission} admission)"
        )
    return spoken


def _speaks(executor: Executor, plan: Plan, wire: int) -> bool:
    agent = plan.settings.role == "agent"
    steps = ({"accept": "c"}, {"say": "Reject"})
    if not agent:
        steps = ({"dial": "c"}, {"say": "Hello"})
    sequence = Sequence(
        role=plan.settings.role, wire=wire, admission=plan.admission, steps=(*steps, _LOOK)
    )
    heard = executor.play(sequence).heard.get("c")
    return heard is not None and heard.wire == wire and heard.events[0] in ("Hello", "Accept")


_LOOK: Final = {"look": "c", "within": 5.0}
