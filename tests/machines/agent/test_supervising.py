"""The agent from a formed world to the last rank's end, or to the tearing down of its host."""

from __future__ import annotations

from typing import Any

import pytest

from joinproto import effects as fx
from joinproto.effects import Severity
from joinproto.errors import (
    Aborted,
    CommandNotFound,
    DecodeError,
    HelperLost,
    JoinprotoError,
    LinkLost,
    RelayDied,
    SpawnFailed,
    Stage,
    Stopped,
    Unkillable,
)
from joinproto.inputs import (
    ChildDrained,
    ChildExited,
    ChildFailed,
    ChildStarted,
    ChildStuck,
    EndOfStream,
    Flushed,
    HelperDied,
    LinkBroken,
    StopRequested,
    Undecodable,
)
from joinproto.machines.agent import AGENT, AgentContext, AgentState, Plan
from joinproto.messages import MESSAGES, Abort, Accept, Hello, RankExited, Reject, WorldFormed
from joinproto.session import Session

S = AgentState
NOW = 100.0
GRACE = 5.0
HELLO = Hello(host="h", local_devices=(4, 7))
RELAYED = WorldFormed(envelope_hex="aa", relay_spec_hex="bb")
PLAIN = WorldFormed(envelope_hex="aa")
TERM = StopRequested(reason="SIGTERM", number=15)


class Agent(Session[AgentContext]):
    """An agent that is admitted with ranks 2 and 3, on devices 4 and 7."""

    def __init__(self, *, grace: float = GRACE, wire: int = 0) -> None:
        plan = Plan(hello=HELLO, wires=(4, 2), grace=grace)
        super().__init__(
            AGENT, AgentContext(plan=plan, wire=wire, ranks=(2, 3), peer="c", link=True)
        )
        self.state = S.AWAIT_FORMED

    def give(self, *inputs: Any) -> list[Any]:
        """The effects of the last of `inputs`."""
        effects = []
        for given in inputs:
            effects = self.step(given, NOW)
        return effects


def started(formed: WorldFormed = RELAYED, **plan: Any) -> Agent:
    """An agent whose children all run."""
    agent = Agent(**plan)
    agent.give(formed, *(ChildStarted(slot=slot) for slot in range(2 + (formed is RELAYED))))
    return agent


def ended(slot: int, code: int = 0) -> tuple[ChildExited, ChildDrained]:
    return ChildExited(slot=slot, code=code), ChildDrained(slot=slot)


def spawn(slot: int, *, rank: int | None = None, local: int | None = None, **more: Any) -> fx.Spawn:
    device = None if local is None else HELLO.local_devices[local]
    artifact = "bb" if rank is None else "aa"
    values = {"artifact_hex": artifact, "wire": 4, **more}
    return fx.Spawn(slot=slot, rank=rank, local_rank=local, device=device, **values)


def tell(severity: Severity, text: str) -> fx.Tell:
    return fx.Tell(severity=severity, text=text)


def report(rank: int, code: int) -> fx.Send:
    return fx.Send(message=RankExited(rank=rank, code=code))


def teardown(error: str) -> list[Any]:
    """The effects of the first reason to stop everything."""
    return [
        tell(Severity.ERROR, f"tearing down host 'h': {error}"),
        fx.StopChildren(deadline=NOW + GRACE),
    ]


