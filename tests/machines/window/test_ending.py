"""ending: what becomes of a world."""

from __future__ import annotations

import pytest

from joinproto import effects as fx
from joinproto.machines.window import (
    End,
    Loss,
    WindowState,
)
from tests.support.machines import at
from tests.support.window import (
    STOP,
    Window,
    formed,
    refused,
)

S = WindowState


class TestTheRun:
    def test_each_end_is_taken_down_once(self) -> None:
        window = formed()
        assert window.report(1, 7) == [fx.RankEnded(rank=1, code=7)]
        assert window.report(1, 0) == []
        assert window.report(9, 0) == []
        assert window.context.exits == {1: 7}

    def test_it_is_over_when_the_last_link_has_ended(self) -> None:
        window = formed()
        for rank in range(3):
            window.report(rank)
        assert at(window, S.FORMED)  # a controller never closes first
        assert window.lose(1) == []
        assert window.lose(2) == [fx.RunEnded()]
        assert at(window, S.DONE)
        assert window.context.lost == {}
        assert window.context.failure is None

    def test_a_link_that_ends_while_ranks_run_is_a_loss(self) -> None:
        window = formed()
        window.report(0)
        assert window.lose(1) == []
        assert window.context.lost == {"a": Loss(cause="reset", at=0.0)}
        window.report(2)
        assert window.lose(2) == [fx.RunEnded()]
        assert at(window, S.DONE)

    def test_a_link_that_is_not_a_members_is_none_of_its_business(self) -> None:
        window = formed()
        assert window.lose(77) == []
        assert window.context.lost == {}

    def test_a_stop_is_told_to_every_member_and_waits_for_the_ends(self) -> None:
        window = formed()
        reason = "the controller was stopped (SIGTERM)"
        assert window.give(STOP) == [fx.AbortAll(reason=reason)]
        assert window.give(STOP) == []
        assert window.report(0, -15) == [fx.RankEnded(rank=0, code=-15)]
        assert window.lose(1) == []
        assert window.lose(2) == [fx.RunEnded()]
        assert at(window, S.FAILED)
        assert window.context.failure == reason

    @pytest.mark.parametrize("seconds", [0, 300])
    def test_a_stop_before_the_world_formed(self, seconds: float) -> None:
        window = Window(min_ranks=2)
        window.offer(1, "a")
        window.wait(seconds)
        assert window.give(STOP) == [fx.AbortAll(reason="the controller was stopped (SIGTERM)")]
        assert (window.state, window.next_timer) == (S.ENDING, None)
        assert window.lose(1) == [fx.RunEnded()]
        assert window.context.lost == {}

    @pytest.mark.parametrize("seconds", [0, 300])
    def test_a_stop_with_nobody_there(self, seconds: float) -> None:
        window = Window(min_ranks=2)
        window.wait(seconds)
        assert window.give(STOP)[-1] == fx.RunEnded()
        assert at(window, S.FAILED)

    def test_hosts_that_come_then_are_told(self) -> None:
        window = formed()
        window.give(STOP)
        reason = "the run is over: the controller was stopped (SIGTERM)"
        assert window.offer(3, "c") == refused(3, reason)
        window.lose(1)
        window.lose(2)
        assert window.offer(3, "c") == refused(3, reason)

    def test_and_after_a_good_run_too(self) -> None:
        window = formed()
        for connection in (1, 2):
            window.lose(connection)
        assert window.offer(3, "c") == refused(3, "the run is over")


