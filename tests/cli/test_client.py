"""Asking a controller over HTTP: answers, streams, tokens, and all that is no answer."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from joinproto.cli import client as module
from joinproto.cli.client import Client, read_token
from joinproto.errors import ConfigError, RemoteError, Unreachable
from tests.support.python import PATIENCE
from tests.support.tcp import refusing
from tests.support.web import Request, web

STATE = {"phase": "waiting", "members": []}


@contextmanager
def raw(*parts: bytes, hold: bool = False) -> Iterator[str]:
    """Somebody on a port who takes a request, sends these bytes and closes, or holds on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(PATIENCE)

        def serve() -> None:
            sock, _ = listener.accept()
            with sock:
                sock.settimeout(PATIENCE)
                sock.recv(65536)
                for part in parts:
                    sock.sendall(part)
                while hold and sock.recv(1):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            thread.join()


def asked(client: Client) -> str:
    """What is told of an answer that is none."""
    with pytest.raises(RemoteError) as caught:
        client.state()
    text = str(caught.value)
    assert "\n" not in text
    assert client.where in text
    return text.replace(client.where, "IT")


# -- answers ----------------------------------------------------------------------------------


def test_what_is_asked_and_answered() -> None:
    seen: list[tuple[str, str, str | None]] = []

    def answer(request: Request) -> None:
        seen.append((request.command, request.path, request.headers["Authorization"]))
        request.answer(200, STATE)

    with web(answer) as address:
        assert Client(address, token="t").state() == STATE
        assert Client(address).ask("POST", "/start").status == 200
    assert seen == [("GET", "/state.json", "Bearer t"), ("POST", "/start", None)]


def test_no_state_yet() -> None:
    with web(lambda request: request.answer(503, {"error": "starting"})) as address:
        assert Client(address).state() is None


@pytest.mark.parametrize(
    ("status", "document", "told"),
    [
        (404, {"error": "not found"}, "IT answers 404: not found"),
        (500, b"<p>\x1b[2J\noops", "IT answers 500: <p>\\x1b[2J"),
        (500, b"", "IT answers 500: "),
        (403, {"error": "a\x9bb\r\nc"}, "IT answers 403: a\\x9bb\\r\\nc"),
        (500, [], "IT answers 500: []"),
        (500, {"error": "x" * 9999}, f"IT answers 500: {'x' * 500}"),
        (200, b"nonsense", "IT answers with what is not the state of a controller"),
        (200, b"[" * 100_000, "IT answers with what is not the state of a controller"),
        (200, b'{"phase": "x", "y": NaN}', "IT answers with what is not the state of a contr"),
        (200, [], "IT answers with what is not the state of a controller"),
        (200, {"phase": 7}, "IT answers with what is not the state of a controller"),
    ],
)
def test_answers_that_are_none(status: int, document: Any, told: str) -> None:
    with web(lambda request: request.answer(status, document)) as address:
        assert asked(Client(address)).startswith(told)


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ((), "IT gave no answer: "),
        ((b"SSH-2.0-x\r\n",), "IT does not answer as HTTP does"),
        ((b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",), "IT gave no answer: it ended in"),
        ((b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",), "IT does not answer"),
        ((b"\0" * 70_000,), "IT does not answer as HTTP does"),
    ],
    ids=["nothing", "another protocol", "half a body", "half a chunk", "no line end"],
)
def test_who_does_not_speak_http(parts: tuple[bytes, ...], told: str) -> None:
    with raw(*parts) as address:
        assert asked(Client(address)).startswith(told)


@pytest.mark.parametrize(
    "part", [b"", b"HTTP/1.1 200 OK\r\n\r\n{"], ids=["silence", "a body that never ends"]
)
def test_who_does_not_answer_in_time(monkeypatch: pytest.MonkeyPatch, part: bytes) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.05)
    with raw(part, hold=True) as address:
        assert asked(Client(address)) == "IT does not answer within 0.05 s"


def test_an_answer_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_BYTES", 2**20)
    with web(lambda request: request.answer(200, b"x" * (2**20 + 1))) as address:
        assert asked(Client(address)) == "IT answers with more than 1 MiB"


def test_nobody_there() -> None:
    with refusing() as port, pytest.raises(Unreachable) as caught:
        Client(f"127.0.0.1:{port}").state()
    assert str(caught.value) == f"cannot reach 127.0.0.1:{port}: Connection refused"


@pytest.mark.parametrize("host", ["a\nb", "é" * 70, "a..b", "[::1]x"])
def test_a_host_that_cannot_be(host: str) -> None:
    with pytest.raises((Unreachable, ConfigError)) as caught:
        Client(f"{host}:1").state()
    assert "\x1b" not in str(caught.value)


# -- streams ----------------------------------------------------------------------------------


def test_a_stream_of_events() -> None:
    states = [{"phase": "waiting"}, {"phase": "done", "x": "a\nb"}]
    with web(lambda request: request.stream(*states)) as address:
        assert list(Client(address).follow("/events")) == states


def test_events_of_several_lines_and_of_other_kinds() -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    body = b'data: {"a":\r\ndata:1}\r\n\r\nevent: x\n\ndata: nonsense\n\n: hi\n\ndata: {"cut": 1}\n'
    with raw(head, body) as address:
        assert list(Client(address).follow("/events")) == [{"a": 1}]


@pytest.mark.parametrize("status", [404, 403, 503])
def test_no_stream(status: int) -> None:
    with web(lambda request: request.answer(status, {"error": "no"})) as address:
        assert list(Client(address).follow("/events")) == []


def test_a_page_in_its_place() -> None:
    with web(lambda request: request.answer(200, b"<p>", "text/html")) as address:
        assert list(Client(address).follow("/events")) == []


def test_a_stream_that_is_silent_after_its_first_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.05)
    release = threading.Event()

    def answer(request: Request) -> None:
        request.stream({"phase": "waiting"})
        assert release.wait(PATIENCE)
        request.wfile.write(b'data: {"phase": "done"}\n\n')

    with web(answer) as address:
        states = Client(address).follow("/events")
        assert next(states) == {"phase": "waiting"}
        # Well beyond the deadline.
        assert not release.wait(0.2)
        release.set()
        assert list(states) == [{"phase": "done"}]


