"""The command `controller`: its settings, what it refuses, what it prints and how it ends."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from interop.processes import Watched, clean_environment
from joinproto.cli import controller as module
from joinproto.cli import main
from joinproto.controller import Controller
from joinproto.grammar import WIRES
from joinproto.keys import Salt
from joinproto.machines.window import Check
from joinproto.messages import Abort, Accept, Hello, RankExited, Reject, WorldFormed
from joinproto.testing.fakes import FakeAgent
from joinproto.testing.script import Call, Close, Expect, ReportExits, Say, Until, WaitEnd
from tests.support.python import PATIENCE
from tests.support.roles import OURS, checked, controller
from tests.support.signals import unheeded
from tests.support.sockets import answer, dial

DIGITS = "00112233445566778899aabbccddeeff"
SALT = Salt.from_hex(DIGITS)
HELLO = Say(Hello(host="a", local_devices=(0,)))
LOOPBACK = ("--bind", "127.0.0.1:0", "--min-ranks", "1")


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    with unheeded():
        yield


# -- what is refused --------------------------------------------------------------------------

BAD: dict[tuple[str, ...], str] = {
    ("--bind", "127.0.0.1"): "address '127.0.0.1' names no port",
    ("--bind", ":1"): "names no host",
    ("--bind", "127.0.0.1:65536"): "the port is a number from 0 to 65535",
    ("--bind", "::1:0"): "write an IPv6 address in brackets",
    ("--bind", "203.0.113.1:0"): "203.0.113.1 is not a loopback address|cannot listen on 203.0.1",
    ("--bind", "0.0.0.0:0"): "0.0.0.0 is not a loopback address: give a salt, or ask for open",
    ("--min-ranks", "0"): "min ranks is 0; a world has at least 1 rank",
    ("--min-ranks", "x"): "--min-ranks: invalid int value: 'x'",
    ("--min-ranks", "3", "--target-ranks", "2"): r"target ranks \(2\) is below min ranks \(3\)",
    ("--join-timeout", "-1"): "--join-timeout -1: write seconds, 0 or more",
    ("--join-timeout", "nan"): "--join-timeout nan: write seconds",
    ("--join-timeout", "soon"): "--join-timeout: invalid float value: 'soon'",
    ("--max-join-timeout", "inf"): "--max-join-timeout inf: write seconds",
    ("--join-timeout", "9", "--max-join-timeout", "8"): "is below the join timeout",
    ("--salt-file", "missing"): "salt file 'missing' cannot be read: No such file",
    ("--salt-file", "/dev/null"): "salt file '/dev/null': the salt is empty",
    ("--salt-file", "x", "--open-admission"): "not allowed with argument",
    ("--dataset-sig", "ab"): "--dataset-sig: a signature is 64 hex digits",
    ("--wire", "3"): "--wire: invalid choice: '3'",
    ("--advertise", "a:b"): "the port is a number",
    ("--advertise", ""): "names no host",
    ("--master-port", "0"): "--master-port 0: a port is from 1 to 65535",
    ("--events", "xml"): "--events: invalid choice: 'xml'",
    ("--net-timeout-scale", "0"): "--net-timeout-scale: '0' is not between 0.1 and 1000",
    ("--start-mode", "manual", "--target-ranks", "2"): "in manual start mode only the operator",
    ("--start-mode", "later"): "--start-mode: invalid choice: 'later'",
    ("--no-check", "all"): "--no-check: invalid choice: 'all'",
    ("--max-rejected", "-1"): "max rejected is -1; it is 0 or more",
    ("--max-failures", "-1"): "max failures is -1; it is 0 or more",
    ("--max-failures", "1", "--on-rank-failure", "abort"): "contradict each other",
    ("--record", "."): "is no plain file|Is a directory",
    ("--resume", "missing"): "missing: No such file",
    ("--status-token-file", "missing"): "--status-token-file missing: No such file",
    ("--envelope-template", "missing"): "--envelope-template missing: No such file",
    ("--relay-template", "x"): "--relay-template goes with --envelope-template",
    ("--artifacts-command", "x", "--relay"): "--relay is for flodl's artifacts",
    ("--artifacts-command", "true", "--envelope-template", "x"): "exclude each other",
    ("--artifacts-command", "no-such-command"): "no-such-command",
    ("--mixed",): "unrecognized arguments: --mixed",
    ("stray",): "unrecognized arguments: stray",
}


def complaint(capfd: pytest.CaptureFixture[str]) -> str:
    """The one line that was written, and nothing else was."""
    shown = capfd.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert line.startswith("joinproto controller: ")
    return str(line)


@pytest.mark.parametrize("events", [(), ("--events", "json")], ids=["text", "json"])
@pytest.mark.parametrize(("options", "told"), BAD.items(), ids=lambda part: str(part)[:40])
def test_settings_that_cannot_be_used_are_told_in_one_line(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    options: tuple[str, ...],
    told: str,
    events: tuple[str, ...],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["controller", *LOOPBACK, *events, *options]) == 2
    assert re.search(told, complaint(capfd))


@pytest.mark.parametrize("missing", ["--bind", "--min-ranks"])
def test_some_settings_must_be_given(capfd: pytest.CaptureFixture[str], missing: str) -> None:
    given = dict(zip(LOOPBACK[::2], LOOPBACK[1::2], strict=True))
    del given[missing]
    assert main(["controller", *(word for pair in given.items() for word in pair)]) == 2
    assert complaint(capfd).endswith(f"{missing} is needed")


def test_a_salt_in_the_environment_that_is_none(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOINPROTO_SALT", "s3cr3t!")
    assert main(["controller", *LOOPBACK]) == 2
    line = complaint(capfd)
    assert "JOINPROTO_SALT: the salt is not made of hex digits" in line
    assert "s3cr3t" not in line


def test_a_port_that_is_taken(capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["controller", "--bind", f"127.0.0.1:{port}", "--min-ranks", "1"]) == 2
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in complaint(capfd)


# -- settings ---------------------------------------------------------------------------------


class Caught(Exception):
    """The controller was to be made."""


def settings(monkeypatch: pytest.MonkeyPatch, *options: str) -> dict[str, Any]:
    """What a controller is made with."""
    found: list[dict[str, Any]] = []

    def make(**given: Any) -> Controller:
        found.append(given)
        raise Caught

    monkeypatch.setattr(module, "Controller", make)
    with pytest.raises(Caught):
        main(["controller", *LOOPBACK, *options])
    return found[0]


OPTIONS: dict[tuple[str, ...], dict[str, Any]] = {
    ("--bind", "[::1]:7000"): {"bind": ("::1", 7000)},
    ("--min-ranks", "3"): {"min_ranks": 3},
    ("--target-ranks", "4"): {"target_ranks": 4},
    ("--join-timeout", "1.5"): {"join_timeout": 1.5},
    ("--max-join-timeout", "9"): {"max_join_timeout": 9.0},
    ("--open-admission",): {"open_admission": True},
    ("--dataset-sig", "ab" * 32): {"dataset_sig": b"\xab" * 32},
    ("--wire", "2"): {"wires": (2,)},
    ("--mixed-wires",): {"mixed_wires": True},
    ("--advertise", "head"): {"advertise": ("head", None)},
    ("--advertise", "head:0"): {"advertise": ("head", None)},
    ("--advertise", "[fd00::1]:7"): {"advertise": ("fd00::1", 7)},
    ("--relay",): {"relay": True},
    ("--master-port", "4711"): {"master_port": 4711},
    ("--net-timeout-scale", "0.5"): {"scale": 0.5},
    ("--start-mode", "hybrid"): {"start_mode": "hybrid"},
    ("--no-check", "nccl", "--no-check", "vendor"): {
        "checks": frozenset({Check.RUN_ID, Check.MODEL_SIG})
    },
    ("--max-rejected", "9"): {"max_rejected": 9},
    ("--max-failures", "2"): {"max_failures": 2},
    ("--on-rank-failure", "abort"): {"max_failures": 0},
    ("--on-rank-failure", "abort", "--max-failures", "0"): {"max_failures": 0},
    ("--record", "run.jsonl"): {"record": "run.jsonl"},
    ("--status-open",): {"status_open": True},
}
USUAL = {
    "bind": ("127.0.0.1", 0),
    "min_ranks": 1,
    "target_ranks": None,
    "join_timeout": 300.0,
    "max_join_timeout": None,
    "salt": None,
    "open_admission": False,
    "dataset_sig": None,
    "wires": tuple(sorted(WIRES, reverse=True)),
    "mixed_wires": False,
    "advertise": None,
    "relay": False,
    "master_port": 29500,
    "scale": 1.0,
    "start_mode": "auto",
    "checks": frozenset(Check),
    "max_rejected": None,
    "max_failures": None,
    "maker": None,
    "record": None,
    "status_open": False,
    "status_token": None,
}


@pytest.mark.parametrize(("options", "changed"), OPTIONS.items(), ids=map(" ".join, OPTIONS))
def test_every_option_is_heeded(
    monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], changed: dict[str, Any]
) -> None:
    found = settings(monkeypatch, *options)
    del found["on_text"], found["on_change"]
    assert found.pop("events_fd") is None
    assert found == USUAL | changed


def test_where_the_salt_comes_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "salt"
    path.write_text(f"{DIGITS}\n")
    path.chmod(0o600)
    assert settings(monkeypatch, "--salt-file", str(path))["salt"] == SALT
    monkeypatch.setenv("JOINPROTO_SALT", "ff" * 16)
    assert settings(monkeypatch)["salt"] == Salt(b"\xff" * 16)
    assert settings(monkeypatch, "--salt-file", str(path))["salt"] == SALT
    assert settings(monkeypatch, "--open-admission")["salt"] is None


def test_an_unusable_scale_is_told_once_and_1_is_used(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLODL_NET_TIMEOUT_SCALE", "1e309")
    assert settings(monkeypatch)["scale"] == 1.0
    assert complaint(capfd).endswith(
        "FLODL_NET_TIMEOUT_SCALE: '1e309' is not between 0.1 and 1000; using 1"
    )


# -- a run in this process --------------------------------------------------------------------


class Session:
    """A controller that runs in this process, on its main thread, while a test talks to it on
    another."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.code: int | None = None
        self.failure: BaseException | None = None

    @property
    def events(self) -> list[dict[str, Any]]:
        return [checked(json.loads(line)) for line in self.lines]


