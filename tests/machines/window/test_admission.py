"""admission: who is admitted, with which ranks."""

from __future__ import annotations

from dataclasses import replace as changed
from typing import Any, ClassVar

import pytest

from joinproto import effects as fx
from joinproto.inputs import (
    Offered,
)
from joinproto.machines.window import (
    Check,
    Member,
    WindowConfig,
    WindowState,
    refusal,
)
from joinproto.messages import Hello
from joinproto.record import replace
from tests.support.window import (
    SIG,
    Window,
    admitted,
    hello,
    refused,
)

S = WindowState


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


class TestWhatMembersAgreeOn:
    """Of the checks each can be left out; what is absent gates nothing."""

    SAYS: ClassVar[list[tuple[Check, dict[str, Any], dict[str, Any], str]]] = [
        (
            Check.VENDOR,
            {"libtorch": "cu128"},
            {"libtorch": "builds/gfx1030"},
            "GPU vendor AMD differs from this run's NVIDIA",
        ),
        (
            Check.RUN_ID,
            {"run_id": "run-of-monday"},
            {"run_id": "run-of-tuesday-and-more"},
            "run id 'run-of-tuesday-a…' differs from this run's 'run-of-monday'",
        ),
        (
            Check.NCCL,
            {"nccl_version": (2, 20, 5)},
            {"nccl_version": (2, 21, 5)},
            "NCCL version 2.21 differs from this run's 2.20",
        ),
        (
            Check.MODEL_SIG,
            {"model_sig": SIG},
            {"model_sig": bytes(32)},
            "model signature 00000000… differs from this run's 00010203…",
        ),
    ]

    @pytest.mark.parametrize(("which", "one", "other", "reason"), SAYS)
    def test_a_host_that_says_something_else_is_refused(
        self, which: Check, one: dict[str, Any], other: dict[str, Any], reason: str
    ) -> None:
        window = Window(min_ranks=9)
        window.offer(1, "silent", wire=4)
        window.offer(2, "a", wire=4, **one)
        assert window.offer(3, "b", wire=4, **other) == refused(3, reason)
        assert window.offer(4, "c", wire=4)[0] == admitted(4, 2)
        assert window.offer(5, "d", wire=4, **one)[0] == admitted(5, 3)

    @pytest.mark.parametrize(("which", "one", "other", "reason"), SAYS)
    def test_unless_it_is_not_asked(
        self, which: Check, one: dict[str, Any], other: dict[str, Any], reason: str
    ) -> None:
        window = Window(min_ranks=9, checks=frozenset(Check) - {which})
        window.offer(1, "a", wire=4, **one)
        assert window.offer(2, "b", wire=4, **other)[0] == admitted(2, 1)

    def test_patch_levels_of_nccl_get_along(self) -> None:
        window = Window(min_ranks=9)
        window.offer(1, "a", wire=4, nccl_version=(2, 20, 5))
        assert window.offer(2, "b", wire=4, nccl_version=(2, 20, 3))[0] == admitted(2, 1)

    def test_a_member_that_was_lost_sets_nothing(self) -> None:
        window = Window(min_ranks=9)
        window.offer(1, "a", wire=4, run_id="one")
        window.offer(2, "b", wire=4)
        window.lose(1)
        assert window.offer(3, "c", wire=4, run_id="two")[0] == admitted(3, 0)

    def test_nor_one_that_was_refused(self) -> None:
        window = Window(min_ranks=9)
        window.offer(1, "a", 0, wire=4, run_id="one")
        assert window.offer(2, "b", wire=4, run_id="two")[0] == admitted(2, 0)
