"""What whole agents tell programs: events, a status file, and the service manager."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from interop.processes import Watched, clean_environment
from joinproto.messages import Abort, Hello, Reject, WorldFormed
from joinproto.testing.fakes import FakeController
from joinproto.testing.script import Admit, Close, Expect, ExpectExits, Say, Until, WaitEnd
from joinproto.testing.stage import Step
from tests.support import reports
from tests.support.python import PATIENCE, is_gone
from tests.support.reports import named, states, status, stint
from tests.support.roles import OURS, agent, shell
from tests.support.systemd import Manager

WORLD = WorldFormed(envelope_hex=b'{"controller":{}}'.hex())
EVENTS = ("--events", "json")


def to(fake: FakeController, *options: str, devices: str = "0") -> tuple[str, ...]:
    return ("--controller", fake.address, "--host", "a", "--devices", devices, *options)


def sorted_out(lines: list[str]) -> tuple[list[str], list[str]]:
    """Standard error as events and as lines of ranks; nothing else may be there."""
    own = [line for line in lines if line.startswith("{")]
    others = [line for line in lines if not line.startswith("{")]
    assert all(line.startswith("[") for line in others), others
    return own, others


def run(
    script: list[Step], *options: str, command: str = ":", code: int = 0, devices: str = "0"
) -> tuple[list[dict[str, Any]], list[str]]:
    """The events of an agent that the script plays with, and its ranks' lines on stderr."""
    with FakeController(script) as fake:
        settings = to(fake, *EVENTS, *options, devices=devices)
        with agent(*settings, command=shell(command)) as process:
            assert process.wait_exit() == code
            own, others = sorted_out(process.lines("stderr"))
    return stint(own), others


def world(*more: Step) -> list[Step]:
    return [Expect(Hello), Admit(), Say(WORLD), *more]


# -- events -----------------------------------------------------------------------------------


def test_an_agent_that_does_its_job() -> None:
    script = 'echo "oh $FLODL_INTERNAL_LOCAL_RANK" >&2; exit $((3 * FLODL_INTERNAL_LOCAL_RANK))'
    with FakeController.admitting(ranks=(4, 6), codes={4: 0, 6: 3}, relay=True) as fake:
        relay = ("--relay-command", "sh -c 'echo relayed >&2'")
        settings = to(fake, *EVENTS, *relay, devices="1,2")
        with agent(*settings, command=shell(script)) as process:
            assert process.wait_exit() == 0
            own, others = sorted_out(process.lines("stderr"))
            assert process.lines("stdout") == []
    events = stint(own)
    assert sorted(others) == ["[a:1:r4] oh 0", "[a:2:r6] oh 1", "[a:relay] relayed"]
    assert set(states(events)) >= {"Dialing", "Supervising", "Done"}
    assert states(events) == [state for state in reports.USUAL if state in states(events)]
    (joined,) = named(events, "joined")
    assert (joined["ranks"], joined["devices"], joined["wire"]) == ([4, 6], [1, 2], 4)
    spawned = [(each["rank"], each["device"]) for each in named(events, "spawned")]
    assert sorted(map(str, spawned)) == ["(4, 1)", "(6, 2)", "(None, None)"]
    codes = {each["rank"]: each["code"] for each in named(events, "exited")}
    assert codes == {None: 0, 4: 0, 6: 3}
    told = [each["text"] for each in named(events, "told")]
    assert told[0].startswith("host 'a' dialing ")
    assert "host 'a' finished DEGRADED: 1 of 2 rank(s) failed" in told
    # The summary, with the last words of the one that failed.
    assert any(re.fullmatch(r"rank 6 \(device 2\) exited with 3 after \d+\.\d s", t) for t in told)
    assert "  | oh 1" in told


