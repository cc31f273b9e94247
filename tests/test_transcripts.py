"""The vectors of whole conversations, played by our agent and by our controller."""

from __future__ import annotations

from typing import Any

import pytest

from joinproto import codec
from joinproto import effects as fx
from joinproto.connection import AgentConnection, ControllerConnection
from joinproto.errors import Aborted, DecodeError, Rejected, Stage
from joinproto.keys import Salt
from joinproto.machines.agent import Plan
from joinproto.machines.controller import Admission, ControllerState
from joinproto.messages import Hello, RankExited
from tests.support.cases import FEEDS, Case, Feed, cases, data_of, message_of

NOW = 100.0
JOIN_MAGIC = b"\xe3\x17\x0d\xf1"


def steps_of(case: Case, connection: int) -> list[Case]:
    return [step for step in case["steps"] if step["connection"] == connection]


def ends(end: str) -> pytest.MarkDecorator:
    """Every connection of every transcript whose end is one, each whole and byte by byte."""
    found = [
        pytest.param(case, number, id=f"{case['id']}-{number}")
        for case in cases("transcript")
        for number, connection in enumerate(case["connections"])
        if connection[end] is not None
    ]
    return pytest.mark.parametrize(("case", "number"), found)


# -- the agent -----------------------------------------------------------------------------------


class AgentPlayer:
    """An agent that is told what a transcript's controller says, and held to its own lines."""

    def __init__(self, case: Case, number: int, feed: Feed) -> None:
        self.feed = feed
        self.steps = steps_of(case, number)
        self.wire = case["connections"][number]["wire"]
        hello = message_of(self.steps[0]["value"])
        assert isinstance(hello, Hello)
        salt = Salt(bytes.fromhex(case["salt"])) if case["admission"] == "pre-shared" else None
        self.end = AgentConnection(Plan(hello=hello, wires=(self.wire,), salt=salt))
        self.end.start(NOW)
        self.effects: list[Any] = self.end.connected("c", NOW)
        self.slots: dict[int | None, int] = {}

    def play(self) -> None:
        for step in self.steps:
            self.take(self.hear(step) if step["from"] == "controller" else self.speak(step))
        self.end_children()

    def take(self, effects: list[Any]) -> None:
        self.effects += effects
        for spawn in (e for e in effects if isinstance(e, fx.Spawn)):
            self.slots[spawn.rank] = spawn.slot
            self.take(self.end.child_started(spawn.slot, NOW))

    def hear(self, step: Case) -> list[Any]:
        if "close" in step:
            return self.end.receive_eof(NOW)
        return [
            e
            for chunk in self.feed(data_of(step["input"]))
            for e in self.end.receive_data(chunk, NOW)
        ]

    def speak(self, step: Case) -> list[Any]:
        if "close" in step:
            self.end_children()
            assert fx.CloseLink() in self.effects
            return []
        message = message_of(step["value"])
        effects = []
        if isinstance(message, RankExited):
            effects = self.child_ends(message.rank, message.code)
        assert self.end.data_to_send() == data_of(step["input"])
        return [*effects, *self.end.flushed(NOW)]

    def child_ends(self, rank: int | None, code: int) -> list[Any]:
        slot = self.slots.pop(rank)
        return [*self.end.child_exited(slot, code, NOW), *self.end.output_ended(slot, NOW)]

    def end_children(self) -> None:
        """What still runs when nothing more is said: the relay, and what is torn down."""
        for rank in list(self.slots):
            self.take(self.child_ends(rank, 0 if rank is None else -15))

    @property
    def outcome(self) -> str:
        finish = self.effects[-1]
        assert isinstance(finish, fx.Finish)
        match finish.error:
            case None:
                return "finished"
            case Rejected():
                return "rejected"
            case Aborted():
                return "aborted"
        return "failed"


