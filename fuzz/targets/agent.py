"""agent: a whole agent without I/O, told by a script what its link, children and clock do.

Settings: bits 0 and 1 say what the other end knows (`links.Trust`), bits 2 and 3 which wire
versions are tried, bit 4 that there is no grace.

Invariant: whatever arrives and whenever, nothing is raised; it is the same whether a piece arrives
whole or byte by byte; what is sent are frames under the key in force, a Hello to each dial and then
only one report for each rank; nothing is sent on a closed link, nothing comes after Finish.  A peer
that does not know the salt never gets a process started.  Once the link is gone and the children
have ended, the agent ends too.

Exceptions allowed: none.  The script is followed as a driver would: a step that the operating
system could not bring about, such as the end of a child that does not run, is passed over.
A dial that is under way when the agent ends may still lead to a link.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fuzz.targets.links import Trust, data_of, later, messages_of, pieces_of, trust_of
from joinproto import effects as fx
from joinproto.connection import AgentConnection
from joinproto.fuzzing.pieces import BYTES, FRAME, SESSION, Step, read_script
from joinproto.grammar import JOIN_MAGIC
from joinproto.keys import OPEN
from joinproto.machines.agent import Plan
from joinproto.messages import Hello, RankExited

WIRES: Final = ((4, 2), (2,), (4,), (2, 4))
TURNS: Final = 40
LONG: Final = 255
"""How often time may pass before an agent ends that nobody disturbs any more, and how much of it
each time: the argument of a step, longer than most deadlines."""

HELLO: Final = Hello(host="a", local_devices=(0, 1), gpus=("x", "y"))


def check(data: bytes) -> None:
    """Raises `AssertionError`, or whatever the agent raised, where the invariant is broken."""
    settings, steps = read_script(data)
    whole = _Run(settings, dripping=False)
    dripped = _Run(settings, dripping=True)
    for step in steps:
        whole.step(step)
        dripped.step(step)
    assert whole.seen == dripped.seen, "it matters how the stream is split"
    whole.wind_up()


class _Run:
    def __init__(self, settings: int, *, dripping: bool) -> None:
        self.trust = trust_of(settings)
        self.dripping = dripping
        plan = Plan(
            hello=HELLO,
            wires=WIRES[settings >> 2 & 3],
            salt=self.trust.salt,
            grace=0.0 if settings & 16 else 5.0,
        )
        self.agent = AgentConnection(plan)
        self.now = 100.0
        self.seen: list[Any] = []
        self.dialing = self.linked = self.finished = False
        self.to_flush = False
        self.greeted = False
        self.helped = True
        self.asked: set[int] = set()
        self.running: set[int] = set()
        self.open: set[int] = set()
        self.reported: set[int] = set()
        self.do(self.agent.start(self.now))

    def step(self, step: Step) -> None:
        if step.op in (BYTES, FRAME):
            if self.linked or self.finished:
                self.arrive(step)
        else:
            act = ACTS[(step.op - 2) % len(ACTS)]
            act(self, step.argument)

    def arrive(self, step: Step) -> None:
        stranger = self.trust is Trust.STRANGER
        key = (OPEN, SESSION)[step.data[:1] != b"\x01"] if stranger else self.agent.key
        data = data_of(step, key, self.agent.wire)
        for piece in pieces_of(data, dripping=self.dripping):
            self.do(self.agent.receive_data(piece, self.now))

    def do(self, effects: list[Any]) -> None:
        for effect in effects:
            assert not self.finished, "something came after Finish"
            # Two errors that say the same are not equal.
            self.seen.append(repr(effect) if isinstance(effect, fx.Finish) else effect)
            self.one(effect)
        self.take()

    def one(self, effect: Any) -> None:
        match effect:
            case fx.Dial():
                assert not (self.dialing or self.linked), "a dial beside another"
                self.dialing = True
            case fx.CloseLink():
                self.take()
                self.linked = False
            case fx.Spawn(slot=slot):
                assert self.trust is not Trust.STRANGER, "a stranger got a process started"
                self.asked.add(slot)
                self.open.add(slot)
            case fx.Terminate(slot=slot) | fx.Kill(slot=slot):
                assert slot in self.asked | self.running, "an order to what does not run"
            case fx.Finish():
                assert not self.asked | self.running or not self.helped or self.stuck, "left behind"
                assert self.agent.next_timer is None, "a deadline after the end"
                self.finished = True

    @property
    def stuck(self) -> bool:
        return bool(self.agent.context.stuck)

    def take(self) -> None:
        data = self.agent.data_to_send()
        if not data:
            return
        assert self.linked, "something was sent on a closed link"
        self.seen.append(data)
        self.to_flush = True
        if not self.greeted:
            assert data.startswith(JOIN_MAGIC), "a dial begins with the magic"
            self.greeted = True
            sent = messages_of(data[len(JOIN_MAGIC) :], self.trust.join_key, self.agent.wire)
            assert [type(each) for each, _, _ in sent] == [Hello]
            return
        for message, _, _ in messages_of(data, self.agent.key, self.agent.wire):
            assert isinstance(message, RankExited), "an agent reports and nothing else"
            assert message.rank not in self.reported, "a rank was reported twice"
            self.reported.add(message.rank)

    # -- acts ---------------------------------------------------------------------------------

    def connected(self, argument: int) -> None:
        if self.dialing:
            self.dialing, self.linked, self.greeted = False, not self.finished, False
            self.do(self.agent.connected("peer", self.now))

    def connect_failed(self, argument: int) -> None:
        if self.dialing:
            self.dialing = False
            self.do(self.agent.connect_failed("refused", self.now))

    def pass_time(self, argument: int) -> None:
        self.now = later(self.now, self.agent.next_timer, argument)
        self.do(self.agent.handle_timer(self.now))

    def eof(self, argument: int) -> None:
        if self.linked:
            self.do(self.agent.receive_eof(self.now))

    def broken(self, argument: int) -> None:
        if self.linked:
            self.do(self.agent.link_broken("reset", self.now))

    def flushed(self, argument: int) -> None:
        if self.linked and self.to_flush:
            self.to_flush = False
            self.do(self.agent.flushed(self.now))

    def stop(self, argument: int) -> None:
        if not self.finished:
            self.do(self.agent.stop("SIGTERM", 15, self.now))

    def started(self, argument: int) -> None:
        if (slot := _one_of(self.asked, argument)) is not None:
            self.asked.discard(slot)
            self.running.add(slot)
            self.do(self.agent.child_started(slot, self.now))

    def failed(self, argument: int) -> None:
        if (slot := _one_of(self.asked, argument)) is not None:
            self.asked.discard(slot)
            self.open.discard(slot)
            self.do(self.agent.child_failed(slot, "no", self.now, not_found=argument > 127))

    def exited(self, argument: int) -> None:
        if (slot := _one_of(self.running, argument)) is not None:
            self.running.discard(slot)
            self.do(self.agent.child_exited(slot, argument - 64, self.now))

    def output_ended(self, argument: int) -> None:
        if (slot := _one_of(self.open - self.asked, argument)) is not None:
            self.open.discard(slot)
            self.do(self.agent.output_ended(slot, self.now))

    def helper_died(self, argument: int) -> None:
        if self.helped and self.running and not self.asked:
            self.helped = False
            self.do(self.agent.helper_died("killed", self.now))

    # -- the end ------------------------------------------------------------------------------

    def wind_up(self) -> None:
        """Nobody answers any more and the children end: the agent must, too."""
        for _ in range(TURNS):
            if self.finished:
                return
            for act in (self.broken, self.connect_failed, self.started, self.exited):
                act(0)
            self.output_ended(0)
            if not self.finished:
                assert self.agent.next_timer is not None or self.busy, "it waits for nothing"
                self.pass_time(LONG)
        raise AssertionError("the agent never ends")

    @property
    def busy(self) -> bool:
        return bool(self.dialing or self.linked or self.asked or self.running or self.open)


def _one_of(slots: set[int], argument: int) -> int | None:
    return sorted(slots)[argument % len(slots)] if slots else None


ACTS: Final[tuple[Callable[[_Run, int], None], ...]] = (
    _Run.connected,
    _Run.connect_failed,
    _Run.pass_time,
    _Run.eof,
    _Run.broken,
    _Run.flushed,
    _Run.stop,
    _Run.started,
    _Run.failed,
    _Run.exited,
    _Run.output_ended,
    _Run.helper_died,
)
"""Steps 2, 3, … of a script, and over again."""