def test_a_stream_without_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TIMEOUT", 0.05)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
    with raw(head, hold=True) as address:
        assert list(Client(address).follow("/events")) == []


def test_an_event_that_is_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_BYTES", 2**20)
    with (
        web(lambda request: request.stream({"x": "y" * 2**20})) as address,
        pytest.raises(RemoteError, match="an event of more than 1 MiB"),
    ):
        list(Client(address).follow("/events"))


# -- tokens -----------------------------------------------------------------------------------


def write(path: Path, content: bytes) -> str:
    path.write_bytes(content)
    path.chmod(0o600)
    return str(path)


def test_a_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "t", b" s3cr3t!\n")
    assert read_token("status", path) == "s3cr3t!"
    assert capsys.readouterr() == ("", "")
    (tmp_path / "t").chmod(0o644)
    read_token("status", path)
    assert capsys.readouterr().err == (
        f"joinproto status: token file {path!r} can be read by every user of this host; "
        "chmod o-r it\n"
    )


NO_TOKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "missing": (lambda path: None, "No such file or directory"),
    "empty": (lambda path: write(path, b"\n"), "it is empty"),
    "two words": (lambda path: write(path, b"a b"), "a token is one word of ASCII"),
    "two lines": (lambda path: write(path, b"a\nb"), "a token is one word of ASCII"),
    "not ASCII": (lambda path: write(path, "é".encode()), "a token is one word of ASCII"),
    "long": (lambda path: write(path, b"x" * 1025), "a token is one word of ASCII"),
    "a directory": (lambda path: path.mkdir(), "Is a directory"),
    "a pipe": (lambda path: os.mkfifo(path), "it is empty"),
}


@pytest.mark.parametrize(("prepare", "told"), NO_TOKEN.values(), ids=NO_TOKEN)
def test_what_is_no_token(tmp_path: Path, prepare: Callable[[Path], object], told: str) -> None:
    prepare(tmp_path / "t")
    with pytest.raises(ConfigError, match=f"--token-file .*/t: {told}"):
        read_token("status", str(tmp_path / "t"))
