"""The script as somebody runs it who has no joinproto."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from interop.peers import OURS
from interop.processes import clean_environment
from joinproto.fuzzing.script import script_of
from joinproto.fuzzing.sequence import Step
from tests.support.findings import finding

OVER = b"over"

HELLO: tuple[Step, ...] = ({"dial": "c"}, {"say": "Hello"}, {"look": "c", "within": 2.0})


def run(script: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script as somebody does who has no joinproto."""
    path = folder / "repeat.py"
    path.write_text(script, encoding="utf-8")
    command = [sys.executable, "-I", str(path), *arguments]
    return subprocess.run(
        command, env=clean_environment(), capture_output=True, text=True, check=False, timeout=60
    )


@contextmanager
def controller(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Something that takes dials until it is over, which it is once it serves no longer."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(16)
        address = listener.getsockname()

        def take() -> None:
            with listener:
                serve(listener)

        thread = threading.Thread(target=take)
        thread.start()
        try:
            yield f"{address[0]}:{address[1]}"
        finally:
            # One more dial wakes whoever still waits for one.
            with suppress(OSError), socket.create_connection(address) as sock:
                sock.sendall(OVER)
            thread.join()


def test_a_salt_is_in_no_script(tmp_path: Path) -> None:
    secret = finding("agent", "died", {"accept": "c"}, {"say": "Accept"}, admission="pre-shared")
    script = script_of(secret)
    refused = run(script, tmp_path, "--", "true")
    assert refused.returncode == 2
    assert "--salt-file" in refused.stdout


@pytest.mark.slow
def test_a_controller_that_is_well(tmp_path: Path) -> None:
    def serve(listener: socket.socket) -> None:
        said = b""
        while said != OVER:
            with listener.accept()[0] as sock:
                said = sock.recv(1000)

    with controller(serve) as address:
        done = run(script_of(finding("controller", "hung", *HELLO)), tmp_path, address)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "it does not strike" in done.stdout


@pytest.mark.slow
def test_a_controller_that_dies(tmp_path: Path) -> None:
    def serve(listener: socket.socket) -> None:
        listener.accept()[0].close()

    with controller(serve) as address:
        done = run(script_of(finding("controller", "died", *HELLO)), tmp_path, address)
    assert done.returncode == 1, done.stdout + done.stderr


def test_a_controller_that_says_what_it_must_not(tmp_path: Path) -> None:
    def serve(listener: socket.socket) -> None:
        with listener.accept()[0] as sock:
            sock.recv(1000)
            sock.sendall(bytes.fromhex("c4170df104000000") + bytes(8) + b"\7\0\0\0\1\0\0\0\3")

    said = finding("controller", "answered", {"dial": "c"}, {"send": "00" * 30})
    with controller(serve) as address:
        done = run(script_of(said), tmp_path, address)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "WorldFormed" in done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("wire", [2, 4])
def test_an_agent_that_is_well(wire: int, tmp_path: Path) -> None:
    steps: tuple[Step, ...] = (
        {"accept": "c"},
        {"say": "Accept"},
        {"say": "WorldFormed"},
        {"wait": 0.1},
        {"rank": 0, "do": {"exit": 3}},
        {"look": "c", "within": 5.0},
    )
    script = script_of(finding("agent", "told-twice", *steps, wire=wire))
    done = run(script, tmp_path, "--", *OURS, "agent", "--", "{helper}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "c << Hello, RankExited; end of the stream" in done.stdout


def test_an_agent_that_reports_twice(tmp_path: Path) -> None:
    agent = """
import json, os, socket
spec = json.loads(bytes.fromhex(os.environ["FLODL_INTERNAL_AGENT_JSON"]))
sock = socket.create_connection((spec["controller_host"], spec["controller_port"]))
head = bytes.fromhex("c4170df104000000") + bytes(8) + bytes.fromhex("0700000001000000")
sock.sendall(bytes.fromhex("e3170df1"))
for kind in (0, 4, 4):
    sock.sendall(head + bytes((kind,)))
sock.shutdown(socket.SHUT_WR)
sock.recv(1000)
"""
    twice = finding("agent", "told-twice", {"accept": "c"}, {"say": "Accept"}, {"look": "c"})
    done = run(script_of(twice), tmp_path, "--", sys.executable, "-I", "-c", agent)
    assert done.returncode == 1, done.stdout + done.stderr


def test_wrong_usage(tmp_path: Path) -> None:
    script = script_of(finding("controller", "died", *HELLO))
    assert run(script, tmp_path).returncode == 2
    assert "usage" in run(script, tmp_path, "--", "true").stdout