def test_an_abort(tmp_path: Path) -> None:
    up = Until(lambda: (tmp_path / "up").exists())
    script = world(up, Say(Abort(reason="no")), ExpectExits({0: -15}), WaitEnd())
    events, _ = run(script, "--cwd", str(tmp_path), command="touch up; exec sleep 600", code=1)
    (stopping,) = named(events, "stopping")
    (exited,) = named(events, "exited")
    assert stopping["reason"] == "run aborted: no"
    assert events.index(stopping) < events.index(exited)
    assert (exited["signal"], exited["by_agent"]) == ("SIGTERM", True)
    assert states(events)[-1] == "Aborted"
    assert events[-1]["exit_code"] == 1
    told = [each["text"] for each in named(events, "told")]
    assert any(text.endswith("s (stopped by the agent)") for text in told)


ENDS: dict[str, tuple[list[Step], int, str]] = {
    "rejected": ([Expect(Hello), Say(Reject(reason="full")), WaitEnd()], 3, "controller: full"),
    "lost early": ([Expect(Hello), Admit(), Close()], 1, "before the world formed"),
    "lost": (world(Close()), 1, "closed the connection while ranks ran"),
    "an envelope that is none": (
        [Expect(Hello), Admit(), Say(WorldFormed(envelope_hex="no hex")), WaitEnd()],
        1,
        "the envelope from the controller is unusable",
    ),
}


@pytest.mark.parametrize(("script", "code", "told"), ENDS.values(), ids=ENDS)
def test_what_ended_it_is_in_the_last_event_alone(script: list[Step], code: int, told: str) -> None:
    events, others = run(script, command="exec sleep 600", code=code)
    assert others == []
    assert events[-1]["exit_code"] == code
    assert told in events[-1]["error"]
    assert states(events)[-1] == "Aborted"


def test_a_signal() -> None:
    with FakeController([Expect(Hello), WaitEnd()]) as fake, agent(*to(fake, *EVENTS)) as process:
        process.wait_line('"AwaitAccept"')
        process.signal(signal.SIGTERM)
        assert process.wait_exit() == 143
        events = stint(process.lines("stderr"))
    assert (events[-1]["exit_code"], events[-1]["error"]) == (143, "stopped by SIGTERM")


def test_a_command_that_is_not_there() -> None:
    with (
        FakeController(world(WaitEnd())) as fake,
        agent(*to(fake, *EVENTS), command=("./missing",)) as process,
    ):
        assert process.wait_exit() == 2
        events = stint(process.lines("stderr"))
    assert "./missing: No such file or directory" in events[-1]["error"]


def test_settings_that_stop_it_before_it_dials() -> None:
    """Found when the agent is under way already: no such device, and the like."""
    environment = {"CUDA_VISIBLE_DEVICES": "", "PATH": ""}
    settings = ("--controller", "127.0.0.1:1", "--host", "a", "--devices", "all", *EVENTS)
    with agent(*settings, environment=environment) as process:
        assert process.wait_exit() == 2
        events = stint(process.lines("stderr"))
    assert states(events) == []
    assert "name the devices to do without" in events[-1]["error"]


def test_a_stint_that_cannot_begin_is_told_in_an_event_of_its_own(tmp_path: Path) -> None:
    options = ("--controller", "127.0.0.1:1", "--devices", "0", "--status-file", str(tmp_path))
    with agent(*options, *EVENTS) as process:
        assert process.wait_exit() == 2
        (line,) = process.lines("stderr")
    told = reports.event(line)
    assert (told["event"], told["severity"]) == ("told", "error")
    assert told["text"] == f"--status-file {tmp_path}: Is a directory"


def test_events_on_a_descriptor_of_their_own_leave_standard_error_to_people() -> None:
    with FakeController.admitting() as fake:
        options = to(fake, *EVENTS, "--events-fd", "1")
        with agent(*options, command=shell("echo oh >&2")) as process:
            assert process.wait_exit() == 0
            events, lines = stint(process.lines("stdout")), process.lines("stderr")
    texts = [f"joinproto agent: {each['text']}" for each in named(events, "told")]
    assert [line for line in lines if line != "[a:0:r0] oh"] == texts