class TestSpawning:
    def test_the_relay_first_then_one_rank_a_device(self) -> None:
        agent = Agent()
        told = tell(Severity.INFO, "world formed; starting a relay and 2 rank(s)")
        ranks = [spawn(1, rank=2, local=0), spawn(2, rank=3, local=1)]
        assert agent.give(RELAYED) == [told, spawn(0), *ranks]
        for slot in range(3):
            assert agent.give(ChildStarted(slot=slot)) == []

    def test_no_relay_where_none_is_asked_for(self) -> None:
        agent = Agent()
        told = tell(Severity.INFO, "world formed; starting 2 rank(s)")
        ranks = [spawn(0, rank=2, local=0), spawn(1, rank=3, local=1)]
        assert agent.give(PLAIN) == [told, *ranks]

    def test_empty_artifacts_are_artifacts(self) -> None:
        agent = Agent()
        effects = agent.give(WorldFormed(envelope_hex="", relay_spec_hex=""))
        assert effects[1] == spawn(0, artifact_hex="")
        assert effects[2] == spawn(1, rank=2, local=0, artifact_hex="")

    def test_the_version_that_was_answered_goes_with_them(self) -> None:
        effects = Agent(wire=1).give(PLAIN)
        assert effects[1] == spawn(0, rank=2, local=0, wire=2)

    def test_a_child_that_cannot_be_started_stops_those_that_were(self) -> None:
        agent = Agent()
        agent.give(RELAYED, ChildStarted(slot=0))
        failed = ChildFailed(slot=1, cause="out of processes")
        assert agent.give(failed) == teardown("rank 2 could not be started: out of processes")
        assert agent.give(ChildFailed(slot=2, cause="the host is being torn down")) == []
        effects = agent.give(*ended(0, -15))
        assert isinstance(finish(effects), SpawnFailed)

    @pytest.mark.parametrize(
        ("not_found", "kind", "code"), [(False, SpawnFailed, 1), (True, CommandNotFound, 2)]
    )
    def test_the_first_that_cannot_be_started_decides(
        self, not_found: bool, kind: type[JoinprotoError], code: int
    ) -> None:
        agent = Agent()
        effects = agent.give(PLAIN, ChildFailed(slot=0, cause="why", not_found=not_found))
        assert effects == teardown("rank 2 could not be started: why")
        error = finish(agent.give(ChildFailed(slot=1, cause="too", not_found=not not_found)))
        assert type(error) is kind
        assert error.exit_code == code
        assert agent.state is S.ABORTED

    def test_a_failure_that_tearing_down_brought_about_is_not_told(self) -> None:
        agent = Agent()
        agent.give(RELAYED, ChildStarted(slot=0), TERM)
        for slot in (1, 2):
            assert agent.give(ChildFailed(slot=slot, cause="torn down")) == []
        assert isinstance(finish(agent.give(*ended(0))), Stopped)

    def test_the_same_as_the_last_of_all(self) -> None:
        agent = Agent()
        agent.give(PLAIN, TERM, ChildFailed(slot=0, cause="torn down"))
        effects = agent.give(ChildFailed(slot=1, cause="torn down"))
        assert effects[0] == fx.CloseLink()
        assert isinstance(finish(effects), Stopped)


def finish(effects: list[Any]) -> Any:
    """The error of the Finish that ends `effects`, behind the closing of the link."""
    *_, close, last = effects
    assert close == fx.CloseLink()
    assert isinstance(last, fx.Finish)
    return last.error


class TestTheEndOfRanks:
    def test_it_is_reported_when_its_output_is_out(self) -> None:
        agent = started()
        assert agent.give(ChildExited(slot=1, code=-9)) == []
        assert agent.give(ChildDrained(slot=1)) == [report(2, -9)]

    def test_the_relay_has_no_rank_to_report(self) -> None:
        assert started().give(*ended(0)) == []

    def test_when_all_have_ended_well_so_has_the_host(self) -> None:
        agent = started()
        agent.give(*ended(1), *ended(2))
        effects = agent.give(*ended(0))
        assert effects[0] == tell(Severity.INFO, "host 'h' finished cleanly")
        assert finish(effects) is None
        assert agent.state is S.DONE
        assert not agent.context.link

    def test_the_last_report_is_sent_before_the_link_is_closed(self) -> None:
        agent = started(PLAIN)
        agent.give(*ended(0))
        effects = agent.give(*ended(1, 1))
        assert effects[0] == report(3, 1)
        assert finish(effects) is None

    def test_the_failure_of_ranks_is_not_the_agents(self) -> None:
        agent = started()
        agent.give(*ended(1, 7), *ended(0))
        effects = agent.give(*ended(2))
        degraded = "host 'h' finished DEGRADED: 1 of 2 rank(s) failed"
        assert effects[1] == tell(Severity.WARNING, degraded)
        assert finish(effects) is None
        assert agent.state is S.DONE


class TestTheRelay:
    def test_its_failure_while_ranks_run_stops_them(self) -> None:
        agent = started()
        error = "the relay ended with -11 while 2 rank(s) ran"
        assert agent.give(ChildExited(slot=0, code=-11)) == teardown(error)
        agent.give(ChildDrained(slot=0))
        assert agent.give(*ended(1, -15)) == [report(2, -15)]
        assert isinstance(finish(agent.give(*ended(2, -15))), RelayDied)

    def test_its_success_does_not(self) -> None:
        assert started().give(ChildExited(slot=0, code=0)) == []

    def test_nor_does_its_failure_when_all_ranks_have_ended(self) -> None:
        agent = started()
        agent.give(ChildExited(slot=1, code=0), ChildExited(slot=2, code=0))
        assert agent.give(ChildExited(slot=0, code=1)) == []

    def test_nor_does_its_failure_under_a_tearing_down(self) -> None:
        agent = started()
        agent.give(TERM)
        assert agent.give(ChildExited(slot=0, code=-15)) == []
        assert isinstance(agent.context.failure, Stopped)

    def test_a_rank_that_fails_is_no_relay(self) -> None:
        assert started(PLAIN).give(ChildExited(slot=0, code=1)) == []


