"""What went wrong in the field, with real processes: our agent, our controller, or both.

Each test names the case it is of; what is right there is what it asserts.
"""

from __future__ import annotations

import re
import signal
import time
from pathlib import Path

import pytest

from interop.processes import Watched, clean_environment
from joinproto import codec
from joinproto.cli import main
from joinproto.grammar import JOIN_MAGIC
from joinproto.keys import OPEN, Salt
from joinproto.limits import HEADER_BYTES, MAX_PAYLOAD_BYTES
from joinproto.messages import Abort, Accept, Hello, Reject, WorldFormed
from joinproto.runtime.descendants import descendants
from joinproto.runtime.spec import AgentSpec
from joinproto.testing.fakes import FakeAgent, FakeController
from joinproto.testing.script import (
    AcceptAndClose,
    Admit,
    Call,
    Close,
    Drip,
    Expect,
    ExpectExits,
    ReportExits,
    Say,
    WaitEnd,
)
from joinproto.testing.stage import Step
from tests.support.python import is_gone, wait_until
from tests.support.roles import OURS, ControllerProcess, agent, controller, shell
from tests.support.sockets import answer, dial
from tests.support.tcp import black_hole

WORLD = WorldFormed(envelope_hex=b'{"controller":{}}'.hex())
TENTH = {"FLODL_NET_TIMEOUT_SCALE": "0.1"}
DIGITS = "00112233445566778899aabbccddeeff"
SALT = Salt.from_hex(DIGITS)


def to(where: str, host: str = "a", devices: str = "0") -> tuple[str, ...]:
    """The options of an agent that dials there."""
    return ("--controller", where, "--host", host, "--devices", devices)


def last(process: Watched) -> str:
    """The last line that a process said, which is never a traceback."""
    lines = process.lines("stderr")
    assert not any("Traceback" in line or "Exception ignored" in line for line in lines), lines
    return lines[-1]


def limited(limit: str, *argv: str) -> tuple[str, ...]:
    """The command line of a program that runs under a limit of the shell."""
    return (*shell(f'ulimit {limit}; exec "$@"'), "sh", *argv)


# -- A3, A7: how ranks end, and how the agent does --------------------------------------------

PYTHON = f"exec {OURS[0]} -I -S -c"
ENDS = {
    "kill -9 $$": -9,
    "kill -SEGV $$": -11,
    "kill -TERM $$": -15,
    "sh -c 'kill -9 $$'; exit $?": 137,
    f"{PYTHON} 'import sys; sys.exit(256)'": 0,
    f"{PYTHON} 'import sys; sys.exit(-1)'": 255,
    f"""{PYTHON} 'import sys; sys.exit("boom")'""": 1,
    "exit 0": 0,
    "exit 126": 126,
    "exit 255": 255,
}


def test_a7_every_way_to_end_has_its_code() -> None:
    cases = "\n".join(f"{number}) {end} ;;" for number, end in enumerate(ENDS))
    script = f"case $FLODL_INTERNAL_LOCAL_RANK in\n{cases}\nesac"
    devices = ",".join(str(number) for number in range(len(ENDS)))
    with (
        controller(ranks=len(ENDS)) as process,
        agent(*to(process.where, devices=devices), command=shell(script)) as host,
    ):
        assert host.wait_exit() == 0
        events = process.ended(1)
    codes = {event["rank"]: event["code"] for event in events if event["event"] == "rank_exited"}
    assert codes == dict(enumerate(ENDS.values()))
    failed = sum(1 for code in ENDS.values() if code)
    assert f"finished DEGRADED: {failed} of {len(ENDS)} rank(s) failed" in "\n".join(host.lines())


@pytest.mark.slow
def test_a7_as_many_failed_ranks_as_an_exit_code_has_values() -> None:
    devices = ",".join(str(number) for number in range(256))
    with (
        FakeController.admitting(codes=dict.fromkeys(range(256), 1), timeout=30.0) as fake,
        agent(*to(fake.address, devices=devices), command=("false",)) as host,
    ):
        assert host.wait_exit() == 0
    assert any("DEGRADED: 256 of 256 rank(s) failed" in line for line in host.lines())


AGENT_ENDS: dict[str, tuple[list[Step], int, str]] = {
    "did its job": ([Admit(), Say(WORLD), ExpectExits(), WaitEnd()], 0, "finished cleanly"),
    "aborted": ([Admit(), Say(Abort(reason="no")), WaitEnd()], 1, "the world formed: no"),
    "lost": ([Admit(), Close()], 1, "closed the connection before the world formed"),
    "rejected": ([Say(Reject(reason="full")), WaitEnd()], 3, "by the controller: full"),
}


