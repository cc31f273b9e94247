"""The agent as a library: what it sets out to do, and its three ways of joining a world."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from interop.processes import clean_environment
from joinproto import codec
from joinproto.agent import (
    NEWEST_FIRST,
    Devices,
    JoinedWorld,
    environment_scale,
    find_devices,
    join_and_spawn_local,
    join_world,
    plan_for,
    run_agent,
    run_persistently,
)
from joinproto.effects import Severity
from joinproto.errors import (
    Aborted,
    CommandNotFound,
    ConfigError,
    InvalidMessage,
    JoinprotoError,
    LinkLost,
    Rejected,
    Stopped,
    Unreachable,
)
from joinproto.grammar import WIRES
from joinproto.keys import Salt
from joinproto.messages import Abort, Hello, Reject, WorldFormed
from joinproto.runtime import gpus, persist
from joinproto.runtime.inventory import State, no_answer
from joinproto.runtime.notify import Notifier
from joinproto.runtime.spec import AgentSpec
from joinproto.testing.fakes import FakeController
from joinproto.testing.script import (
    Admit,
    Close,
    Expect,
    Say,
    SendBytes,
    Until,
    WaitEnd,
)
from joinproto.testing.stage import Stage, Step, Waiting
from tests.support.python import PATIENCE, is_gone
from tests.support.roles import NoGpus, RunningController, shell

SALT = Salt(b"sixteen bytes ok")
WORLD = WorldFormed(envelope_hex=b'{"controller":{}}'.hex())
SIGNATURE = b"s" * 32


@pytest.fixture(autouse=True)
def gpus_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> type[NoGpus]:
    """What looking for GPUs finds, whatever there is."""
    monkeypatch.setattr(gpus, "Detection", NoGpus)
    return NoGpus


def spec_for(fake: FakeController | RunningController, **fields: Any) -> AgentSpec:
    host, port = fake.address if isinstance(fake, RunningController) else (fake.host, fake.port)
    settings = {"host": "a", "local_devices": (0,), **fields}
    return AgentSpec(controller_host=host, controller_port=port, **settings)


def spec(**fields: Any) -> AgentSpec:
    return AgentSpec(**{"host": "a", "controller_host": "c", "controller_port": 1, **fields})


def said(capfd: pytest.CaptureFixture[str]) -> tuple[list[str], list[str]]:
    """What was written to standard output and error, as lines."""
    shown = capfd.readouterr()
    return shown.out.splitlines(), shown.err.splitlines()


# -- what it sets out to do -------------------------------------------------------------------


def test_devices_that_are_named_are_taken_as_they_are() -> None:
    found = find_devices(spec(local_devices=(3, 0)), scale=1.0)
    assert found == Devices(ids=(3, 0), labels=("cuda:3", "cuda:0"))


def test_a_host_without_devices_has_nothing_to_offer() -> None:
    with pytest.raises(ConfigError) as caught:
        find_devices(spec(), scale=1.0)
    assert caught.value.fault == "no-devices"


def test_what_is_odd_about_the_devices_is_told(
    gpus_of_this_machine: type[NoGpus], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpus_of_this_machine, "found", no_answer(State.FAILED, "it hung"))
    told: list[tuple[Severity, str]] = []
    find_devices(spec(local_devices=(0,)), scale=1.0, say=lambda *text: told.append(text))
    assert told == [(Severity.WARNING, "the GPUs could not be examined (it hung)")]


def test_a_plan_says_everything_that_the_spec_does() -> None:
    given = spec(
        salt=SALT, libtorch="cu128", dataset_sig=SIGNATURE, run_id="r", model_sig=b"m" * 32
    )
    devices = Devices(ids=(1,), labels=("L4",))
    plan = plan_for(given, devices, wires=[2], nccl_version=(2, 27, 3), grace=1.5, scale=0.5)
    assert plan.hello == Hello(
        host="a",
        local_devices=(1,),
        gpus=("L4",),
        libtorch="cu128",
        dataset_sig=SIGNATURE,
        run_id="r",
        nccl_version=(2, 27, 3),
        model_sig=b"m" * 32,
    )
    assert (plan.wires, plan.salt, plan.scale, plan.grace) == ((2,), SALT, 0.5, 1.5)


def test_a_plan_without_more_has_the_published_defaults() -> None:
    plan = plan_for(spec(), Devices(ids=(0,), labels=("",)))
    assert plan.hello.dataset_sig == bytes(32)
    assert plan.wires == NEWEST_FIRST == tuple(sorted(WIRES, reverse=True))
    assert (plan.salt, plan.scale, plan.grace) == (None, 1.0, 5.0)


def test_a_value_that_does_not_fit_the_wire() -> None:
    with pytest.raises(InvalidMessage):
        plan_for(spec(), Devices(ids=(0,), labels=("",)), nccl_version=(2**32, 0, 0))


@pytest.mark.parametrize(("text", "scale"), [("0.1", 0.1), (" 2 ", 2.0), ("nan", 1.0), ("", 1.0)])
def test_the_scale_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, text: str, scale: float
) -> None:
    told: list[str] = []
    monkeypatch.setenv("FLODL_NET_TIMEOUT_SCALE", text)
    assert environment_scale(lambda _, text: told.append(text)) == scale
    assert len(told) == (scale == 1.0)
    assert all(line.startswith("FLODL_NET_TIMEOUT_SCALE: ") for line in told)


# -- the whole agent --------------------------------------------------------------------------


def test_a_whole_agent(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    script = 'echo "$CUDA_VISIBLE_DEVICES $MORE $(pwd)"; exit 7'
    with FakeController.admitting(ranks=(4,), codes={4: 7}, salt=SALT) as fake:
        run_agent(
            spec_for(fake, local_devices=(6,), salt=SALT),
            shell(script),
            extra_env={"MORE": "yes"},
            cwd=str(tmp_path),
            scale=0.5,
        )
    out, err = said(capfd)
    assert out == [f"[a:6:r4] 6 yes {tmp_path}"]
    seconds = err[-1].split()[-2]
    opening = f"host 'a' dialing {fake.address} with device(s) 6 (admission: pre-shared salt)"
    assert err == [
        f"joinproto agent: {opening}",
        "joinproto agent: joined as rank(s) 4; waiting up to 60 s for the world to form",
        "joinproto agent: world formed; starting 1 rank(s)",
        "joinproto agent: host 'a' finished DEGRADED: 1 of 1 rank(s) failed",
        f"joinproto agent: rank 4 (device 6) exited with 7 after {seconds} s",
    ]
    assert fake.hello == Hello(host="a", local_devices=(6,), gpus=("cuda:6",))


def test_an_agent_with_a_relay_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    with FakeController.admitting(relay=True) as fake:
        run_agent(spec_for(fake), shell("echo rank"), relay_command=shell("echo relay"), wires=[2])
    assert sorted(said(capfd)[0]) == ["[a:0:r0] rank", "[a:relay] relay"]


def test_an_ipv6_controller_is_named_in_brackets(capfd: pytest.CaptureFixture[str]) -> None:
    fake = FakeController.admitting()
    try:
        fake.listen("::1")
    except OSError as error:
        pytest.skip(f"no IPv6 on loopback here: {error}")
    with fake:
        run_agent(spec_for(fake), shell(":"))
    assert f"dialing [::1]:{fake.port} with device(s) 0 (admission: open)" in said(capfd)[1][0]


def test_there_must_be_something_to_run() -> None:
    for start in (run_agent, join_and_spawn_local):
        with pytest.raises(ConfigError) as caught:
            start(spec(), ())
        assert caught.value.fault == "command"


def test_an_unusable_scale_is_told_and_1_is_used(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLODL_NET_TIMEOUT_SCALE", "fast")
    with FakeController.admitting() as fake:
        run_agent(spec_for(fake), shell(":"))
    told = [line for line in said(capfd)[1] if "FLODL_NET_TIMEOUT_SCALE" in line]
    assert told == ["joinproto agent: FLODL_NET_TIMEOUT_SCALE: 'fast' is not a number; using 1"]


def test_what_ends_an_agent_is_raised() -> None:
    with (
        FakeController([Expect(Hello), Say(Reject(reason="full")), WaitEnd()]) as fake,
        pytest.raises(Rejected, match="join rejected by the controller: full"),
    ):
        run_agent(spec_for(fake), shell(":"))


def test_children_find_the_locale_that_the_agent_was_given() -> None:
    code = (
        "import json, os; from joinproto.agent import inherited_environment as inherited;"
        " print(json.dumps([os.environ.get('LC_CTYPE'), inherited().get('LC_CTYPE')]))"
    )

    def locales(**given: str) -> Any:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=clean_environment(**given),
            capture_output=True,
            check=True,
            timeout=PATIENCE,
        )
        return json.loads(done.stdout)

    of_python, of_children = locales()
    if of_python is None:
        pytest.skip("this Python does not change a C locale")
    assert of_children is None
    assert locales(LC_CTYPE="C.UTF-8") == ["C.UTF-8", "C.UTF-8"]


# -- again and again --------------------------------------------------------------------------


class Stints:
    """Stints that end as a test says, and the pauses between them."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, ends: Sequence[JoinprotoError | None]
    ) -> None:
        self.ends = list(ends)
        self.pauses: list[float] = []
        self.told: list[str] = []
        self.notifier = Notifier({})
        monkeypatch.setattr(persist, "pause", self._pause)

    def _pause(self, seconds: float, notifier: Notifier) -> None:
        assert notifier is self.notifier
        self.pauses.append(seconds)

    def __call__(self, number: int) -> None:
        assert number == len(self.pauses)
        error = self.ends.pop(0)
        if error is not None:
            raise error

    def run(self) -> JoinprotoError:
        with pytest.raises(JoinprotoError) as caught:
            run_persistently(self, lambda _, text: self.told.append(text), self.notifier)
        assert self.ends == []
        return caught.value


