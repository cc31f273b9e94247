"""The command `status`: what it shows, how it ends, with controllers of all sorts."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from joinproto.cli import main
from joinproto.cli import status as module
from tests.support.python import PATIENCE
from tests.support.tcp import refusing
from tests.support.web import Answering, Request, web

WAITING = {
    "phase": "waiting",
    "joined_ranks": 2,
    "joined_hosts": 1,
    "min_rank_start": 3,
    "target_ranks": None,
    "window_remaining_secs": 20,
    "cap_remaining_secs": 600,
    "members": [
        {
            "host": "node-a\x1b[2J",
            "ranks": [0, 1],
            "local_devices": [0, 1],
            "gpus": ["x", "y"],
            "libtorch": "",
            "joined_at_secs": 3,
        }
    ],
}
TRAINING = {**WAITING, "phase": "training"}
DONE = {**WAITING, "phase": "done"}
FAILED = {**WAITING, "phase": "failed"}
RANK = {"rank": 0, "device": 0, "state": "exited", "code": 7, "signal": None}
DETAIL = {**TRAINING, "outcome": None, "members": [{"host": "a", "ranks": [RANK]}]}


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setattr(module, "INTERVAL", 0.0)


def publishing(states: Iterable[Any]) -> Answering:
    """A published controller that is in each of these states in turn, then gone."""
    rest = iter(states)

    def answer(request: Request) -> None:
        if request.path != "/state.json":
            request.answer(404, {"error": "not found"})
        elif (state := next(rest, None)) is None:
            request.answer(503, {"error": "no state"})
        else:
            request.answer(200, state)

    return answer


def telling(*states: dict[str, Any], gone: int = 503) -> Answering:
    """A controller of ours that tells its states on /events."""

    def answer(request: Request) -> None:
        if request.path == "/events":
            request.stream(*states)
        else:
            request.answer(gone, {"error": "gone"})

    return answer


def status(answering: Answering, *options: str) -> int:
    with web(answering) as address:
        return main(["status", address, *options])


# -- once -------------------------------------------------------------------------------------


def test_a_published_controller(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(publishing([WAITING])) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "waiting: 2 rank(s) on 1 host(s) of at least 3; window 20 s; cap 600 s" in out
    assert "node-a\\x1b[2J" in out
    assert "\x1b" not in out


def test_a_controller_of_ours_tells_more(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(telling(DETAIL)) == 0
    assert "code 7" in capsys.readouterr().out


def test_json_is_what_is_published(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(publishing([WAITING]), "--json") == 0
    out, _ = capsys.readouterr()
    assert json.loads(out) == WAITING
    assert out.count("\n") == 1
    assert out.isascii()


@pytest.mark.parametrize(
    ("state", "code"),
    [
        (DONE, 0),
        (FAILED, 1),
        ({**DONE, "outcome": "ok"}, 0),
        ({**DONE, "outcome": "failed"}, 1),
    ],
)
@pytest.mark.parametrize("options", [(), ("--watch",), ("--json",)], ids=["once", "watch", "json"])
def test_the_exit_code_is_that_of_the_run(
    state: dict[str, Any], code: int, options: tuple[str, ...]
) -> None:
    assert status(publishing([state]), *options) == code


@pytest.mark.parametrize("state", [TRAINING, {**TRAINING, "outcome": None}])
def test_a_run_that_goes_on_has_not_failed(state: dict[str, Any]) -> None:
    assert status(publishing([state])) == 0


def test_no_state_yet(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(publishing([])) == 1
    assert capsys.readouterr().err.endswith(" has no state to show yet\n")


def test_a_token_goes_with_each_request(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("s3cr3t")
    (tmp_path / "t").chmod(0o600)
    seen = set()

    def answer(request: Request) -> None:
        seen.add((request.path, request.headers["Authorization"]))
        publishing([WAITING])(request)

    assert status(answer, "--token-file", str(tmp_path / "t")) == 0
    assert seen == {("/events", "Bearer s3cr3t"), ("/state.json", "Bearer s3cr3t")}


def test_nobody_there(capsys: pytest.CaptureFixture[str]) -> None:
    with refusing() as port:
        assert main(["status", f"127.0.0.1:{port}"]) == 1
    shown = capsys.readouterr()
    assert shown == ("", f"joinproto status: cannot reach 127.0.0.1:{port}: Connection refused\n")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "the following arguments are required: HOST:PORT"),
        (("nowhere",), "names no port"),
        (("h:1", "--token-file", "/nowhere/t"), "--token-file /nowhere/t: No such file"),
        (("h:1", "--net-timeout-scale", "0"), "--net-timeout-scale: '0' is not between"),
    ],
)
def test_wrong_usage(
    options: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", *options]) == 2
    assert told in capsys.readouterr().err


# -- watching ---------------------------------------------------------------------------------


def test_watching_a_published_controller(capsys: pytest.CaptureFixture[str]) -> None:
    later = {**WAITING, "window_remaining_secs": 19}
    assert status(publishing([None, WAITING, later, TRAINING, DONE]), "--watch") == 0
    # Those in which only time has gone by are left out.
    phases = [
        line.partition(":")[0]
        for line in capsys.readouterr().out.splitlines()
        if line.startswith(("waiting", "training", "done"))
    ]
    assert phases == ["waiting", "training", "done"]


def test_watching_json(capsys: pytest.CaptureFixture[str]) -> None:
    states = [WAITING, WAITING, TRAINING, FAILED]
    assert status(publishing(states), "--watch", "--json") == 1
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == states


def test_watching_a_controller_that_tells(capsys: pytest.CaptureFixture[str]) -> None:
    giving_up = {**DETAIL, "phase": "failed"}
    end = {**giving_up, "outcome": "failed"}
    assert status(telling(DETAIL, {"aside": 1}, giving_up, end), "--watch", "--json") == 1
    states = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert states == [DETAIL, giving_up, end]


def test_a_controller_that_is_gone_before_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert status(telling(DETAIL, gone=500), "--watch") == 1
    err = capsys.readouterr().err
    assert err.endswith(" answers 500: gone; when last seen, the run was in phase 'training'\n")


def test_a_controller_that_was_never_there(capsys: pytest.CaptureFixture[str]) -> None:
    with refusing() as port:
        assert main(["status", f"127.0.0.1:{port}", "--watch"]) == 1
    assert capsys.readouterr().err.endswith(f"{port}: Connection refused\n")


class Terminal(io.StringIO):
    """A terminal that remembers what was written to it."""

    def isatty(self) -> bool:
        return True


def test_watching_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    assert status(publishing([WAITING, TRAINING, DONE]), "--watch") == 0
    shown = terminal.getvalue()
    # Drawn anew in the same place, and the cursor is there again at the end.
    assert "\x1b[1A" in shown
    assert shown.rindex("\x1b[?25h") > shown.rindex("done")
    assert "\x1b[2J" not in shown


@pytest.mark.parametrize("options", [(), ("--json",), ("--watch",)], ids=["", "json", "watch"])
def test_a_reader_that_went_away(options: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with web(publishing([WAITING] * 9)) as address:
        argv = [sys.executable, "-m", "joinproto", "status", address, *options]
        with open(writer, "wb") as out:
            done = subprocess.run(argv, stdout=out, stderr=subprocess.PIPE, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (141, b"")
