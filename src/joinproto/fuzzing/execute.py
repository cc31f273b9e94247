"""Plays cases against a target: a controller stands many of them, an agent each a new one."""

from __future__ import annotations

import os
import re
import secrets
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from joinproto.conformance.loopback import LoopbackWorld
from joinproto.conformance.marks import end_marked
from joinproto.conformance.results import Happening
from joinproto.conformance.session import Settings, start_target
from joinproto.conformance.target import CASE_VARIABLE
from joinproto.conformance.world import Flood, Keys
from joinproto.fuzzing.acting import Actor, Heard
from joinproto.fuzzing.sequence import Sequence, Step, verb
from joinproto.fuzzing.shadow import Foreseen, case_of

CRASHED = re.compile(r"panicked at |Traceback \(most recent call last\)|memory allocation of")
"""What a program says that has crashed, be it only one of its threads."""

PATIENCE = 2.0
"""Seconds in which a target must have ended what it has to end; it does so at once."""

BRIEF = 0.15
"""Seconds for it to do so, where it is known not to do so always and waiting takes all the time."""

EXIT = 5.0
"""Seconds in which it must itself have ended, once it has to."""

DYING = 0.4
"""Seconds that the death of a process takes, which shows in its connections first."""

LAST_WORDS = 0.02
"""Seconds in which what it has written is read to its end."""

GONE = 3.0
"""Seconds in which what it started must have ended, once it has itself."""

HONEST = 3.0
"""Seconds in which an honest host must be admitted."""


@dataclass(kw_only=True)
class Observation:
    """What a target did in a case.

    Attributes:
        heard: connection → what it did on it.
        elsewhere: connections that did not ask for the join channel.
        unreachable: it took no connections: why; else "".
        exit: how it ended, −N by signal N; None: it did not.
        started: names of the processes that it started.
        left: those that were still there although it had ended.
        grown: bytes by which its memory grew, at its highest.
        held: descriptors and children that it has more than before, all being over.
        sent: bytes that it was sent.
        flood: it sent or wrote without end: what; else "".
        stderr: the last of what it said there.
        happenings: everything, in order.
    """

    heard: dict[str, Heard] = field(default_factory=dict)
    elsewhere: frozenset[str] = frozenset()
    unreachable: str = ""
    exit: int | None = None
    started: frozenset[str] = frozenset()
    left: tuple[str, ...] = ()
    grown: int = 0
    held: int = 0
    sent: int = 0
    flood: str = ""
    stderr: str = ""
    happenings: tuple[Happening, ...] = ()


@dataclass(kw_only=True)
class Weight:
    """What a process holds.

    Attributes:
        peak: bytes of memory, at the highest so far.
        descriptors: how many are open.
        children: how many it has.
    """

    peak: int = 0
    descriptors: int = 0
    children: int = 0