def test_an_agent_that_persists_dials_again_after_a_run_and_after_failures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stop = Stopped("SIGTERM", 15)
    failures = [LinkLost("gone"), Aborted("no", formed=True), Unreachable("nobody")]
    stints = Stints(monkeypatch, [None, *failures, Rejected("full"), Rejected("full"), stop])
    assert stints.run() is stop
    assert stints.pauses == [5, 10, 20, 40, 30, 60]
    assert stints.told == [
        "the run is over; dialing again in 5 s",
        "gone; dialing again in 10 s",
        "run aborted: no; dialing again in 20 s",
        "nobody; dialing again in 40 s",
        "join rejected by the controller: full; dialing again in 30 s",
        "join rejected by the controller: full; dialing again in 60 s",
    ]


@pytest.mark.parametrize(
    "error", [ConfigError("wrong"), CommandNotFound("missing"), InvalidMessage("too long")]
)
def test_what_no_restart_cures_ends_it(
    monkeypatch: pytest.MonkeyPatch, error: JoinprotoError
) -> None:
    stints = Stints(monkeypatch, [None, error])
    assert stints.run() is error
    assert stints.pauses == [5]


# -- joining alone ----------------------------------------------------------------------------


def admit(*more: Step) -> list[Step]:
    """A script that admits a host of two devices to its world."""
    return [Expect(Hello), Admit(ranks=(7, 5)), *more]