@ends("agent")
def test_transcript_as_the_agent(case: Case, number: int) -> None:
    for feed in FEEDS:
        player = AgentPlayer(case, number, feed)
        player.play()
        assert player.outcome == case["connections"][number]["agent"]
        told = [step for step in player.steps if step.get("stage") in set(Stage)]
        finish = player.effects[-1].error
        if told and isinstance(finish, DecodeError):
            assert finish.stage == told[0]["stage"]


# -- the controller ------------------------------------------------------------------------------


class ControllerPlayer:
    """A controller's end, with a transcript's decisions and held to its lines."""

    def __init__(self, case: Case, number: int, feed: Feed) -> None:
        self.feed = feed
        self.steps = steps_of(case, number)
        self.free = "FreeReason" in case["flags"]
        wire = case["connections"][number]["wire"]
        salt = Salt(bytes.fromhex(case["salt"]))
        admission = Admission(salt=salt, open=case["admission"] == "open")
        self.end = ControllerConnection(admission, wires=frozenset((wire,)))
        self.effects: list[Any] = self.end.start(NOW)
        self.reports: list[tuple[int, int]] = []
        self.rejected = False

    def play(self) -> None:
        for step in self.steps:
            self.effects += self.hear(step) if step["from"] == "agent" else self.speak(step)
        assert self.end.data_to_send() == b""
        assert self.end.state is ControllerState.CLOSED

    def hear(self, step: Case) -> list[Any]:
        if "close" in step:
            return self.end.receive_eof(NOW)
        effects = [
            e
            for chunk in self.feed(data_of(step["input"]))
            for e in self.end.receive_data(chunk, NOW)
        ]
        said = message_of(step["value"]) if "value" in step else None
        if isinstance(said, Hello):
            assert effects == [fx.Offer(hello=said)]
        elif isinstance(said, RankExited):
            assert effects == [fx.ReportRank(rank=said.rank, code=said.code)]
        else:
            assert not any(isinstance(effect, fx.Offer | fx.ReportRank) for effect in effects)
        return effects

    def speak(self, step: Case) -> list[Any]:
        if "close" in step:
            assert fx.CloseLink() in self.effects
            return []
        effects = self.decide(step["value"])
        sent, wanted = self.end.data_to_send(), data_of(step["input"])
        if self.free:
            assert sent[:8] == wanted[:8]
            assert sent[24] == wanted[24]
        else:
            assert sent == wanted
        return [*effects, *self.end.flushed(NOW)]

    def decide(self, value: Case) -> list[Any]:
        match value["type"]:
            case "Accept":
                return self.end.admit(tuple(value["ranks"]), value["formation_wait_secs"], NOW)
            case "WorldFormed":
                return self.end.form(value["envelope_hex"], value["relay_spec_hex"], NOW)
            case "Abort":
                return self.end.abort(value["reason"], NOW)
        self.rejected = True
        return [] if self.free else self.end.refuse(value["reason"], NOW)

    @property
    def outcome(self) -> str:
        if any(isinstance(effect, fx.Lost) for effect in self.effects):
            context = self.end.context
            return "ended" if context.exited == frozenset(context.ranks) else "lost"
        assert any(isinstance(effect, fx.TurnedAway) for effect in self.effects)
        return "rejected" if self.rejected else "closed"


@ends("controller")
def test_transcript_as_the_controller(case: Case, number: int) -> None:
    for feed in FEEDS:
        player = ControllerPlayer(case, number, feed)
        player.play()
        assert player.outcome == case["connections"][number]["controller"]


# -- the words -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", cases("transcript"), ids=lambda case: case["id"])
def test_transcript_by_its_words(case: Case) -> None:
    """Every step that is a message is the frame of it, under its key and no other."""
    for step in case["steps"]:
        if "value" not in step:
            continue
        data, wire = data_of(step["input"]), case["connections"][step["connection"]]["wire"]
        frame = data.removeprefix(JOIN_MAGIC)
        key = Salt(bytes.fromhex(step["key"]))
        assert codec.encode(message_of(step["value"]), key=key, wire=wire) == frame
