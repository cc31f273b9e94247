"""board: what a run looks like, from its window to its end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from joinproto.effects import Severity
from joinproto.machines.window import StartMode
from joinproto.messages import Abort, Accept, RankExited, WorldFormed
from joinproto.runtime.board import Board
from joinproto.runtime.makers import Made, World
from joinproto.testing.fakes import FakeAgent
from joinproto.testing.script import Close, Expect, Say, Until
from tests.support.server import HELLO, Running, joins, member

FIELDS = {
    "phase": str,
    "joined_ranks": int,
    "joined_hosts": int,
    "min_rank_start": int,
    "target_ranks": int,
    "window_remaining_secs": int,
    "cap_remaining_secs": int,
    "start_mode": str,
    "start_armed": bool,
    "members": list,
}
MEMBER = {
    "host": str,
    "ranks": list,
    "local_devices": list,
    "gpus": list,
    "libtorch": str,
    "joined_at_secs": int,
}


def types(found: dict[str, Any]) -> dict[str, type]:
    return {name: type(value) for name, value in found.items()}


def test_before_the_window_opens_there_is_nothing_to_show() -> None:
    running = Running()
    board = Board(running.server)
    for show in (board.published, board.detail):
        with pytest.raises(LookupError, match="the window is not open yet"):
            show()
    running.server.close()
    running.loop.close()


def test_a_world_from_its_window_to_its_end() -> None:
    go = threading.Event()
    with Running(ranks=2) as running:
        board = Board(running.server)
        script = [Say(HELLO), Expect(Accept), Expect(WorldFormed), Until(go.is_set)]
        with FakeAgent([*script, Say(RankExited(rank=0, code=-9)), Close()]).dial(*running.address):
            running.watcher.wait_for("joined", "a")
            waiting, detail = board.published(), board.detail()
            with FakeAgent.joining(host="b").dial(*running.address):
                running.watcher.wait_for("rank_exited", 1, 0, "b")
                training = board.detail()
            go.set()
            running.done()
        ended, published = board.detail(), board.published()
    assert types(waiting) == FIELDS
    assert types(waiting["members"][0]) == MEMBER
    assert (waiting["phase"], waiting["joined_ranks"]) == ("waiting", 1)
    assert waiting["window_remaining_secs"] in (299, 300)
    (rank,) = detail["members"][0]["ranks"]
    assert (rank["state"], rank["started_at_secs"], detail["world_size"]) == ("waiting", None, None)
    assert (training["phase"], training["world_size"], training["outcome"]) == ("training", 2, None)
    assert training["members"][0]["ranks"][0]["state"] == "running"
    assert training["members"][1]["ranks"][0]["state"] == "exited"
    assert (ended["phase"], ended["outcome"], ended["failed_ranks"]) == ("done", "failed", 1)
    first = ended["members"][0]
    assert (first["connected"], first["lost"]) == (False, None)
    assert (first["ranks"][0]["code"], first["ranks"][0]["signal"]) == (-9, "SIGKILL")
    assert published["window_remaining_secs"] is not None


def test_a_lost_host() -> None:
    with Running() as running:
        board = Board(running.server)
        with member(Close()).dial(*running.address):
            running.done()
        found = board.detail()
    assert (found["outcome"], found["failed_ranks"]) == ("failed", 1)
    assert found["members"][0]["lost"] == "closed the connection"
    assert found["members"][0]["ranks"][0]["state"] == "lost"


class Failing:
    """A maker that makes nothing, and looks at the board before it says so."""

    def __init__(self) -> None:
        self.look: Callable[[], str] = str
        self.seen: list[str] = []

    def make(self, world: World, done: Callable[[Made | str], None]) -> None:
        self.seen.append(self.look())
        done("artifacts command: it failed")

    def cancel(self) -> None:
        self.seen.append("cancelled")


def test_artifacts_that_cannot_be_made_end_the_run() -> None:
    maker = Failing()
    with Running(maker=maker) as running:
        board = Board(running.server)
        maker.look = lambda: board.phase
        agent = FakeAgent([Say(HELLO), Expect(Accept), Expect(Abort), Close()])
        with agent.dial(*running.address):
            running.done()
    assert maker.seen[0] == "forming"
    assert (board.phase, board.detail()["outcome"]) == ("failed", "failed")
    assert board.published()["phase"] == "failed"
    assert agent.messages[-1] == Abort(reason="artifacts command: it failed")


def test_a_window_that_waits_for_the_operator() -> None:
    with Running(start_mode=StartMode.MANUAL, target=False) as running:
        board = Board(running.server)
        seen: list[Any] = []

        def start() -> None:
            seen.extend((board.phase, board.arm("10.0.0.9"), board.published()["start_armed"]))

        running.watcher.reactions["joined"] = start
        joins(running)
        told = running.done()
        assert board.arm("10.0.0.9") == "the window is not open"
    assert seen == ["staging", None, True]
    assert ("told", Severity.INFO, "start given by 10.0.0.9, with 1 rank(s) in") in told
    assert ("formed",) in told


def test_it_counts_what_has_changed() -> None:
    with Running() as running:
        board = Board(running.server)
        joins(running)
        running.done()
        assert running.watcher.changes >= 3
        board.changed()
    assert board.version == 1
