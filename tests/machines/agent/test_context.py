"""The agent's context: what a plan must hold, and what is read off what is known."""

from __future__ import annotations

from dataclasses import replace as changed

import pytest

from joinproto import effects as fx
from joinproto.errors import Aborted, ConfigError
from joinproto.inputs import EndOfStream, LinkBroken
from joinproto.keys import Salt
from joinproto.limits import Timer
from joinproto.machines.agent.context import AgentContext, Plan, calm, fail, how_lost, say
from joinproto.messages import Hello, WorldFormed
from joinproto.record import replace

HELLO = Hello(host="h", local_devices=(4, 7))
PLAN = Plan(hello=HELLO, wires=(4, 2))
CTX = AgentContext(plan=PLAN, peer="10.0.0.1:9000", ranks=(8, 9))
RELAYED = replace(CTX, formed=WorldFormed(envelope_hex="aa", relay_spec_hex=""))
PLAIN = replace(CTX, formed=WorldFormed(envelope_hex="aa"))


class TestPlan:
    def test_its_defaults(self) -> None:
        assert (PLAN.salt, PLAN.scale, PLAN.grace) == (None, 1.0, 5.0)

    def test_a_host_without_devices_is_an_error_before_dialing(self) -> None:
        with pytest.raises(ConfigError) as raised:
            Plan(hello=changed(HELLO, local_devices=()), wires=(2,))
        told = "host 'h' has no devices to offer; name some with --devices"
        assert (str(raised.value), raised.value.fault) == (told, "no-devices")

    def test_so_is_a_host_that_speaks_nothing(self) -> None:
        with pytest.raises(ConfigError, match="no wire version to try") as raised:
            Plan(hello=HELLO, wires=())
        assert raised.value.fault == "option"

    def test_a_salt_is_not_shown(self) -> None:
        shown = repr(AgentContext(plan=replace(PLAN, salt=Salt(b"0123456789abcdef"))))
        assert "0123456789abcdef" not in shown
        assert "salt=Salt(hidden)" in shown


class TestWhatIsKnown:
    @pytest.mark.parametrize(("wire", "version"), [(0, 4), (1, 2)])
    def test_the_version_in_use(self, wire: int, version: int) -> None:
        assert replace(CTX, wire=wire).version == version

    def test_before_the_world_forms_there_is_no_relay(self) -> None:
        assert (CTX.relays, CTX.children) == (0, 2)

    def test_an_empty_relay_spec_is_not_an_absent_one(self) -> None:
        assert (RELAYED.relays, RELAYED.children) == (1, 3)
        assert (PLAIN.relays, PLAIN.children) == (0, 2)

    def test_the_relay_comes_first(self) -> None:
        assert [RELAYED.rank_of(slot) for slot in range(3)] == [None, 8, 9]
        assert [RELAYED.name_of(slot) for slot in range(3)] == ["relay", "rank 8", "rank 9"]
        assert [PLAIN.name_of(slot) for slot in range(2)] == ["rank 8", "rank 9"]

    @pytest.mark.parametrize(
        ("codes", "failed"),
        [
            ((), 0),
            (((1, 0), (2, 0)), 0),
            (((0, 1), (1, 0)), 0),  # the relay is no rank
            (((1, 7), (2, -9), (0, 0)), 2),
        ],
    )
    def test_how_many_ranks_failed(self, codes: tuple[tuple[int, int], ...], failed: int) -> None:
        assert replace(RELAYED, codes=codes).failed_ranks == failed

    def test_artifacts_are_not_shown(self) -> None:
        formed = WorldFormed(envelope_hex="5a17", relay_spec_hex="5a17")
        assert "5a17" not in repr(replace(CTX, formed=formed))


def test_calm_clears_the_deadlines_before_the_world_forms() -> None:
    cleared = [effect.timer for effect in calm()]
    assert cleared == [Timer.REDIAL, Timer.WRITE, Timer.REPLY, Timer.FORMATION]


def test_to_fail_is_to_close_and_to_finish() -> None:
    error = Aborted("why", formed=False)
    ctx, effects = fail(replace(CTX, link=True), error)
    assert (ctx.failure, ctx.link) == (error, False)
    assert effects == (fx.CloseLink(), fx.Finish(error=error))


def test_to_say_something_is_information_unless_told_otherwise() -> None:
    assert say("a") == fx.Tell(severity=fx.Severity.INFO, text="a")
    assert say("a", fx.Severity.ERROR).severity is fx.Severity.ERROR


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (EndOfStream(), "the controller at 10.0.0.1:9000 closed the connection"),
        (
            LinkBroken(cause="reset by peer"),
            "the connection to the controller at 10.0.0.1:9000 failed (reset by peer)",
        ),
    ],
)
def test_how_a_link_was_lost(given: EndOfStream | LinkBroken, text: str) -> None:
    assert how_lost(CTX, given) == text