def test_a_world_joined_is_handed_over_with_its_link() -> None:
    told: list[str] = []
    left = threading.Event()
    script = admit(Say(WORLD), Until(left.is_set), Say(Abort(reason="later")), WaitEnd())
    with FakeController(script) as fake:
        world = join_world(
            spec_for(fake, local_devices=(1, 0)), say=lambda _, text: told.append(text)
        )
        with world.link:
            assert (world.ranks, world.devices, world.wire) == ((7, 5), (1, 0), max(WIRES))
            assert (world.envelope_hex, world.relay_spec_hex) == (WORLD.envelope_hex, None)
            assert told[0].startswith("joined as rank(s) 7, 5; ")
            left.set()
            world.link.settimeout(PATIENCE)
            expected = codec.encode(Abort(reason="later"), key=world.salt, wire=world.wire)
            assert world.link.recv(len(expected), socket.MSG_WAITALL) == expected
    assert WORLD.envelope_hex not in repr(world)
    assert world.salt.hex() not in repr(world)


def test_a_pre_shared_salt_is_the_salt_of_the_world() -> None:
    with FakeController(admit(Say(WORLD), WaitEnd()), salt=SALT, wires=(2,)) as fake:
        world = join_world(spec_for(fake, local_devices=(1, 0), salt=SALT), wires=(2,))
        world.link.close()
    assert (world.salt, world.wire) == (SALT, 2)


def test_the_children_of_a_world() -> None:
    def children(relay: str | None) -> list[tuple[Any, ...]]:
        world = JoinedWorld(
            ranks=(7, 5),
            devices=(1, 0),
            salt=SALT,
            envelope_hex="e",
            relay_spec_hex=relay,
            wire=2,
            link=socket.socket(),
        )
        world.link.close()
        return [
            (each.slot, each.artifact_hex, each.rank, each.local_rank, each.device, each.wire)
            for each in world.spawns()
        ]

    ranks = [("e", 7, 0, 1, 2), ("e", 5, 1, 0, 2)]
    assert children(None) == [(0, *ranks[0]), (1, *ranks[1])]
    assert children("") == [(0, "", None, None, None, 2), (1, *ranks[0]), (2, *ranks[1])]