class Executor:
    """Plays cases against one target at a time, and starts a new one where that is needed.

    Args:
        settings: how the target is started, or where it is.
        admission: open or pre-shared.
        keys: the secrets of the run.
    """

    def __init__(self, settings: Settings, admission: str, keys: Keys) -> None:
        self.settings = settings
        self.started = 0
        """How often a target was started."""
        self.patience = PATIENCE
        """Seconds in which it must do what it has to do at once."""
        self.unending: set[str] = set()
        """States in which it is known not to end a connection when it should."""
        self._admission = admission
        self._keys = keys
        self._standing: _Standing | None = None
        self._played = 0

    def play(self, sequence: Sequence, foreseen: Foreseen | None = None) -> Observation:
        """Play a case.

        Args:
            sequence: the case.
            foreseen: what our own machines do in it, which tells what to wait for.

        Raises:
            CannotStart: the target cannot be started.
        """
        # One controller may stand many cases, and at an address it outlives what is started here.
        self._played += 1
        if self.settings.address is None and sequence.own_target:
            alone = self._start(sequence)
            try:
                return self._play_on(alone, sequence, foreseen)
            finally:
                alone.close()
        if self._standing is not None and self._standing.over:
            self.fresh()
        if self._standing is None:
            self._standing = self._start(sequence)
        return self._play_on(self._standing, sequence, foreseen)

    def fresh(self) -> None:
        """Let go of the controller that stands; the next case gets a new one."""
        if self._standing is not None:
            self._standing.close()
            self._standing = None

    def honest(self, wire: int) -> str:
        """Have an honest host join the controller that stands; why it could not, or ""."""
        if self._standing is None:
            return ""
        return self._standing.honest(wire, self.patience)

    def death(self) -> tuple[int | None, str]:
        """How the controller that stands has ended, if it has, and what it said last."""
        if self._standing is None:
            return None, ""
        self._standing.die()
        return self._standing.exit, self._standing.stderr

    def leaked(self) -> str:
        """What the controller that stands has not let go of; "" where that is nothing."""
        return "" if self._standing is None else self._standing.leaked()

    def _play_on(
        self, standing: _Standing, sequence: Sequence, foreseen: Foreseen | None
    ) -> Observation:
        states = {} if foreseen is None else foreseen.states
        mute = frozenset(name for name, state in states.items() if state in self.unending)
        return standing.play(sequence, foreseen, self._played, self.patience, mute)

    def _start(self, sequence: Sequence) -> _Standing:
        self.started += 1
        return _Standing(self.settings, sequence, self._admission, self._keys)

    close = fresh


