"""The join window, and what becomes of the world that it forms."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace as changed
from functools import partial
from math import inf, nan
from typing import Any

import pytest
from hypothesis import given as examples
from hypothesis import strategies as st

from joinproto import effects as fx
from joinproto.errors import ConfigError
from joinproto.inputs import Expired, MemberLost, Offered, RankReported, Start, StopRequested
from joinproto.limits import Timer
from joinproto.machines.window import (
    WINDOW,
    Member,
    WindowConfig,
    WindowContext,
    WindowState,
    refusal,
)
from joinproto.messages import Hello
from joinproto.record import replace
from joinproto.session import Session
from tests.support.machines import at, check

S = WindowState
SIG = bytes(range(32))
STOP = StopRequested(reason="SIGTERM", number=15)


def hello(host: str = "a", devices: int = 1, **more: Any) -> Hello:
    return Hello(host=host, local_devices=tuple(range(devices)), **more)


class Window(Session[WindowContext]):
    """A window that opened at 1000, and what it wanted done last."""

    def __init__(self, **config: Any) -> None:
        super().__init__(WINDOW, WindowContext(config=WindowConfig(**config)))
        self.now = 1000.0
        self.give(Start())

    def give(self, given: Any) -> list[Any]:
        self.done = self.step(given, self.now)
        return self.done

    def offer(
        self, connection: int, host: str, devices: int = 1, wire: int = 2, **more: Any
    ) -> list[Any]:
        return self.give(
            Offered(connection=connection, hello=hello(host, devices, **more), wire=wire)
        )

    def lose(self, connection: int) -> list[Any]:
        return self.give(MemberLost(connection=connection, cause="reset"))

    def report(self, rank: int, code: int = 0, connection: int | None = 1) -> list[Any]:
        return self.give(RankReported(connection=connection, rank=rank, code=code))

    def wait(self, seconds: float) -> list[Any]:
        self.now += seconds
        self.done = self.expire(self.now)
        return self.done

    @property
    def ranks(self) -> list[tuple[str, tuple[int, ...]]]:
        """The hosts that are there, and what they were given."""
        return [(member.host, member.ranks) for member in self.context.present]


def admitted(connection: int, *ranks: int, wait: int = 600) -> fx.AdmitHost:
    return fx.AdmitHost(connection=connection, ranks=ranks, formation_wait_secs=wait)


def refused(connection: int, reason: str) -> list[Any]:
    return [fx.RefuseHost(connection=connection, reason=reason)]


TARGET = fx.FormWorld(reason="target reached")
QUORUM = fx.FormWorld(reason="quorum holds and the join timeout has passed")


class TestConfig:
    @pytest.mark.parametrize(
        ("config", "window", "cap"),
        [
            ({}, 300, 600),
            ({"join_timeout": 1000}, 1000, 1000),
            ({"join_timeout": 10, "max_join_timeout": 20}, 10, 20),
            ({"join_timeout": 0, "max_join_timeout": 0}, 1, 1),
            ({"scale": 0.1}, 30, 60),
            ({"join_timeout": 5, "scale": 0.5}, 3, 300),
        ],
    )
    def test_its_deadlines(self, config: dict[str, Any], window: float, cap: float) -> None:
        it = WindowConfig(**config)
        assert (it.window, it.cap) == (window, cap)

    @pytest.mark.parametrize(
        ("config", "complaint"),
        [
            ({"min_ranks": 0}, "min ranks is 0; a world has at least 1 rank"),
            ({"min_ranks": -3}, "min ranks is -3; a world has at least 1 rank"),
            (
                {"min_ranks": 4, "target_ranks": 3},
                "target ranks (3) is below min ranks (4)",
            ),
            (
                {"join_timeout": 30, "max_join_timeout": 20},
                "max join timeout (20 s) is below the join timeout (30 s)",
            ),
            ({"join_timeout": -1}, "join timeout is -1; it is a number of seconds"),
            ({"join_timeout": nan}, "join timeout is nan; it is a number of seconds"),
            ({"max_join_timeout": inf}, "max join timeout is inf; it is a number of seconds"),
        ],
    )
    def test_numbers_that_contradict_each_other(
        self, config: dict[str, Any], complaint: str
    ) -> None:
        with pytest.raises(ConfigError) as raised:
            WindowConfig(**config)
        assert str(raised.value) == complaint


class TestAdmission:
    def test_ranks_are_contiguous_in_the_order_of_admission(self) -> None:
        window = Window()
        assert window.offer(1, "a", 2) == [admitted(1, 0, 1)]
        assert window.offer(2, "b", 1) == [admitted(2, 2)]
        assert window.offer(3, "c", 3) == [admitted(3, 3, 4, 5)]
        assert window.ranks == [("a", (0, 1)), ("b", (2,)), ("c", (3, 4, 5))]
        assert window.context.joined_ranks == 6

    def test_what_is_kept_of_a_member(self) -> None:
        window = Window()
        window.wait(7.5)
        window.offer(5, "a", 2, wire=4)
        member = Member(connection=5, hello=hello("a", 2), wire=4, ranks=(0, 1), joined_at=7.5)
        assert window.context.members == (member,)
        assert window.context.member(5) == member
        assert window.context.member(6) is None

    @pytest.mark.parametrize(("passed", "left"), [(0, 600), (0.5, 599), (299.9, 300)])
    def test_an_accept_tells_what_is_left_of_the_cap(self, passed: float, left: int) -> None:
        window = Window()
        window.wait(passed)
        assert window.offer(1, "a") == [admitted(1, 0, wait=left)]

    def test_never_less_than_nothing(self) -> None:
        window = Window()
        window.now += 700  # a caller that is late with its timers
        assert window.offer(1, "a") == [admitted(1, 0, wait=0)]

    @pytest.mark.parametrize(
        ("offer", "reason"),
        [
            (hello(""), "the host name is blank"),
            (hello(" \t"), "the host name is blank"),
            (hello("a" * 4097), "the host name has 4097 characters, more than 4096"),
            (hello("b", 0), "no devices are offered; a host without ranks has no place in a world"),
            (
                changed(hello("b"), local_devices=(0,) * 257),
                "257 devices are offered, more than 256",
            ),
            (changed(hello("b"), local_devices=(4, 7, 4)), "device 4 is offered twice"),
            (
                hello("a"),
                "host 'a' has joined already; if that was an earlier start of this worker, its "
                "connection still stands",
            ),
            (
                hello("b", dataset_sig=bytes(32)),
                "dataset signature 00000000… differs from this run's 00010203…",
            ),
        ],
    )
    def test_why_a_host_is_refused(self, offer: Hello, reason: str) -> None:
        window = Window()
        window.offer(1, "a", dataset_sig=SIG)
        assert window.give(Offered(connection=2, hello=offer, wire=2)) == refused(2, reason)
        assert window.ranks == [("a", (0,))]

    def test_the_reasons_have_an_order(self) -> None:
        ctx = Window().context
        ctx = replace(ctx, config=WindowConfig(dataset_sig=SIG))
        wrong: dict[str, Any] = {"local_devices": (1,) * 257, "dataset_sig": bytes(32)}
        order = []
        for host in ("", "a" * 4097, "b"):
            order.append(refusal(ctx, Hello(host=host, **wrong)))
        for devices in ((), (1, 1), (1,)):
            order.append(refusal(ctx, Hello(host="b", **{**wrong, "local_devices": devices})))
        starts = ["the host name is", "the host name has", "257 devices", "no devices", "device 1"]
        starts.append("dataset signature")
        for reason, start in zip(order, starts, strict=True):
            assert reason is not None
            assert reason.startswith(start)

    def test_as_many_devices_as_there_are_numbers_are_the_most(self) -> None:
        assert Window().offer(1, "a", 256) == [admitted(1, *range(256))]

    def test_the_longest_name(self) -> None:
        assert Window().offer(1, "a" * 4096) == [admitted(1, 0)]

    def test_a_configured_signature_is_what_counts(self) -> None:
        window = Window(dataset_sig=SIG)
        window.offer(1, "a")
        assert isinstance(window.done[0], fx.RefuseHost)
        assert window.offer(2, "b", dataset_sig=SIG) == [admitted(2, 0)]

    def test_otherwise_the_first_members_is_zeros_included(self) -> None:
        window = Window()
        window.offer(1, "a")
        window.offer(2, "b", dataset_sig=SIG)
        assert isinstance(window.done[0], fx.RefuseHost)

    def test_a_host_that_was_refused_sets_nothing(self) -> None:
        window = Window()
        window.offer(1, "a", 0, wire=4, dataset_sig=SIG)
        assert window.offer(2, "b", wire=2) == [admitted(2, 0)]

    def test_nor_does_one_whose_accept_could_not_be_written(self) -> None:
        window = Window()
        window.offer(1, "a", wire=4, dataset_sig=SIG)
        window.lose(1)
        assert window.offer(2, "b", wire=2) == [admitted(2, 0)]


class TestWires:
    def test_the_first_member_fixes_the_version(self) -> None:
        window = Window()
        window.offer(1, "a", wire=4)
        reason = "wire 2; this world's first member fixed wire 4"
        assert window.offer(2, "b", wire=2) == [fx.DismissHost(connection=2, reason=reason)]
        assert window.offer(3, "b", wire=4) == [admitted(3, 1)]

    def test_unless_they_may_be_mixed(self) -> None:
        window = Window(mixed_wires=True)
        window.offer(1, "a", wire=4)
        assert window.offer(2, "b", wire=2) == [admitted(2, 1)]

    def test_the_version_is_asked_before_anything_is_said(self) -> None:
        window = Window()
        window.offer(1, "a", wire=4)
        assert isinstance(window.offer(2, "", wire=2)[0], fx.DismissHost)


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
        assert window.context.exits == ()


def formed(**config: Any) -> Window:
    """A world of a (ranks 0 and 1, connection 1) and b (rank 2, connection 2)."""
    window = Window(target_ranks=3, **config)
    window.offer(1, "a", 2)
    window.offer(2, "b", 1)
    assert at(window, S.FORMED)
    return window


class TestTheRun:
    def test_each_end_is_taken_down_once(self) -> None:
        window = formed()
        assert window.report(1, 7) == [fx.RankEnded(rank=1, code=7)]
        assert window.report(1, 0) == []
        assert window.report(9, 0) == []
        assert window.context.exits == ((1, 7),)

    def test_it_is_over_when_the_last_link_has_ended(self) -> None:
        window = formed()
        for rank in range(3):
            window.report(rank)
        assert at(window, S.FORMED)  # a controller never closes first
        assert window.lose(1) == []
        assert window.lose(2) == [fx.RunEnded()]
        assert at(window, S.DONE)
        assert (window.context.lost, window.context.failure) == ((), None)

    def test_a_link_that_ends_while_ranks_run_is_a_loss(self) -> None:
        window = formed()
        window.report(0)
        assert window.lose(1) == []
        assert window.context.lost == (("a", "reset"),)
        window.report(2)
        assert window.lose(2) == [fx.RunEnded()]
        assert at(window, S.DONE)

    def test_a_link_that_is_not_a_members_is_none_of_its_business(self) -> None:
        window = formed()
        assert window.lose(77) == []
        assert window.context.lost == ()

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
        assert window.context.lost == ()

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
        assert window.context.lost == ()
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


# -- every way --------------------------------------------------------------------------------

CONFIGS: list[dict[str, Any]] = [
    {"min_ranks": 2},
    {"min_ranks": 3, "target_ranks": 5},
    {"min_ranks": 4, "target_ranks": 4, "mixed_wires": True},
    {"min_ranks": 2, "target_ranks": 6, "local_hosts": frozenset("ab")},
    {"min_ranks": 3, "join_timeout": 60, "max_join_timeout": 60},
]


class World:
    """A window, and around it what only ever does what can happen."""

    def __init__(self, **config: Any) -> None:
        self.window = Window(**config)
        self.connections = 0
        self.standing: dict[int, str] = {}  # connection → host, of those that were admitted
        self.answers: dict[int, str] = {}
        self.formations = self.aborts = self.ends = 0
        self.ranks: dict[int, tuple[int, ...]] = {}

    def moves(self) -> Iterator[Callable[[], None]]:
        for host, devices in (("a", 1), ("b", 1), ("c", 2), ("d", 3), ("e", 2), ("", 1)):
            yield partial(self.offer, host, devices)
        yield partial(self.offer, "f", 1, wire=4)
        yield partial(self.offer, "g", 1, dataset_sig=SIG)
        yield from (partial(self.lose, connection) for connection in self.standing)
        yield from (partial(self.lose, connection) for connection in self.standing)
        if self.window.next_timer is not None:
            yield self.wait
        if self.window.context.formed:
            ranks = sorted(rank for ranks in self.ranks.values() for rank in ranks)
            yield from (partial(self.report, rank) for rank in ranks)
        yield self.stop

    def offer(self, host: str, devices: int, wire: int = 2, **more: Any) -> None:
        self.connections += 1
        before = set(self.answers)
        self.note(self.window.offer(self.connections, host, devices, wire, **more))
        assert set(self.answers) - before == {self.connections}, "an offer has one answer"

    def lose(self, connection: int) -> None:
        del self.standing[connection]
        if not self.window.context.formed:
            del self.ranks[connection]
        self.note(self.window.lose(connection))

    def report(self, rank: int) -> None:
        self.note(self.window.report(rank, 1, connection=None))

    def stop(self) -> None:
        self.note(self.window.give(STOP))

    def wait(self) -> None:
        at = self.window.next_timer
        assert at is not None
        self.note(self.window.wait(at - self.window.now))

    def note(self, effects: list[Any]) -> None:
        for effect in effects:
            match effect:
                case fx.AdmitHost(connection=connection, ranks=ranks):
                    assert not self.window.context.failure
                    self.answers[connection] = "admitted"
                    host = next(m.host for m in self.window.context.members if m.ranks == ranks)
                    assert host not in self.standing.values(), "a host that is in already"
                    self.standing[connection] = host
                    self.ranks[connection] = ranks
                case fx.RefuseHost(connection=connection) | fx.DismissHost(connection=connection):
                    self.answers[connection] = "turned away"
                case fx.FormWorld():
                    self.formations += 1
                    self.check_world()
                case fx.AbortAll():
                    self.aborts += 1
                case fx.RunEnded():
                    self.ends += 1
        self.check()

    def check(self) -> None:
        ctx = self.window.context
        given = [rank for ranks in self.ranks.values() for rank in ranks]
        assert len(set(given)) == len(given), "a rank was given twice"
        assert {m.connection for m in ctx.present} == set(self.standing)
        assert self.formations == ctx.formed <= 1
        assert self.aborts == (ctx.failure is not None) <= 1
        assert self.ends == self.window.final <= 1
        if self.window.final:
            assert not self.standing, "somebody was never told the end"
            assert (self.window.state is S.DONE) == (ctx.failure is None)

    def check_world(self) -> None:
        """At formation: quorum, ranks from 0 without a gap, one version and one data set."""
        ctx, config = self.window.context, self.window.context.config
        ranks = [rank for member in ctx.members for rank in member.ranks]
        assert ranks == list(range(len(ranks)))
        assert sorted(rank for given in self.ranks.values() for rank in given) == ranks
        assert len(ranks) >= config.min_ranks
        assert all(member.connection in self.standing for member in ctx.members)
        for member in ctx.members:
            assert member.connection is not None
            assert self.ranks[member.connection] == member.ranks
        assert len({member.host for member in ctx.members}) == len(ctx.members)
        assert config.mixed_wires or len({member.wire for member in ctx.members}) == 1
        assert len({member.hello.dataset_sig for member in ctx.members}) == 1

    def samples(self) -> Iterator[Any]:
        yield from (Start(), STOP)
        yield from (Expired(timer=t) for t in self.window._timers or [Timer.WINDOW])
        for wire in (2, 4):
            for host, devices in (("a", 1), ("n", 1), ("n", 2), ("n", 9), ("", 1), ("n", 0)):
                offered = hello(host, devices)
                yield Offered(connection=self.connections + 1, hello=offered, wire=wire)
        for connection in self.standing or [99]:
            yield MemberLost(connection=connection, cause="reset")
        for rank in range(4):
            yield RankReported(connection=None, rank=rank, code=0)

    def check_all(self) -> set[tuple[Any, type]]:
        window = self.window
        for given in self.samples():
            check(WINDOW, window.state, window.context, given, window.now)
        return {(window.state, on) for on in map(type, self.samples())}


@examples(st.sampled_from(CONFIGS), st.lists(st.integers(0, 10**6), max_size=40))
def test_what_holds_on_every_way(config: dict[str, Any], choices: list[int]) -> None:
    world = World(**config)
    for choice in choices:
        moves = list(world.moves())
        moves[choice % len(moves)]()
    # Whatever has happened, a run ends when it is stopped and every link has ended.
    world.stop()
    for connection in list(world.standing):
        world.lose(connection)
    assert world.window.final


@pytest.mark.slow
@examples(st.sampled_from(CONFIGS), st.lists(st.integers(0, 10**6), max_size=20))
def test_every_cell_from_wherever_it_can_be_reached(
    config: dict[str, Any], choices: list[int]
) -> None:
    world = World(**config)
    for choice in choices:
        moves = list(world.moves())
        moves[choice % len(moves)]()
    world.check_all()


@examples(
    st.lists(st.tuples(st.booleans(), st.integers(1, 3), st.integers(0, 10)), max_size=20),
    st.integers(1, 8),
)
def test_a_whole_world_of_the_target_is_never_left_waiting(
    events: list[tuple[bool, int, int]], target: int
) -> None:
    world = World(min_ranks=target, target_ranks=target)
    for number, (joins, devices, which) in enumerate(events):
        if joins:
            world.offer(f"h{number}", devices)
        elif world.standing and not world.window.context.formed:
            world.lose(sorted(world.standing)[which % len(world.standing)])
        ctx = world.window.context
        assert ctx.formed == (ctx.whole and ctx.joined_ranks >= target)
        if ctx.formed:
            return


def test_every_cell_of_the_table() -> None:
    seen = set()
    world = World(min_ranks=2, join_timeout=10)
    seen |= world.check_all()  # waiting
    world.wait()
    seen |= world.check_all()  # overtime
    world.stop()
    seen |= world.check_all()  # failed
    for last in (World.stop, lambda world: world.lose(1)):
        world = World(target_ranks=1)
        world.offer("a", 1)
        seen |= world.check_all()  # formed
        last(world)
        seen |= world.check_all()  # ending, done
    assert seen == {(state, on) for state in WINDOW.states for on in WINDOW.inputs}
