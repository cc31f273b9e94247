"""The agent from its first dial to a formed world, or to the reason why there is none."""

from __future__ import annotations

from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Any

import pytest

from joinproto import effects as fx
from joinproto.errors import (
    Aborted,
    DeadlinePassed,
    DecodeError,
    HelperLost,
    JoinprotoError,
    LinkLost,
    ProtocolViolation,
    Rejected,
    Stage,
    Stopped,
    TrustMismatch,
    Unreachable,
)
from joinproto.inputs import (
    Connected,
    ConnectFailed,
    EndOfStream,
    Flushed,
    HelperDied,
    LinkBroken,
    Start,
    StopRequested,
    Undecodable,
)
from joinproto.keys import OPEN, Salt
from joinproto.machines.agent import AGENT, AgentContext, AgentState, Plan
from joinproto.messages import MESSAGES, Abort, Accept, Hello, RankExited, Reject, WorldFormed
from joinproto.record import replace
from joinproto.session import Session

S = AgentState
SALT = Salt(bytes(range(16)))
SALT_HEX = "000102030405060708090a0b0c0d0e0f"
HELLO = Hello(host="h", local_devices=(0, 1), run_id="r")
PLAN = Plan(hello=HELLO, wires=(2,))
PEER = "10.0.0.1:9000"
ACCEPT = Accept(ranks=(2, 3), salt_hex=SALT_HEX, formation_wait_secs=60)

SAMPLES = {
    Hello: HELLO,
    Accept: ACCEPT,
    Reject: Reject(reason="why"),
    WorldFormed: WorldFormed(envelope_hex=""),
    RankExited: RankExited(rank=0, code=0),
    Abort: Abort(reason="why"),
}


@dataclass
class Agent:
    """An agent's machine at a time of our choosing."""

    plan: Plan = PLAN
    now: float = 100.0
    session: Session[AgentContext] = field(init=False)

    def __post_init__(self) -> None:
        self.session = Session(AGENT, AgentContext(plan=self.plan))

    def give(self, *inputs: Any) -> list[Any]:
        """The effects of the last of `inputs`."""
        effects = []
        for given in inputs:
            effects = self.session.step(given, self.now)
        return effects

    def wait(self) -> list[Any]:
        """Let the next deadline come."""
        assert self.session.next_timer is not None
        self.now = self.session.next_timer
        return self.session.expire(self.now)

    @property
    def left(self) -> float | None:
        """Seconds to the next deadline."""
        at = self.session.next_timer
        return None if at is None else at - self.now


DIALED = (Start(), Connected(peer=PEER))
GREETED = (*DIALED, Flushed())
ADMITTED = (*GREETED, ACCEPT)
BEFORE_FORMATION = pytest.mark.parametrize("way", [(Start(),), DIALED, GREETED, ADMITTED])
ENDS = [EndOfStream(), LinkBroken(cause="reset by peer")]


def failure(agent: Agent, *inputs: Any) -> JoinprotoError:
    """The error with which the last of `inputs` ends the agent."""
    return failed(agent, agent.give(*inputs))


def failed(agent: Agent, effects: list[Any]) -> JoinprotoError:
    close, finish = effects
    assert close == fx.CloseLink()
    assert isinstance(finish, fx.Finish)
    assert isinstance(finish.error, JoinprotoError)
    assert agent.session.state is S.ABORTED
    assert agent.session.next_timer is None
    assert agent.session.context.failure is finish.error
    return finish.error


def texts(effects: list[Any]) -> list[str]:
    return [effect.text for effect in effects if isinstance(effect, fx.Tell)]