LINK_ENDS: list[tuple[Any, str]] = [
    (EndOfStream(), "the controller at c closed the connection"),
    (LinkBroken(cause="reset"), "the connection to the controller at c failed (reset)"),
    (
        Undecodable(error=DecodeError(Stage.TAG, "wrong")),
        "the connection to the controller at c failed (tag: wrong)",
    ),
]


class TestTheEndOfTheLink:
    @pytest.mark.parametrize(("given", "how"), LINK_ENDS)
    def test_while_ranks_run_it_stops_them(self, given: Any, how: str) -> None:
        agent = started()
        close, *rest = agent.give(given)
        assert close == fx.CloseLink()
        assert rest == teardown(f"{how} while ranks ran")
        # There is nobody left to report to.
        assert agent.give(*ended(0), *ended(1, -15)) == []
        assert isinstance(finish(agent.give(*ended(2, -15))), LinkLost)

    @pytest.mark.parametrize(("given", "how"), LINK_ENDS)
    def test_after_the_last_is_reaped_it_changes_nothing(self, given: Any, how: str) -> None:
        agent = started(PLAIN)
        agent.give(*ended(0), ChildExited(slot=1, code=0))
        assert agent.give(given) == [fx.CloseLink()]
        assert finish(agent.give(ChildDrained(slot=1))) is None
        assert agent.state is S.DONE

    @pytest.mark.parametrize(("given", "how"), LINK_ENDS)
    def test_behind_another_reason_it_is_only_told(self, given: Any, how: str) -> None:
        agent = started()
        agent.give(Abort(reason="why"))
        told = tell(Severity.WARNING, f"also: {how} while ranks ran")
        assert agent.give(given) == [fx.CloseLink(), told]
        assert isinstance(agent.context.failure, Aborted)


class TestMessages:
    def test_an_abort_stops_everything_with_its_reason(self) -> None:
        agent = started()
        assert agent.give(Abort(reason="operator")) == teardown("run aborted: operator")
        agent.give(*ended(0))
        assert agent.give(*ended(1, -15)) == [report(2, -15)]  # the link stands
        effects = agent.give(*ended(2, -9))
        assert effects[0] == report(3, -9)
        error = finish(effects)
        assert isinstance(error, Aborted)
        assert error.reason == "operator"
        assert agent.state is S.ABORTED

    def test_after_the_last_is_reaped_an_abort_changes_nothing(self) -> None:
        agent = started(PLAIN)
        agent.give(*ended(0), ChildExited(slot=1, code=0))
        assert agent.give(Abort(reason="late")) == []
        assert finish(agent.give(ChildDrained(slot=1))) is None

    @pytest.mark.parametrize("message", [m for m in MESSAGES if m is not Abort])
    def test_one_that_means_nothing_here_is_ignored(self, message: type) -> None:
        samples = {
            Hello: HELLO,
            Accept: Accept(ranks=(), formation_wait_secs=0),
            Reject: Reject(reason=""),
            WorldFormed: RELAYED,
            RankExited: RankExited(rank=0, code=0),
        }
        agent = started()
        before = agent.context
        text = f"ignored {message.__name__} from the controller: it means nothing while ranks run"
        assert agent.give(samples[message]) == [tell(Severity.DEBUG, text)]
        assert agent.context == before

    def test_one_that_does_not_decode_is_told_and_ignored(self) -> None:
        agent = started()
        before = agent.context
        error = DecodeError(Stage.PAYLOAD, "no UTF-8", field="Abort.reason", offset=3)
        told = tell(Severity.WARNING, f"ignored a message from the controller: {error}")
        assert agent.give(Undecodable(error=error, tagged=True)) == [told]
        assert agent.context == before

    @pytest.mark.parametrize("stage", [stage for stage in Stage if stage is not Stage.PAYLOAD])
    def test_a_stream_that_cannot_be_read_is_a_link_that_ended(self, stage: Stage) -> None:
        agent = started()
        assert agent.give(Undecodable(error=DecodeError(stage, "why")))[0] == fx.CloseLink()
        assert isinstance(agent.context.failure, LinkLost)

    def test_what_is_flushed_is_of_no_interest(self) -> None:
        assert started().give(Flushed()) == []


