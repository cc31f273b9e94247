from __future__ import annotations

import pytest

from joinproto.conformance.memory import AgentWorld, ControllerWorld
from joinproto.conformance.session import Settings
from joinproto.fuzzing.acting import Actor
from joinproto.fuzzing.hunt import keys_of
from joinproto.fuzzing.sequence import Sequence, Step
from joinproto.fuzzing.shadow import case_of
from joinproto.messages import Hello

KEYS = keys_of(Settings(role="agent", seed=1), "open")


def controller(*, wire: int = 4) -> Actor:
    """In front of our controller, in memory."""
    return Actor(ControllerWorld(case_of(Sequence(role="controller", wire=wire)), KEYS, 0.1), wire)


def agent(*, wire: int = 4, devices: int = 1) -> Actor:
    """Behind our agent, in memory."""
    sequence = Sequence(role="agent", wire=wire, devices=devices)
    return Actor(AgentWorld(case_of(sequence), KEYS, 0.1), wire)


def do(actor: Actor, *steps: Step) -> Actor:
    for step in steps:
        actor.do(step)
    return actor


def test_an_honest_host_and_its_end() -> None:
    actor = do(controller(), {"dial": "c"}, {"say": "Hello"}, {"look": "c"})
    assert actor.heard["c"].events == ["Accept"]
    assert actor.looks == [True]
    actor.finish(1.0)
    heard = actor.heard["c"]
    assert heard.ended
    assert heard.authenticated
    assert heard.stays
    assert heard.wire == 4
    assert actor.sent > 60


def test_an_agent_is_taken_in_the_version_of_the_case() -> None:
    actor = do(agent(wire=2, devices=2), {"accept": "c"})
    (hello,) = actor.heard["c"].messages
    assert isinstance(hello, Hello)
    assert hello.local_devices == (0, 1)
    assert actor.heard["c"].wire == 2


def test_a_look_sees_what_came_since_the_last_one() -> None:
    actor = do(controller(), {"dial": "c"}, {"say": "Hello"})
    # Whatever else is done meanwhile: what has come counts at the next look.
    assert actor.so_far() == {"c": 1}
    do(actor, {"look": "c"}, {"look": "c"}, {"look": "nobody"})
    assert actor.looks == [True, False, False]


@pytest.mark.parametrize("end", ["half_close", "close", "reset"])
def test_nothing_is_sent_on_a_connection_that_was_ended(end: str) -> None:
    actor = do(controller(), {"dial": "c"}, {end: "c"})
    before = actor.sent
    do(actor, {"say": "Hello"}, {"frame": "00"}, {"send": "00"}, {end: "c"})
    assert actor.sent == before
    actor.finish(0.2)
    assert actor.heard["c"].closed == (end != "half_close")


def test_a_name_is_used_again() -> None:
    actor = do(controller(), {"dial": "c"}, {"say": "Hello"}, {"look": "c"}, {"dial": "c"})
    assert actor.heard["c"].events == []
    do(actor, {"say": "Hello", "with": {"host": "again"}}, {"look": "c"})
    assert actor.heard["c"].events == ["Accept"]


def test_frames_that_are_no_key_to_anything() -> None:
    wrong: tuple[Step, ...] = (
        {"say": "Hello", "tag": "flipped"},
        {"say": "Hello", "length": 1},
        {"say": "Hello", "key": "other"},
        {"send": "00" * 30},
    )
    for step in wrong:
        actor = do(controller(), {"dial": "c"}, step, {"look": "c"})
        actor.finish(1.0)
        assert not actor.heard["c"].authenticated
        assert actor.heard["c"].events == ["fin"]


def test_the_wrong_frame_of_a_right_key_is_one() -> None:
    actor = do(controller(), {"dial": "c"}, {"frame": "09", "key": "join"}, {"look": "c"})
    assert actor.heard["c"].authenticated
    assert actor.heard["c"].events == ["Reject", "fin"]


def test_a_message_that_cannot_be_is_not_sent() -> None:
    actor = do(controller(), {"dial": "c"})
    before = actor.sent
    do(actor, {"say": "RankExited", "with": {"rank": -1}})
    assert actor.sent == before


def test_salts_are_filled_in() -> None:
    told = {"reason": "$session"}
    actor = do(agent(), {"accept": "c"}, {"say": "Reject", "with": told})
    actor.finish(1.0)
    said = [each.text for each in actor.world.trace.happenings]
    assert any(KEYS.session.hex() in text for text in said)


def test_pieces() -> None:
    actor = do(controller(), {"dial": "c"}, {"say": "Hello", "chunk": 1}, {"look": "c"})
    assert actor.heard["c"].events == ["Accept"]


def test_another_channel_is_nobody_s_business() -> None:
    actor = do(controller(), {"dial": "c", "channel": "00000000"}, {"dial": "d", "channel": ""})
    assert actor.elsewhere == {"c", "d"}


def test_processes_are_told_what_to_do() -> None:
    steps: tuple[Step, ...] = (
        {"accept": "c"},
        {"rank": 0, "do": {"exit": 1}},  # there is none yet
        {"say": "Accept"},
        {"say": "WorldFormed"},
        {"rank": 0, "do": {"exit": 3}},
        {"look": "c"},
    )
    actor = do(agent(), *steps)
    actor.finish(1.0)
    assert actor.heard["c"].events == ["Hello", "RankExited", "fin"]


def test_it_waits_for_what_is_to_come_and_not_for_long() -> None:
    actor = do(controller(), {"dial": "c"}, {"say": "Hello"})
    began = actor.world.now()
    actor.catch_up({"c": 1})
    assert actor.world.now() - began < 0.1
    actor.catch_up({"c": 9})
    assert 0.1 < actor.world.now() - began < 2.0
