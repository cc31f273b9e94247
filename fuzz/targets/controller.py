"""controller: one connection of a controller without I/O, told by a script what happens on it.

Settings: bits 0 and 1 say what the dialer knows (`links.Trust`), bit 2 that it has said the magic
of the join channel.

Invariant: whatever arrives and whenever, nothing is raised; it is the same whether a piece arrives
whole or byte by byte; what is sent are frames under the key that their message has, each message
once; at most one host is offered, at most one of turned away and lost is said, a rank's end is
reported once and only of a rank that was given; nothing is sent on a closed link and nothing comes
after it; who speaks HTTP is handed over with every byte.  A dialer that does not know the salt is
never offered.

Exceptions allowed: none.  Decisions are made only where they are asked for, as a window makes
them.  In what arrives byte by byte the bytes behind the first four of HTTP are not the connection's
to keep, since it is somebody else's by then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from fuzz.targets.links import Trust, data_of, later, messages_of, pieces_of, trust_of
from joinproto import effects as fx
from joinproto.codec import check_tag
from joinproto.connection import ControllerConnection
from joinproto.fuzzing.pieces import BYTES, FRAME, SESSION, Step, read_script
from joinproto.grammar import HTTP_HEADS, JOIN_KIND, JOIN_MAGIC, WIRES
from joinproto.keys import OPEN, Salt
from joinproto.machines.controller import Admission, ControllerState
from joinproto.messages import Accept, Message, Reject

S = ControllerState
_MEMBER: Final = (S.ADMITTED, S.FORMED, S.ABORTING)
_TURNS: Final = 20


def check(data: bytes) -> None:
    """Raises `AssertionError`, or whatever the connection raised, where the invariant is broken."""
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
        self.salt = self.trust.salt or SESSION
        admission = Admission(salt=self.salt, open=self.trust is Trust.OPEN)
        self.connection = ControllerConnection(admission)
        self.now = 100.0
        self.seen: list[Any] = []
        self.received = b""
        self.closed = self.to_flush = False
        self.said: list[type[Any]] = []
        self.sent: list[type[Message]] = []
        self.given: tuple[int, ...] = ()
        self.reported: set[int] = set()
        self.do(self.connection.start(self.now))
        if settings & 4:
            self.step(Step(BYTES, data=JOIN_MAGIC))

    @property
    def state(self) -> ControllerState:
        return self.connection.state

    def step(self, step: Step) -> None:
        if self.closed:
            return
        if step.op in (BYTES, FRAME):
            self.arrive(step)
        else:
            act = ACTS[(step.op - 2) % len(ACTS)]
            act(self, step.argument)

    def arrive(self, step: Step) -> None:
        key: Salt = self.salt if self.state in _MEMBER else self.trust.join_key
        if self.trust is Trust.STRANGER:
            key = (OPEN, SESSION)[step.data[:1] != b"\x00"]
        wire = max(WIRES) if self.state is S.AWAIT_HELLO else self.connection.wire
        for piece in pieces_of(data_of(step, key, wire), dripping=self.dripping):
            if not self.closed:
                self.received += piece
            self.do(self.connection.receive_data(piece, self.now))

    def do(self, effects: list[Any]) -> None:
        assert not (self.closed and effects), "something came after the end"
        for effect in effects:
            self.seen.append(effect)
            self.one(effect)
        self.take()
        self.closed |= any(isinstance(each, fx.CloseLink | fx.HandOver) for each in effects)
        assert self.closed == (self.state is S.CLOSED), "closed or not?"
        assert not (self.closed and self.connection.next_timer), "a deadline after the end"

    def one(self, effect: Any) -> None:
        match effect:
            case fx.Offer() | fx.TurnedAway() | fx.Lost() | fx.EndSending():
                assert type(effect) not in self.said, "it was said twice"
                self.said.append(type(effect))
                both = fx.TurnedAway in self.said and fx.Lost in self.said
                assert not both, "turned away and lost"
                stranger = self.trust is Trust.STRANGER
                assert not (stranger and fx.Offer in self.said), "a stranger was offered"
            case fx.HandOver():
                assert self.received[:4] in HTTP_HEADS, "handed over without a word of HTTP"
                assert self.connection.head == self.received, "bytes were lost at the handover"
            case fx.ReportRank(rank=rank):
                assert rank in self.given, "a rank that it was not given"
                assert rank not in self.reported, "a rank was reported twice"
                self.reported.add(rank)

    def take(self) -> None:
        data = self.connection.data_to_send()
        if not data:
            return
        assert not self.closed, "something was sent on a closed link"
        self.seen.append(data)
        self.to_flush = True
        for message, payload, tag in messages_of(data, None, self.connection.wire):
            assert type(message) not in self.sent, "it was sent twice"
            self.sent.append(type(message))
            early = isinstance(message, Accept | Reject)
            check_tag(JOIN_KIND, payload, tag, self.trust.join_key if early else self.salt)

    # -- acts ---------------------------------------------------------------------------------

    def pass_time(self, argument: int) -> None:
        self.now = later(self.now, self.connection.next_timer, argument)
        self.do(self.connection.handle_timer(self.now))

    def eof(self, argument: int) -> None:
        self.do(self.connection.receive_eof(self.now))

    def broken(self, argument: int) -> None:
        self.do(self.connection.link_broken("reset", self.now))

    def flushed(self, argument: int) -> None:
        if self.to_flush:
            self.to_flush = False
            self.do(self.connection.flushed(self.now))

    def admit(self, argument: int) -> None:
        if self.state is S.DECIDING:
            self.given = tuple(range(argument % 8, argument % 8 + argument // 8 % 4))
            self.do(self.connection.admit(self.given, argument, self.now))

    def refuse(self, argument: int) -> None:
        if self.state is S.DECIDING:
            self.do(self.connection.refuse("no", self.now))

    def dismiss(self, argument: int) -> None:
        if self.state is S.DECIDING:
            self.do(self.connection.dismiss("no", self.now))

    def form(self, argument: int) -> None:
        if self.state is S.ADMITTED:
            self.do(self.connection.form("aa", "bb" if argument % 2 else None, self.now))

    def abort(self, argument: int) -> None:
        self.do(self.connection.abort("why", self.now))

    # -- the end ------------------------------------------------------------------------------

    def wind_up(self) -> None:
        """The dialer goes silent: nothing but a run and a decision may wait for ever."""
        for _ in range(_TURNS):
            if self.closed or self.connection.next_timer is None:
                break
            self.pass_time(0)
        resting = (S.CLOSED, S.DECIDING, S.ADMITTED, S.FORMED)
        assert self.state in resting, "it waits for ever"
        if not self.closed:
            self.broken(0)
        assert self.state is S.CLOSED, "it outlives its link"


ACTS: Final[tuple[Callable[[_Run, int], None], ...]] = (
    _Run.admit,
    _Run.form,
    _Run.pass_time,
    _Run.eof,
    _Run.broken,
    _Run.flushed,
    _Run.refuse,
    _Run.dismiss,
    _Run.abort,
)
"""Steps 2, 3, … of a script, and over again."""