def refused(*steps: Step, devices: tuple[int, ...] = (0, 1), **options: Any) -> JoinprotoError:
    """What joining a world raises."""
    with FakeController([Expect(Hello), *steps]) as fake:
        with pytest.raises(JoinprotoError) as caught:
            join_world(spec_for(fake, local_devices=devices), **options)
        return caught.value


def test_a_world_that_there_is_none_of_is_told() -> None:
    rejected = refused(Say(Reject(reason="full")), WaitEnd())
    assert isinstance(rejected, Rejected)
    assert rejected.reason == "full"
    aborted = refused(Admit(), Say(Abort(reason="no")), WaitEnd())
    assert str(aborted) == "run aborted before the world formed: no"
    assert isinstance(refused(Admit(), Close()), LinkLost)


def test_an_abort_right_behind_the_world_is_not_swallowed() -> None:
    class Together(Step):
        """World and Abort in one segment."""

        def play(self, stage: Stage) -> Waiting[None]:
            connection = stage.connections[-1]
            key, wire = connection.key, stage.wire_of(connection)
            both = [codec.encode(each, key=key, wire=wire) for each in (WORLD, Abort(reason="no"))]
            yield from SendBytes(b"".join(both)).play(stage)

    error = refused(Admit(), Together(), WaitEnd())
    assert isinstance(error, Aborted)
    assert (error.reason, error.formed) == ("no", True)


# -- joining for a caller that runs the ranks -------------------------------------------------


@pytest.fixture
def forwarders() -> Iterator[None]:
    """Wait for the threads that forward output, which end behind their children."""
    yield
    for thread in threading.enumerate():
        if thread.name == "joinproto-forwarder":
            thread.join(PATIENCE)
            assert not thread.is_alive()


@pytest.mark.usefixtures("forwarders")
def test_a_launcher_runs_the_ranks_of_its_own_host(capfd: pytest.CaptureFixture[str]) -> None:
    with RunningController(min_ranks=2, target_ranks=2, local_hosts=["a"], relay=True) as run:
        relay, first, second = join_and_spawn_local(
            spec_for(run, local_devices=(4, 2)),
            shell('echo "on $CUDA_VISIBLE_DEVICES"; exit $CUDA_VISIBLE_DEVICES'),
            relay_command=shell("echo $MORE"),
            extra_env={"MORE": "yes"},
        )
        assert [(child.rank, child.device) for child in (relay, first, second)] == [
            (None, None),
            (0, 4),
            (1, 2),
        ]
        assert relay.wait(PATIENCE) == 0
        for child in (first, second):
            code = child.wait(PATIENCE)
            assert code is not None
            assert code == child.device
            assert child.rank is not None
            run.controller.rank_exited(child.rank, code)
        report = run.report()
        for child in (relay, first, second):
            assert child.forwarder.join(PATIENCE)
    assert (report.outcome, report.exits, report.lost) == ("failed", {0: 4, 1: 2}, {})
    assert run.events("member_lost") == []
    assert sorted(said(capfd)[0]) == ["[a:2:r1] on 2", "[a:4:r0] on 4", "[a:relay] yes"]


@pytest.mark.usefixtures("forwarders")
def test_the_ranks_of_a_launcher_are_its_to_end() -> None:
    with FakeController(admit(Say(WORLD), WaitEnd())) as fake:
        ranks = join_and_spawn_local(
            spec_for(fake, local_devices=(0, 1)), shell("exec sleep 600"), scale=1.0
        )
        ranks[0].terminate()
        ranks[1].kill()
        assert [rank.wait(PATIENCE) for rank in ranks] == [-15, -9]


def test_a_launcher_gets_all_of_its_ranks_or_none(tmp_path: Path) -> None:
    relay = shell(f"cd {tmp_path}; echo $$ > pid.part; mv pid.part pid; exec sleep 600")
    world = WorldFormed(envelope_hex="", relay_spec_hex="")
    with (
        FakeController(admit(Say(world), WaitEnd()), wires=(2,)) as fake,
        pytest.raises(CommandNotFound, match="./missing"),
    ):
        join_and_spawn_local(
            spec_for(fake, local_devices=(0, 1)), ["./missing"], relay_command=relay, wires=(2,)
        )
    assert all(is_gone(int(path.read_text())) for path in tmp_path.glob("pid"))
