from __future__ import annotations

from joinproto.effects import Dial
from joinproto.keys import OPEN, Salt
from joinproto.machines.controller import Admission
from joinproto.machines.window import WindowConfig
from joinproto.messages import Abort, Accept, Hello, RankExited, WorldFormed
from joinproto.testing import Close, Expect, FakeAgent, FakeClock, Link, Say
from joinproto.testing.controller import MemoryController

SALT = Salt(b"s" * 16)
HELLO = Say(Hello(host="a", local_devices=(0,)))


def controller(clock: FakeClock, *, ranks: int = 1, open: bool = True) -> MemoryController:
    config = WindowConfig(min_ranks=ranks, target_ranks=ranks, join_timeout=10, max_join_timeout=20)
    return MemoryController(clock, config, Admission(salt=SALT, open=open))


def dialed(fake: FakeAgent, target: MemoryController, clock: FakeClock) -> Link:
    link = Link(fake.end(clock), target.answer(Dial(timeout=3.0, wire=4)))
    link.settle()
    return link


def test_a_world_forms_and_ends() -> None:
    clock = FakeClock()
    target = controller(clock)
    report = Say(RankExited(rank=0, code=3))
    fake = FakeAgent([HELLO, Expect(Accept), Expect(WorldFormed), report, Close()])
    dialed(fake, target, clock)
    assert fake.finished
    assert target.forms
    assert target.exits == [(0, 3)]
    assert (target.ends, target.open_connections) == (1, [])


def test_somebody_ends_it() -> None:
    clock = FakeClock()
    target = controller(clock, ranks=2)
    fake = FakeAgent([HELLO, Expect(Accept), Expect(Abort), Close()])
    link = dialed(fake, target, clock)
    assert not target.expire()
    target.stop()
    link.settle()
    assert fake.finished


def test_a_window_that_nobody_comes_to_fails() -> None:
    clock = FakeClock()
    target = controller(clock, ranks=2)
    clock.advance(20)
    assert target.expire()
    assert target.ends == 1


def test_whoever_has_no_business_there_is_turned_away() -> None:
    clock = FakeClock()
    target = controller(clock, open=False)
    fake = FakeAgent([Say(Hello(host="a", local_devices=(0,)), key=OPEN)])
    dialed(fake, target, clock)
    assert len(target.turned_away) == 1
