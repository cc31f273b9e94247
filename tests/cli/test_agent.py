"""The command `agent`: its settings, what it refuses, what it prints and how it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from joinproto.agent import NEWEST_FIRST
from joinproto.cli import main
from joinproto.errors import Stopped
from joinproto.keys import Salt
from joinproto.messages import Abort, Accept, Hello, Reject, WorldFormed
from joinproto.runtime import gpus, persist
from joinproto.runtime.inventory import Inventory
from joinproto.runtime.spec import AgentSpec
from joinproto.testing.fakes import FakeController
from joinproto.testing.script import Admit, Close, Expect, ExpectExits, Say, WaitEnd
from joinproto.testing.stage import Step
from tests.support.roles import NoGpus, agent
from tests.support.signals import unheeded

DIGITS = "00112233445566778899aabbccddeeff"
SALT = Salt.from_hex(DIGITS)
OTHER = Salt(b"sixteen bytes ok")
SPEC = AgentSpec(
    host="of-spec",
    controller_host="c.lan",
    controller_port=7000,
    salt=OTHER,
    local_devices=(1, 2),
    libtorch="cu126",
    dataset_sig=b"d" * 32,
    run_id="r1",
    data_path="/data",
    gpu_ram_share=0.25,
    model_sig=b"m" * 32,
)
WORLD = WorldFormed(envelope_hex=b'{"controller":{}}'.hex())


@pytest.fixture(autouse=True)
def no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "Detection", NoGpus)


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    with unheeded():
        yield


def run(*options: str, command: tuple[str, ...] = ("true",)) -> int:
    """Run an agent in this process."""
    return main(["agent", *options, "--", *command])


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A port that nobody is to dial."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def where(sock: socket.socket) -> str:
    return "{}:{}".format(*sock.getsockname())


def dialed(listener: socket.socket) -> bool:
    listener.setblocking(False)
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


# -- settings ---------------------------------------------------------------------------------


def check(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, str]:
    """What `--check` prints."""
    assert run("--check", *options, command=("sh", "-c", "echo 'a b'")) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return dict(re.split(r": +", line, maxsplit=1) for line in shown.out.splitlines())


def test_checking_prints_what_the_spec_comes_to(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLODL_INTERNAL_AGENT_JSON", SPEC.to_hex())
    assert check(capsys) == {
        "host": "of-spec",
        "controller": "c.lan:7000",
        "admission": "pre-shared salt (hidden)",
        "wire": ", then ".join(map(str, NEWEST_FIRST)),
        "device 1": "cuda:1",
        "device 2": "cuda:2",
        "libtorch": "cu126",
        "dataset signature": b"d".hex() * 32,
        "run id": "r1",
        "model signature": b"m".hex() * 32,
        "data path": "/data",
        "GPU RAM share": "0.25",
        "timeout scale": "1",
        "grace": "5 s",
        "directory": os.getcwd(),
        "environment": "(nothing added)",
        "command": "sh -c 'echo '\"'\"'a b'\"'\"''",
        "relay command": "sh -c 'echo '\"'\"'a b'\"'\"''",
        "prefix": "'[{host}:{device}:r{rank}] '",
        "only ranks": "(all)",
        "stalled output": "block",
        "log directory": "(none)",
        "torch": "(none)",
        "events": "(none)",
        "status file": "(none)",
        "service manager": "(none)",
    }


OPTIONS = {
    ("--host", "ours"): {"host": "ours"},
    ("--controller", "[::1]:9"): {"controller": "[::1]:9"},
    ("--devices", "7"): {"device 7": "cuda:7"},
    ("--wire", "2"): {"wire": "2"},
    ("--wire", "4"): {"wire": "4"},
    ("--libtorch", "rocm6"): {"libtorch": "rocm6"},
    ("--dataset-sig", "AB" * 32): {"dataset signature": "ab" * 32},
    ("--run-id", "r2"): {"run id": "r2"},
    ("--model-sig", "cd" * 32): {"model signature": "cd" * 32},
    ("--data-path", "/more"): {"data path": "/more"},
    ("--gpu-ram-share", "0.5"): {"GPU RAM share": "0.5"},
    ("--net-timeout-scale", "0.5"): {"timeout scale": "0.5"},
    ("--grace", "0"): {"grace": "0 s"},
    ("--cwd", "/"): {"directory": "/"},
    ("--env", "A=1", "--env", "B="): {"environment": "A, B"},
    ("--relay-command", "sh 'x y'"): {"relay command": "sh 'x y'"},
    ("--nccl-version", "2.27.3"): {},
    ("--persist",): {},
    ("--prefix", "{rank:>3}| "): {"prefix": "'{rank:>3}| '"},
    ("--prefix", ""): {"prefix": "''"},
    ("--no-prefix",): {"prefix": "(none)"},
    ("--only-ranks", "0,3-5"): {"only ranks": "0,3-5"},
    ("--on-stalled-output", "drop"): {"stalled output": "drop"},
    ("--log-dir", "."): {"log directory": ".", "log size, total": "64 MiB, 1024 MiB"},
    ("--log-dir", ".", "--log-size", "0.5", "--log-total", "3"): {
        "log directory": ".",
        "log size, total": "0.5 MiB, 3 MiB",
    },
    ("--torch",): {"torch": "MASTER_ADDR of the controller, MASTER_PORT of the controller"},
    ("--torch", "--master-addr", "m", "--master-port", "9"): {
        "torch": "MASTER_ADDR m, MASTER_PORT 9"
    },
    ("--events", "json"): {"events": "on stderr"},
    ("--events", "json", "--events-fd", "1"): {"events": "on descriptor 1"},
    ("--status-file", "s"): {"status file": "s"},
}


@pytest.mark.parametrize(("options", "changed"), OPTIONS.items())
def test_options_win_over_the_spec(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    changed: dict[str, str],
) -> None:
    monkeypatch.setenv("FLODL_INTERNAL_AGENT_JSON", SPEC.to_hex())
    before = check(capsys)
    after = check(capsys, *options)
    if any(name.startswith("device ") for name in changed):
        before = {name: value for name, value in before.items() if "device " not in name}
    assert after == before | changed


def test_options_alone_are_enough(capsys: pytest.CaptureFixture[str]) -> None:
    shown = check(capsys, "--controller", "127.0.0.1:7000", "--devices", "0")
    assert shown["host"] == os.uname().nodename
    assert shown["admission"] == "open"
    names = ("libtorch", "dataset signature", "run id", "model signature", "data path")
    assert {shown[name] for name in (*names, "GPU RAM share")} == {"(none)"}


def test_checking_dials_nothing(
    capsys: pytest.CaptureFixture[str], listener: socket.socket
) -> None:
    check(capsys, "--controller", where(listener), "--devices", "0", "--persist")
    assert not dialed(listener)


def test_checking_finds_a_command_on_the_path_of_the_ranks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    program = tmp_path / "program"
    program.touch(mode=0o755)
    settings = ("--check", "--controller", "c:1", "--devices", "0")
    assert run(*settings, command=("program",)) == 2
    assert run(*settings, command=("./program",)) == 2
    assert run(*settings, "--env", f"PATH={tmp_path}", command=("program",)) == 0
    assert run(*settings, "--cwd", str(tmp_path), command=("./program",)) == 0
    assert run(*settings, "--relay-command", "./missing", command=(str(program),)) == 2
    told = capsys.readouterr().err.splitlines()
    assert told == [
        "joinproto agent: command 'program' is not there or may not be executed",
        "joinproto agent: command './program' is not there or may not be executed",
        "joinproto agent: relay command './missing' is not there or may not be executed",
    ]


# -- the salt ---------------------------------------------------------------------------------


def joins_with(salt: Salt, *options: str) -> None:
    """Check that an agent with these options holds this salt."""
    with FakeController.admitting(salt=salt) as fake:
        settings = ("--controller", fake.address, "--host", "a", "--devices", "0")
        assert run(*settings, *options) == 0


def test_the_salt_from_a_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "salt"
    path.write_text(f"{DIGITS}\n")
    path.chmod(0o600)
    joins_with(SALT, "--salt-file", str(path))
    assert "can be read by every user" not in capfd.readouterr().err
    path.chmod(0o644)
    joins_with(SALT, "--salt-file", str(path))
    shown = capfd.readouterr()
    assert shown.err.count("can be read by every user") == 1
    assert DIGITS not in shown.out + shown.err


def test_the_salt_from_a_descriptor() -> None:
    read, write = os.pipe()
    os.write(write, DIGITS.encode())
    os.close(write)
    joins_with(SALT, "--salt-fd", str(read))


def test_the_salt_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOINPROTO_SALT", DIGITS)
    joins_with(SALT)


def test_the_salt_of_the_spec_wins_over_that_of_the_environment_and_an_option_over_both(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FLODL_INTERNAL_AGENT_JSON", SPEC.to_hex())
    monkeypatch.setenv("JOINPROTO_SALT", "ff" * 16)
    joins_with(OTHER)
    path = tmp_path / "salt"
    path.write_text(DIGITS)
    joins_with(SALT, "--salt-file", str(path))


# -- what is refused --------------------------------------------------------------------------

GOOD = {"--controller": "127.0.0.1:1", "--devices": "0"}
BAD: dict[tuple[str, ...], str] = {
    ("--controller", "c"): "names no port",
    ("--controller", "c:"): "the port is a number from 0 to 65535",
    ("--controller", "c:x"): "the port is a number",
    ("--controller", "c:65536"): "the port is a number from 0 to 65535",
    ("--controller", ":1"): "names no host",
    ("--controller", "::1:1"): "write an IPv6 address in brackets, as [::1]:7000",
    ("--devices", ""): "--devices '': write 'all', or numbers from 0 to 255, as 0,1",
    ("--devices", "x"): "--devices 'x'",
    ("--devices", "0,,1"): "--devices '0,,1'",
    ("--devices", "0, 1"): "--devices '0, 1'",
    ("--devices", "256"): "--devices '256'",
    ("--devices", "٣"): "--devices '٣'",
    ("--devices", "1" * 5000): "--devices '111",
    ("--devices", "-1"): "--devices '-1'",
    ("--devices", "all"): "no GPU found (no NVIDIA software); name the devices to do without",
    ("--salt-file", "missing"): "salt file 'missing' cannot be read: No such file or directory",
    ("--salt-file", "/dev/null"): "salt file '/dev/null': the salt is empty",
    ("--salt-fd", "999"): "salt descriptor 999 cannot be read: Bad file descriptor",
    ("--salt-fd", "x"): "--salt-fd: invalid int value: 'x'",
    ("--salt-fd", "3", "--salt-file", "x"): "--salt-file and --salt-fd exclude each other",
    ("--dataset-sig", "zz"): "--dataset-sig: a signature is 64 hex digits",
    ("--dataset-sig", "ab" * 31): "--dataset-sig: a signature is 64 hex digits",
    ("--model-sig", "ab" * 33): "--model-sig: a signature is 64 hex digits",
    ("--nccl-version", "2.27"): "--nccl-version '2.27': write it as 2.27.3",
    ("--nccl-version", "a.b.c"): "--nccl-version 'a.b.c'",
    ("--nccl-version", "4294967296.0.0"): "nccl_version is 4294967296",
    ("--nccl-version", "1.2." + "3" * 5000): "--nccl-version '1.2.33",
    ("--gpu-ram-share", "much"): "--gpu-ram-share: invalid float value: 'much'",
    ("--gpu-ram-share", "nan"): "gpu_ram_share",
    ("--wire", "3"): "--wire: invalid choice: '3'",
    ("--grace", "-1"): "--grace '-1': write a number of seconds, 0 or more",
    ("--grace", "nan"): "--grace 'nan'",
    ("--grace", "soon"): "--grace 'soon'",
    ("--grace", "86400"): "--grace '86400'",
    ("--net-timeout-scale", "0"): "--net-timeout-scale: '0' is not between 0.1 and 1000",
    ("--net-timeout-scale", "nan"): "--net-timeout-scale: 'nan' is not between",
    ("--net-timeout-scale", "1,5"): "--net-timeout-scale: '1,5' is not a number",
    ("--env", "A"): "--env 'A': write NAME=VALUE",
    ("--env", "=1"): "--env '=1': write NAME=VALUE",
    ("--cwd", "/dev/null"): "--cwd /dev/null: no such directory",
    ("--relay-command", ""): "--relay-command is empty",
    ("--relay-command", "'"): "--relay-command: No closing quotation",
    ("--host", "\udcff"): "host must be a string of valid UTF-8",
    ("--prefix", "{x}"): "--prefix '{x}': it may hold {host}, {device}, {rank}, ",
    ("--prefix", "x", "--no-prefix"): "--prefix and --no-prefix exclude each other",
    ("--only-ranks", ""): "--only-ranks ''",
    ("--only-ranks", "x"): "--only-ranks 'x': write numbers and ranges, as 0,3-5",
    ("--only-ranks", "5-0"): "--only-ranks '5-0': 5-0 is no range of ranks",
    ("--on-stalled-output", "x"): "--on-stalled-output: invalid choice: 'x'",
    ("--log-dir", "/dev/null"): "--log-dir /dev/null: ",
    ("--log-dir", ""): "--log-dir : ",
    ("--log-size", "1"): "--log-size and --log-total go with --log-dir",
    ("--log-total", "1"): "--log-size and --log-total go with --log-dir",
    ("--log-dir", ".", "--log-size", ""): "--log-size '': write a number of MiB",
    ("--log-dir", ".", "--log-size", "0"): "--log-size '0': write a number of MiB",
    ("--log-dir", ".", "--log-total", "x"): "--log-total 'x': write a number of MiB",
    ("--events", "xml"): "--events: invalid choice: 'xml'",
    ("--events-fd", "5"): "--events-fd goes with --events json",
    ("--events", "json", "--events-fd", "999"): "--events-fd 999: no such descriptor is open",
    ("--events", "json", "--events-fd", "-1"): "--events-fd -1: no such descriptor is open",
    ("--events", "json", "--events-fd", "9" * 30): "999: no such descriptor is open",
    ("--status-file", "/dev/null/x"): "--status-file /dev/null/x: files cannot be made in /dev/nu",
    ("--status-file", ""): "--status-file is empty",
    ("--master-addr", "x"): "--master-addr and --master-port go with --torch",
    ("--torch", "--master-addr", ""): "--master-addr is empty",
    ("--torch", "--master-port", "0"): "--master-port 0: a port is from 1 to 65535",
    ("--hots", "a"): "unrecognized arguments: --hots a",
    ("--control", "c:1"): "unrecognized arguments: --control c:1",
    ("stray",): "unrecognized arguments: stray",
}


def complaint(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that was written, and nothing else was."""
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    assert line.startswith("joinproto agent: ")
    return str(line)


