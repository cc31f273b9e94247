"""forming: when a window forms its world, and when it fails."""

from __future__ import annotations

from typing import Any

import pytest

from joinproto import effects as fx
from joinproto.inputs import (
    DialTurnedAway,
    Offered,
    Settled,
    StartGiven,
)
from joinproto.machines.window import (
    StartMode,
    WindowState,
    why_no_start,
)
from tests.support.machines import at
from tests.support.window import (
    GIVE_UP,
    QUORUM,
    TARGET,
    Window,
    admitted,
    hello,
    refused,
)

S = WindowState


class TestForming:
    def test_the_target_forms_a_world_at_once(self) -> None:
        window = Window(target_ranks=3)
        window.offer(1, "a", 2)
        assert at(window, S.WAITING)
        assert window.offer(2, "b", 1) == [admitted(2, 2), TARGET]
        assert at(window, S.FORMED)
        assert window.context.formed
        assert window.next_timer is None

    def test_more_than_the_target_is_as_good(self) -> None:
        assert Window(target_ranks=3).offer(1, "a", 8) == [admitted(1, *range(8)), TARGET]

    def test_before_the_join_timeout_a_quorum_waits_on(self) -> None:
        window = Window(min_ranks=1)
        window.offer(1, "a", 4)
        assert window.wait(299.9) == []
        assert at(window, S.WAITING)
        assert window.wait(0.1) == [QUORUM]
        assert at(window, S.FORMED)

    def test_after_it_the_first_moment_of_a_quorum_forms(self) -> None:
        window = Window(min_ranks=3, target_ranks=9)
        window.offer(1, "a", 2)
        told = "join timeout passed and 2 of at least 3 rank(s) have joined; waiting on"
        assert window.wait(300) == [fx.Tell(severity=fx.Severity.WARNING, text=told)]
        assert at(window, S.OVERTIME)
        assert window.offer(2, "b") == [admitted(2, 2, wait=300), QUORUM]

    def test_a_target_reached_after_it_forms_too(self) -> None:
        window = Window(min_ranks=3, target_ranks=3)
        window.wait(300)
        assert window.offer(1, "a", 3)[-1] == TARGET

    def test_in_overtime_hosts_are_admitted_as_before(self) -> None:
        window = Window(min_ranks=3)
        window.wait(300)
        assert window.offer(1, "a") == [admitted(1, 0, wait=300)]
        assert isinstance(window.offer(2, "a")[0], fx.RefuseHost)
        assert isinstance(window.offer(2, "b", wire=4)[0], fx.DismissHost)
        window.lose(1)
        assert window.offer(3, "c", 3) == [admitted(3, 0, 1, 2, wait=300), QUORUM]

    def test_past_the_cap_it_fails_and_every_member_is_told(self) -> None:
        window = Window(min_ranks=3)
        window.offer(1, "a", 2)
        window.wait(300)
        reason = "quorum not met: 2 of at least 3 rank(s) have joined after 600 s"
        assert window.wait(300) == [fx.AbortAll(reason=reason)]
        assert at(window, S.ENDING)
        assert window.context.failure == reason
        assert window.lose(1) == [fx.RunEnded()]
        assert at(window, S.FAILED)

    def test_without_members_that_is_the_end(self) -> None:
        window = Window()
        window.wait(300)
        abort, ended = window.wait(300)
        assert isinstance(abort, fx.AbortAll)
        assert ended == fx.RunEnded()
        assert at(window, S.FAILED)

    def test_both_deadlines_in_one_moment(self) -> None:
        window = Window(join_timeout=10, max_join_timeout=10, min_ranks=2)
        window.offer(1, "a", 2)
        assert window.wait(10) == [QUORUM]
        window = Window(join_timeout=10, max_join_timeout=10, min_ranks=2)
        tell, abort, ended = window.wait(10)
        assert (type(tell), type(abort), ended) == (fx.Tell, fx.AbortAll, fx.RunEnded())

    def test_a_host_that_comes_late_is_told_so(self) -> None:
        window = Window(target_ranks=1)
        window.offer(1, "a")
        reason = "the world has formed already; a host that comes later cannot join this run"
        assert window.offer(2, "b") == refused(2, reason)


