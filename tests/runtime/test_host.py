"""A host of real processes: what they are given, what they say, and that none outlives its agent.

The controller is a fake on a thread; what it says is all that the agent knows.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from joinproto import codec
from joinproto.errors import (
    Aborted,
    CommandNotFound,
    HelperLost,
    JoinprotoError,
    LinkLost,
    RelayDied,
    SpawnFailed,
    Stopped,
)
from joinproto.grammar import WIRES
from joinproto.machines.agent import Plan
from joinproto.messages import Abort, Hello, RankExited, WorldFormed
from joinproto.runtime import descendants, output, streams
from joinproto.runtime import host as module
from joinproto.runtime.host import HostRunner, require_descriptors
from joinproto.runtime.job import Job
from joinproto.runtime.loop import Loop
from joinproto.runtime.output import Output
from joinproto.runtime.signals import STOPS
from joinproto.testing.fakes import FakeController
from joinproto.testing.script import (
    AcceptAndClose,
    Admit,
    Call,
    Close,
    Drain,
    Expect,
    ExpectExits,
    Reset,
    Say,
    SendBytes,
    Until,
    WaitEnd,
)
from joinproto.testing.stage import Stage, Step, Waiting
from tests.support.python import is_gone, wait_until
from tests.support.roles import shell
from tests.support.signals import unheeded

NEWEST_FIRST = tuple(sorted(WIRES, reverse=True))
WORLD = WorldFormed(envelope_hex=b'{"controller":{}}'.hex())
SLEEPING = """
echo $$ > pid.$FLODL_INTERNAL_LOCAL_RANK.part
mv pid.$FLODL_INTERNAL_LOCAL_RANK.part pid.$FLODL_INTERNAL_LOCAL_RANK
exec sleep 600
"""
"""A rank that says who it is in a file, and runs on."""


class Host:
    """An agent in this process, whose output goes into files.

    `command` is what ranks run, and the relay too unless `relay` says otherwise; they run in
    `folder`, and so does the shell when a command is a str.
    """

    def __init__(
        self,
        folder: Path,
        address: tuple[str, int],
        command: str | Sequence[str] = ":",
        *,
        relay: str | Sequence[str] | None = None,
        devices: tuple[int, ...] = (0,),
        wires: tuple[int, ...] = NEWEST_FIRST,
        scale: float = 1.0,
        grace: float = 5.0,
        verbose: bool = False,
        **job: Any,
    ) -> None:
        self.folder = folder
        self._out, self._err = folder / "out", folder / "err"
        plan = Plan(
            hello=Hello(host="a", local_devices=devices), wires=wires, scale=scale, grace=grace
        )
        environ = {"PATH": os.environ["PATH"]}
        job = {"directory": str(folder), "environ": environ, "extra": {}, **job}
        self.job = Job(
            controller=address,
            command=_argv(command),
            relay_command=None if relay is None else _argv(relay),
            **job,
        )
        self.loop = Loop()
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.output = Output(
                self.loop,
                out=out.fileno(),
                err=err.fileno(),
                resumed=lambda: self.runner.resume(),
            )
        self.runner = HostRunner(self.loop, plan, self.job, self.output, verbose=verbose)

    def run(self) -> JoinprotoError | None:
        """Run to the end."""
        try:
            return self.runner.run()
        finally:
            self.output.close()
            self.loop.close()

    @property
    def out(self) -> list[str]:
        """The lines on standard output."""
        return self._out.read_text().splitlines()

    @property
    def err(self) -> list[str]:
        """The lines on standard error."""
        return self._err.read_text().splitlines()

    @property
    def said(self) -> str:
        """What the agent itself said."""
        own = [line for line in self.err if line.startswith("joinproto agent: ")]
        return "\n".join(own)


def _argv(command: str | Sequence[str]) -> Sequence[str]:
    return shell(command) if isinstance(command, str) else command


def run(
    folder: Path, fake: FakeController, *args: Any, **options: Any
) -> tuple[JoinprotoError | None, Host]:
    """Run an agent that dials the fake, to its end."""
    host = Host(folder, (fake.host, fake.port), *args, **options)
    return host.run(), host


def admit(*more: Step, world: WorldFormed = WORLD) -> list[Step]:
    """A script that forms a world."""
    return [Expect(Hello), Admit(), Say(world), *more]


def up(folder: Path, *ranks: int) -> Until:
    """Wait until these ranks, by their place on the host, run `SLEEPING`."""
    return Until(lambda: all((folder / f"pid.{rank}").exists() for rank in ranks))


def pids(folder: Path) -> list[int]:
    return [int(path.read_text()) for path in folder.glob("pid.?")]


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    with unheeded():
        yield


def send(number: int) -> Call:
    """Send this process a signal, which its main thread gets."""
    return Call(lambda: os.kill(os.getpid(), number))


# -- a run ------------------------------------------------------------------------------------


def test_ranks_run_with_their_device_and_their_lines_say_whose_they_are(tmp_path: Path) -> None:
    script = 'echo "$FLODL_INTERNAL_LOCAL_RANK on $CUDA_VISIBLE_DEVICES"; echo oh >&2'
    with FakeController.admitting(ranks=(8, 3), codes={8: 0, 3: 0}) as fake:
        error, host = run(tmp_path, fake, script, devices=(5, 2))
    assert error is None
    assert sorted(host.out) == ["[a:2:r3] 1 on 2", "[a:5:r8] 0 on 5"]
    told = [line for line in host.err if line.startswith("[")]
    assert sorted(told) == ["[a:2:r3] oh", "[a:5:r8] oh"]
    assert "joined as rank(s) 8, 3; waiting up to 60 s for the world to form" in host.said
    assert "world formed; starting 2 rank(s)" in host.said
    assert host.said.endswith("host 'a' finished cleanly")


def test_a_failed_rank_is_not_the_agents_failure(tmp_path: Path) -> None:
    script = "exit $((7 * FLODL_INTERNAL_LOCAL_RANK))"
    with FakeController.admitting(codes={0: 0, 1: 7, 2: 14}) as fake:
        error, host = run(tmp_path, fake, script, devices=(0, 1, 2))
    assert error is None
    assert "host 'a' finished DEGRADED: 2 of 3 rank(s) failed" in host.said
    assert [line.partition(" after ")[0] for line in host.said.splitlines()[-2:]] == [
        "joinproto agent: rank 1 (device 1) exited with 7",
        "joinproto agent: rank 2 (device 2) exited with 14",
    ]


def test_how_a_failed_rank_ended_is_told_in_full(tmp_path: Path) -> None:
    with FakeController.admitting(codes={0: -9}) as fake:
        error, host = run(tmp_path, fake, "echo why >&2; kill -9 $$")
    assert error is None
    told, last = host.said.splitlines()[-2:]
    assert "rank 0 (device 0) was killed by SIGKILL after " in told
    assert last == "joinproto agent:   | why"


def test_the_relay_is_started_first(tmp_path: Path) -> None:
    with FakeController.admitting(relay=True) as fake:
        error, host = run(
            tmp_path,
            fake,
            "until test -e relay; do sleep 0.01; done; echo rank",
            relay="echo relay; echo x > relay",
            devices=(1,),
        )
    assert error is None
    assert sorted(host.out) == ["[a:1:r0] rank", "[a:relay] relay"]
    assert "world formed; starting a relay and 1 rank(s)" in host.said


def test_standard_input_is_empty(tmp_path: Path) -> None:
    with FakeController.admitting() as fake:
        error, host = run(tmp_path, fake, "cat; echo end")
    assert (error, host.out) == (None, ["[a:0:r0] end"])


def test_the_older_wire_is_tried_when_the_newer_gets_no_answer(tmp_path: Path) -> None:
    with FakeController.admitting(wires=(2,), envelope="") as fake:
        error, host = run(tmp_path, fake, 'echo "<$FLODL_INTERNAL_CLUSTER_JSON>"', verbose=True)
    assert (error, host.out) == (None, ["[a:0:r0] <>"])
    assert "no answer in wire 4; trying wire 2" in host.said


def test_an_attempt_that_is_hung_up_on_is_made_again(tmp_path: Path) -> None:
    script = [AcceptAndClose(len(WIRES)), *admit(ExpectExits(), WaitEnd())]
    with FakeController(script) as fake:
        error, host = run(tmp_path, fake, verbose=True)
    assert error is None
    assert "before any answer to Hello; dialing again in 0.5 s" in host.said


# -- starting: all or nothing -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "kind", "told"),
    [
        (["./missing"], CommandNotFound, " could not be started: ./missing: No such file"),
        (["/"], CommandNotFound, " could not be started: /: Permission denied"),
        (["sh", "a\0b"], SpawnFailed, "an argument or a variable cannot be passed on"),
    ],
)
def test_a_command_that_cannot_be_started(
    tmp_path: Path, command: list[str], kind: type[JoinprotoError], told: str
) -> None:
    with FakeController(admit(WaitEnd())) as fake:
        error, host = run(tmp_path, fake, command, devices=(0, 1))
    assert type(error) is kind
    assert told in str(error)
    assert "tearing down host 'a'" in host.said


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with FakeController(admit(WaitEnd())) as fake:
        error, _ = run(tmp_path, fake, directory=str(tmp_path / "missing"))
    assert isinstance(error, CommandNotFound)
    assert "missing: No such file or directory" in str(error)


def test_an_envelope_that_cannot_be_read(tmp_path: Path) -> None:
    script = admit(WaitEnd(), world=WorldFormed(envelope_hex="no hex"))
    with FakeController(script) as fake:
        error, _ = run(tmp_path, fake)
    assert isinstance(error, SpawnFailed)
    assert error.exit_code == 1
    assert "the envelope from the controller is unusable" in str(error)


def test_what_had_been_started_does_not_outlive_a_rank_that_cannot_be(tmp_path: Path) -> None:
    relay = "echo $$ > pid.r.part; mv pid.r.part pid.r; echo up; exec sleep 600"
    world = WorldFormed(envelope_hex=WORLD.envelope_hex, relay_spec_hex="")
    with FakeController(admit(WaitEnd(), world=world), wires=(2,)) as fake:
        error, _ = run(tmp_path, fake, ["./missing"], relay=relay, wires=(2,))
    assert isinstance(error, CommandNotFound)
    assert all(is_gone(pid) for pid in pids(tmp_path))


def test_an_abort_before_all_are_started_starts_no_more(tmp_path: Path) -> None:
    def both(stage: Stage) -> bytes:
        connection = stage.connections[-1]
        wire = stage.wire_of(connection)
        return b"".join(
            codec.encode_frame(
                codec.encode_payload(message, wire=wire), key=connection.key, wire=wire, kind=7
            )
            for message in (WORLD, Abort(reason="changed my mind"))
        )

    class Together(Step):
        """World and Abort in one segment."""

        def play(self, stage: Stage) -> Waiting[None]:
            yield from SendBytes(both(stage)).play(stage)

    script: list[Step] = [Expect(Hello), Admit(), Together(), WaitEnd()]
    with FakeController(script) as fake:
        error, host = run(tmp_path, fake, "echo up; exec sleep 600", devices=(0, 1, 2))
    assert isinstance(error, Aborted)
    assert host.out == []


@pytest.mark.parametrize(
    ("soft", "hard", "raised"),
    [
        (10_000, 10_000, False),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, False),
        (256, 10_000, True),
        (256, resource.RLIM_INFINITY, True),
    ],
)
def test_descriptors_for_all_children_are_seen_to_before_the_first(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, raised: bool
) -> None:
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limit: limits.append(limit))
    require_descriptors(200, logs=True)
    assert [600 < new <= 10_000 and kept == hard for new, kept in limits] == [True] * raised


def test_too_few_descriptors_for_all_children_are_told_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (256, 512))
    with pytest.raises(SpawnFailed, match=r"200 children need \d+ .* limit is 256: raise it"):
        require_descriptors(200, logs=True)


# -- teardown ---------------------------------------------------------------------------------


def aborted(error: JoinprotoError | None) -> bool:
    return isinstance(error, Aborted) and error.reason == "enough" and error.formed


def test_an_abort_kills_the_ranks_and_their_ends_are_told(tmp_path: Path) -> None:
    end = [
        up(tmp_path, 0, 1),
        Say(Abort(reason="enough")),
        ExpectExits({0: -15, 1: -15}),
        WaitEnd(),
    ]
    with FakeController(admit(*end)) as fake:
        error, host = run(tmp_path, fake, SLEEPING, devices=(0, 1))
    assert aborted(error)
    assert len(pids(tmp_path)) == 2
    assert all(is_gone(pid) for pid in pids(tmp_path))
    assert "tearing down host 'a': run aborted: enough" in host.said


def test_ranks_that_ignore_sigterm_share_one_grace(tmp_path: Path) -> None:
    stubborn = "trap '' TERM\n" + SLEEPING.replace("exec sleep 600", "while :; do sleep 600; done")
    end = [up(tmp_path, 0, 1, 2), Say(Abort(reason="enough")), ExpectExits(), WaitEnd()]
    with FakeController(admit(*end)) as fake:
        error, _ = run(tmp_path, fake, stubborn, devices=(0, 1, 2), grace=0.2)
    assert aborted(error)
    assert set(fake.exits.values()) == {-9}
    assert all(is_gone(pid) for pid in pids(tmp_path))


def test_without_a_grace_ranks_are_killed_at_once(tmp_path: Path) -> None:
    hosts: list[Host] = []
    # What a rank says comes through once the agent has heard of its start.
    heard = Until(lambda: hosts and hosts[0].out)
    end = [heard, Say(Abort(reason="enough")), ExpectExits({0: -9}), WaitEnd()]
    with FakeController(admit(*end)) as fake:
        script = "echo up; exec sleep 600"
        hosts.append(Host(tmp_path, (fake.host, fake.port), script, grace=0.0))
        error = hosts[0].run()
    assert aborted(error)


@pytest.mark.parametrize(
    ("step", "cause"),
    [
        (Close(), "closed the connection while ranks ran"),
        (Reset(), "failed (Connection reset by peer) while ranks ran"),
        (SendBytes(bytes(24)), "failed (magic: "),
        (Say(Abort(reason="a"), tag=bytes(8)), "failed (tag: "),
        (Say(Abort(reason="a"), kind=1), "failed (kind: "),
    ],
    ids=["closed", "reset", "garbled", "another tag", "another kind"],
)
def test_a_link_that_is_lost_takes_the_ranks_with_it(
    tmp_path: Path, step: Step, cause: str
) -> None:
    with FakeController(admit(up(tmp_path, 0), step)) as fake:
        error, _ = run(tmp_path, fake, SLEEPING)
    assert isinstance(error, LinkLost)
    assert cause in str(error)
    assert all(is_gone(pid) for pid in pids(tmp_path))


def test_a_stream_that_is_cut_inside_a_frame_is_lost(tmp_path: Path) -> None:
    half = Say(Abort(reason="a" * 40))

    class Half(Step):
        def play(self, stage: Stage) -> Waiting[None]:
            connection = stage.connections[-1]
            whole = half.frame(Abort(reason="a" * 40), stage, connection)
            yield from SendBytes(whole[:-1]).play(stage)

    with FakeController(admit(up(tmp_path, 0), Half(), Close())) as fake:
        error, _ = run(tmp_path, fake, SLEEPING)
    assert isinstance(error, LinkLost)
    assert "truncated" in str(error)


def test_messages_that_mean_nothing_are_ignored(tmp_path: Path) -> None:
    strange = [
        Say(b"\x63"),
        Say(Hello(host="b", local_devices=())),
        Say(RankExited(rank=0, code=1)),
        Say(WORLD),
        Call(lambda: (tmp_path / "go").touch()),
    ]
    with FakeController(admit(*strange, ExpectExits({0: 4}), WaitEnd())) as fake:
        error, host = run(
            tmp_path, fake, "until test -e go; do sleep 0.01; done; exit 4", verbose=True
        )
    assert error is None
    assert "ignored a message from the controller: payload: " in host.said
    for name in ("Hello", "RankExited", "WorldFormed"):
        assert f"ignored {name} from the controller" in host.said


def test_a_relay_that_dies_takes_the_ranks_with_it(tmp_path: Path) -> None:
    relay = "until test -e pid.0; do sleep 0.01; done; exit 3"
    world = WorldFormed(envelope_hex="", relay_spec_hex="")
    script = admit(ExpectExits({0: -15}), WaitEnd(), world=world)
    with FakeController(script, wires=(2,)) as fake:
        error, _ = run(tmp_path, fake, SLEEPING, relay=relay, wires=(2,))
    assert isinstance(error, RelayDied)
    assert str(error) == "the relay ended with 3 while 1 rank(s) ran"
    assert all(is_gone(pid) for pid in pids(tmp_path))


def test_a_relay_may_end_well_before_the_ranks(tmp_path: Path) -> None:
    rank = 'while kill -0 "$(cat relay)"; do sleep 0.01; done'
    world = WorldFormed(envelope_hex="", relay_spec_hex="")
    script = admit(ExpectExits({0: 0}), WaitEnd(), world=world)
    with FakeController(script, wires=(2,)) as fake:
        error, _ = run(tmp_path, fake, rank, relay="echo $$ > relay", wires=(2,))
    assert error is None


def test_an_exit_is_told_although_a_grandchild_holds_the_pipe(tmp_path: Path) -> None:
    script = "sleep 600 & echo $! > pid.g; echo hi; exit 3"
    with FakeController.admitting(codes={0: 3}) as fake:
        error, host = run(tmp_path, fake, script, scale=0.1)
    assert (error, host.out) == (None, ["[a:0:r0] hi"])
    assert all(is_gone(pid) for pid in pids(tmp_path))


def test_the_helper_takes_the_ranks_with_it(tmp_path: Path) -> None:
    """Between an agent and its ranks stands a process, their parent."""
    hosts: list[Host] = []
    # What they say comes through once the agent has heard of them.
    heard = Until(lambda: hosts and len(hosts[0].out) == 2)

    def kill() -> None:
        os.kill(int((tmp_path / "parent").read_text()), signal.SIGKILL)

    script = "echo $PPID > parent\necho up" + SLEEPING
    end = [up(tmp_path, 0, 1), heard, Call(kill), ExpectExits({0: -9, 1: -9}), WaitEnd()]
    with FakeController(admit(*end)) as fake:
        host = Host(tmp_path, (fake.host, fake.port), script, devices=(0, 1))
        hosts.append(host)
        error = host.run()
    assert isinstance(error, HelperLost)
    assert "tearing down host 'a'" in host.said
    assert [is_gone(pid) for pid in pids(tmp_path)] == [True, True]


def test_without_its_helper_an_agent_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise SpawnFailed("the helper process: Resource temporarily unavailable")

    monkeypatch.setattr(module, "Children", refuse)
    with pytest.raises(SpawnFailed):
        Host(tmp_path, ("127.0.0.1", 1)).run()


def test_orphans_are_not_handed_to_the_program_any_more_when_it_is_over(tmp_path: Path) -> None:
    with FakeController.admitting() as fake:
        run(tmp_path, fake)
    was_not = descendants.become_subreaper()
    descendants.cease_to_be_subreaper()
    assert was_not


@pytest.mark.parametrize("running", [True, False], ids=["while a rank runs", "while it starts"])
def test_whatever_ends_a_run_leaves_no_rank_behind(tmp_path: Path, running: bool) -> None:
    def fault(_: int) -> None:
        raise ZeroDivisionError

    read, write = os.pipe()
    wait = [up(tmp_path, 0)] if running else []
    script = admit(*wait, Call(lambda: os.write(write, b"x")), Drain())
    try:
        with FakeController(script) as fake:
            host = Host(tmp_path, (fake.host, fake.port), SLEEPING)
            host.loop.watch(read, 1, fault)
            with pytest.raises(ZeroDivisionError):
                host.run()
    finally:
        os.close(read)
        os.close(write)
    assert len(pids(tmp_path)) >= running
    assert all(is_gone(pid) for pid in pids(tmp_path))


# -- signals ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", STOPS)
def test_a_signal_ends_the_host(tmp_path: Path, number: signal.Signals) -> None:
    end = [up(tmp_path, 0, 1), send(number), ExpectExits({0: -15, 1: -15}), WaitEnd()]
    with FakeController(admit(*end)) as fake:
        error, host = run(tmp_path, fake, SLEEPING, devices=(0, 1))
    assert isinstance(error, Stopped)
    assert error.exit_code == 128 + number
    assert f"tearing down host 'a': stopped by {number.name}" in host.said
    assert all(is_gone(pid) for pid in pids(tmp_path))


def test_the_second_signal_waits_for_no_grace(tmp_path: Path) -> None:
    stubborn = "trap 'touch asked' TERM\n" + SLEEPING.replace(
        "exec sleep 600", "while :; do sleep 0.01; done"
    )
    asked = Until((tmp_path / "asked").exists)
    end = [up(tmp_path, 0), send(signal.SIGTERM), asked, send(signal.SIGINT)]
    with FakeController(admit(*end, ExpectExits({0: -9}), WaitEnd())) as fake:
        error, host = run(tmp_path, fake, stubborn, grace=600.0)
    assert isinstance(error, Stopped)
    assert error.signal_name == "SIGTERM"
    assert "SIGINT again: killing what is left" in host.said


def test_a_signal_ends_the_dialing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        address = closed.getsockname()
    host = Host(tmp_path, address, verbose=True)

    def interrupt() -> None:
        wait_until(lambda: "dialing again in 0.5 s" in host.said, "a failed attempt")
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=interrupt)
    thread.start()
    error = host.run()
    thread.join()
    assert isinstance(error, Stopped)
    assert "Connection refused; dialing again in 0.5 s" in host.said


def test_a_signal_ends_the_wait_for_an_answer(tmp_path: Path) -> None:
    with FakeController([Expect(Hello), send(signal.SIGHUP), WaitEnd()]) as fake:
        error, _ = run(tmp_path, fake)
    assert isinstance(error, Stopped)
    assert error.number == signal.SIGHUP


def test_a_signal_that_was_ignored_stays_ignored(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        go = Call(lambda: (tmp_path / "go").touch())
        with FakeController(admit(send(signal.SIGHUP), go, ExpectExits({0: 0}), WaitEnd())) as fake:
            error, _ = run(tmp_path, fake, "until test -e go; do sleep 0.01; done")
        assert error is None
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_that_the_program_has_another_use_for_ends_nothing(tmp_path: Path) -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, frame: came.append(number))
    try:
        go = Call(lambda: (tmp_path / "go").touch())
        script = admit(
            send(signal.SIGUSR1), Until(lambda: came), go, ExpectExits({0: 0}), WaitEnd()
        )
        with FakeController(script) as fake:
            error, _ = run(tmp_path, fake, "until test -e go; do sleep 0.01; done")
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert (error, came) == (None, [signal.SIGUSR1])


def test_on_another_thread_signals_are_left_alone(tmp_path: Path) -> None:
    ends: list[JoinprotoError | None] = []
    with FakeController.admitting() as fake:
        thread = threading.Thread(target=lambda: ends.append(run(tmp_path, fake)[0]))
        thread.start()
        thread.join()
    assert ends == [None]


# -- readers that stall -----------------------------------------------------------------------


class Pipe:
    """A pipe for an agent to write to, which nobody reads at first."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()

    def drain(self) -> bytes:
        """Read to the end."""
        parts = []
        while part := os.read(self.read_end, 1 << 20):
            parts.append(part)
        return b"".join(parts)

    def close(self) -> None:
        os.close(self.read_end)