@pytest.mark.parametrize(("script", "code", "told"), AGENT_ENDS.values(), ids=AGENT_ENDS)
def test_a7_the_codes_of_an_agent(script: list[Step], code: int, told: str) -> None:
    with (
        FakeController([Expect(Hello), *script]) as fake,
        agent(*to(fake.address), command=("true",)) as host,
    ):
        assert host.wait_exit() == code
        assert told in last(host)


def test_a7_the_code_of_an_agent_that_a_restart_does_not_help() -> None:
    with agent("--devices", "0") as host:
        assert host.wait_exit() == 2
        assert len(host.lines()) == 1


def test_a7_a_rank_that_cannot_be_run_is_not_tried_again() -> None:
    with (
        FakeController([Expect(Hello), Admit(), Say(WORLD), WaitEnd()]) as fake,
        agent(*to(fake.address), command=("./missing",)) as host,
    ):
        assert host.wait_exit() == 2
        assert last(host).endswith(
            "rank 0 could not be started: ./missing: No such file or directory"
        )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a3_a_signal_to_the_agent_leaves_nothing_behind(number: signal.Signals) -> None:
    script = [Expect(Hello), Admit(), Say(WORLD), ExpectExits(), WaitEnd()]
    with (
        FakeController(script) as fake,
        agent(*to(fake.address, devices="0,1"), command=shell("echo up; sleep 600")) as host,
    ):
        for rank in range(2):
            host.wait_line(rf"^\[a:{rank}:r{rank}\] up$")
        # The helper, two shells, two sleeps.
        wait_until(lambda: len(descendants(host.pid)) == 5, "all of the family")
        family = descendants(host.pid)
        host.signal(number)
        assert host.wait_exit() == 128 + number
        fake.join()
        assert fake.exits == {0: -15, 1: -15}
    assert all(is_gone(pid) for pid in family)
    assert any(f"stopped by {number.name}" in line for line in host.lines("stderr"))


def test_a3_a_host_under_nohup_outlives_its_terminal(tmp_path: Path) -> None:
    go = tmp_path / "go"
    rank = shell(f"echo up; until test -e {go}; do sleep 0.01; done")
    with FakeController(
        [Expect(Hello), Admit(), Say(WORLD), ExpectExits({0: 0}), WaitEnd()]
    ) as fake:
        argv = (*OURS, "agent", *to(fake.address), "--", *rank)
        with Watched(("nohup", *argv), environment=clean_environment()) as host:
            host.wait_line(r"^\[a:0:r0\] up$")
            host.signal(signal.SIGHUP)
            go.touch()
            assert host.wait_exit() == 0


# -- A6: a start that fails -------------------------------------------------------------------


def test_a6_too_few_descriptors_for_the_ranks() -> None:
    devices = ",".join(str(number) for number in range(32))
    argv = (*OURS, "agent", *to("{}", devices=devices), "--", *shell("echo up; sleep 600"))
    with FakeController([Expect(Hello), Admit(), Say(WORLD), WaitEnd()]) as fake:
        argv = tuple(word.replace("{}", fake.address) for word in argv)
        with Watched(limited("-n 40", *argv), environment=clean_environment()) as host:
            assert host.wait_exit() == 1
    assert "32 children need" in last(host)
    assert "the limit is 40: raise it" in last(host)
    assert host.lines("stdout") == []


def test_a6_a_relay_does_not_outlive_ranks_that_cannot_be_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    relay = f"sh -c 'echo $$ > {pid}.part; mv {pid}.part {pid}; exec sleep 600'"
    world = WorldFormed(envelope_hex="", relay_spec_hex="")
    options = ("--relay-command", relay, "--wire", "2")
    with (
        FakeController([Expect(Hello), Admit(), Say(world), WaitEnd()], wires=(2,)) as fake,
        agent(*to(fake.address), *options, command=("./missing",)) as host,
    ):
        assert host.wait_exit() == 2
    assert all(is_gone(int(path.read_text())) for path in tmp_path.glob("pid"))


# -- C1, C7: a controller that stalls ---------------------------------------------------------

ACCEPT = Accept(ranks=(0,), salt_hex=DIGITS, formation_wait_secs=0)

STALLS: dict[str, list[Step]] = {
    "no answer": [Expect(Hello), WaitEnd()],
    "half an answer": [Expect(Hello), Drip(ACCEPT, chunk=10, stop_after=2), WaitEnd()],
    "an answer in drops": [Expect(Hello), Drip(ACCEPT, pause=0.4, stop_after=9), WaitEnd()],
}


