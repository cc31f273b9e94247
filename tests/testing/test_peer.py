from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joinproto import effects as fx
from joinproto.errors import DecodeError
from joinproto.errors import Stage as ReadStage
from joinproto.grammar import JOIN_MAGIC
from joinproto.messages import Abort
from joinproto.testing import Pause, ResetLink, Stage, Step
from joinproto.testing import strategies as js
from joinproto.testing.peer import FakeConnection
from tests.support.frames import frame_of

FRAME = frame_of(Abort(reason="x"), wire=2)

IDLE = [Pause(60.0)]
"""A script that leaves it to the test to read."""


def connection_of(*script: Step) -> FakeConnection:
    """A fake agent's only connection, its channel magic sent."""
    connection = Stage(script, dials=True, wires=frozenset((2,))).connect()
    assert connection.data_to_send() == JOIN_MAGIC
    connection.flushed(0.0)
    return connection


@given(data=st.data())
def test_frames_are_cut_from_any_split(data: st.DataObject) -> None:
    connection = connection_of()
    for chunk in data.draw(js.splits(FRAME * 3 + b"rest")):
        connection.receive_data(chunk, 0.0)
    # The script is empty, so the stage has taken down what came.
    assert connection.received == FRAME * 3 + b"rest"
    assert connection.left == b"rest"


def test_a_frame_is_there_when_all_of_it_is() -> None:
    stage = Stage(IDLE, dials=False)
    connection = stage.connect()
    connection.channel = b""
    for index in range(len(FRAME)):
        assert connection.next_frame() is None
        connection.receive_data(FRAME[index : index + 1], 0.0)
    frame = connection.next_frame()
    assert frame is not None
    assert frame.size == len(FRAME)
    assert connection.left == b""


def test_a_dial_begins_with_the_channel_magic() -> None:
    connection = Stage(IDLE, dials=False).connect()
    connection.receive_data(JOIN_MAGIC[:3], 0.0)
    assert connection.next_frame() is None
    connection.receive_data(JOIN_MAGIC[3:] + FRAME, 0.0)
    assert connection.next_frame() is not None


def test_a_dial_that_begins_otherwise() -> None:
    connection = Stage(IDLE, dials=False).connect()
    connection.receive_data(b"GET / HTTP/1.1", 0.0)
    with pytest.raises(DecodeError, match="begins with e3170df1, this one with 47455420") as caught:
        connection.next_frame()
    assert caught.value.stage is ReadStage.MAGIC


def test_bytes_are_taken_as_they_came() -> None:
    connection = Stage(IDLE, dials=False).connect()
    connection.receive_data(b"GET /", 0.0)
    assert [connection.take(6), connection.take(3)] == [None, b"GET"]
    assert connection.left == b" /"
    connection.drop()
    assert connection.left == b""


def test_pieces_go_out_one_by_one() -> None:
    connection = connection_of()
    for piece in (b"a", b"", b"b"):
        connection.send(piece)
    assert connection.data_to_send() == b"a"
    connection.flushed(0.0)
    unsent = [connection.unsent]
    assert connection.data_to_send() == b"b"
    unsent.append(connection.unsent)
    connection.flushed(0.0)
    unsent.append(connection.unsent)
    assert unsent == [True, True, False]
    assert connection.data_to_send() == b""


def test_the_first_end_counts() -> None:
    connection = connection_of()
    connection.receive_eof(0.0)
    connection.link_broken("late", 0.0)
    assert connection.ended == ""


@pytest.mark.parametrize(("how", "effect"), [("close", fx.CloseLink()), ("reset", ResetLink())])
def test_an_end_is_an_effect_that_is_due_at_once(how: str, effect: object) -> None:
    connection = connection_of()
    getattr(connection, how)()
    getattr(connection, how)()
    due = connection.next_timer
    assert connection.handle_timer(0.0) == [effect]
    assert [due, connection.next_timer] == [-math.inf, None]
    assert connection.closed


def test_a_half_close_leaves_it_open() -> None:
    connection = connection_of()
    connection.half_close()
    assert connection.receive_data(b"", 0.0) == [fx.EndSending()]
    assert not connection.closed
