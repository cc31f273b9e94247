"""The command `start`: what is asked, and what each answer comes to."""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import Any

import pytest

from joinproto.cli import main
from tests.support.tcp import refusing
from tests.support.web import Answering, Request, web

STATE_07 = {"phase": "waiting", "members": []}
STATE_08 = {**STATE_07, "start_mode": "auto", "start_armed": False}


def start(
    answering: Answering, capsys: pytest.CaptureFixture[str], *options: str
) -> tuple[int, str, str]:
    """Exit code, stdout and stderr, the controller's address written as IT."""
    with web(answering) as address:
        code = main(["start", address, *options])
    out, err = capsys.readouterr()
    return code, out.replace(address, "IT"), err.replace(address, "IT")


def token_file(path: Path, token: str) -> str:
    path.write_text(token)
    path.chmod(0o600)
    return str(path)


def test_a_start_that_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    asked: list[tuple[str, str]] = []

    def answer(request: Request) -> None:
        asked.append((request.command, request.path))
        request.answer(200, {"armed": True})

    told = "IT has the start: the world forms as soon as there is quorum\n"
    assert start(answer, capsys) == (0, told, "")
    assert asked == [("POST", "/start")]


def test_a_token_goes_where_published_controllers_look(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[str, str | None]] = []

    def answer(request: Request) -> None:
        asked.append((request.path, request.headers["Authorization"]))
        request.answer(200, {"armed": True})

    assert start(answer, capsys, "--token-file", token_file(tmp_path / "t", "a&b=\n"))[0] == 0
    assert asked == [("/start?token=a%26b%3D", None)]


@pytest.mark.parametrize(
    ("status", "document", "told"),
    [
        (409, {"error": "quorum\x1b not met"}, "is not to be started (409): quorum\\x1b not met"),
        (403, {"error": "no"}, "does not let us start it: no; give its token with --token-file"),
        (404, {"error": "x"}, "cannot be started by hand: such a controller (0.7) has no start"),
        (405, b"", "cannot be started by hand: such a controller (0.7) has no start"),
        (501, b"", "cannot be started by hand: such a controller (0.7) has no start"),
        (500, b"oops", "is not to be started (500): oops"),
    ],
)
def test_a_start_that_is_not_taken(
    status: int, document: Any, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = start(lambda request: request.answer(status, document), capsys)
    assert found == (1, "", f"joinproto start: IT {told}\n")


def test_a_wrong_token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = token_file(tmp_path / "t", "s3cr3t")
    _, _, err = start(
        lambda request: request.answer(403, {"error": "no"}), capsys, "--token-file", path
    )
    assert err == "joinproto start: IT does not let us start it: no\n"


def breaking_off(state: dict[str, Any] | None) -> Answering:
    """A controller that resets a POST, and answers a GET with this state (None: resets too)."""

    def answer(request: Request) -> None:
        if request.command == "GET" and state is not None:
            request.answer(200, state)
        else:
            linger = struct.pack("ii", 1, 0)
            request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            request.connection.close()

    return answer


def test_a_controller_of_0_7(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = start(breaking_off(STATE_07), capsys)
    assert err.endswith("IT cannot be started by hand: such a controller (0.7) has no start\n")


@pytest.mark.parametrize("state", [STATE_08, None])
def test_a_controller_that_breaks_off(
    state: dict[str, Any] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = start(breaking_off(state), capsys)
    assert code == 1
    assert err.startswith("joinproto start: IT gave no answer: ")


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    with refusing() as port:
        assert main(["start", f"127.0.0.1:{port}"]) == 1
    told = f"joinproto start: cannot reach 127.0.0.1:{port}: Connection refused\n"
    assert capsys.readouterr() == ("", told)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "the following arguments are required: HOST:PORT"),
        (("nowhere",), "names no port"),
        (("h:1", "--token-file", "/nowhere/t"), "--token-file /nowhere/t: No such file"),
        (("h:1", "--net-timeout-scale", "x"), "--net-timeout-scale: 'x'"),
    ],
)
def test_wrong_usage(
    options: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["start", *options]) == 2
    assert told in capsys.readouterr().err
