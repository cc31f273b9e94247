"""Joining over real sockets: an agent up to its world, or to why there is none."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from joinproto.effects import Severity
from joinproto.errors import JoinprotoError, LinkLost, Rejected
from joinproto.grammar import WIRES
from joinproto.machines.agent import Plan
from joinproto.messages import Hello, Reject, WorldFormed
from joinproto.runtime import addresses
from joinproto.runtime import joiner as module
from joinproto.runtime.joiner import Joiner
from joinproto.runtime.loop import Loop
from joinproto.testing.fakes import FakeController
from joinproto.testing.script import (
    AcceptAndClose,
    Admit,
    Close,
    Drip,
    Expect,
    Reset,
    Say,
    Until,
    WaitEnd,
)
from joinproto.testing.stage import Step

WORLD = WorldFormed(envelope_hex="")


class Join:
    """An agent that joins, and what it says on the way."""

    def __init__(self, loop: Loop, fake: FakeController, **plan: Any) -> None:
        self.told: list[tuple[Severity, str]] = []
        settings = {"wires": tuple(sorted(WIRES, reverse=True)), **plan}
        hello = Hello(host="a", local_devices=(3, 1))
        self.joiner = Joiner(
            loop,
            Plan(hello=hello, **settings),
            (fake.host, fake.port),
            lambda *text: self.told.append(text),
        )

    def run(self) -> JoinprotoError | None:
        try:
            self.joiner.join()
        finally:
            self.joiner.close()
        return self.joiner.error

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.told]


@pytest.fixture
def admitting() -> Iterator[FakeController]:
    """A controller that forms a world of one host, and waits for its end."""
    with FakeController([Expect(Hello), Admit(ranks=(8, 9)), Say(WORLD), WaitEnd()]) as fake:
        yield fake


def test_a_joiner_stops_where_its_first_child_is_to_be_started(
    loop: Loop, admitting: FakeController
) -> None:
    join = Join(loop, admitting)
    assert join.run() is None
    assert join.joiner.connection.context.ranks == (8, 9)
    spawn, other = join.joiner.spawns
    assert (spawn.rank, spawn.device) == (8, 3)
    assert other.rank == 9


def test_the_link_can_be_taken_away(loop: Loop, admitting: FakeController) -> None:
    join = Join(loop, admitting)
    join.joiner.join()
    with join.joiner.detach() as link:
        join.joiner.close()
        assert link.getpeername() == (admitting.host, admitting.port)
        assert link.getblocking()


def test_a_hello_may_be_answered_byte_by_byte(loop: Loop) -> None:
    reject = Drip(Reject(reason="full ✓\n"))
    with FakeController([Expect(Hello), reject, WaitEnd()]) as fake:
        error = Join(loop, fake).run()
    assert isinstance(error, Rejected)
    assert error.reason == "full ✓\n"


@pytest.mark.parametrize(
    ("end", "cause"),
    [
        (Close(), "closed the connection before the world formed"),
        (Reset(), "failed (Connection reset by peer) before the world formed"),
    ],
)
def test_a_link_that_ends_before_the_world_forms(loop: Loop, end: Step, cause: str) -> None:
    joins: list[Join] = []
    # A reset that overtakes the Accept would be another case: that of no answer.
    joined = Until(lambda: any("joined as" in text for join in joins for text in join.texts))
    with FakeController([Expect(Hello), Admit(), joined, end]) as fake:
        joins.append(Join(loop, fake))
        error = joins[0].run()
    assert isinstance(error, LinkLost)
    assert cause in str(error)


def test_an_attempt_without_an_answer_is_made_again_in_every_version(loop: Loop) -> None:
    with FakeController(
        [AcceptAndClose(len(WIRES)), Expect(Hello), Admit(), Say(WORLD), WaitEnd()]
    ) as fake:
        join = Join(loop, fake)
        assert join.run() is None
    tried = sorted(WIRES, reverse=True)
    for text, (wire, older) in zip(join.texts, pairwise(tried), strict=False):
        assert text == f"no answer in wire {wire}; trying wire {older}"
    assert join.texts[len(tried) - 1].endswith("before any answer to Hello; dialing again in 0.5 s")


def test_a_connection_that_breaks_before_it_is_used_is_a_failed_attempt(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(sock: socket.socket, scale: float) -> None:
        monkeypatch.undo()
        raise ConnectionResetError(104, "Connection reset by peer")

    monkeypatch.setattr(module, "configure", broken)
    with FakeController([WaitEnd(), Expect(Hello), Admit(), Say(WORLD), WaitEnd()]) as fake:
        join = Join(loop, fake)
        assert join.run() is None
    assert join.texts[0] == "Connection reset by peer; dialing again in 0.5 s"


def test_cleartext_is_warned_of_once_an_address(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses, "cleartext_warning", lambda host: f"{host} is far away")
    with FakeController([Expect(Hello), Admit(), Say(WORLD), WaitEnd()], wires=(2,)) as fake:
        join = Join(loop, fake)
        assert join.run() is None
    warnings = [text for severity, text in join.told if severity == Severity.WARNING]
    assert warnings == ["127.0.0.1 is far away"]


def test_an_attempt_that_is_under_way_is_dropped_when_it_is_closed(loop: Loop) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        joiner = Joiner(
            loop,
            Plan(hello=Hello(host="a", local_devices=(0,)), wires=(4,)),
            listener.getsockname(),
            lambda *_: None,
        )
        joiner.begin()
        assert joiner.next_timer is not None
        joiner.close()
        joiner.close()
