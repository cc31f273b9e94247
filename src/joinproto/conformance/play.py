"""Plays a case in a world, step by step, and says what it came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from joinproto.conformance.acts import Acts, Through, Unsupported
from joinproto.conformance.awaiting import Deviation
from joinproto.conformance.case import Case, Step
from joinproto.conformance.telling import event_text, exit_text
from joinproto.conformance.verdicts import Verdict, worst
from joinproto.conformance.world import Flood, Unreachable, World


@dataclass(kw_only=True)
class Outcome:
    """What a case came to.

    Attributes:
        behaviour: what the target did in it.
        ending: how the connection ended.
        expected: what should have happened.
        got: what did.
        notes: what else there is to say.
        broken: the clause that was broken, where the case says which of its own; else "".
    """

    behaviour: Verdict = Verdict.PASS
    ending: Verdict = Verdict.PASS
    expected: str = ""
    got: str = ""
    notes: list[str] = field(default_factory=list)
    broken: str = ""

    @property
    def verdict(self) -> Verdict:
        """What counts."""
        return worst((self.behaviour, self.ending))


def play(case: Case, world: World, wire: int) -> Outcome:
    """Play a case to its end.

    Args:
        case: the case.
        world: with the target already started.
        wire: the version that the suite speaks.
    """
    return _Player(case, world, wire).play()


class _Player:
    def __init__(self, case: Case, world: World, wire: int) -> None:
        self.case = case
        self.world = world
        self.outcome = Outcome()
        self.acts = Acts(world, wire, self.outcome.notes)

    def play(self) -> Outcome:
        outcome = self.outcome
        if self._steps(self.case.given, Verdict.INCONCLUSIVE):
            self._steps(self.case.steps, self.case.level.on_failure)
            self._crash()
            self._ending()
        for note in self.acts.waiting.verdicts:
            outcome.behaviour = worst((outcome.behaviour, note))
        return outcome

    # -- what it comes to ---------------------------------------------------------------------

    def _steps(self, steps: Sequence[Step], on_deviation: Verdict) -> bool:
        outcome = self.outcome
        try:
            self.acts.do(steps)
        except Through:
            return True
        except Unsupported as missing:
            outcome.behaviour = Verdict.UNSUPPORTED
            outcome.got = str(missing)
        except Deviation as deviation:
            outcome.behaviour = deviation.verdict or on_deviation
            outcome.broken = deviation.clause
            outcome.expected, outcome.got = deviation.expected, deviation.got
        except Flood as flood:
            outcome.behaviour = Verdict.FAIL
            outcome.expected, outcome.got = "a bounded number of bytes", str(flood)
        except Unreachable as error:
            outcome.behaviour = on_deviation
            outcome.expected, outcome.got = "the target to take a connection", str(error)
        else:
            return True
        return False

    def _crash(self) -> None:
        """A target that a signal ended which nobody sent has crashed, whatever else it did."""
        ended = self.world.exit
        if ended is None:
            return
        crashed = ended.code < 0 and -ended.code not in self.acts.signals
        expected = self.acts.waiting.exit_seen or self.acts.given_up or self.acts.signals
        alone = self.case.role == "controller" and not expected
        if (crashed or alone) and self.outcome.behaviour is not Verdict.FAIL:
            self.outcome.behaviour = Verdict.FAIL
            self.outcome.expected = "the target to go on" if alone else "the target not to crash"
            self.outcome.got = exit_text(ended.code)

    def _ending(self) -> None:
        demanded = self.case.ending
        if demanded is None or self.outcome.behaviour is Verdict.FAIL:
            return
        conversation = self.world.conversations.get(demanded.on)
        if conversation is None:
            return
        due = self.world.now() + demanded.within
        while conversation.ended is None and self.world.now() < due:
            self.world.run(due)
        ended = conversation.ended
        if ended is not None and ended.how in demanded.how:
            return
        how = " or ".join(demanded.how).upper()
        expected = f"the target to end connection {demanded.on} with {how}"
        got = (
            f"it was still open after {demanded.within:g} s" if ended is None else event_text(ended)
        )
        # How a socket is closed is seldom more than a matter of style; that it is, is not.
        self.outcome.ending = self.case.level.on_failure if ended is None else Verdict.NON_STRICT
        if self.outcome.expected:
            self.outcome.notes.append(f"expected {expected}, got {got}")
        else:
            self.outcome.expected, self.outcome.got = expected, got