@pytest.fixture
def narrow_pipes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pipes to readers hold little, so that a reader stalls soon."""
    monkeypatch.setattr(output, "PIPE_BYTES", 1 << 16)


class PipedHost(Host):
    """A host whose standard output is a pipe."""

    def __init__(self, pipe: Pipe, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.output.close()
        err = os.open(self._err, os.O_WRONLY)
        self.output = Output(
            self.loop, out=pipe.write_end, err=err, resumed=lambda: self.runner.resume()
        )
        os.close(err)
        os.close(pipe.write_end)
        plan = self.runner.connection.context.plan
        self.runner = HostRunner(self.loop, plan, self.job, self.output)


def test_a_reader_that_stalls_makes_ranks_wait_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, stalls = 40_000, 1 << 16
    monkeypatch.setattr(streams, "STALLED_BYTES", stalls)
    pipe = Pipe()
    got: list[bytes] = []

    def read() -> None:
        wait_until(lambda: host.output.held_bytes > stalls, "a reader that stalls")
        held.append(host.output.held_bytes)
        got.append(pipe.drain())

    held: list[int] = []
    with FakeController.admitting(codes={0: 0, 1: 0}) as fake:
        script = f"seq 1000000 {1_000_000 + lines - 1} | sed 's/$/ {'x' * 47}/'"
        host = PipedHost(pipe, tmp_path, (fake.host, fake.port), script, devices=(0, 1))
        reader = threading.Thread(target=read)
        reader.start()
        error = host.run()
        reader.join()
    pipe.close()
    assert error is None
    # One more read of each rank at most, of the four megabytes.
    assert held[0] < stalls + (2 << 19)
    per_rank = [
        [line for line in got[0].splitlines() if line.startswith(b"[a:%d:" % rank)]
        for rank in (0, 1)
    ]
    for rank, told in enumerate(per_rank):
        numbers = [int(line.split()[1]) for line in told]
        assert numbers == list(range(1_000_000, 1_000_000 + lines)), rank


@pytest.mark.usefixtures("narrow_pipes")
def test_a_reader_that_never_reads_hangs_nobody(tmp_path: Path) -> None:
    pipe = Pipe()
    with FakeController.admitting(codes={0: 0}) as fake:
        script = "head -c 600000 /dev/zero"
        host = PipedHost(pipe, tmp_path, (fake.host, fake.port), script, scale=0.1)
        assert host.run() is None
        # All that the rank wrote was read, and most of it is still here.
        assert host.output.held_bytes > 1 << 18
    pipe.close()


@pytest.mark.usefixtures("narrow_pipes")
def test_a_reader_that_never_reads_keeps_no_rank_alive(tmp_path: Path) -> None:
    pipe = Pipe()
    hosts: list[Host] = []
    stalled = Until(lambda: hosts and hosts[0].output.held_bytes > streams.STALLED_BYTES)
    end = [stalled, Say(Abort(reason="enough")), ExpectExits({0: -15}), WaitEnd()]
    with FakeController(admit(*end)) as fake:
        command = "head -c 9000000 /dev/zero | tr '\\0' '\\n'"
        hosts.append(PipedHost(pipe, tmp_path, (fake.host, fake.port), command, scale=0.1))
        error = hosts[0].run()
    pipe.close()
    assert aborted(error)


@pytest.mark.slow
@pytest.mark.usefixtures("narrow_pipes")
def test_a_reader_that_is_slow_gets_all_of_it(tmp_path: Path) -> None:
    """The ranks have ended long before their output has been taken."""
    pipe = Pipe()
    got: list[bytes] = []
    ended = threading.Event()

    def read() -> None:
        ended.wait()
        got.append(pipe.drain())

    script = admit(ExpectExits({0: 0}), WaitEnd(), Call(ended.set))
    with FakeController(script) as fake:
        command = "head -c 600000 /dev/zero"
        host = PipedHost(pipe, tmp_path, (fake.host, fake.port), command, scale=0.5)
        reader = threading.Thread(target=read)
        reader.start()
        error = host.run()
        reader.join()
    pipe.close()
    assert error is None
    assert got[0].count(b"\0") == 600_000
