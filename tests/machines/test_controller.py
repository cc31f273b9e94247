"""A controller's side of one connection, from the first byte of a dial to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from joinproto import effects as fx
from joinproto.errors import DecodeError, Stage
from joinproto.inputs import (
    AbortRun,
    Admit,
    Dismiss,
    EndOfStream,
    Expired,
    Flushed,
    Form,
    LinkBroken,
    Refuse,
    Routed,
    Start,
    Undecodable,
)
from joinproto.keys import OPEN, Salt
from joinproto.limits import Timer
from joinproto.machines.controller import (
    CONTROLLER,
    Admission,
    ControllerContext,
    ControllerState,
)
from joinproto.messages import MESSAGES, Abort, Accept, Hello, RankExited, Reject, WorldFormed
from joinproto.record import replace
from joinproto.session import Session
from tests.support.machines import check

S = ControllerState
SALT = Salt(bytes(range(16)))
CLOSED_ADMISSION = Admission(salt=SALT, open=False)
OPEN_ADMISSION = Admission(salt=SALT, open=True)
NOW = 100.0
HELLO = Hello(host="h", local_devices=(0, 1))
JOIN = Routed(channel="join")
ADMIT = Admit(ranks=(2, 3), formation_wait_secs=60)
FORM = Form(envelope_hex="aa", relay_spec_hex="bb")
ABORT = AbortRun(reason="why")

SAMPLES = {
    Hello: HELLO,
    Accept: Accept(ranks=(), formation_wait_secs=0),
    Reject: Reject(reason=""),
    WorldFormed: WorldFormed(envelope_hex=""),
    RankExited: RankExited(rank=2, code=0),
    Abort: Abort(reason=""),
}

ROUTING = (Start(),)
AWAIT_HELLO = (*ROUTING, JOIN)
DECIDING = (*AWAIT_HELLO, HELLO)
ADMITTED = (*DECIDING, ADMIT)
FORMED = (*ADMITTED, FORM)
ABORTING = (*FORMED, ABORT)
REJECTING = (*DECIDING, Refuse(reason="no"))
CLOSED = (*DECIDING, Dismiss(reason="no"))
MEMBERS = pytest.mark.parametrize("way", [ADMITTED, FORMED, ABORTING])


def undecodable(stage: Stage, *, tagged: bool = False) -> Undecodable:
    return Undecodable(error=DecodeError(stage, "wrong"), tagged=tagged)


class Peer(Session[ControllerContext]):
    """One dial, after these inputs."""

    def __init__(self, *inputs: Any, admission: Admission = CLOSED_ADMISSION) -> None:
        super().__init__(CONTROLLER, ControllerContext(admission=admission))
        self.effects: list[Any] = []
        for given in inputs:
            self.effects = self.step(given, NOW)

    @property
    def left(self) -> float | None:
        """Seconds to the next deadline."""
        return None if self.next_timer is None else self.next_timer - NOW

    def wait(self) -> list[Any]:
        """Let the next deadline come."""
        assert self.next_timer is not None
        return self.expire(self.next_timer)


def turned_away(reason: str) -> list[Any]:
    """Closed without a word."""
    return [fx.CloseLink(), fx.TurnedAway(reason=reason)]


def rejected(reason: str) -> list[Any]:
    """Told why, and listened to until that has arrived."""
    return [fx.Send(message=Reject(reason=reason)), fx.EndSending(), fx.TurnedAway(reason=reason)]


def lost(cause: str) -> list[Any]:
    return [fx.CloseLink(), fx.Lost(cause=cause)]


class TestRouting:
    @pytest.mark.parametrize(
        ("admission", "key"), [(OPEN_ADMISSION, OPEN), (CLOSED_ADMISSION, SALT)]
    )
    def test_a_dial_begins_under_the_join_key(self, admission: Admission, key: Salt) -> None:
        assert Peer(*ROUTING, admission=admission).effects == [fx.UseKey(key=key)]

    @pytest.mark.parametrize(("scale", "wait"), [(1.0, 5), (0.5, 3), (3.0, 15)])
    def test_the_magic_has_a_deadline(self, scale: float, wait: float) -> None:
        peer = Peer(*ROUTING, admission=replace(CLOSED_ADMISSION, scale=scale))
        assert peer.left == wait
        assert peer.wait() == turned_away("no channel magic in time")
        assert peer.state is S.CLOSED

    @pytest.mark.parametrize(
        ("channel", "reason"),
        [
            ("data", "the first bytes ask for the data channel"),
            ("", "the first bytes ask for no channel that is served here"),
        ],
    )
    def test_another_channel_is_turned_away(self, channel: str, reason: str) -> None:
        peer = Peer(*ROUTING, Routed(channel=channel))
        assert peer.effects == turned_away(reason)
        assert peer.state is S.CLOSED

    @pytest.mark.parametrize(("scale", "wait"), [(1.0, 10), (0.1, 1)])
    def test_the_whole_hello_has_one_deadline(self, scale: float, wait: float) -> None:
        peer = Peer(*AWAIT_HELLO, admission=replace(CLOSED_ADMISSION, scale=scale))
        assert peer.left == wait
        assert peer.wait() == turned_away("no whole Hello in time")


class TestBeforeAHello:
    @pytest.mark.parametrize("way", [ROUTING, AWAIT_HELLO, DECIDING])
    def test_its_end_is_the_end(self, way: tuple[Any, ...]) -> None:
        assert Peer(*way, EndOfStream()).effects == turned_away("closed before Hello")
        assert Peer(*way, LinkBroken(cause="reset")).effects == turned_away("reset")

    @pytest.mark.parametrize("way", [ROUTING, AWAIT_HELLO])
    def test_a_run_that_is_given_up_closes_it(self, way: tuple[Any, ...]) -> None:
        assert Peer(*way, ABORT).effects == turned_away("why")

    @pytest.mark.parametrize("message", [m for m in MESSAGES if m is not Hello])
    def test_another_message_is_rejected(self, message: type) -> None:
        reason = f"the first message on the join channel is a Hello, not {message.__name__}"
        peer = Peer(*AWAIT_HELLO, SAMPLES[message])
        assert peer.effects == rejected(reason)
        assert peer.state is S.REJECTING

    @pytest.mark.parametrize("stage", [Stage.PAYLOAD, Stage.KIND])
    def test_one_that_is_tagged_rightly_and_unreadable_is_rejected(self, stage: Stage) -> None:
        peer = Peer(*AWAIT_HELLO, undecodable(stage, tagged=True))
        assert peer.effects == rejected(f"not a Hello: {stage}: wrong")

    @pytest.mark.parametrize("stage", [stage for stage in Stage if stage is not Stage.PAYLOAD])
    def test_nothing_is_said_to_a_peer_that_may_not_hold_the_key(self, stage: Stage) -> None:
        peer = Peer(*AWAIT_HELLO, undecodable(stage))
        assert peer.effects == turned_away(f"{stage}: wrong")
        assert peer.state is S.CLOSED


class TestTheDecision:
    def test_a_hello_is_for_the_window_to_decide(self) -> None:
        peer = Peer(*DECIDING)
        assert peer.effects == [fx.Offer(hello=HELLO)]
        assert peer.left is None
        assert peer.context.host == "h"

    @pytest.mark.parametrize(
        ("admission", "salt_hex"),
        [(OPEN_ADMISSION, "000102030405060708090a0b0c0d0e0f"), (CLOSED_ADMISSION, None)],
    )
    def test_a_host_that_is_admitted(self, admission: Admission, salt_hex: str | None) -> None:
        peer = Peer(*ADMITTED, admission=admission)
        accept = Accept(ranks=(2, 3), salt_hex=salt_hex, formation_wait_secs=60)
        # The Accept still goes under the join key, all that follows under the session salt.
        assert peer.effects == [fx.Send(message=accept), fx.UseKey(key=SALT)]
        assert (peer.state, peer.context.ranks) == (S.ADMITTED, (2, 3))

    def test_a_host_that_is_refused_is_told_why(self) -> None:
        peer = Peer(*DECIDING, Refuse(reason="no room"))
        assert peer.effects == rejected("no room")

    def test_a_host_that_is_dismissed_is_not(self) -> None:
        assert Peer(*DECIDING, Dismiss(reason="wire")).effects == turned_away("wire")

    def test_a_run_that_is_given_up_meanwhile(self) -> None:
        assert Peer(*DECIDING, ABORT).effects == rejected("why")


class TestRejecting:
    @pytest.mark.parametrize("scale", [1.0, 2.0])
    def test_it_lingers_so_that_the_reject_is_not_lost_to_a_reset(self, scale: float) -> None:
        peer = Peer(*REJECTING, admission=replace(CLOSED_ADMISSION, scale=scale))
        assert peer.left == 2 * scale
        assert peer.wait() == [fx.CloseLink()]
        assert peer.state is S.CLOSED

    @pytest.mark.parametrize("end", [EndOfStream(), LinkBroken(cause="reset")])
    def test_the_other_side_may_close_first(self, end: Any) -> None:
        assert Peer(*REJECTING, end).effects == [fx.CloseLink()]

    @pytest.mark.parametrize(
        "given", [*SAMPLES.values(), undecodable(Stage.MAGIC), Flushed(), ABORT]
    )
    def test_what_still_comes_is_dropped(self, given: Any) -> None:
        peer = Peer(*REJECTING, given)
        assert peer.effects == []
        assert (peer.state, peer.left) == (S.REJECTING, 2)


class TestMembers:
    @MEMBERS
    @pytest.mark.parametrize(
        ("end", "cause"),
        [
            (EndOfStream(), "closed the connection"),
            (LinkBroken(cause="reset"), "reset"),
            (undecodable(Stage.TAG), "tag: wrong"),
            (undecodable(Stage.KIND, tagged=True), "kind: wrong"),
            (undecodable(Stage.TRUNCATED), "truncated: wrong"),
        ],
    )
    def test_the_end_of_its_link(self, way: tuple[Any, ...], end: Any, cause: str) -> None:
        peer = Peer(*way, end)
        assert peer.effects == lost(cause)
        assert peer.state is S.CLOSED

    @MEMBERS
    def test_a_message_that_does_not_decode_is_told_and_ignored(self, way: tuple[Any, ...]) -> None:
        peer = Peer(*way)
        state = peer.state
        told = "host 'h' sent a message that is ignored: payload: wrong"
        assert peer.step(undecodable(Stage.PAYLOAD, tagged=True), NOW) == [
            fx.Tell(severity=fx.Severity.WARNING, text=told)
        ]
        assert peer.state is state

    @MEMBERS
    @pytest.mark.parametrize("message", [m for m in MESSAGES if m is not RankExited])
    def test_a_message_that_means_nothing_is_told_and_ignored(
        self, way: tuple[Any, ...], message: type
    ) -> None:
        told = f"host 'h' sent {message.__name__}, which means nothing here; ignored"
        assert Peer(*way, SAMPLES[message]).effects == [
            fx.Tell(severity=fx.Severity.WARNING, text=told)
        ]

    def test_no_rank_ends_before_the_world_has_formed(self) -> None:
        told = "host 'h' sent RankExited, which means nothing here; ignored"
        peer = Peer(*ADMITTED, RankExited(rank=2, code=0))
        assert peer.effects == [fx.Tell(severity=fx.Severity.WARNING, text=told)]
        assert peer.context.exited == frozenset()

    @pytest.mark.parametrize("relay", [None, "", "bb"])
    def test_a_formed_world_is_told(self, relay: str | None) -> None:
        peer = Peer(*ADMITTED, Form(envelope_hex="aa", relay_spec_hex=relay))
        formed = WorldFormed(envelope_hex="aa", relay_spec_hex=relay)
        assert peer.effects == [fx.Send(message=formed)]
        assert peer.state is S.FORMED

    @pytest.mark.parametrize("way", [ADMITTED, FORMED])
    @pytest.mark.parametrize(("scale", "wait"), [(1.0, 30), (0.1, 3)])
    def test_what_is_sent_to_it_it_must_take(
        self, way: tuple[Any, ...], scale: float, wait: float
    ) -> None:
        peer = Peer(*way, admission=replace(CLOSED_ADMISSION, scale=scale))
        assert peer.left == wait
        assert peer.wait() == lost("did not take what was sent to it")

    @pytest.mark.parametrize("way", [ADMITTED, FORMED])
    def test_when_it_has_there_is_no_deadline(self, way: tuple[Any, ...]) -> None:
        peer = Peer(*way, Flushed())
        assert (peer.effects, peer.left) == ([], None)

    @pytest.mark.parametrize("way", [ADMITTED, FORMED])
    def test_an_abort_is_told_and_the_last_reports_are_waited_for(
        self, way: tuple[Any, ...]
    ) -> None:
        peer = Peer(*way, ABORT)
        assert peer.effects == [fx.Send(message=Abort(reason="why"))]
        assert (peer.state, peer.left) == (S.ABORTING, 30)
        assert peer.step(Flushed(), NOW) == []
        assert peer.left == 30
        assert peer.wait() == lost("did not end after Abort")

    def test_a_second_abort_is_one_too_many(self) -> None:
        assert Peer(*ABORTING, ABORT).effects == []


class TestReports:
    @pytest.mark.parametrize("way", [FORMED, ABORTING])
    def test_each_rank_once(self, way: tuple[Any, ...]) -> None:
        peer = Peer(*way)
        for rank, code in ((3, -9), (2, 0)):
            report = RankExited(rank=rank, code=code)
            assert peer.step(report, NOW) == [fx.ReportRank(rank=rank, code=code)]
        told = "host 'h' sent the end of rank 3, which is told before; ignored"
        assert peer.step(RankExited(rank=3, code=0), NOW) == [
            fx.Tell(severity=fx.Severity.WARNING, text=told)
        ]

    def test_none_but_its_own(self) -> None:
        told = "host 'h' sent the end of rank 4, which is not one of its ranks; ignored"
        assert Peer(*FORMED, RankExited(rank=4, code=0)).effects == [
            fx.Tell(severity=fx.Severity.WARNING, text=told)
        ]


# -- every way --------------------------------------------------------------------------------

BYTES = (
    *SAMPLES.values(),
    RankExited(rank=3, code=-9),
    RankExited(rank=9, code=0),
    *(undecodable(stage) for stage in Stage if stage is not Stage.PAYLOAD),
    undecodable(Stage.PAYLOAD, tagged=True),
    undecodable(Stage.KIND, tagged=True),
    EndOfStream(),
    LinkBroken(cause="reset"),
)
DECISIONS = (ADMIT, Refuse(reason="no"), Dismiss(reason="no"))


class World:
    """One dial, and around it what only ever does what can happen."""

    def __init__(self, *inputs: Any, admission: Admission = CLOSED_ADMISSION) -> None:
        self.peer = Peer(*inputs, admission=admission)
        self.now = NOW
        self.log: list[Any] = []

    def moves(self) -> Iterator[Callable[[], None]]:
        state = self.peer.state
        yield partial(self.give, ABORT)
        if self.peer.next_timer is not None:
            yield self.wait
        if state is S.ROUTING:
            yield from (partial(self.give, Routed(channel=c)) for c in ("join", "join", "data"))
            yield from (partial(self.give, given) for given in BYTES[-2:])
            return
        given = DECISIONS if state is S.DECIDING else (*BYTES, Flushed())
        ended = RankExited(rank=2, code=0)
        lucky = {S.AWAIT_HELLO: HELLO, S.DECIDING: ADMIT, S.ADMITTED: FORM, S.FORMED: ended}
        more = (lucky[state],) * 10 if state in lucky else ()
        yield from (partial(self.give, each) for each in (*given, *more))

    def give(self, given: Any) -> None:
        self.note(self.peer.step(given, self.now))

    def wait(self) -> None:
        assert self.peer.next_timer is not None
        self.now = self.peer.next_timer
        self.note(self.peer.expire(self.now))

    def note(self, effects: list[Any]) -> None:
        closed = fx.CloseLink() in self.log
        assert not (closed and effects), "something came after the end"
        self.log += effects
        names = [type(effect).__name__ for effect in self.log]
        # Offered at most once; turned away or admitted; a member is lost once; all is closed once.
        for once in ("Offer", "TurnedAway", "Lost", "CloseLink", "EndSending"):
            assert names.count(once) <= 1
        admitted = any(isinstance(e, fx.Send) and isinstance(e.message, Accept) for e in self.log)
        assert not (admitted and "TurnedAway" in names)
        assert ("Lost" in names) == (admitted and "CloseLink" in names)
        assert ("CloseLink" in names) == self.peer.final
        if not admitted and self.peer.final:
            assert "TurnedAway" in names
        sent = [e.message for e in self.log if isinstance(e, fx.Send)]
        if any(isinstance(message, Reject) for message in sent):
            assert len(sent) == 1
        reports = [e.rank for e in self.log if isinstance(e, fx.ReportRank)]
        assert len(set(reports)) == len(reports)
        assert set(reports) <= {2, 3}

    def samples(self) -> Iterator[Any]:
        yield from (Start(), JOIN, Routed(channel=""), *BYTES, Flushed(), *DECISIONS, FORM, ABORT)
        yield from (Expired(timer=timer) for timer in self.peer._timers or [Timer.WRITE])

    def check_all(self) -> set[tuple[Any, type]]:
        peer = self.peer
        for given in self.samples():
            check(CONTROLLER, peer.state, peer.context, given, self.now)
        return {(peer.state, on) for on in map(type, self.samples())}


@examples(
    st.sampled_from([ROUTING, AWAIT_HELLO, FORMED]),
    st.sampled_from([OPEN_ADMISSION, CLOSED_ADMISSION]),
    st.lists(st.integers(0, 10**6), max_size=12),
)
def test_what_holds_on_every_way(
    way: tuple[Any, ...], admission: Admission, choices: list[int]
) -> None:
    world = World(admission=admission)
    for given in way:
        world.give(given)
    for choice in choices:
        if world.peer.final:
            break
        moves = list(world.moves())
        moves[choice % len(moves)]()
    world.check_all()
    # Whatever has happened, a dial ends with the run.
    if not world.peer.final:
        world.give(ABORT)
    while not world.peer.final:
        world.wait()


def test_every_cell_of_the_table() -> None:
    ways = {
        S.ROUTING: ROUTING,
        S.AWAIT_HELLO: AWAIT_HELLO,
        S.DECIDING: DECIDING,
        S.ADMITTED: ADMITTED,
        S.FORMED: FORMED,
        S.REJECTING: REJECTING,
        S.ABORTING: ABORTING,
        S.CLOSED: CLOSED,
    }
    seen = set()
    for state, way in ways.items():
        world = World(*way)
        assert world.peer.state is state
        seen |= world.check_all()
    assert seen == {(state, on) for state in CONTROLLER.states for on in CONTROLLER.inputs}