class TestLocalHosts:
    """A local host drops its link, and its ranks' ends are told by the caller."""

    def test_its_link_may_end_while_its_ranks_run(self) -> None:
        window = formed(local_hosts=frozenset("b"))
        window.lose(2)
        assert window.context.lost == {}
        for rank in range(2):
            window.report(rank)
        assert window.lose(1) == []  # rank 2 runs on
        assert window.report(2, 5, connection=None) == [
            fx.RankEnded(rank=2, code=5),
            fx.RunEnded(),
        ]
        assert at(window, S.DONE)

    def test_all_hosts_may_be_local(self) -> None:
        window = formed(local_hosts=frozenset("ab"))
        for connection in (1, 2):
            window.lose(connection)
        assert window.report(0, connection=None) == [fx.RankEnded(rank=0, code=0)]
        assert window.report(0, connection=None) == []
        window.report(1, connection=None)
        assert window.report(2, connection=None)[-1] == fx.RunEnded()

    def test_a_run_that_is_given_up_waits_for_links_alone(self) -> None:
        window = formed(local_hosts=frozenset("b"))
        window.lose(2)
        window.give(STOP)
        assert window.lose(1) == [fx.RunEnded()]

    def test_with_no_link_left_a_stop_is_the_end(self) -> None:
        window = formed(local_hosts=frozenset("ab"))
        window.lose(1)
        window.lose(2)
        assert window.give(STOP)[-1] == fx.RunEnded()
        assert at(window, S.FAILED)

    def test_before_formation_its_loss_is_like_any_other(self) -> None:
        window = Window(local_hosts=frozenset("a"))
        window.offer(1, "a")
        window.lose(1)
        assert window.context.members == ()


class TestFailures:
    """How many ranks may fail before the run is given up."""

    def test_as_many_as_there_are_unless_it_is_said(self) -> None:
        window = formed()
        for rank in range(3):
            assert window.report(rank, 1) == [fx.RankEnded(rank=rank, code=1)]
        assert window.context.failed_ranks == 3

    def test_the_first_where_none_may(self) -> None:
        window = formed(max_failures=0)
        assert window.report(0, 0) == [fx.RankEnded(rank=0, code=0)]
        assert window.report(1, -9) == [
            fx.RankEnded(rank=1, code=-9),
            fx.AbortAll(reason="rank 1 ended with signal 9"),
        ]
        assert at(window, S.ENDING)
        # What the Abort brings about is told, and changes nothing more.
        assert window.report(2, -15) == [fx.RankEnded(rank=2, code=-15)]

    def test_the_one_too_many(self) -> None:
        window = formed(max_failures=1)
        window.report(0, 3)
        reason = "rank 2 ended with code 4; 2 rank(s) failed, more than 1"
        assert window.report(2, 4)[-1] == fx.AbortAll(reason=reason)

    def test_ranks_of_a_lost_host_have_failed_too(self) -> None:
        window = formed(max_failures=0)
        assert window.lose(1) == [fx.AbortAll(reason="host 'a' was lost: reset")]
        assert window.lose(2) == [fx.RunEnded()]
        assert at(window, S.FAILED)
        assert window.context.failed_ranks == 3

    def test_a_host_whose_ranks_have_ended_is_no_loss(self) -> None:
        window = formed(max_failures=0)
        window.report(2)
        assert window.lose(2) == []
        assert at(window, S.FORMED)

    def test_a_local_rank_that_fails_when_no_link_stands_ends_the_run(self) -> None:
        window = formed(local_hosts=frozenset("ab"), max_failures=0)
        window.lose(1)
        window.lose(2)
        assert window.report(1, 1, connection=None) == [
            fx.RankEnded(rank=1, code=1),
            fx.AbortAll(reason="rank 1 ended with code 1"),
            fx.RunEnded(),
        ]
        assert at(window, S.FAILED)

    def test_a_last_link_that_is_too_much_while_local_ranks_run(self) -> None:
        window = formed(local_hosts=frozenset("a"), max_failures=0)
        window.lose(1)
        assert window.lose(2) == [
            fx.AbortAll(reason="host 'b' was lost: reset"),
            fx.RunEnded(),
        ]
        assert at(window, S.FAILED)

    def test_ends_have_their_time(self) -> None:
        window = formed()
        window.now += 5
        window.report(1, 7)
        window.lose(2)
        assert window.context.ends == {1: End(code=7, at=5.0)}
        assert window.context.lost == {"b": Loss(cause="reset", at=5.0)}
        assert window.context.members[1].left_at == 5.0
        assert window.context.formed_at == 0.0