class TestLossBeforeFormation:
    def test_the_last_block_is_returned(self) -> None:
        window = Window()
        window.offer(1, "a")
        window.offer(2, "b", 2)
        assert window.lose(2) == []
        assert window.offer(3, "c", 3) == [admitted(3, 1, 2, 3)]

    def test_another_stands_vacant_for_whoever_brings_as_many_devices(self) -> None:
        window = Window()
        for connection, (host, devices) in enumerate([("a", 2), ("b", 1), ("c", 2), ("d", 1)], 1):
            window.offer(connection, host, devices)
        window.lose(1)
        window.lose(2)
        assert not window.context.whole
        assert window.context.joined_ranks == 3
        assert window.offer(5, "e", 3) == [admitted(5, 6, 7, 8)]
        assert window.offer(6, "f", 1) == [admitted(6, 2)]
        assert window.offer(7, "g", 2) == [admitted(7, 0, 1)]
        assert window.context.whole

    def test_itself_first(self) -> None:
        window = Window()
        for connection, host in enumerate("abcd", 1):
            window.offer(connection, host)
        window.lose(1)
        window.lose(3)
        assert window.offer(5, "c") == [admitted(5, 2)]
        assert window.offer(6, "c2") == [admitted(6, 0)]

    def test_with_other_devices_it_is_like_any_other(self) -> None:
        window = Window()
        window.offer(1, "a")
        window.offer(2, "b")
        window.lose(1)
        assert window.offer(3, "a", 2) == [admitted(3, 2, 3)]

    def test_a_host_whose_link_is_known_dead_may_join_again(self) -> None:
        window = Window()
        window.offer(1, "a")
        window.offer(2, "b")
        assert isinstance(window.offer(3, "a")[0], fx.RefuseHost)
        window.lose(1)
        assert window.offer(4, "a") == [admitted(4, 0)]

    def test_a_world_never_forms_with_a_hole(self) -> None:
        window = Window(min_ranks=2, target_ranks=4)
        window.offer(1, "a")
        window.offer(2, "b")
        window.lose(1)
        window.offer(3, "c", 3)
        assert at(window, S.WAITING)
        told = "join timeout passed and ranks of a lost host stand vacant; waiting on"
        assert window.wait(300) == [fx.Tell(severity=fx.Severity.WARNING, text=told)]
        reason = "quorum not met: ranks of a lost host stand vacant after 600 s"
        assert window.wait(300) == [fx.AbortAll(reason=reason)]

    def test_whoever_fills_the_hole_forms_it(self) -> None:
        window = Window(min_ranks=2, target_ranks=4)
        window.offer(1, "a")
        window.offer(2, "b")
        window.lose(1)
        window.offer(3, "c", 3)
        assert window.offer(4, "d") == [admitted(4, 0), TARGET]

    @pytest.mark.parametrize("overtime", [False, True])
    def test_a_loss_that_takes_the_hole_with_it_forms_one(self, overtime: bool) -> None:
        window = Window(min_ranks=4, target_ranks=4)
        window.offer(1, "a")
        window.offer(2, "b", 2)
        window.lose(1)
        for connection, (host, devices) in enumerate([("c", 3), ("d", 4), ("e", 5)], 3):
            window.offer(connection, host, devices)
        window.lose(4)
        window.offer(6, "a")  # four ranks and more are there, and d's stand vacant
        if overtime:
            window.wait(300)
        assert window.lose(5) == [TARGET]
        assert window.ranks == [("a", (0,)), ("b", (1, 2)), ("c", (3, 4, 5))]

    def test_in_overtime_a_quorum_is_enough_for_that(self) -> None:
        window = Window(min_ranks=2)
        for connection, (host, devices) in enumerate([("a", 1), ("b", 1), ("c", 2), ("d", 3)], 1):
            window.offer(connection, host, devices)
        window.lose(3)
        window.wait(300)
        assert at(window, S.OVERTIME)
        assert window.lose(4) == [QUORUM]

    def test_a_loss_in_overtime_may_also_form_nothing(self) -> None:
        window = Window(min_ranks=2)
        window.offer(1, "a")
        window.wait(300)
        assert window.lose(1) == []
        assert at(window, S.OVERTIME)

    def test_reports_mean_nothing_yet(self) -> None:
        window = Window(min_ranks=2)
        window.offer(1, "a")
        assert window.report(0) == []
        window.wait(300)
        assert window.report(0) == []
        assert window.context.exits == {}


class TestSettling:
    """A world is looked for only once the Accept of the last admission has been written."""

    def offer_last(self) -> Window:
        window = Window(target_ranks=2)
        window.offer(1, "a")
        given = Offered(connection=2, hello=hello("b"), wire=2)
        assert window.step(given, window.now) == [admitted(2, 1), fx.Settle()]
        assert at(window, S.WAITING)
        return window

    def test_then_it_forms(self) -> None:
        assert self.offer_last().give(Settled()) == [TARGET]

    def test_an_admission_that_was_taken_back_meanwhile_does_not_count(self) -> None:
        window = self.offer_last()
        assert window.lose(2) == []
        assert window.give(Settled()) == []
        assert at(window, S.WAITING)

    def test_a_link_that_is_not_a_members_takes_nothing_back(self) -> None:
        window = self.offer_last()
        assert window.lose(77) == []
        assert window.give(Settled()) == [TARGET]