class TestDialing:
    @pytest.mark.parametrize(("scale", "timeout"), [(1.0, 3.0), (4.0, 12.0), (0.1, 1.0)])
    def test_it_begins_with_a_dial_of_bounded_length(self, scale: float, timeout: float) -> None:
        agent = Agent(replace(PLAN, scale=scale))
        assert agent.give(Start()) == [fx.Dial(timeout=timeout, wire=2)]
        assert agent.session.state is S.DIALING

    def test_where_nobody_listens_it_dials_every_half_second_for_half_a_minute(self) -> None:
        agent = Agent()
        effects = agent.give(Start())
        dials = [agent.now]
        while agent.session.state is S.DIALING:
            effects = agent.give(ConnectFailed(cause="connection refused"))
            if agent.session.state is S.DIALING:
                assert agent.wait() == [fx.Dial(timeout=3.0, wire=2)]
                dials.append(agent.now)
        assert dials == [100 + attempt / 2 for attempt in range(60)]
        error = failed(agent, effects)
        assert isinstance(error, Unreachable)
        assert str(error) == "connection refused"  # the last cause

    def test_the_budget_is_of_the_clock_however_long_an_attempt_takes(self) -> None:
        agent = Agent()
        agent.give(Start())
        dials = 1
        while agent.session.state is S.DIALING:
            agent.now += 3.0
            agent.give(ConnectFailed(cause="timed out"))
            if agent.session.state is S.DIALING:
                agent.wait()
                dials += 1
        assert dials == 9
        assert agent.now <= 100 + 30 + 3

    @pytest.mark.parametrize(("scale", "dials"), [(2.0, 120), (0.1, 6)])
    def test_the_budget_scales_and_the_pause_does_not(self, scale: float, dials: int) -> None:
        agent = Agent(replace(PLAN, scale=scale))
        agent.give(Start())
        made = 1
        while agent.give(ConnectFailed(cause="no")) and agent.session.state is S.DIALING:
            assert agent.left == 0.5
            agent.wait()
            made += 1
        assert made == dials

    def test_a_failed_attempt_is_told_to_those_who_ask(self) -> None:
        effects = Agent().give(Start(), ConnectFailed(cause="no route to host"))
        assert effects == [
            fx.CloseLink(),
            fx.Tell(severity=fx.Severity.DEBUG, text="no route to host; dialing again in 0.5 s"),
        ]

    @pytest.mark.parametrize("before", [(Start(),), (Start(), ConnectFailed(cause="no"))])
    def test_a_stop_ends_it(self, before: tuple[Any, ...]) -> None:
        error = failure(Agent(), *before, StopRequested(reason="SIGTERM", number=15))
        assert isinstance(error, Stopped)
        assert (error.signal_name, error.number) == ("SIGTERM", 15)


class TestHello:
    @pytest.mark.parametrize(("salt", "key"), [(None, OPEN), (SALT, SALT)])
    def test_it_is_said_under_the_join_key(self, salt: Salt | None, key: Salt) -> None:
        agent = Agent(replace(PLAN, salt=salt))
        assert agent.give(*DIALED) == [fx.UseKey(key=key), fx.OpenChannel(), fx.Send(message=HELLO)]
        assert agent.session.state is S.HELLO
        assert agent.session.context.peer == PEER

    @pytest.mark.parametrize("scale", [1.0, 2.0])
    def test_a_controller_that_does_not_take_it_is_given_up(self, scale: float) -> None:
        agent = Agent(replace(PLAN, scale=scale))
        agent.give(*DIALED)
        assert agent.left == 30 * scale
        error = failed(agent, agent.wait())
        assert isinstance(error, DeadlinePassed)
        assert str(error) == f"the controller at {PEER} did not take the Hello in time"

    def test_when_it_is_out_an_answer_is_awaited(self) -> None:
        agent = Agent()
        assert agent.give(*GREETED) == []
        assert agent.session.state is S.AWAIT_ACCEPT

    @pytest.mark.parametrize(("scale", "wait"), [(1.0, 30), (0.1, 3), (0.11, 4)])
    def test_an_answer_has_a_deadline(self, scale: float, wait: float) -> None:
        agent = Agent(replace(PLAN, scale=scale))
        agent.give(*GREETED)
        assert agent.left == wait
        error = failed(agent, agent.wait())
        assert isinstance(error, DeadlinePassed)
        assert str(error) == f"the controller at {PEER} did not answer the Hello in time"

    def test_an_answer_to_half_a_hello_is_none(self) -> None:
        error = failure(Agent(), *DIALED, ACCEPT)
        told = "expected the Accept after the whole Hello, got it before its end"
        assert (type(error), str(error)) == (ProtocolViolation, told)

    def test_what_comes_of_a_later_flush_is_nothing(self) -> None:
        agent = Agent()
        agent.give(*GREETED)
        agent.now += 10
        assert agent.give(Flushed()) == []
        assert agent.left == 20  # the deadline stands where it was


