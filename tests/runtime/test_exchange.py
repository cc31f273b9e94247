"""exchange: requests taken apart."""

from __future__ import annotations

import h11
import pytest

from joinproto.runtime.exchange import Answer, phrase, read_request
from tests.support.served import request


def asked(target: str, *headers: tuple[bytes, bytes]) -> h11.Request:
    return h11.Request(method="GET", target=target, headers=[(b"Host", b"x"), *headers])


def test_a_request_is_taken_apart() -> None:
    headers = (b"Accept", b"a"), (b"X-Odd", b"\xe9"), (b"ACCEPT", b"b")
    read = read_request(asked("/events?token=a%20b&x=", *headers), "192.0.2.1")
    assert read is not None
    assert (read.method, read.path, read.peer_host) == ("GET", "/events", "192.0.2.1")
    assert read.query == {"token": ["a b"]}
    assert read.headers == {"host": "x", "accept": "a, b", "x-odd": "\xe9"}


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("//state.json", "//state.json"),
        ("/a#b", "/a"),
        ("http://x:1/state.json?y", "/state.json"),
        ("*", "*"),
        ("garbage", "garbage"),
    ],
)
def test_forms_of_targets(target: str, path: str) -> None:
    read = read_request(asked(target), "::1")
    assert read is not None
    assert read.path == path


@pytest.mark.parametrize("target", ["http://[x/", "/?" + "a=1&" * 33])
def test_targets_that_cannot_be_taken_apart(target: str) -> None:
    assert read_request(asked(target), "::1") is None


def test_no_repr_shows_a_token() -> None:
    shown = repr(request("/", token="t0ken", authorization="Bearer t0ken"))
    assert "t0ken" not in shown
    assert "127.0.0.1" in shown


def test_what_statuses_are_called() -> None:
    assert (phrase(200), phrase(409)) == ("OK", "Conflict")
    assert Answer().status == 200
