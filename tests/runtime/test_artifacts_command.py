"""The command that makes artifacts: what it is asked, what it answers, and all that goes wrong."""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from joinproto.errors import ConfigError
from joinproto.keys import Salt
from joinproto.runtime import artifacts_command as module
from joinproto.runtime.artifacts_command import CommandMaker, split_command
from joinproto.runtime.loop import Loop
from joinproto.runtime.makers import HostPart, Made, World
from joinproto.runtime.timers import Timers
from tests.support.python import PATIENCE, is_gone, wait_until

DIGITS = "00112233445566778899aabbccddeeff"
HOST = HostPart(
    host="a",
    ranks=(0, 1),
    local_devices=(3, 4),
    gpus=("x", "y"),
    libtorch="",
    group_rank=0,
    wire=4,
    controller_host="127.0.0.1",
    controller_port=7077,
    peer_host="127.0.0.1",
)
WORLD = World(
    world_size=2,
    num_hosts=1,
    hosts=(HOST,),
    salt=Salt.from_hex(DIGITS),
    master=("127.0.0.1", 29500),
)
WIRE_2 = World(
    world_size=1,
    num_hosts=1,
    hosts=(HostPart(**{**HOST.__dict__, "wire": 2, "ranks": (0,)}),),
    salt=Salt.from_hex(DIGITS),
    master=None,
)
ENVELOPE = {"controller": {"host": "x", "port": 1}, "mine": "é"}
RELAY = {
    "host": "a",
    "controller_host": "x",
    "controller_port": 1,
    "ranks": [0],
    "salt_hex": DIGITS,
    "world_size": 1,
    "data_channel": False,
}


class Run:
    """A command that is asked, on a loop that runs until it has answered."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.timers = Timers()
        self.answers: list[Made | str] = []
        self.maker: CommandMaker | None = None

    def start(self, *argv: str, world: World = WORLD, scale: float = 1.0) -> CommandMaker:
        self.maker = CommandMaker(argv, self.loop, self.timers, scale)
        self.maker.make(world, self.answers.append)
        return self.maker

    def ask(self, *argv: str, world: World = WORLD, scale: float = 1.0) -> Any:
        """What `done` was given, once."""
        self.start(*argv, world=world, scale=scale)
        deadline = self.loop.now() + PATIENCE
        while not self.answers:
            assert self.loop.now() < deadline
            self.loop.run_once(min(filter(None, (self.timers.next, deadline))))
            self.timers.run(self.loop.now())
        (answer,) = self.answers
        assert self.timers.next is None
        return answer

    def python(self, code: str, *arguments: str, **options: Any) -> Any:
        """The answer of a program in Python."""
        return self.ask(sys.executable, "-S", "-c", code, *arguments, **options)

    def answer(self, answer: object, **options: Any) -> Any:
        """What comes of a program that answers so."""
        text = answer if isinstance(answer, str) else json.dumps(answer)
        return self.ask("/bin/sh", "-c", f"printf %s {shlex.quote(text)}", **options)


@pytest.fixture
def run(loop: Loop) -> Iterator[Run]:
    run = Run(loop)
    yield run
    if run.maker is not None:
        run.maker.cancel()


def told(run: Run, answer: object, **options: Any) -> str:
    """Why an answer is refused."""
    why = run.answer(answer, **options)
    assert isinstance(why, str)
    return why.removeprefix("artifacts command /bin/sh: ")


# -- what it is asked and answers -------------------------------------------------------------


def test_an_answer(run: Run) -> None:
    answer = run.answer({"a": {"envelope": ENVELOPE, "relay": RELAY}, "stranger": 7})
    assert isinstance(answer, dict)
    envelope, relay = answer["a"]
    assert json.loads(bytes.fromhex(envelope)) == ENVELOPE
    assert json.loads(bytes.fromhex(relay)) == RELAY


@pytest.mark.parametrize("relay", [{}, {"relay": None}], ids=["left out", "null"])
def test_an_answer_without_a_relay(run: Run, relay: dict[str, None]) -> None:
    text = json.dumps(ENVELOPE)
    assert run.answer({"a": {"envelope": text, **relay}}) == {"a": (text.encode().hex(), None)}


def test_text_for_a_host_of_wire_2(run: Run) -> None:
    answer = run.answer({"a": {"envelope": "X=é", "relay": ""}}, world=WIRE_2)
    assert answer == {"a": ("X=é".encode().hex(), "")}


def test_what_it_is_asked(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOINPROTO_SALT", DIGITS)
    monkeypatch.setenv("KEPT", "1")
    code = """