START = StartGiven(by="127.0.0.1")
STARTED = fx.FormWorld(reason="the operator gave the start")


def told(window: Window) -> list[str]:
    return [effect.text for effect in window.done if isinstance(effect, fx.Tell)]


class TestStartModes:
    def test_the_operator_alone_closes_a_manual_window(self) -> None:
        window = Window(min_ranks=2, start_mode=StartMode.MANUAL)
        assert window.give(START) == []
        window.offer(1, "a", 1)
        assert window.give(START) == []
        window.offer(2, "b", 1)
        assert at(window, S.WAITING)
        assert window.give(START)[-1] == STARTED
        assert told(window) == ["start given by 127.0.0.1, with 2 rank(s) in"]
        assert at(window, S.FORMED)
        assert window.give(START) == []

    def test_its_join_timeout_forms_nothing(self) -> None:
        window = Window(min_ranks=1, start_mode=StartMode.MANUAL)
        window.offer(1, "a", 1)
        window.wait(300)
        assert told(window) == ["join timeout passed and the start was not given; waiting on"]
        window.offer(2, "b", 1)
        assert at(window, S.OVERTIME)
        assert window.give(START)[-1] == STARTED

    def test_without_a_start_it_fails_at_the_cap(self) -> None:
        window = Window(min_ranks=1, start_mode=StartMode.MANUAL)
        window.offer(1, "a", 1)
        window.wait(300)
        assert window.wait(300) == [fx.AbortAll(reason="the start was not given after 600 s")]

    def test_a_hybrid_window_is_closed_by_whoever_is_first(self) -> None:
        def opened() -> Window:
            window = Window(min_ranks=1, target_ranks=3, start_mode=StartMode.HYBRID)
            window.offer(1, "a", 1)
            return window

        assert opened().give(START)[-1] == STARTED
        assert opened().wait(300) == [QUORUM]
        assert opened().offer(2, "b", 2)[-1] == TARGET

    def test_in_auto_mode_there_is_no_start(self) -> None:
        window = Window(min_ranks=1)
        window.offer(1, "a", 1)
        assert window.give(START) == []
        assert not window.context.armed

    def test_a_start_holds_until_a_hole_is_filled(self) -> None:
        window = Window(min_ranks=1, start_mode=StartMode.HYBRID)
        window.offer(1, "a", 1)
        given = window.step(START, window.now)
        assert given[-1] == fx.Settle()
        window.lose(1)
        assert at(window, S.WAITING)
        assert window.offer(2, "b", 1)[-1] == STARTED

    @pytest.mark.parametrize(
        ("config", "ranks", "open", "why"),
        [
            ({}, 1, True, "start mode is auto: the clock and the target close this window"),
            ({"start_mode": StartMode.MANUAL}, 1, False, "the window is not open"),
            (
                {"start_mode": StartMode.MANUAL, "min_ranks": 2},
                1,
                True,
                "1 of at least 2 rank(s) have joined",
            ),
            ({"start_mode": StartMode.MANUAL}, 1, True, None),
        ],
    )
    def test_why_it_cannot_be_given(
        self, config: dict[str, Any], ranks: int, open: bool, why: str | None
    ) -> None:
        window = Window(**config)
        window.offer(1, "a", ranks)
        assert why_no_start(window.context, open=open) == why


class TestDialsTurnedAway:
    def test_they_are_counted(self) -> None:
        window = Window()
        for _ in range(3):
            assert window.give(DialTurnedAway()) == []
        assert window.context.turned_away == 3

    def test_more_than_the_most_fail_the_window_and_everybody_is_told(self) -> None:
        window = Window(min_ranks=2, max_rejected=1)
        window.offer(1, "a")
        assert window.give(DialTurnedAway()) == []
        reason = "2 dials were turned away, more than 1"
        assert window.give(DialTurnedAway()) == [fx.AbortAll(reason=reason)]
        assert at(window, S.ENDING)

    def test_with_nobody_there_that_is_the_end(self) -> None:
        window = Window(max_rejected=0)
        assert window.give(DialTurnedAway())[-1] == fx.RunEnded()
        assert at(window, S.FAILED)


class TestGivingUp:
    def test_members_are_told_why(self) -> None:
        window = Window(min_ranks=2)
        window.offer(1, "a")
        assert window.give(GIVE_UP) == [fx.AbortAll(reason=GIVE_UP.reason)]

    def test_with_nobody_there_that_is_the_end(self) -> None:
        window = Window()
        assert window.give(GIVE_UP)[-1] == fx.RunEnded()
        assert window.context.closed_at == 0.0
