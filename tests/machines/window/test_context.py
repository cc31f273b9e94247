"""context: what a window knows."""

from __future__ import annotations

from typing import Any

import pytest

from joinproto.machines.window import (
    Check,
    Member,
    WindowConfig,
    WindowContext,
    WindowState,
    vendor,
)
from joinproto.machines.window.context import EMPTY, References, references_of
from joinproto.messages import Hello
from tests.support.window import (
    SIG,
    Window,
)

S = WindowState


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("precompiled/cu128", "NVIDIA"),
        ("builds/sm61-sm120", "NVIDIA"),
        ("cu12", "NVIDIA"),
        ("rocm70", "AMD"),
        ("builds/gfx1030/", "AMD"),
        ("cpu", None),
        ("cu", None),
        ("custom", None),
        ("sm_80", None),
        ("cu128/other", None),
        ("", None),
        ("CU128", None),
        ("cu٣", None),
    ],
)
def test_the_vendor_that_a_label_names(label: str, name: str | None) -> None:
    assert vendor(label) == name


def member(connection: int, ranks: tuple[int, ...], **more: Any) -> Member:
    said = Hello(host=f"h{connection}", local_devices=tuple(range(len(ranks))), **more)
    return Member(connection=connection, hello=said, wire=4, ranks=ranks, joined_at=0.0)


def test_of_each_thing_the_first_member_that_says_it_sets_it() -> None:
    silent = member(1, (0,))
    first = member(2, (1,), run_id="one", libtorch="cu128")
    second = member(3, (2,), run_id="two", nccl_version=(2, 20, 5), model_sig=SIG)
    agreed = {
        Check.RUN_ID: "one",
        Check.VENDOR: "NVIDIA",
        Check.NCCL: (2, 20),
        Check.MODEL_SIG: SIG,
    }
    found = references_of((silent, first, second))
    assert (found.wire, found.dataset_sig) == (4, bytes(32))
    assert found.agreed == agreed
    assert references_of(()) == References()


def test_before_it_opens_nothing_has_passed() -> None:
    context = WindowContext(config=WindowConfig())
    assert context.since_opened(1e9) == 0.0
    assert (context.whole, context.places, context.formed_at) == (True, EMPTY, None)


def test_members_are_found_by_their_connection() -> None:
    window = Window(min_ranks=3)
    window.offer(7, "a", 2)
    window.offer(9, "b", 1)
    found = window.context.member(9)
    assert found is not None
    assert (found.host, found.peer) == ("b", "")
    assert window.context.member(8) is None
    assert [each.host for each in window.context.present] == ["a", "b"]
