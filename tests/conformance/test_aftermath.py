from __future__ import annotations

from typing import Any

import pytest

from joinproto.conformance.aftermath import forwarded, gone
from joinproto.conformance.awaiting import PATIENCE, Deviation
from joinproto.conformance.world import Child, Line
from tests.support.conformance import StillWorld


def child(name: str, world: StillWorld) -> Child:
    made = Child(name=name, up=world.now())
    world.children.setdefault(name, []).append(made)
    return made


def end(process: Child, world: StillWorld) -> None:
    process.down = world.now()


def line(text: str, world: StillWorld, stream: str = "stdout") -> None:
    world.lines.append(Line(at=world.now(), stream=stream, text=text))


def forward(world: StillWorld, data: bytes, **step: Any) -> None:
    forwarded(world, step, "[p] ", data)


# -- gone -------------------------------------------------------------------------------------


def test_all_processes_end() -> None:
    world = StillWorld()
    first, second = child("0", world), child("0/1", world)
    world.at(1.0, lambda: end(first, world))
    world.at(2.0, lambda: end(second, world))
    gone(world, {"gone": 0.5})
    assert world.now() == 2.5


def test_one_that_stays_is_named() -> None:
    world = StillWorld()
    child("relay", world)
    with pytest.raises(Deviation) as caught:
        gone(world, {"gone": 0.5, "clause": "JP-X"})
    assert caught.value.got == "the relay running"
    assert caught.value.clause == "JP-X"
    assert world.now() == PATIENCE


def test_one_that_comes_late_is_left_too() -> None:
    world = StillWorld()
    world.at(0.2, lambda: child("1", world))
    with pytest.raises(Deviation, match="place 1 running"):
        gone(world, {"gone": 0.5})


def test_a_bystander_may_stay() -> None:
    world = StillWorld()
    child("bystander", world)
    gone(world, {"gone": 0.0, "within": 0.0})


# -- forwarded --------------------------------------------------------------------------------


def test_pieces_are_put_together() -> None:
    world = StillWorld()
    line("[p] ab", world)
    line("[q] xx", world)
    line("[p] zz", world, "stderr")
    world.at(1.0, lambda: line("[p] cd", world))
    forward(world, b"abcd")
    forward(world, b"zz", stream="stderr")


def test_what_is_missing_is_waited_for_and_told() -> None:
    world = StillWorld()
    line("[p] ab", world)
    with pytest.raises(Deviation, match="got 2, of which the first 2"):
        forward(world, b"abcd", within=3)
    assert world.now() == 3


def test_what_is_otherwise_is_told_at_once() -> None:
    world = StillWorld()
    line("[p] aXcd", world)
    with pytest.raises(Deviation, match="got 4, of which the first 1"):
        forward(world, b"abcd")
    assert world.now() == 0