@pytest.mark.parametrize("also", [(), ("--check",)], ids=["to run", "to check"])
@pytest.mark.parametrize(("options", "told"), BAD.items(), ids=lambda part: str(part)[:40])
def test_settings_that_cannot_be_used_are_told_in_one_line(
    capfd: pytest.CaptureFixture[str],
    listener: socket.socket,
    options: tuple[str, ...],
    told: str,
    also: tuple[str, ...],
) -> None:
    good = {**GOOD, "--controller": where(listener)}
    # argparse takes the last one.
    settings = [word for pair in good.items() for word in pair]
    assert run(*settings, *options, *also, command=("true",)) == 2
    assert told in complaint(capfd)
    assert not dialed(listener)


VARIABLES = {
    ("FLODL_INTERNAL_AGENT_JSON", ""): "FLODL_INTERNAL_AGENT_JSON holds no spec",
    ("FLODL_INTERNAL_AGENT_JSON", "xy"): "FLODL_INTERNAL_AGENT_JSON is not hex",
    ("FLODL_INTERNAL_AGENT_JSON", b"{}".hex()): "FLODL_INTERNAL_AGENT_JSON holds no spec",
    ("JOINPROTO_SALT", ""): "JOINPROTO_SALT: the salt is empty",
    ("JOINPROTO_SALT", "s3cr3t!"): "JOINPROTO_SALT: the salt is not made of hex digits",
    ("JOINPROTO_SALT", "sécret"): "JOINPROTO_SALT: the salt is not made of hex digits",
    **{
        (name, ""): f"{name} is set: it belongs to another role than the agent's; unset it"
        for name in (
            "FLODL_INTERNAL_RELAY_JSON",
            "FLODL_INTERNAL_FULL_CLUSTER_JSON",
            "FLODL_INTERNAL_CLUSTER_JSON",
            "FLODL_INTERNAL_LOCAL_RANK",
        )
    },
}