@pytest.mark.parametrize("way", [DIALED, GREETED], ids=["in Hello", "in AwaitAccept"])
class TestBeforeAnyAnswer:
    """A connection that ends before any answer to Hello is a failed attempt, and no more."""

    @pytest.mark.parametrize("end", ENDS)
    def test_it_dials_again_after_growing_pauses(self, way: tuple[Any, ...], end: Any) -> None:
        agent = Agent()
        agent.give(way[0])
        begun, pauses, effects = [agent.now], [], []
        while not agent.session.final:
            effects = agent.give(*way[1:], end)
            if not agent.session.final:
                assert agent.left is not None
                pauses.append(agent.left)
                assert agent.wait() == [fx.Dial(timeout=3.0, wire=2)]
                begun.append(agent.now)
        assert pauses == [0.5, 1, 2, 4, 8]
        assert begun == [100, 100.5, 101.5, 103.5, 107.5, 115.5]
        assert isinstance(failed(agent, effects), LinkLost)

    @pytest.mark.parametrize("end", ENDS)
    def test_the_connection_is_closed_here_too(self, way: tuple[Any, ...], end: Any) -> None:
        agent = Agent()
        effects = agent.give(*way, end)
        assert effects[0] == fx.CloseLink()
        assert agent.session.state is S.DIALING
        assert not agent.session.context.link

    def test_a_refusal_to_connect_in_between_does_not_make_the_pause_grow(
        self, way: tuple[Any, ...]
    ) -> None:
        agent = Agent()
        agent.give(*way, EndOfStream())
        agent.wait()
        agent.give(ConnectFailed(cause="refused"))
        assert agent.left == 0.5
        agent.wait()
        agent.give(*way[1:], EndOfStream())
        assert agent.left == 1

    @pytest.mark.parametrize(
        ("end", "how"), [(ENDS[0], "closed"), (ENDS[1], "lost (reset by peer)")]
    )
    @pytest.mark.parametrize(
        ("salt", "hint"),
        [
            (None, ""),
            (SALT, "; with a pre-shared salt this most often means that the two salts differ"),
        ],
    )
    def test_what_is_told_of_it(
        self, way: tuple[Any, ...], end: Any, how: str, salt: Salt | None, hint: str
    ) -> None:
        agent = Agent(replace(PLAN, salt=salt))
        told = f"the connection to {PEER} was {how} before any answer to Hello{hint}"
        assert texts(agent.give(*way, end)) == [f"{told}; dialing again in 0.5 s"]
        agent.now = 200.0
        assert str(failure(agent, *way[1:], end)) == told

    @pytest.mark.parametrize("end", ENDS)
    def test_the_next_wire_is_tried_at_once(self, way: tuple[Any, ...], end: Any) -> None:
        agent = Agent(replace(PLAN, wires=(4, 2)))
        agent.give(*way)
        told = fx.Tell(severity=fx.Severity.DEBUG, text="no answer in wire 4; trying wire 2")
        assert agent.give(end) == [fx.CloseLink(), told, fx.Dial(timeout=3.0, wire=2)]
        assert agent.session.next_timer is None

    def test_two_dials_are_one_attempt_and_the_next_begins_with_the_newest(
        self, way: tuple[Any, ...]
    ) -> None:
        agent = Agent(replace(PLAN, wires=(4, 2)))
        agent.give(*way, EndOfStream())
        agent.give(*way[1:], EndOfStream())
        assert agent.left == 0.5
        assert agent.wait() == [fx.Dial(timeout=3.0, wire=4)]

    def test_a_second_dial_that_fails_ends_the_attempt(self, way: tuple[Any, ...]) -> None:
        agent = Agent(replace(PLAN, wires=(4, 2)))
        agent.give(*way, EndOfStream(), ConnectFailed(cause="refused"))
        assert agent.left == 0.5
        assert agent.wait() == [fx.Dial(timeout=3.0, wire=4)]

    def test_a_reject_is_final_and_told_word_for_word(self, way: tuple[Any, ...]) -> None:
        error = failure(Agent(), *way, Reject(reason="no  room"))
        assert isinstance(error, Rejected)
        assert error.reason == "no  room"

    @pytest.mark.parametrize("message", [m for m in MESSAGES if m not in (Accept, Reject)])
    def test_anything_else_is_a_violation(self, way: tuple[Any, ...], message: type) -> None:
        error = failure(Agent(), *way, SAMPLES[message])
        assert isinstance(error, ProtocolViolation)
        assert str(error) == f"expected Accept or Reject, got {message.__name__}"

    @pytest.mark.parametrize("stage", Stage)
    def test_what_cannot_be_read_ends_it(self, way: tuple[Any, ...], stage: Stage) -> None:
        error = DecodeError(stage, "why")
        assert failure(Agent(), *way, Undecodable(error=error)) is error

    def test_a_stop_ends_it(self, way: tuple[Any, ...]) -> None:
        error = failure(Agent(), *way, StopRequested(reason="SIGINT", number=2))
        assert isinstance(error, Stopped)