class _Standing:
    """A target that runs."""

    def __init__(self, settings: Settings, sequence: Sequence, admission: str, keys: Keys) -> None:
        self._mark = secrets.token_hex(16)
        self._settings = settings
        self._role = sequence.role
        self._world = LoopbackWorld(keys, host="target", scale=settings.scale)
        self._folder = tempfile.TemporaryDirectory(prefix="joinproto-fuzz-")
        self._usual: Weight | None = None
        self._peak = 0
        self._holds = 0
        try:
            start_target(
                settings,
                case_of(sequence),
                self._world,
                admission,
                self._mark,
                Path(self._folder.name),
            )
        except BaseException:
            self.close()
            raise

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self._world.exit is not None

    def play(
        self,
        sequence: Sequence,
        foreseen: Foreseen | None,
        number: int,
        patience: float,
        mute: frozenset[str],
    ) -> Observation:
        """Play a case, and look at what it did to the target."""
        world = self._world
        world.clear()
        if not self._peak:
            self._peak = self._weight().peak
        looks = () if foreseen is None else foreseen.looks
        children = () if foreseen is None else foreseen.children
        actor = Actor(world, sequence.wire, looks, number, children)
        actor.patience = patience
        seen = Observation()
        try:
            _do(actor, sequence, foreseen, patience)
            actor.finish(patience, mute)
            self._wait_for_exit(sequence, foreseen)
            self._wait_for_death(actor, foreseen)
        except Flood as flood:
            seen.flood = str(flood)
        seen.heard, seen.unreachable, seen.sent = actor.heard, actor.unreachable, actor.sent
        seen.elsewhere = frozenset(actor.elsewhere)
        seen.exit = self.exit
        seen.started = frozenset(world.children)
        seen.left = self._left()
        seen.stderr = self.stderr
        seen.happenings = world.trace.happenings
        weight = self._weight()
        seen.grown = max(0, weight.peak - self._peak) if self._peak else 0
        self._peak = max(weight.peak, self._peak)
        holds = weight.descriptors + weight.children
        seen.held = holds - self._holds if self._holds else 0
        self._holds = holds
        return seen

    def honest(self, wire: int, patience: float) -> str:
        """Join as an honest host does, and leave before the world is formed."""
        self._world.clear()
        actor = Actor(self._world, wire)
        actor.do({"dial": "honest"})
        actor.do({"say": "Hello", "on": "honest"})
        actor.do({"look": "honest", "within": HONEST})
        actor.finish(patience)
        if actor.unreachable:
            return actor.unreachable
        answer = actor.heard["honest"].events
        if answer and answer[0] == "Accept":
            return ""
        return f"an honest host got {' and '.join(answer) or 'no answer'}"

    def leaked(self) -> str:
        """What is more than after the first look, when nothing is under way."""
        due = time.monotonic() + PATIENCE
        while True:
            self._world.run(self._world.now())
            now = self._weight()
            usual = self._usual = self._usual or now
            more = [
                f"{after - before} more {what}"
                for what, before, after in (
                    ("open descriptors", usual.descriptors, now.descriptors),
                    ("children", usual.children, now.children),
                )
                if after > before + SPARE
            ]
            if not more or time.monotonic() > due:
                return " and ".join(more)
            time.sleep(0.05)

    def close(self) -> None:
        """End it, and what it left."""
        self._world.end()
        if self._settings.command:
            end_marked(CASE_VARIABLE, self._mark)
        self._folder.cleanup()

    # -- inside -------------------------------------------------------------------------------

    def _wait_for_exit(self, sequence: Sequence, foreseen: Foreseen | None) -> None:
        if foreseen is None or foreseen.exit is None or not self._settings.command:
            return
        due = self._world.now() + EXIT
        while self._world.exit is None and self._world.now() < due:
            self._world.run(due)

    def _wait_for_death(self, actor: Actor, foreseen: Foreseen | None) -> None:
        """A target that did something else than foreseen may be about to die, and to say so."""
        if foreseen is None:
            return
        known = {name: heard.events for name, heard in foreseen.heard.items()}
        strange = any(
            heard.events != known.get(name)
            for name, heard in actor.heard.items()
            if not heard.closed and name not in actor.elsewhere
        )
        if strange or CRASHED.search(self.stderr):
            self.die()

    def die(self) -> None:
        """Wait, not for long, for an end that seems to be under way, and for its last words."""
        world = self._world
        due = world.now() + DYING
        while self._settings.command and world.exit is None and world.now() < due:
            world.run(due)
        if world.exit is not None:
            world.run(world.now() + LAST_WORDS)

    @property
    def stderr(self) -> str:
        """The last of what it said there."""
        return "" if self._world.target is None else self._world.target.stderr

    @property
    def exit(self) -> int | None:
        """How it ended; None: it has not."""
        return None if self._world.exit is None else self._world.exit.code

    def _left(self) -> tuple[str, ...]:
        """What it started and is still there, when it has itself ended."""
        world = self._world
        if world.exit is None:
            return ()
        due = world.exit.at + GONE
        while (left := self._running()) and world.now() < due:
            world.run(due)
        return left

    def _running(self) -> tuple[str, ...]:
        children = self._world.children
        return tuple(name for name, each in children.items() if each[-1].down is None)

    def _weight(self) -> Weight:
        pid = self._world.target.pid if self._world.target is not None else None
        if pid is None or self._world.exit is not None:
            return Weight()
        found = Weight()
        with suppress(OSError, IndexError):  # it has just ended
            status = Path(f"/proc/{pid}/status").read_text()
            found.peak = 1024 * int(status.partition("VmHWM:")[2].split()[0])
            if self._role == "controller":
                found.descriptors = len(os.listdir(f"/proc/{pid}/fd"))
                children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
                found.children = len(children.split())
        return found


def _do(actor: Actor, sequence: Sequence, foreseen: Foreseen | None, patience: float) -> None:
    """Do the steps of a case, each once what came before it has had its effect."""
    last: Step | None = None
    for number, step in enumerate((*sequence.steps, None)):
        if foreseen is not None:
            actor.catch_up(foreseen.due[number], patience)
            if last is not None and verb(last) in UNANSWERED and step is not None:
                actor.rest()
        if step is not None:
            actor.do(step)
        last = step


UNANSWERED = frozenset(("half_close", "close", "reset", "signal", "rank"))
"""Acts of which a target may notice, and say nothing."""

SPARE = 16
"""Descriptors, or children, that a target may have more of without having leaked them."""