@pytest.mark.slow
@pytest.mark.parametrize("script", STALLS.values(), ids=STALLS)
def test_c1_an_agent_waits_for_an_answer_only_so_long(script: list[Step]) -> None:
    with (
        FakeController(script, timeout=20.0) as fake,
        agent(*to(fake.address), environment=TENTH) as host,
    ):
        assert host.wait_exit() == 1
        dialing, ended = host.timed_lines("stderr")
        # 30 s, of which the scale leaves a tenth.
        assert 2.9 < ended.at - dialing.at < 6
        assert last(host).endswith("did not answer the Hello in time")


@pytest.mark.long
def test_c1_an_agent_waits_for_its_world_only_so_long() -> None:
    """The margin behind what the controller announces is 30 s, whatever the scale."""
    with (
        FakeController([Expect(Hello), Say(ACCEPT), WaitEnd()], timeout=50.0) as fake,
        agent(*to(fake.address), environment=TENTH) as host,
    ):
        host.wait_line("joined as rank")
        assert host.wait_exit(within=45) == 1
        assert last(host).endswith("did not form the world in time")


@pytest.mark.slow
def test_c1_a_connection_that_never_comes_about() -> None:
    with black_hole() as port, agent(*to(f"127.0.0.1:{port}"), environment=TENTH) as host:
        assert host.wait_exit() == 1
        dialing, ended = host.timed_lines("stderr")
        # A budget of 3 s, and an attempt of 1 s may begin at its very end.
        assert 1.4 < ended.at - dialing.at < 8
        assert last(host).endswith("timed out trying to connect")


RUNS: list[Step] = [Expect(Hello), Admit(), Say(WORLD), ExpectExits(), WaitEnd()]


# -- C4: somebody else accepts ----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("reset", [False, True], ids=["FIN", "RST"])
def test_c4_a_stand_in_for_the_controller_is_no_answer(reset: bool) -> None:
    times: list[float] = []
    took = Call(lambda: times.append(time.monotonic()))
    # With a version to find out, an attempt is two dials.
    closed = AcceptAndClose(1, reset=reset)
    script = [closed, closed, took, closed, closed, took, *RUNS]
    with (
        FakeController(script) as fake,
        agent(*to(fake.address), "-v", command=("true",)) as host,
    ):
        assert host.wait_exit() == 0
    joined = next(line.at for line in host.timed_lines() if "joined as rank" in line.text)
    if not reset:
        # A reset may come before the Hello, and then is a connection that never stood.
        assert times[1] - times[0] > 0.49
        assert joined - times[1] > 0.99
    assert joined - times[0] < 8
    pauses = [line for line in host.lines() if "dialing again in" in line]
    assert 2 <= len(pauses) <= 4


# -- C5: whoever finds the port ---------------------------------------------------------------

HELLO = codec.encode(Hello(host="b", local_devices=(0,)), key=OPEN, wire=4)
CLAIMS = HELLO[: HEADER_BYTES - 4]


def claimed(size: int) -> bytes:
    """A dial whose header claims so many bytes."""
    return JOIN_MAGIC + CLAIMS + size.to_bytes(4, "little")


GARBAGE = {
    "connect and close": b"",
    "HTTP": b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
    "TLS": bytes.fromhex("1603010200010001fc0303") + bytes(range(240)),
    "4 GiB": claimed(2**32 - 1),
    "16 MiB and a byte": claimed(MAX_PAYLOAD_BYTES + 1),
    "another key": JOIN_MAGIC + HELLO[:8] + bytes(8) + HELLO[16:],
    "noise": bytes(range(256)) * 300,
}


def honest(process: ControllerProcess) -> None:
    """An honest host joins, and its world runs to its end."""
    with agent(*to(process.where, host="honest"), command=("true",)) as host:
        assert host.wait_exit() == 0


def test_c5_garbage_of_every_sort_does_not_keep_an_honest_host_out() -> None:
    with controller() as process:
        for name, data in GARBAGE.items():
            said = answer(dial(process.address, data)) if data else b""
            # Who speaks HTTP is answered in HTTP, and no more comes of it.
            assert said == b"" or (name == "HTTP" and said.startswith(b"HTTP/1.1 200 "))
        honest(process)
        events = process.ended(0)
    names = [event["event"] for event in events if event["event"] != "rejected"]
    assert names == ["listening", "joined", "formed", "rank_exited", "finished"]


