from __future__ import annotations

import pytest

from joinproto import codec
from joinproto.conformance.conversation import Conversation, Garbled, Over, Raw, Said
from joinproto.errors import Stage
from joinproto.grammar import JOIN_MAGIC
from joinproto.keys import OPEN, Salt
from joinproto.messages import Abort, Accept, Hello, Message, RankExited
from tests.support.conformance import OTHER, SESSION

HELLO = Hello(host="a", local_devices=(0,))


def conversation(*, dialed: bool = False, raw: bool = False, join: Salt = OPEN) -> Conversation:
    return Conversation("c", join_key=join, session_key=SESSION, dialed=dialed, raw=raw)


def frame(message: Message, key: Salt = SESSION, wire: int = 4) -> bytes:
    return codec.encode(message, key=key, wire=wire)


def test_a_dial_says_its_channel_and_then_its_messages() -> None:
    told = conversation(dialed=True)
    data = JOIN_MAGIC + frame(HELLO, OPEN, wire=2)
    for place in range(len(data)):
        assert told.take() is None
        assert told.opened == (place >= 4)
        told.feed(data[place : place + 1], float(place))
    event = told.take()
    assert event == Said(at=float(len(data) - 1), message=HELLO, wire=2)
    assert told.take() is None
    assert (told.wire, told.received) == (2, len(data))


def test_another_channel_is_told_once() -> None:
    told = conversation(dialed=True)
    told.feed(b"GET /", 1.0)
    event = told.take()
    assert isinstance(event, Garbled)
    assert event.error.stage is Stage.MAGIC
    told.end("fin", 2.0)
    assert told.take() == Over(at=2.0, how="fin")
    assert told.take() is None


def test_the_keys_are_those_of_the_protocol() -> None:
    told = conversation()
    told.feed(frame(RankExited(rank=0, code=0)), 0.0)
    assert isinstance(told.take(), Said)
    told.feed(frame(RankExited(rank=0, code=0), OPEN), 0.0)
    event = told.take()
    assert isinstance(event, Garbled)
    assert "session salt" in str(event.error)


@pytest.mark.parametrize(("join", "named"), [(OPEN, "zero key"), (OTHER, "pre-shared salt")])
def test_a_hello_under_the_session_salt_is_wrong(join: Salt, named: str) -> None:
    told = conversation(join=join)
    told.feed(frame(HELLO, SESSION), 0.0)
    event = told.take()
    assert isinstance(event, Garbled)
    assert named in str(event.error)


def test_an_accept_tells_the_session_salt() -> None:
    told = conversation()
    told.feed(frame(Accept(ranks=(0,), salt_hex=OTHER.hex(), formation_wait_secs=1), OPEN), 0.0)
    assert isinstance(told.take(), Said)
    told.feed(frame(Abort(reason=""), OTHER), 0.0)
    assert isinstance(told.take(), Said)


def test_an_accept_with_a_bad_salt() -> None:
    told = conversation()
    told.feed(frame(Accept(ranks=(0,), salt_hex="xx", formation_wait_secs=1), OPEN), 0.0)
    event = told.take()
    assert isinstance(event, Garbled)
    assert "salt_hex" in str(event.error)


def test_behind_a_wrong_tag_the_next_frame_is_read() -> None:
    told = conversation()
    told.feed(frame(Abort(reason=""), OTHER) + frame(Abort(reason="b")), 0.0)
    assert isinstance(told.take(), Garbled)
    assert isinstance(told.take(), Said)


def test_a_frame_of_another_version_than_the_first() -> None:
    told = conversation()
    told.feed(frame(Abort(reason=""), wire=2) + frame(Abort(reason="b"), wire=4), 0.0)
    assert isinstance(told.take(), Said)
    event = told.take()
    assert isinstance(event, Garbled)
    assert event.error.stage is Stage.VERSION


def test_behind_a_wrong_header_nothing_is() -> None:
    told = conversation()
    told.feed(b"\0" * 24 + frame(Abort(reason="b")), 0.0)
    assert isinstance(told.take(), Garbled)
    assert told.take() is None
    told.end("rst", 1.0)
    assert told.take() == Over(at=1.0, how="rst")


def test_a_frame_of_another_kind() -> None:
    told = conversation()
    payload = codec.encode_payload(Abort(reason=""), wire=4)
    told.feed(codec.encode_frame(payload, key=SESSION, wire=4, kind=1), 0.0)
    event = told.take()
    assert isinstance(event, Garbled)
    assert "Control" in str(event.error)


@pytest.mark.parametrize(("size", "where"), [(10, "header"), (25, "payload")])
def test_an_end_inside_a_frame_is_told_before_the_end(size: int, where: str) -> None:
    told = conversation()
    told.feed(frame(Abort(reason="long"))[:size], 0.0)
    told.end("fin", 1.0)
    told.end("rst", 2.0)
    event = told.take()
    assert isinstance(event, Garbled)
    assert where in str(event.error)


def test_bytes_that_are_not_read_as_frames() -> None:
    told = conversation(raw=True, dialed=True)
    told.feed(b"HTTP", 1.0)
    assert told.take() == Raw(at=1.0, data=b"HTTP")
    told.end("fin", 2.0)
    assert told.take() == Over(at=2.0, how="fin")