def drive(
    monkeypatch: pytest.MonkeyPatch, talk: Callable[[tuple[str, int]], None], *options: str
) -> Session:
    """Run a controller; `talk` is called with its address."""
    session = Session()
    read, write = os.pipe()

    def listen() -> None:
        with open(read) as lines:
            first = lines.readline()
            session.lines.append(first)
            event = json.loads(first)
            try:
                talk((event["host"], event["port"]))
            except BaseException as error:
                session.failure = error
                os.kill(os.getpid(), signal.SIGTERM)
                os.kill(os.getpid(), signal.SIGTERM)
            session.lines += lines

    thread = threading.Thread(target=listen)
    with open(write, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        thread.start()
        session.code = main(["controller", *LOOPBACK, "--events", "json", *options])
        monkeypatch.undo()
    thread.join(PATIENCE)
    if session.failure is not None:
        raise session.failure
    return session


def names(session: Session) -> list[str]:
    return [event["event"] for event in session.events]


def test_a_world_that_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    def talk(address: tuple[str, int]) -> None:
        with FakeAgent.joining(host="hö\nst").dial(*address):
            pass

    session = drive(monkeypatch, talk, "--target-ranks", "1")
    assert session.code == 0
    assert names(session) == ["listening", "joined", "formed", "rank_exited", "finished"]
    assert session.events[1]["host"] == "hö\nst"
    assert all(line.isascii() for line in session.lines)


def test_a_rank_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def talk(address: tuple[str, int]) -> None:
        with FakeAgent.joining(codes={0: 3}).dial(*address):
            pass

    session = drive(monkeypatch, talk, "--target-ranks", "1")
    assert (session.code, session.events[-1]["failed_ranks"]) == (1, [0])


@pytest.mark.slow
def test_a_window_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    times = ("--join-timeout", "1", "--max-join-timeout", "1", "--net-timeout-scale", "0.1")
    session = drive(monkeypatch, lambda address: None, *times)
    assert (session.code, names(session)) == (3, ["listening", "finished"])


def test_a_signal_aborts_the_run_and_waits_for_the_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def talk(address: tuple[str, int]) -> None:
        script = [HELLO, Expect(Accept), Expect(WorldFormed), interrupt, Expect(Abort)]
        with FakeAgent([*script, ReportExits({0: -15}), Close()]).dial(*address):
            pass

    interrupt = Call(lambda: os.kill(os.getpid(), signal.SIGINT))
    session = drive(monkeypatch, talk, "--target-ranks", "1")
    assert session.code == 1
    assert session.events[-2]["code"] == -15
    assert session.events[-1]["reason"] == "the controller was stopped (SIGINT)"


def test_a_second_signal_waits_for_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    terminate = Call(lambda: os.kill(os.getpid(), signal.SIGTERM))

    def talk(address: tuple[str, int]) -> None:
        script = [HELLO, Expect(Accept), Expect(WorldFormed), terminate, Expect(Abort), terminate]
        with FakeAgent([*script, WaitEnd()]).dial(*address):
            pass

    session = drive(monkeypatch, talk, "--target-ranks", "1")
    assert (session.code, names(session)[-1]) == (1, "finished")
    assert session.events[-1]["reason"] == "the controller was stopped (SIGTERM)"


def test_warnings_are_told_beside_the_events(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def talk(address: tuple[str, int]) -> None:
        with FakeAgent.joining().dial("127.0.0.1", address[1]):
            pass

    options = ("--bind", "0.0.0.0:0", "--open-admission", "--target-ranks", "1")
    assert drive(monkeypatch, talk, *options).code == 0
    told = capfd.readouterr().err.splitlines()
    assert len(told) == 1
    assert told[0].startswith("joinproto controller: WARNING: open admission on 0.0.0.0: anyone")


# -- a run in a process of its own ------------------------------------------------------------


def test_what_people_are_told() -> None:
    argv = ("--target-ranks", "1")
    with text_controller(*argv) as process:
        where = process.wait_line(r"^joinproto controller: listening on 127\.0\.0\.1:(\d+)$")
        address = ("127.0.0.1", int(where[1]))
        assert answer(dial(address, b"a port scan")) == b""
        with FakeAgent.joining(host="a").dial(*address):
            assert process.wait_exit() == 0
    assert process.lines("stdout") == []
    told = [line.removeprefix("joinproto controller: ") for line in process.lines()]
    assert told[1].startswith("turned away a dial from 127.0.0.1:")
    assert told[2].startswith("host 'a' (127.0.0.1:")
    assert told[3:] == [
        "world formed: 1 rank(s) on 1 host(s) (target reached)",
        "rank 0 on host 'a' ended with code 0",
        "host 'a': rank 0 (device 0) code 0 after 0.0 s",
        "finished: ok",
    ]


def test_a_run_from_its_first_event_to_its_last() -> None:
    with controller(ranks=2) as process:
        with FakeAgent([HELLO, Expect(Accept), Close()]).dial(*process.address):
            process.wait_event("member_lost", host="a", formed=False)
        refused = [Say(Hello(host=" ", local_devices=(0,))), Expect(Reject), WaitEnd()]
        with FakeAgent(refused).dial(*process.address):
            pass
        go = threading.Event()
        script = [HELLO, Expect(Accept), Expect(WorldFormed), Until(go.is_set)]
        with FakeAgent([*script, Say(RankExited(rank=0, code=-11)), Close()]).dial(
            *process.address
        ):
            process.wait_for(lambda: process.events("joined")[1:] or None, "a second host")
            with FakeAgent.joining(host="b").dial(*process.address):
                process.wait_event("rank_exited", rank=1)
            go.set()
            events = process.ended(1)
    assert [event["event"] for event in events] == [
        "listening",
        "joined",
        "member_lost",
        "rejected",
        "joined",
        "joined",
        "formed",
        "rank_exited",
        "rank_exited",
        "finished",
    ]
    assert events[-2]["signal"] == "SIGSEGV"


def test_a_reader_of_events_that_goes_away_ends_it() -> None:
    """Nobody would hear of anything any more; the hosts notice by the end of their links."""
    read, write = os.pipe()
    process = subprocess.Popen(
        [*OURS, "controller", *LOOPBACK, "--target-ranks", "1", "--events", "json"],
        stdin=subprocess.DEVNULL,
        stdout=write,
        stderr=subprocess.PIPE,
        env=clean_environment(),
    )
    with process:
        os.close(write)
        with open(read) as lines:
            listening = json.loads(lines.readline())
        script = [HELLO, WaitEnd()]
        with FakeAgent(script).dial(listening["host"], listening["port"]):
            assert process.wait(PATIENCE) == 141
        assert process.stderr is not None
        assert process.stderr.read() == b""


@contextmanager
def text_controller(*options: str) -> Iterator[Watched]:
    argv = (*OURS, "controller", *LOOPBACK, *options)
    with Watched(argv, environment=clean_environment()) as process:
        yield process


# -- artifacts, journal, status ---------------------------------------------------------------


def envelope(*options: str) -> Any:
    """What a controller with these options hands to the ranks of a host."""
    with controller(*options) as process:
        agent = FakeAgent.joining(host="a")
        with agent.dial(*process.address):
            process.ended(0)
    (formed,) = [each for each in agent.messages if isinstance(each, WorldFormed)]
    return json.loads(bytes.fromhex(formed.envelope_hex))


def test_an_envelope_is_filled_in_from_a_template(tmp_path: Path) -> None:
    template = tmp_path / "envelope.json"
    template.write_text(
        '{"controller": {"host": "$controller_host"}, "who": "$host", "of": $ranks}'
    )
    found = envelope("--envelope-template", str(template))
    assert found == {"controller": {"host": "127.0.0.1"}, "who": "a", "of": [0]}


def test_a_program_is_asked_for_artifacts(tmp_path: Path) -> None:
    program = tmp_path / "artifacts.py"
    program.write_text(
        "import json, sys\n"
        "world = json.load(sys.stdin)\n"
        "made = {'controller': {}, 'size': world['world_size']}\n"
        "json.dump({host['host']: {'envelope': made} for host in world['hosts']}, sys.stdout)\n"
    )
    command = f"{sys.executable} {program}"
    assert envelope("--artifacts-command", command) == {"controller": {}, "size": 1}


def test_a_program_that_fails_ends_the_run() -> None:
    with controller("--artifacts-command", "false") as process:
        agent = FakeAgent([HELLO, Expect(Accept), Expect(Abort), Close()])
        with agent.dial(*process.address):
            finished = process.ended(1)[-1]
    assert "false" in finished["reason"]
    assert agent.messages[-1] == Abort(reason=finished["reason"])


def test_a_run_is_recorded_as_it_is_told(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    record = tmp_path / "run.jsonl"
    agent = FakeAgent.joining(host="a")
    with controller("--record", str(record)) as process, agent.dial(*process.address):
        events = process.ended(0)
    first, *rest = (json.loads(line) for line in record.read_text().splitlines())
    assert first["event"] == "run"
    assert rest == events
    assert main(["controller", "--resume", str(record)]) == 0
    assert "rank 0 ended with code 0" in capfd.readouterr().out


def test_a_run_whose_controller_was_killed_is_closed_and_not_gone_on_with(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "run.jsonl"
    agent = FakeAgent([HELLO, Expect(Accept), Expect(WorldFormed), WaitEnd()])
    with controller("--record", str(record)) as process, agent.dial(*process.address):
        process.wait_event("formed")
        assert main(["controller", "--resume", str(record)]) == 2
        assert "the controller that writes it still runs" in capfd.readouterr().err
        os.kill(process.pid, signal.SIGKILL)
        process.wait_exit()
    assert main(["controller", "--resume", str(record)]) == 1
    told = capfd.readouterr().out
    assert "a world of 1 rank(s) on 1 host(s) had formed" in told
    last = json.loads(record.read_text().splitlines()[-1])
    assert (last["event"], last["outcome"]) == ("finished", "failed")
    assert main(["controller", *LOOPBACK, "--record", str(record)]) == 2


def test_a_run_that_is_given_up_at_the_first_failure() -> None:
    go = threading.Event()
    script = [HELLO, Expect(Accept), Expect(WorldFormed), Until(go.is_set)]
    with controller("--on-rank-failure", "abort", ranks=2) as process:
        other = FakeAgent([*script, Expect(Abort), Close()])
        with other.dial(*process.address):
            process.wait_event("joined", host="a")
            bad = [Say(Hello(host="b", local_devices=(0,))), Expect(Accept), Expect(WorldFormed)]
            failing = FakeAgent([*bad, Say(RankExited(rank=1, code=5)), Expect(Abort), Close()])
            go.set()
            with failing.dial(*process.address):
                finished = process.ended(1)[-1]
    assert finished["reason"] == "rank 1 ended with code 5"
    assert other.messages[-1] == Abort(reason="rank 1 ended with code 5")


def test_the_operator_starts_it(capfd: pytest.CaptureFixture[str]) -> None:
    with controller("--start-mode", "manual", target=False) as process:
        host, port = process.address
        where = f"{host}:{port}"
        assert main(["start", where]) == 1
        assert "0 of at least 1 rank(s) have joined" in capfd.readouterr().err
        with FakeAgent.joining(host="a").dial(host, port):
            process.wait_event("joined")
            assert main(["status", "--json", where]) == 0
            shown = json.loads(capfd.readouterr().out)
            assert (shown["phase"], shown["start_mode"]) == ("staging", "manual")
            assert main(["start", where]) == 0
            process.ended(0)
    assert process.events("formed")[0]["reason"] == "the operator gave the start"


def test_on_a_terminal_the_run_is_a_table() -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    process = subprocess.Popen(
        [*OURS, "controller", *LOOPBACK, "--target-ranks", "1"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=clean_environment(TERM="xterm"),
    )
    os.close(theirs)
    shown = b""
    with process:
        while b"listening on" not in shown or b"\n" not in shown.partition(b"listening on")[2]:
            shown += os.read(ours, 65536)
        port = re.search(rb"listening on 127\.0\.0\.1:(\d+)", shown)
        assert port is not None
        with FakeAgent.joining(host="node-a").dial("127.0.0.1", int(port[1])):
            assert process.wait(PATIENCE) == 0
    with suppress(OSError):  # how the end of a terminal shows
        while data := os.read(ours, 65536):
            shown += data
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())
    assert "finished: ok" in text
    assert re.search(r"node-a +0 ", text)