def test_c5_what_is_only_announced_takes_no_memory() -> None:
    def peak() -> int:
        status = Path(f"/proc/{process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024

    with controller(ranks=2) as process:
        address = process.address
        before = peak()
        socks = [dial(address, claimed(MAX_PAYLOAD_BYTES) + bytes(1000)) for _ in range(20)]
        with agent(*to(process.where, host="first"), command=("true",)):
            process.wait_event("joined", host="first")
            # It came behind them, so by now they have been looked at.
            grown = peak() - before
            honest(process)
            process.ended(0)
        assert grown < MAX_PAYLOAD_BYTES
        assert [answer(sock) for sock in socks] == [b""] * 20


@pytest.mark.slow
def test_c5_two_thousand_of_them_fill_no_log() -> None:
    with controller() as process:
        address = process.address
        began = time.monotonic()
        sorts = list(GARBAGE.values())[:6]
        for number in range(2000):
            dial(address, sorts[number % len(sorts)]).close()
        seconds = time.monotonic() - began
        honest(process)
        events = process.ended(0)
    rejected = [event for event in events if event["event"] == "rejected"]
    assert 1 <= len(rejected) <= seconds + 3
    assert len(process.lines("stderr")) == len(rejected)
    told = sum(event["suppressed"] + 1 for event in rejected)
    assert told <= 2000


@pytest.mark.slow
def test_c5_running_out_of_descriptors_is_survived() -> None:
    argv = (*OURS, "controller", "--bind", "127.0.0.1:0", "--events", "json")
    world = ("--min-ranks", "1", "--target-ranks", "1")
    with ControllerProcess(
        limited("-n 20", *argv, *world), environment=clean_environment(**TENTH)
    ) as process:
        address = process.address
        socks = [dial(address) for _ in range(40)]
        process.wait_line(r"cannot accept a connection \(Too many open files\); dropping")
        # The silent ones make room, the oldest first.
        honest(process)
        for sock in socks:
            answer(sock)
        process.ended(0)
    assert sum("cannot accept" in line for line in process.lines("stderr")) < 5


@pytest.mark.slow
def test_c7_a_hello_in_drops_has_one_deadline() -> None:
    with ControllerProcess(
        (*OURS, "controller", "--bind", "127.0.0.1:0", "--min-ranks", "1", "--target-ranks", "1",
         "--events", "json"),
        environment=clean_environment(**TENTH),
    ) as process:  # fmt: skip
        began = time.monotonic()
        with FakeAgent(
            [Drip(Hello(host="b", local_devices=(0,)), pause=0.3, stop_after=5), WaitEnd()]
        ).dial(*process.address):
            process.wait_event("rejected", reason="no whole Hello in time")
            assert time.monotonic() - began < 2
        honest_drops = [Drip(HELLO), Expect(Accept), Expect(WorldFormed), ReportExits(), Close()]
        with FakeAgent(honest_drops).dial(*process.address):
            process.ended(0)


# -- F1: the scale of all deadlines -----------------------------------------------------------

SCALES = ["nan", "inf", "1e309", "-1", "0", "", "abc", "1,5", "1_0", "٣", "0.05", "1001"]


@pytest.mark.parametrize("scale", SCALES)
def test_f1_a_scale_that_is_none_is_told_once_and_1_is_used(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, scale: str
) -> None:
    monkeypatch.setenv("FLODL_NET_TIMEOUT_SCALE", scale)
    assert main(["agent", "--check", *to("c:1"), "--", "true"]) == 0
    shown = capfd.readouterr()
    assert re.search(r"^timeout scale: +1$", shown.out, re.MULTILINE)
    (line,) = shown.err.splitlines()
    assert line.startswith(f"joinproto agent: FLODL_NET_TIMEOUT_SCALE: {scale!r} is not ")
    assert line.endswith("; using 1")


@pytest.mark.parametrize(("scale", "shown"), [(" 2 ", "2"), ("0.1", "0.1"), ("1000", "1000")])
def test_f1_a_scale_is_taken(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, scale: str, shown: str
) -> None:
    monkeypatch.setenv("FLODL_NET_TIMEOUT_SCALE", scale)
    assert main(["agent", "--check", *to("c:1"), "--", "true"]) == 0
    printed = capfd.readouterr()
    assert printed.err == ""
    assert re.search(rf"^timeout scale: +{re.escape(shown)}$", printed.out, re.MULTILINE)


@pytest.mark.parametrize("role", ["agent", "controller"])
def test_f1_both_roles_start_with_a_scale_that_is_none(role: str) -> None:
    settings = ("--check", *to("c:1"), "--", "true")
    if role == "controller":
        settings = ("--bind", "127.0.0.1:0", "--min-ranks", "1")
    environment = clean_environment(FLODL_NET_TIMEOUT_SCALE="nan")
    with Watched((*OURS, role, *settings), environment=environment) as process:
        process.wait_line(
            f"joinproto {role}: FLODL_NET_TIMEOUT_SCALE: 'nan' is not between 0.1 and"
        )


# -- F2: the secret ---------------------------------------------------------------------------


def salt_file(folder: Path, content: str) -> str:
    path = folder / "salt"
    path.write_text(content)
    path.chmod(0o600)
    return str(path)


def everywhere(pids: list[int], name: str) -> bytes:
    """What /proc tells of these processes under one name."""
    return b"\n".join(Path(f"/proc/{pid}/{name}").read_bytes() for pid in pids)


@pytest.mark.parametrize("source", ["file", "environment", "spec"])
def test_f2_the_salt_is_seen_nowhere(tmp_path: Path, source: str) -> None:
    go = tmp_path / "go"
    rank = shell(f"echo up; until test -e {go}; do sleep 0.01; done")
    path = salt_file(tmp_path, f"{DIGITS}\n")
    with controller("--salt-file", path, "--relay", ranks=2) as process:
        options, environment = to(process.where, devices="0,1"), {}
        if source == "file":
            options = (*options, "--salt-file", path)
        elif source == "environment":
            environment["JOINPROTO_SALT"] = DIGITS
        else:
            address, port = process.address
            spec = AgentSpec(host="a", controller_host=address, controller_port=port, salt=SALT)
            environment = spec.to_env()
        with agent(*options, "-v", command=rank, environment=environment) as host:
            for who in ("relay", "0:r0", "1:r1"):
                host.wait_line(rf"^\[a:{who}\] up$")
            # Each of these three may have a `sleep` of its own at the moment.
            family = [pid for pid in descendants(host.pid) if not is_gone(pid)][:4]
            argvs = everywhere([process.pid, host.pid, *family], "cmdline")
            environments = everywhere(family, "environ")
            go.touch()
            assert host.wait_exit() == 0
        process.ended(0)
    assert environments.count(b"FLODL_INTERNAL_CLUSTER_JSON=") == 2
    assert b"FLODL_INTERNAL_AGENT_JSON" not in environments
    assert b"JOINPROTO_SALT" not in environments
    told = "\n".join([*host.lines(), *process.lines()]).encode()
    for shown in (argvs, environments, told):
        assert DIGITS.encode() not in shown
        assert repr(SALT.raw)[2:-1].encode() not in shown


def test_f2_the_end_of_a_line_is_no_part_of_the_salt(tmp_path: Path) -> None:
    path = salt_file(tmp_path, f"  {DIGITS}\r\n\n")
    with (
        controller(ranks=2, environment={"JOINPROTO_SALT": DIGITS}) as process,
        agent(*to(process.where, host="a"), "--salt-file", path, command=("true",)) as one,
        agent(
            *to(process.where, host="b"), command=("true",), environment={"JOINPROTO_SALT": DIGITS}
        ) as other,
    ):
        assert (one.wait_exit(), other.wait_exit()) == (0, 0)
        process.ended(0)


@pytest.mark.parametrize("content", ["", "\n", "s3cr3t!", "ß" * 32, DIGITS + "00"])
@pytest.mark.parametrize("role", ["agent", "controller"])
def test_f2_a_salt_that_is_none_is_refused_and_not_repeated(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, role: str, content: str
) -> None:
    path = salt_file(tmp_path, content)
    options = {
        "agent": (*to("c:1"), "--salt-file", path, "--", "true"),
        "controller": ("--bind", "127.0.0.1:0", "--min-ranks", "1", "--salt-file", path),
    }
    assert main([role, *options[role]]) == 2
    shown = capfd.readouterr()
    (line,) = shown.err.splitlines()
    assert line.startswith(f"joinproto {role}: salt file {path!r}: ")
    assert not content.strip() or content not in shown.out + shown.err


@pytest.mark.slow
def test_f2_an_agent_with_another_salt_is_told_what_it_may_be(tmp_path: Path) -> None:
    other = {"JOINPROTO_SALT": "ff" * 16, **TENTH}
    with (
        controller("--salt-file", salt_file(tmp_path, DIGITS)) as process,
        agent(*to(process.where), environment=other) as host,
    ):
        assert host.wait_exit() == 1
        assert "this most often means that the two salts differ" in last(host)
        assert {event["host"] for event in process.events("rejected")} == {None}
