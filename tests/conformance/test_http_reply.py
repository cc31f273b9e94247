from __future__ import annotations

import h11
import pytest

from joinproto.conformance.http_reply import Reply, ReplyReader


def test_a_reply_in_pieces() -> None:
    reader = ReplyReader()
    assert reader.feed(b"HTTP/1.1 503 No\r\nContent-Le", 1.0) is None
    assert reader.feed(b"ngth: 2\r\n\r\n{", 2.0) is None
    reply = reader.feed(b"}", 3.0)
    assert reply == Reply(at=3.0, status=503, body=b"{}")
    assert reply.json == {}


def test_whether_anything_has_come() -> None:
    untouched, fed = ReplyReader(), ReplyReader()
    fed.feed(b"H", 1.0)
    assert (untouched.begun, fed.begun) == (False, True)


def test_a_body_up_to_the_end_of_the_stream() -> None:
    reader = ReplyReader()
    assert reader.feed(b"HTTP/1.0 200 OK\r\n\r\nx", 1.0) is None
    reply = reader.feed(b"", 2.0)
    assert reply is not None
    assert reply.body == b"x"
    assert reply.json is None


def test_an_end_in_the_middle() -> None:
    reader = ReplyReader()
    reader.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", 1.0)
    with pytest.raises(h11.ProtocolError):
        reader.feed(b"", 2.0)