class TestStopping:
    def test_a_signal_stops_everything_within_one_grace(self) -> None:
        agent = started()
        assert agent.give(TERM) == teardown("stopped by SIGTERM")
        assert agent.state is S.SUPERVISING
        agent.give(*ended(0), *ended(1, -15))
        error = finish(agent.give(*ended(2, -15)))
        assert (type(error), error.number) == (Stopped, 15)

    def test_a_second_one_skips_the_grace(self) -> None:
        agent = started()
        agent.give(TERM)
        told = tell(Severity.WARNING, "SIGINT again: killing what is left")
        hurry = [told, fx.KillChildren()]
        assert agent.give(StopRequested(reason="SIGINT", number=2)) == hurry
        assert isinstance(agent.context.failure, Stopped)
        assert agent.context.failure.signal_name == "SIGTERM"

    def test_the_first_signal_under_another_reason_does_not(self) -> None:
        agent = started()
        agent.give(Abort(reason="why"))
        assert agent.give(TERM) == [tell(Severity.WARNING, "also: stopped by SIGTERM")]
        assert agent.give(TERM)[-1] == fx.KillChildren()

    def test_without_a_grace_children_are_killed_at_once(self) -> None:
        assert started(grace=0).give(TERM)[-1] == fx.KillChildren()

    def test_a_child_that_has_started_meanwhile_changes_nothing(self) -> None:
        agent = Agent()
        agent.give(RELAYED, TERM, *(ChildFailed(slot=slot, cause="torn down") for slot in (1, 2)))
        assert agent.give(ChildStarted(slot=0)) == []
        assert isinstance(finish(agent.give(*ended(0, -15))), Stopped)


class TestTheHelper:
    def test_its_death_is_that_of_the_children(self) -> None:
        agent = started()
        assert agent.give(HelperDied(cause="it was killed")) == teardown("it was killed")
        agent.give(*ended(0, -9), *ended(1, -9))
        effects = agent.give(*ended(2, -9))
        assert effects[0] == report(3, -9)
        assert isinstance(finish(effects), HelperLost)

    def test_after_the_last_is_reaped_it_changes_nothing(self) -> None:
        agent = started(PLAIN)
        agent.give(*ended(0), ChildExited(slot=1, code=0))
        assert agent.give(HelperDied(cause="it was killed")) == []
        assert finish(agent.give(ChildDrained(slot=1))) is None

    def test_behind_another_reason_it_is_only_told(self) -> None:
        agent = started()
        agent.give(TERM)
        also = tell(Severity.WARNING, "also: it was killed")
        assert agent.give(HelperDied(cause="it was killed")) == [also]


class TestSweeping:
    """What has left its rank's group or session ends with the last child, not with the grace."""

    def test_a_host_that_is_torn_down_is_swept_when_its_last_child_ends(self) -> None:
        agent = started(PLAIN)
        agent.give(TERM)
        assert agent.give(ChildExited(slot=0, code=-15)) == []
        assert agent.give(ChildExited(slot=1, code=-15)) == [fx.SweepHost()]

    def test_one_that_ends_well_is_not(self) -> None:
        agent = started(PLAIN)
        agent.give(ChildExited(slot=0, code=1))
        assert agent.give(ChildExited(slot=1, code=0)) == []


class TestStuckChildren:
    def test_one_is_named_and_the_others_are_waited_for(self) -> None:
        agent = started()
        agent.give(TERM)
        told = tell(Severity.ERROR, "rank 2 is still there after SIGKILL; leaving it")
        assert agent.give(ChildStuck(slot=1)) == [told]
        agent.give(*ended(0))
        effects = agent.give(*ended(2, -9))
        assert effects[0] == report(3, -9)
        error = finish(effects)
        assert type(error) is Unkillable
        told_at_last = "rank 2 of host 'h' could not be killed (stopped by SIGTERM)"
        assert str(error) == told_at_last

    def test_all_of_them(self) -> None:
        agent = started()
        agent.give(Abort(reason="why"), ChildStuck(slot=1), ChildStuck(slot=0))
        effects = agent.give(ChildStuck(slot=2))
        assert effects[0] == tell(Severity.ERROR, "rank 3 is still there after SIGKILL; leaving it")
        names = "relay, rank 2, rank 3 of host 'h' could not be killed (run aborted: why)"
        assert str(finish(effects)) == names
        assert agent.state is S.ABORTED