def test_the_descriptor_is_not_the_ranks() -> None:
    """A reader would wait for them too when the agent is gone."""
    read, write = os.pipe()
    with FakeController.admitting() as fake, open(read) as reader:
        argv = (*OURS, "agent", *to(fake, *EVENTS, "--events-fd", str(write)))
        done = subprocess.run(
            (*argv, "--", *shell("exec ls -l /proc/self/fd")),
            env=clean_environment(),
            pass_fds=(write,),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        own = os.readlink(f"/proc/self/fd/{write}")
        os.close(write)
        events = stint(reader)
    assert (done.returncode, events[-1]["exit_code"]) == (0, 0)
    assert "pipe:" in done.stdout
    assert own not in done.stdout


def test_output_that_is_dropped() -> None:
    """Nobody reads the ranks' output until they have ended."""
    read, write = os.pipe()
    script = "head -c 1500000 /dev/zero | tr '\\0' '\\n'"
    with FakeController.admitting() as fake, open(read) as reader:
        options = to(fake, *EVENTS, "--events-fd", str(write), "--on-stalled-output", "drop")
        process = subprocess.Popen(
            (*OURS, "agent", *options, "--net-timeout-scale", "0.1", "--", *shell(script)),
            env=clean_environment(),
            pass_fds=(write,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        os.close(write)
        lines = []
        for line in reader:
            lines.append(line)
            if '"exited"' in line:
                break
        out, _ = process.communicate(timeout=PATIENCE)
        events = stint([*lines, *reader])
    assert process.returncode == 0
    dropped = named(events, "dropped")
    assert dropped
    kept = out.count(b"\n")
    assert 0 < kept < 1_500_000
    assert kept + sum(each["lines"] for each in dropped) == 1_500_000
    size = len(b"[a:0:r0] \n")
    assert len(out) + sum(each["bytes"] for each in dropped) == 1_500_000 * size


# -- again and again --------------------------------------------------------------------------


def stints(lines: list[str]) -> tuple[list[list[dict[str, Any]]], list[dict[str, Any]]]:
    """The stints of an agent that persists, and what it said between them."""
    whole: list[list[dict[str, Any]]] = []
    between: list[dict[str, Any]] = []
    current: list[str] | None = None
    for line in lines:
        name = reports.event(line)["event"]
        if name == "started":
            assert current is None
            current = []
        if current is None:
            between.append(reports.event(line))
            continue
        current.append(line)
        if name == "finished":
            whole.append(stint(current))
            current = None
    assert current is None
    return whole, between


def test_every_line_of_an_agent_that_persists_is_an_event() -> None:
    with (
        FakeController([Expect(Hello), Admit(), Close()]) as fake,
        agent(*to(fake, *EVENTS), "--persist") as process,
    ):
        process.wait_line("dialing again in 5 s")
        process.signal(signal.SIGTERM)
        assert process.wait_exit() == 143
        whole, between = stints(process.lines("stderr"))
    assert [events[0]["restarts"] for events in whole] == [0]
    assert [(each["event"], each["severity"]) for each in between] == [
        ("told", "warning"),
        ("told", "error"),
    ]
    assert between[0]["text"].endswith("before the world formed; dialing again in 5 s")
    assert between[1]["text"] == "stopped by SIGTERM"


@pytest.mark.slow
def test_every_stint_of_an_agent_that_persists_is_whole() -> None:
    twice = [Expect(Hello), Admit(), Close(), Expect(Hello), Say(Reject(reason="x")), WaitEnd()]
    with FakeController(twice) as fake, agent(*to(fake, *EVENTS), "--persist") as process:
        process.wait_line("dialing again in 30 s")
        process.signal(signal.SIGINT)
        assert process.wait_exit() == 130
        whole, _ = stints(process.lines("stderr"))
    assert [events[0]["restarts"] for events in whole] == [0, 1]
    assert [events[-1]["exit_code"] for events in whole] == [1, 3]


# -- the status file --------------------------------------------------------------------------


def test_a_status_file_tells_of_everything(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    seen: list[dict[str, Any]] = []

    def supervising() -> bool:
        with suppress(FileNotFoundError):
            now = status(path)
            if now["ranks"] and all(rank["pid"] for rank in now["ranks"]):
                seen.append(now)
                (tmp_path / "go").touch()
        return bool(seen)

    script = world(Until(supervising), ExpectExits({0: 0, 1: -9}), WaitEnd())
    command = "until test -e go; do sleep 0.01; done; "
    command += "[ $FLODL_INTERNAL_LOCAL_RANK = 0 ] || kill -9 $$"
    with FakeController(script) as fake:
        options = to(fake, "--status-file", str(path), "--cwd", str(tmp_path), devices="0,3")
        with agent(*options, command=shell(command)) as process:
            assert process.wait_exit() == 0
            told = process.lines("stderr")
    during, after = seen[0], status(path)
    assert (during["state"], during["exit_code"]) == ("Supervising", None)
    assert during["pid"] == after["pid"] == process.pid
    assert [rank["code"] for rank in during["ranks"]] == [None, None]
    assert [(rank["rank"], rank["device"], rank["code"]) for rank in after["ranks"]] == [
        (0, 0, 0),
        (1, 3, -9),
    ]
    assert all(is_gone(rank["pid"]) for rank in after["ranks"])
    assert (after["state"], after["exit_code"], after["error"]) == ("Done", 0, None)
    assert any("rank 1 (device 3) was killed by SIGKILL after" in line for line in told)
    assert sorted(os.listdir(tmp_path)) == ["go", "status.json"]


# -- the service manager ----------------------------------------------------------------------


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    with Manager(str(tmp_path / "notify")) as manager:
        yield manager


def watched(fake: FakeController, manager: Manager, *options: str, command: str) -> Watched:
    """An agent with that service manager, which wants signs of life."""
    asked = manager.environment | {"WATCHDOG_USEC": "100000"}
    return agent(*to(fake, *options), command=shell(command), environment=asked)


def test_the_service_manager_hears_how_it_is(tmp_path: Path, manager: Manager) -> None:
    up = Until(lambda: (tmp_path / "go").exists())
    options = ("--cwd", str(tmp_path))
    with (
        FakeController(world(up, Say(Abort(reason="no")), ExpectExits(), WaitEnd())) as fake,
        watched(fake, manager, *options, command="env; exec sleep 600") as process,
    ):
        manager.wait(lambda said: "STATUS=supervising ranks" in said)
        for _ in range(3):
            manager.wait(lambda said: said == ["WATCHDOG=1"], after=len(manager.heard()))
        (tmp_path / "go").touch()
        assert process.wait_exit() == 1
        variables = [line.partition("] ")[2] for line in process.lines("stdout")]
    told = [said for said in manager.heard() if said != ["WATCHDOG=1"]]
    assert told[0] == ["READY=1", "STATUS=dialing the controller"]
    assert told[-3:] == [
        ["STOPPING=1", "STATUS=stopping: run aborted: no"],
        ["STATUS=aborted"],
        ["STOPPING=1", "STATUS=run aborted: no"],
    ]
    assert sum(said.count("READY=1") for said in told) == 1
    # Ranks would speak in the agent's name.
    assert any(line.startswith("CUDA_VISIBLE_DEVICES=") for line in variables)
    assert not [line for line in variables if line.startswith(("NOTIFY_SOCKET", "WATCHDOG_"))]


def test_the_service_manager_of_an_agent_that_persists_is_not_told_of_an_end(
    manager: Manager,
) -> None:
    with (
        FakeController([Expect(Hello), Admit(), Close()]) as fake,
        watched(fake, manager, "--persist", command=":") as process,
    ):
        manager.wait(lambda said: said[0].endswith("dialing again in 5 s"))
        manager.wait(lambda said: said == ["WATCHDOG=1"], after=len(manager.heard()))
        assert not any("STOPPING=1" in said for said in manager.heard())
        process.signal(signal.SIGTERM)
        assert process.wait_exit() == 143