class TestAccept:
    def test_under_open_admission_its_salt_is_the_key_from_then_on(self) -> None:
        agent = Agent()
        effects = agent.give(*ADMITTED)
        told = "joined as rank(s) 2, 3; waiting up to 60 s for the world to form"
        assert effects == [
            fx.UseKey(key=SALT),
            fx.Tell(severity=fx.Severity.INFO, text=told),
        ]
        assert agent.session.state is S.AWAIT_FORMED
        assert agent.session.context.ranks == (2, 3)

    @pytest.mark.parametrize("salt_hex", [None, SALT_HEX, "ff" * 16, "not a salt", ""])
    def test_a_pre_shared_salt_wins(self, salt_hex: str | None) -> None:
        held = Salt(b"pre-shared salt!")
        agent = Agent(replace(PLAN, salt=held))
        effects = agent.give(*GREETED, changed(ACCEPT, salt_hex=salt_hex))
        assert effects[0] == fx.UseKey(key=held)

    def test_under_open_admission_it_must_bring_one(self) -> None:
        error = failure(Agent(), *GREETED, changed(ACCEPT, salt_hex=None))
        assert isinstance(error, TrustMismatch)
        assert str(error).startswith("controller and worker disagree on the trust mode: ")

    @pytest.mark.parametrize("salt_hex", ["", "zz", SALT_HEX[:-2], SALT_HEX + "00"])
    def test_a_salt_that_is_none_is_refused_and_not_repeated(self, salt_hex: str) -> None:
        error = failure(Agent(), *GREETED, changed(ACCEPT, salt_hex=salt_hex))
        assert isinstance(error, TrustMismatch)
        assert str(error).startswith("the session salt in Accept is unusable: ")
        assert SALT_HEX[:-2] not in str(error)

    @pytest.mark.parametrize("ranks", [(), (2,), (2, 3, 4)])
    @pytest.mark.parametrize("salt", [None, SALT])
    def test_a_wrong_number_of_ranks_is_refused(
        self, ranks: tuple[int, ...], salt: Salt | None
    ) -> None:
        agent = Agent(replace(PLAN, salt=salt))
        error = failure(agent, *GREETED, changed(ACCEPT, ranks=ranks))
        assert isinstance(error, ProtocolViolation)
        assert str(error) == f"expected 2 ranks, one for each device, got {len(ranks)}"

    @pytest.mark.parametrize("scale", [1.0, 3.0])
    def test_the_world_has_a_deadline_that_is_scaled_already(self, scale: float) -> None:
        agent = Agent(replace(PLAN, scale=scale))
        agent.give(*ADMITTED)
        assert agent.left == 60 + 30
        error = failed(agent, agent.wait())
        assert isinstance(error, DeadlinePassed)
        assert str(error) == f"the controller at {PEER} did not form the world in time"

    def test_the_longest_wait_there_is_is_no_failure(self) -> None:
        agent = Agent()
        agent.give(*GREETED, changed(ACCEPT, formation_wait_secs=2**64 - 1))
        assert agent.left is not None
        assert agent.left >= 2**64 - 1


class TestAwaitFormed:
    def test_an_abort_carries_its_reason(self) -> None:
        error = failure(Agent(), *ADMITTED, Abort(reason="quorum not met"))
        assert isinstance(error, Aborted)
        assert str(error) == "run aborted before the world formed: quorum not met"

    @pytest.mark.parametrize(
        ("end", "how"),
        [
            (ENDS[0], f"the controller at {PEER} closed the connection"),
            (ENDS[1], f"the connection to the controller at {PEER} failed (reset by peer)"),
        ],
    )
    def test_the_end_of_the_link_is_final(self, end: Any, how: str) -> None:
        error = failure(Agent(), *ADMITTED, end)
        assert (type(error), str(error)) == (LinkLost, f"{how} before the world formed")

    @pytest.mark.parametrize("message", [m for m in MESSAGES if m not in (WorldFormed, Abort)])
    def test_anything_else_is_a_violation(self, message: type) -> None:
        error = failure(Agent(), *ADMITTED, SAMPLES[message])
        assert isinstance(error, ProtocolViolation)
        assert str(error) == f"expected WorldFormed or Abort, got {message.__name__}"

    @pytest.mark.parametrize("stage", Stage)
    def test_what_cannot_be_read_ends_it(self, stage: Stage) -> None:
        error = DecodeError(stage, "why")
        assert failure(Agent(), *ADMITTED, Undecodable(error=error)) is error

    def test_a_stop_ends_it(self) -> None:
        error = failure(Agent(), *ADMITTED, StopRequested(reason="SIGHUP", number=1))
        assert isinstance(error, Stopped)

    def test_a_formed_world_ends_the_waiting(self) -> None:
        agent = Agent()
        agent.give(*ADMITTED, WorldFormed(envelope_hex="aa"))
        assert agent.session.state is S.SUPERVISING
        assert agent.session.next_timer is None


@BEFORE_FORMATION
def test_without_its_helper_it_could_start_nothing(way: tuple[Any, ...]) -> None:
    error = failure(Agent(), *way, HelperDied(cause="it was killed"))
    assert (type(error), str(error)) == (HelperLost, "it was killed")