@pytest.mark.parametrize(("variable", "told"), VARIABLES.items(), ids=lambda part: str(part)[:40])
def test_variables_that_cannot_be_used_are_told_in_one_line(
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    listener: socket.socket,
    variable: tuple[str, str],
    told: str,
) -> None:
    monkeypatch.setenv(*variable)
    assert run("--controller", where(listener), "--devices", "0") == 2
    line = complaint(capfd)
    assert told in line
    assert not variable[1] or variable[1] not in line
    assert not dialed(listener)


def test_a_controller_must_be_named(capfd: pytest.CaptureFixture[str]) -> None:
    assert run("--devices", "0") == 2
    assert "no controller is named; give --controller HOST:PORT, or FLODL_IN" in complaint(capfd)


@pytest.mark.parametrize("words", [(), ("--",)])
def test_a_command_must_be_named(capfd: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    assert main(["agent", "--controller", "c:1", *words]) == 2
    assert complaint(capfd).endswith("there is no command to run; write it behind --")


def test_an_unusable_scale_is_told_once_and_1_is_used(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLODL_NET_TIMEOUT_SCALE", "nan")
    with FakeController.admitting() as fake:
        assert run("--controller", fake.address, "--devices", "0") == 0
    told = [line for line in capfd.readouterr().err.splitlines() if "SCALE" in line]
    assert told == [
        "joinproto agent: FLODL_NET_TIMEOUT_SCALE: 'nan' is not between 0.1 and 1000; using 1"
    ]


def test_help_says_where_the_settings_come_from(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent", "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage: joinproto agent [options] -- COMMAND [ARG ...]")
    assert "FLODL_INTERNAL_AGENT_JSON" in shown


# -- running ----------------------------------------------------------------------------------


def to(fake: FakeController, *options: str) -> tuple[str, ...]:
    return ("--controller", fake.address, "--host", "a", "--devices", "0", *options)


def test_the_controller_hears_what_the_options_say() -> None:
    with FakeController.admitting() as fake:
        options = to(fake, "--libtorch", "cu128", "--run-id", "r", "--nccl-version", "2.27.3")
        signatures = ("--dataset-sig", "ab" * 32, "--model-sig", "cd" * 32)
        assert run(*options, *signatures) == 0
    assert fake.hello == Hello(
        host="a",
        local_devices=(0,),
        gpus=("cuda:0",),
        libtorch="cu128",
        dataset_sig=b"\xab" * 32,
        run_id="r",
        nccl_version=(2, 27, 3),
        model_sig=b"\xcd" * 32,
    )


def test_ranks_and_relay_run_as_the_options_say(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    script = 'echo "$0 $1 $A $(pwd)"'
    with FakeController.admitting(relay=True, ranks=(3,)) as fake:
        options = to(
            fake, "--env", "A=b=c", "--cwd", str(tmp_path), "--relay-command", "echo 'x y'"
        )
        assert run(*options, command=("sh", "-c", script, "--", "--")) == 0
    out = capfd.readouterr().out.splitlines()
    assert sorted(out) == [f"[a:0:r3] -- -- b=c {tmp_path}", "[a:relay] x y"]


def test_a_rank_sees_none_of_the_agents_secrets(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with FakeController.admitting(salt=OTHER, relay=True) as fake:
        spec = AgentSpec(host="a", controller_host=fake.host, controller_port=fake.port, salt=OTHER)
        monkeypatch.setenv("FLODL_INTERNAL_AGENT_JSON", spec.to_hex())
        monkeypatch.setenv("JOINPROTO_SALT", DIGITS)
        assert run("--devices", "0", command=("env",)) == 0
    shown = capfd.readouterr()
    names = {line.partition("] ")[2].partition("=")[0] for line in shown.out.splitlines()}
    assert not names & {"FLODL_INTERNAL_AGENT_JSON", "JOINPROTO_SALT"}
    assert DIGITS not in shown.out + shown.err


def test_more_is_told_when_that_is_asked_for(capfd: pytest.CaptureFixture[str]) -> None:
    with FakeController.admitting(wires=(2,)) as fake:
        assert run(*to(fake)) == 0
    assert "trying wire 2" not in capfd.readouterr().err
    with FakeController.admitting(wires=(2,)) as fake:
        assert run(*to(fake, "-v")) == 0
    assert "joinproto agent: no answer in wire 4; trying wire 2" in capfd.readouterr().err


ENDS: dict[str, tuple[list[Step], tuple[str, ...], int, str]] = {
    "rejected": ([Say(Reject(reason="full")), WaitEnd()], ("true",), 3, "by the controller: full"),
    "aborted early": ([Admit(), Say(Abort(reason="no")), WaitEnd()], ("true",), 1, "formed: no"),
    "lost early": (
        [Admit(), Close()],
        ("true",),
        1,
        "closed the connection before the world formed",
    ),
    "aborted": (
        [Admit(), Say(WORLD), Say(Abort(reason="no"))],
        ("sleep", "600"),
        1,
        "run aborted: no",
    ),
    "lost": ([Admit(), Say(WORLD), Close()], ("sleep", "600"), 1, "closed the connection while"),
    "no such command": ([Admit(), Say(WORLD), WaitEnd()], ("./x",), 2, "No such file or directory"),
    "a salt for openness": (
        [Say(Accept(ranks=(0,), formation_wait_secs=1)), WaitEnd()],
        ("true",),
        1,
        "disagree on the trust mode",
    ),
}


@pytest.mark.parametrize(("script", "command", "code", "told"), ENDS.values(), ids=ENDS)
def test_how_it_ends_is_its_exit_code(
    capfd: pytest.CaptureFixture[str],
    script: list[Step],
    command: tuple[str, ...],
    code: int,
    told: str,
) -> None:
    with FakeController([Expect(Hello), *script]) as fake:
        assert run(*to(fake), command=command) == code
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("joinproto agent: ")
    assert told in last


def test_nobody_to_dial_is_told_with_the_cause() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = where(closed)
    with agent("--controller", address, "--devices", "0", "-v") as process:
        process.wait_line("Connection refused; dialing again in 0.5 s")
        process.signal(signal.SIGTERM)
        assert process.wait_exit() == 143


def test_a_signal_ends_it_while_gpus_are_looked_for(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[bool] = []

    class Slow(NoGpus):
        def result(self) -> Inventory:
            os.kill(os.getpid(), signal.SIGTERM)
            raise AssertionError("the signal was not heeded")

        def close(self) -> None:
            closed.append(True)

    monkeypatch.setattr(gpus, "Detection", Slow)
    assert run("--controller", "127.0.0.1:1") == 143
    assert complaint(capfd) == "joinproto agent: stopped by SIGTERM"
    assert closed == [True]


# -- again and again --------------------------------------------------------------------------


def test_an_agent_that_persists_says_when_it_dials_again_and_can_be_ended() -> None:
    script = [Expect(Hello), Admit(), Close()]
    with FakeController(script) as fake, agent(*to(fake), "--persist") as process:
        process.wait_line(r"before the world formed; dialing again in 5 s$")
        process.signal(signal.SIGTERM)
        assert process.wait_exit() == 143
        assert process.lines("stderr")[-1] == "joinproto agent: stopped by SIGTERM"


def test_an_agent_that_persists_dials_again_after_a_run_too() -> None:
    with FakeController.admitting() as fake, agent(*to(fake), "--persist") as process:
        process.wait_line("the run is over; dialing again in 5 s$")
        process.signal(signal.SIGINT)
        assert process.wait_exit() == 130


def test_every_stint_of_an_agent_that_persists_is_a_whole_agent(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status = tmp_path / "status.json"
    pauses: list[float] = []

    def pause(seconds: float, notifier: object) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise Stopped("SIGTERM", 15)

    monkeypatch.setattr(persist, "pause", pause)
    world = [Expect(Hello), Admit(), Say(WORLD), ExpectExits(), WaitEnd()]
    with FakeController([*world, *world]) as fake:
        assert run(*to(fake, "--persist", "--status-file", str(status))) == 143
    assert pauses == [5, 10]
    assert json.loads(status.read_text())["restarts"] == 1
    assert capfd.readouterr().err.count("finished cleanly") == 2


def test_an_agent_that_persists_ends_where_no_restart_helps() -> None:
    script = [Expect(Hello), Admit(), Say(WORLD), WaitEnd()]
    with (
        FakeController(script) as fake,
        agent(*to(fake), "--persist", command=("./missing",)) as process,
    ):
        assert process.wait_exit() == 2