import json, os, sys
asked = json.load(sys.stdin)
leads = os.getsid(0) == os.getpid()
json.dump({"asked": asked, "env": dict(os.environ), "leads": leads}, open(sys.argv[1], "w"))
"""
    assert "its answer is not JSON" in run.python(code, str(tmp_path / "out"))
    seen = json.loads((tmp_path / "out").read_text())
    assert seen["leads"]
    assert seen["env"]["KEPT"] == "1"
    assert DIGITS not in seen["env"].values()
    assert seen["asked"] == {
        "world_size": 2,
        "num_hosts": 1,
        "salt_hex": DIGITS,
        "master_addr": "127.0.0.1",
        "master_port": 29500,
        "hosts": [
            {
                "host": "a",
                "ranks": [0, 1],
                "local_devices": [3, 4],
                "gpus": ["x", "y"],
                "libtorch": "",
                "group_rank": 0,
                "wire": 4,
                "controller_host": "127.0.0.1",
                "controller_port": 7077,
                "peer_host": "127.0.0.1",
            }
        ],
    }


def test_much_in_and_much_out(run: Run) -> None:
    label = "x" * 100_000
    big = HostPart(**{**HOST.__dict__, "gpus": (label,) * 20})
    world = World(world_size=2, num_hosts=1, hosts=(big,), salt=WORLD.salt, master=None)
    code = """
import json, sys
host = json.load(sys.stdin)["hosts"][0]
envelope = {"controller": {}, "labels": host["gpus"]}
json.dump({"a": {"envelope": envelope}}, sys.stdout)
"""
    answer = run.python(code, world=world)
    assert json.loads(bytes.fromhex(answer["a"][0]))["labels"] == [label] * 20


def test_a_command_that_does_not_want_to_know(run: Run) -> None:
    big = HostPart(**{**HOST.__dict__, "gpus": ("x" * 1_000_000,)})
    world = World(world_size=2, num_hosts=1, hosts=(big,), salt=WORLD.salt, master=None)
    assert isinstance(run.answer({"a": {"envelope": ENVELOPE}}, world=world), dict)


def test_what_it_says_on_stderr_is_ours(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    run.ask("/bin/sh", "-c", "echo aside >&2")
    assert capfd.readouterr().err == "aside\n"


# -- what goes wrong --------------------------------------------------------------------------

BAD: dict[str, tuple[object, str]] = {
    "no JSON": ("nonsense", "its answer is not JSON"),
    "deep": ("[" * 100_000, "its answer is not JSON"),
    "an array": ([], "its answer is not an object of JSON"),
    "another host": ({"b": {}}, "its answer has no object for host 'a'"),
    "no object": ({"a": "x"}, "its answer has no object for host 'a'"),
    "no envelope": ({"a": {"relay": RELAY}}, "its answer has no envelope for host 'a'"),
    "a number": ({"a": {"envelope": 7}}, "the envelope for host 'a' is neither an object nor a"),
    "no controller": ({"a": {"envelope": {}}}, "host 'a', which speaks wire 4: the envelope from"),
    "text": ({"a": {"envelope": "X=1"}}, "host 'a', which speaks wire 4: the envelope from"),
    "no relay spec": (
        {"a": {"envelope": ENVELOPE, "relay": {}}},
        "host 'a', which speaks wire 4: the relay spec from the controller is unusable: host is",
    ),
    "a surrogate": ({"a": {"envelope": "\ud800"}}, "the envelope for host 'a' holds a lone surr"),
    "no number": (
        '{"a": {"envelope": {"controller": {}, "x": NaN}}}',
        "the envelope for host 'a' cannot be used: it holds a number that is out of range",
    ),
}


@pytest.mark.parametrize(("answer", "why"), BAD.values(), ids=BAD)
def test_answers_that_are_none(run: Run, answer: object, why: str) -> None:
    assert told(run, answer).startswith(why)


@pytest.mark.parametrize(
    ("script", "why"),
    [("exit 3", "it ended with code 3"), ("kill -9 $$", "it ended with SIGKILL")],
)
def test_a_command_that_fails(run: Run, script: str, why: str) -> None:
    assert run.ask("/bin/sh", "-c", script) == f"artifacts command /bin/sh: {why}"


@pytest.mark.parametrize(
    ("command", "why"),
    [("/nowhere/at-all", "No such file or directory"), ("a\0b", "embedded null byte")],
)
def test_a_command_that_cannot_be_started(run: Run, command: str, why: str) -> None:
    assert run.ask(command) == f"artifacts command {command}: {why}"


def test_a_command_that_takes_too_long_goes_with_its_children(run: Run, tmp_path: Path) -> None:
    script = 'sleep 60 & echo $! $$ > "$0.new"; mv "$0.new" "$0"; wait'
    run.start("/bin/sh", "-c", script, str(tmp_path / "pids"))
    wait_until((tmp_path / "pids").exists, "the command runs")
    run.timers.run(run.loop.now() + module.TIMEOUT)
    assert run.answers == ["artifacts command /bin/sh: it has not ended within 30 s"]
    for pid in map(int, (tmp_path / "pids").read_text().split()):
        wait_until(lambda pid=pid: is_gone(pid), "killed")  # type: ignore[misc]
    assert run.timers.next is None


def test_a_command_whose_output_somebody_else_holds_open(run: Run, tmp_path: Path) -> None:
    script = 'sleep 60 & echo $! $$ > "$0.new"; mv "$0.new" "$0"'
    run.start("/bin/sh", "-c", script, str(tmp_path / "pids"))
    wait_until((tmp_path / "pids").exists, "the command runs")
    sleeper, shell = map(int, (tmp_path / "pids").read_text().split())
    wait_until(lambda: is_gone(shell), "the command has ended")
    run.loop.run_once(run.loop.now())
    assert not is_gone(sleeper)
    run.timers.run(run.loop.now() + module.TIMEOUT)
    assert run.answers == ["artifacts command /bin/sh: it has not ended within 30 s"]
    wait_until(lambda: is_gone(sleeper), "killed")


def test_too_long_an_answer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_BYTES", 2**20)
    assert run.ask("yes") == "artifacts command yes: it answers with more than 1 MiB"


def test_a_run_that_is_given_up(run: Run, tmp_path: Path) -> None:
    maker = run.start(
        "/bin/sh",
        "-c",
        'echo $$ > "$0.new"; mv "$0.new" "$0"; exec sleep 60',
        str(tmp_path / "pid"),
    )
    wait_until((tmp_path / "pid").exists, "the command runs")
    maker.cancel()
    maker.cancel()
    assert is_gone(int((tmp_path / "pid").read_text()))
    assert (run.answers, run.timers.next) == ([], None)


# -- the option -------------------------------------------------------------------------------


def test_the_words_of_a_command() -> None:
    assert split_command("sh -c 'a b'") == ["sh", "-c", "a b"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "--artifacts-command is empty"),
        ("'x", "--artifacts-command: No closing quotation"),
        ("/nowhere/x -y", "--artifacts-command: /nowhere/x: no such command"),
        (os.devnull, "no such command"),
    ],
)
def test_what_is_no_command(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        split_command(text)
