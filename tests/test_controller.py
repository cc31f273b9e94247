"""The controller as a library: who is admitted, what a world's end is, and what is told of it."""

from __future__ import annotations

import json
import socket
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from joinproto.controller import Controller, Report
from joinproto.effects import Severity
from joinproto.errors import ConfigError
from joinproto.grammar import WIRES
from joinproto.keys import Salt
from joinproto.messages import Abort, Accept, Hello, RankExited, Reject, WorldFormed
from joinproto.record import replace
from joinproto.runtime import announcer
from joinproto.runtime.signals import signal_name
from joinproto.testing.fakes import FakeAgent
from joinproto.testing.script import Call, Close, Expect, ReportExits, Say, Until, WaitEnd
from joinproto.testing.stage import Step
from tests.support.roles import RunningController
from tests.support.sockets import answer, dial

SALT = Salt(b"sixteen bytes ok")


def hello(host: str = "a", devices: tuple[int, ...] = (0,), **fields: Any) -> Say:
    return Say(Hello(host=host, local_devices=devices, **fields))


def formed(found: list[WorldFormed], *more: Step) -> tuple[Step, ...]:
    """Wait for the world; what was said about it is put into `found`."""

    def keep(text: str) -> bool:
        found.append(WorldFormed(envelope_hex=text))
        return True

    return (Expect(WorldFormed, envelope_hex=keep), *more)


def envelope(run: RunningController, **fields: Any) -> dict[str, Any]:
    """The envelope that a host alone in its world is sent."""
    found: list[WorldFormed] = []
    script = [hello(**fields), Expect(Accept), *formed(found), ReportExits(), Close()]
    with FakeAgent(script).dial(*run.address):
        run.report()
    return dict(json.loads(bytes.fromhex(found[0].envelope_hex)))


# -- a run ------------------------------------------------------------------------------------


def test_a_world_from_its_window_to_its_end() -> None:
    with RunningController(min_ranks=2, target_ranks=3) as run:
        first = FakeAgent(
            [
                hello("one", (4, 0), gpus=("H100", "L4"), libtorch="cu128"),
                Expect(Accept, ranks=(0, 1)),
                Expect(WorldFormed, relay_spec_hex=None),
                ReportExits({1: 7}),
                Close(),
            ]
        )
        with first.dial(*run.address):
            run.wait_event("joined", host="one")
            second = FakeAgent.joining(host="two", devices=(3,), codes={2: -9})
            with second.dial(*run.address):
                report = run.report()
    assert replace(report, hosts=()) == Report(
        outcome="failed", exits={0: 0, 1: 7, 2: -9}, lost={}, reason=None
    )
    assert (report.exit_code, report.failed_ranks) == (1, (1, 2))
    order = [event["event"] for event in run.events()]
    assert order == ["listening", "joined", "joined", "formed", *["rank_exited"] * 3, "finished"]
    listening, one, two, world, *exits, finished = run.events()
    assert (listening["host"], listening["port"]) == run.address
    assert (one["ranks"], one["devices"], one["gpus"]) == ([0, 1], [4, 0], ["H100", "L4"])
    assert (one["libtorch"], one["wire"], one["joined_ranks"]) == ("cu128", max(WIRES), 2)
    assert (two["ranks"], two["joined_ranks"]) == ([2], 3)
    assert (two["min_ranks"], two["target_ranks"]) == (2, 3)
    assert (world["world_size"], world["reason"]) == (3, "target reached")
    assert world["hosts"] == [
        {"host": "one", "ranks": [0, 1], "wire": max(WIRES)},
        {"host": "two", "ranks": [2], "wire": max(WIRES)},
    ]
    ended = {exit["rank"]: (exit["host"], exit["code"], exit["signal"]) for exit in exits}
    assert ended == {0: ("one", 0, None), 1: ("one", 7, None), 2: ("two", -9, "SIGKILL")}
    assert (finished["outcome"], finished["failed_ranks"]) == ("failed", [1, 2])


def test_a_world_that_ends_well() -> None:
    with (
        RunningController(target_ranks=1) as run,
        FakeAgent.joining(host="one").dial(*run.address),
    ):
        report = run.report()
    assert replace(report, hosts=()) == Report(outcome="ok", exits={0: 0}, lost={}, reason=None)
    assert (report.exit_code, report.failed_ranks) == (0, ())
    told = [text for severity, text in run.texts]
    assert told[0] == f"listening on {run.where}"
    assert "host 'one' (127.0.0.1:" in told[1]
    assert f"joined with rank(s) 0, wire {max(WIRES)}; 1 rank(s) in, target 1" in told[1]
    assert told[2:] == [
        "world formed: 1 rank(s) on 1 host(s) (target reached)",
        "rank 0 on host 'one' ended with code 0",
        "host 'one': rank 0 (device 0) code 0 after 0.0 s",
        "finished: ok",
    ]
    assert {severity for severity, text in run.texts} == {Severity.INFO}


def test_the_envelope_says_who_is_who() -> None:
    with RunningController(target_ranks=2, master_port=4711) as run:
        found = envelope(run, host="a", devices=(7, 1))
    host, port = run.address
    assert len(found.pop("salt")) == 32
    assert found == {
        "controller": {"host": host, "port": port},
        "world_size": 2,
        "num_workers": 1,
        "worker": {
            "host": "a",
            "ranks": [0, 1],
            "local_devices": [7, 1],
            "nccl_socket_ifname": "",
            "path": "",
        },
        "group_rank": 0,
        "master_addr": "127.0.0.1",
        "master_port": 4711,
    }


@pytest.mark.parametrize(
    ("advertise", "host", "port"),
    [(("head.lan", None), "head.lan", None), (("::1", 4711), "::1", 4711)],
)
def test_another_address_can_be_advertised(
    advertise: tuple[str, int | None], host: str, port: int | None
) -> None:
    with RunningController(target_ranks=1, advertise=advertise) as run:
        found = envelope(run)
    assert found["controller"] == {"host": host, "port": port or run.address[1]}


def test_a_relay_can_be_asked_for() -> None:
    specs: list[str] = []

    def is_spec(text: str | None) -> bool:
        specs.append(text or "")
        return True

    with RunningController(target_ranks=2, relay=True, advertise=("head", 1)) as run:
        script = [
            hello("a", (0, 1)),
            Expect(Accept),
            Expect(WorldFormed, relay_spec_hex=is_spec),
            ReportExits(),
            Close(),
        ]
        with FakeAgent(script).dial(*run.address):
            run.report()
    spec = json.loads(bytes.fromhex(specs[0]))
    assert (spec["host"], spec["ranks"], spec["world_size"]) == ("a", [0, 1], 2)
    assert (spec["controller_host"], spec["controller_port"]) == ("head", 1)
    assert spec["data_channel"] is False


def test_it_listens_on_ipv6_too() -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"no IPv6 on loopback here: {error}")
    with RunningController(bind=("::1", 0), target_ranks=1) as run:
        found = envelope(run)
    assert found["controller"] == {"host": "::1", "port": run.address[1]}
    assert run.texts[0][1] == f"listening on [::1]:{run.address[1]}"
    assert run.events("joined")[0]["peer"].startswith("[::1]:")


# -- admission --------------------------------------------------------------------------------


def test_open_admission_gives_the_salt_to_whoever_comes() -> None:
    with RunningController(target_ranks=1) as run:
        given = FakeAgent.joining()
        with given.dial(*run.address):
            run.report()
    accept = given.messages[0]
    assert isinstance(accept, Accept)
    assert len(accept.salt_hex or "") == 32


def test_a_salt_is_never_given_out_and_no_other_one_gets_an_answer() -> None:
    with RunningController(target_ranks=1, salt=SALT) as run:
        for salt in (Salt(b"another salt ...")), None:
            with FakeAgent([hello("stranger"), WaitEnd()], salt=salt).dial(*run.address):
                pass
        given = FakeAgent.joining(salt=SALT)
        with given.dial(*run.address):
            report = run.report()
    accept = given.messages[0]
    assert isinstance(accept, Accept)
    assert accept.salt_hex is None
    assert report.outcome == "ok"
    rejected = run.events("rejected")
    assert [event["host"] for event in rejected] == [None]
    assert "tag" in rejected[0]["reason"]
    everything = f"{run.events()} {run.texts} {report} {vars(run.controller)}"
    assert SALT.hex() not in everything
    assert repr(SALT.raw)[2:-1] not in everything


def test_other_data_is_turned_away_with_the_reason() -> None:
    signature = b"s" * 32
    with RunningController(target_ranks=1, dataset_sig=signature) as run:
        script = [hello("b", dataset_sig=b"t" * 32), Expect(Reject), WaitEnd()]
        with FakeAgent(script).dial(*run.address) as stranger:
            pass
        script = [hello("a", dataset_sig=signature), Expect(Accept), Expect(WorldFormed)]
        with FakeAgent([*script, ReportExits(), Close()]).dial(*run.address):
            assert run.report().outcome == "ok"
    (event,) = run.events("rejected")
    assert event["host"] == "b"
    assert "dataset signature 74747474… differs" in event["reason"]
    assert stranger.messages == [Reject(reason=event["reason"])]
    assert (Severity.WARNING, f"turned away host 'b' from {event['peer']}: {event['reason']}") in (
        run.texts
    )


def test_the_first_member_fixes_the_wire_version() -> None:
    with RunningController(min_ranks=2, target_ranks=2) as run:
        with FakeAgent.joining(host="a", wire=2).dial(*run.address):
            run.wait_event("joined", host="a", wire=2)
            with FakeAgent([hello("b"), WaitEnd()], wire=4).dial(*run.address) as newer:
                pass
            with FakeAgent.joining(host="b", wire=2).dial(*run.address):
                assert run.report().outcome == "ok"
        assert newer.messages == []
        (event,) = run.events("rejected")
        assert event["host"] == "b"
        assert event["reason"] == "wire 4; this world's first member fixed wire 2"


def test_wire_versions_can_be_mixed() -> None:
    with RunningController(min_ranks=2, target_ranks=2, mixed_wires=True) as run:
        with FakeAgent.joining(host="a", wire=2).dial(*run.address):
            run.wait_event("joined", host="a")
            with FakeAgent.joining(host="b", wire=4).dial(*run.address):
                assert run.report().outcome == "ok"
        assert [host["wire"] for host in run.events("formed")[0]["hosts"]] == [2, 4]


def test_a_wire_version_that_is_not_spoken_gets_no_answer() -> None:
    with RunningController(target_ranks=1, wires=(2,)) as run:
        with FakeAgent([hello(), WaitEnd()], wire=4).dial(*run.address) as newer:
            pass
        with FakeAgent.joining(wire=2).dial(*run.address):
            assert run.report().outcome == "ok"
        assert newer.messages == []
        assert "version" in run.events("rejected")[0]["reason"]


def test_a_host_that_comes_twice_or_late_is_turned_away() -> None:
    go = threading.Event()
    with RunningController(min_ranks=2, target_ranks=2) as run:
        script = [hello("a"), Expect(Accept), Expect(WorldFormed), Until(go.is_set)]
        with FakeAgent([*script, ReportExits(), Close()]).dial(*run.address):
            run.wait_event("joined", host="a")
            turned = [hello("a"), Expect(Reject), WaitEnd()]
            with FakeAgent(turned).dial(*run.address) as twice:
                pass
            with FakeAgent.joining(host="b").dial(*run.address):
                run.wait_event("formed")
            turned = [hello("c"), Expect(Reject), WaitEnd()]
            with FakeAgent(turned).dial(*run.address) as late:
                pass
            go.set()
            assert run.report().outcome == "ok"
    reasons = [str(fake.messages[0]) for fake in (twice, late)]
    assert "has joined already" in reasons[0]
    assert "the world has formed already" in reasons[1]
    assert [event["host"] for event in run.events("rejected")] == ["a", "c"]


# -- whose port it is -------------------------------------------------------------------------


def test_open_admission_beyond_loopback_has_to_be_asked_for() -> None:
    with pytest.raises(ConfigError, match="0.0.0.0 is not a loopback address: give a salt, or ask"):
        Controller(bind=("0.0.0.0", 0))


def test_open_admission_beyond_loopback_is_warned_of() -> None:
    told: list[tuple[Severity, str]] = []
    bind = ("0.0.0.0", 0)
    with Controller(bind=bind, open_admission=True, on_text=lambda *text: told.append(text)):
        pass
    ((severity, text),) = told
    assert severity == Severity.WARNING
    assert text.startswith("WARNING: open admission on 0.0.0.0")


def test_a_salt_is_enough_beyond_loopback() -> None:
    told: list[str] = []
    with Controller(bind=("0.0.0.0", 0), salt=SALT, on_text=lambda _, text: told.append(text)):
        pass
    assert told == []


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"min_ranks": 0}, "min ranks is 0"),
        ({"min_ranks": 3, "target_ranks": 2}, r"target ranks \(2\) is below min ranks \(3\)"),
        ({"join_timeout": 9.0, "max_join_timeout": 8.0}, "below the join timeout"),
        ({"join_timeout": float("nan")}, "join timeout is nan"),
        ({"bind": ("203.0.113.1", 0), "salt": SALT}, "cannot listen on 203.0.113.1:0: Cannot as"),
        ({"bind": ("a" * 64 + ".b", 1), "salt": SALT}, "cannot listen on a.*: "),
        (
            {"bind": ("127.0.0.1", 65536)},
            "cannot listen on 127.0.0.1:65536: a port is a number from 0 ",
        ),
    ],
)
def test_settings_that_cannot_be_used(settings: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        Controller(**settings)


def test_a_port_that_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"cannot listen on 127.0.0.1:{port}: Address alre"):
            Controller(bind=("127.0.0.1", port))


# -- losses -----------------------------------------------------------------------------------


def test_a_host_lost_before_the_world_forms_leaves_its_ranks_to_itself() -> None:
    with RunningController(min_ranks=3, target_ranks=3) as run:
        gone = [hello("a", (0, 1)), Expect(Accept, ranks=(0, 1)), Close()]
        with FakeAgent(gone).dial(*run.address):
            run.wait_event("member_lost", host="a", ranks=[0, 1], formed=False)
        assert run.events("member_lost")[0]["cause"] == "closed the connection"
        with FakeAgent.joining(host="b", codes={0: 0}).dial(*run.address):
            run.wait_event("joined", host="b")
            with FakeAgent.joining(host="a", devices=(0, 1)).dial(*run.address):
                report = run.report()
    assert (report.outcome, report.lost) == ("ok", {})


def test_a_host_lost_while_its_ranks_run_is_a_failure() -> None:
    script = [hello("a", (0, 1)), Expect(Accept), Expect(WorldFormed)]
    exits = [Say(RankExited(rank=1, code=0)), Close()]
    with RunningController(target_ranks=2) as run, FakeAgent([*script, *exits]).dial(*run.address):
        report = run.report()
    assert replace(report, hosts=()) == Report(
        outcome="failed", exits={1: 0}, lost={"a": "closed the connection"}, reason=None
    )
    (event,) = run.events("member_lost")
    assert (event["host"], event["ranks"], event["formed"]) == ("a", [0, 1], True)
    assert run.events()[-1]["lost_hosts"] == ["a"]
    assert (Severity.WARNING, "lost host 'a': closed the connection") in run.texts
    assert (Severity.ERROR, "finished: failed") in run.texts


def test_only_the_first_report_of_a_hosts_own_ranks_counts() -> None:
    reports = [(0, 3), (0, 4), (9, 5), (1, 0)]
    script = [hello("a", (0, 1)), Expect(Accept), Expect(WorldFormed)]
    said = [Say(RankExited(rank=rank, code=code)) for rank, code in reports]
    with (
        RunningController(target_ranks=2) as run,
        FakeAgent([*script, *said, Close()]).dial(*run.address),
    ):
        assert run.report().exits == {0: 3, 1: 0}
    told = [text for _, text in run.texts]
    assert any("rank 0, which is told before; ignored" in text for text in told)
    assert any("rank 9, which is not one of its ranks; ignored" in text for text in told)
    assert (Severity.ERROR, "finished: failed; rank(s) 0 failed") in run.texts


# -- a host of the caller's own ---------------------------------------------------------------


def test_the_caller_tells_the_ends_of_a_local_hosts_ranks() -> None:
    with RunningController(target_ranks=2, local_hosts=["here"]) as run:
        script = [hello("here", (0, 1)), Expect(Accept), Expect(WorldFormed), Close()]
        with FakeAgent(script).dial(*run.address):
            pass
        run.wait_event("formed")
        run.controller.rank_exited(1, -15)
        run.wait_event("rank_exited", rank=1, host="here", code=-15, signal="SIGTERM")
        assert run.events("finished") == []
        run.controller.rank_exited(0, 0)
        report = run.report()
    assert replace(report, hosts=()) == Report(
        outcome="failed", exits={1: -15, 0: 0}, lost={}, reason=None
    )
    assert run.events("member_lost") == []


def test_nobody_waits_for_a_local_hosts_ranks_once_the_run_is_given_up() -> None:
    with RunningController(target_ranks=1, local_hosts=["here"]) as run:
        script = [hello("here"), Expect(Accept), Expect(WorldFormed)]
        with FakeAgent([*script, Expect(Abort), Close()]).dial(*run.address):
            run.wait_event("formed")
            run.controller.stop("enough")
            report = run.report()
    assert (report.outcome, report.lost, report.exits) == ("failed", {}, {})


# -- giving up --------------------------------------------------------------------------------


def test_a_run_can_be_stopped_before_anybody_came() -> None:
    with RunningController() as run:
        run.wait_event("listening")
        run.controller.stop()
        report = run.report()
    reason = "the controller was stopped (the caller's wish)"
    assert replace(report, hosts=()) == Report(outcome="failed", exits={}, lost={}, reason=reason)
    assert run.texts[-1] == (Severity.ERROR, f"finished: failed: {reason}")


def test_a_run_can_be_stopped_before_it_begins() -> None:
    events: list[Any] = []
    with Controller(on_event=events.append) as controller:
        controller.stop("no")
        assert controller.run().outcome == "failed"
    assert [event["event"] for event in events] == ["listening", "finished"]


def test_members_of_a_window_that_is_stopped_are_told() -> None:
    with RunningController(min_ranks=2) as run:
        script = [hello(), Expect(Accept), Expect(Abort), Close()]
        with FakeAgent(script).dial(*run.address) as member:
            run.wait_event("joined")
            run.controller.stop("enough")
            report = run.report()
    assert (report.outcome, report.exit_code) == ("failed", 1)
    assert member.messages[-1] == Abort(reason="the controller was stopped (enough)")
    assert run.events("member_lost") == []


def test_a_world_that_is_stopped_still_tells_how_its_ranks_ended() -> None:
    script = [hello("a", (0, 1)), Expect(Accept), Expect(WorldFormed), Expect(Abort)]
    ends = [ReportExits({0: -15, 1: -9}), Close()]
    with RunningController(target_ranks=2) as run, FakeAgent([*script, *ends]).dial(*run.address):
        run.wait_event("formed")
        run.controller.stop("enough")
        report = run.report()
    assert report.exits == {0: -15, 1: -9}
    assert (report.outcome, report.lost) == ("failed", {})
    assert report.reason == "the controller was stopped (enough)"


def test_the_second_stop_waits_for_nobody() -> None:
    stopped = threading.Event()
    with RunningController(target_ranks=1) as run:
        script = [hello(), Expect(Accept), Expect(WorldFormed), Expect(Abort), Call(stopped.set)]
        with FakeAgent([*script, WaitEnd()]).dial(*run.address):
            run.wait_event("formed")
            run.controller.stop("enough")
            assert stopped.wait(10)
            assert run.events("finished") == []
            run.controller.stop("at once")
            report = run.report()
    assert (report.outcome, report.reason) == ("failed", "the controller was stopped (enough)")


def test_what_comes_after_the_end_is_harmless() -> None:
    with RunningController(target_ranks=1) as run, FakeAgent.joining().dial(*run.address):
        report = run.report()
    assert report.outcome == "ok"
    run.controller.close()
    run.controller.stop()
    run.controller.rank_exited(0, 1)


# -- time -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_window_closes_with_quorum_when_its_time_has_passed() -> None:
    with RunningController(min_ranks=1, target_ranks=9, join_timeout=1, scale=0.1) as run:
        began = time.monotonic()
        with FakeAgent.joining().dial(*run.address):
            report = run.report()
    assert report.outcome == "ok"
    assert run.events("formed")[0]["reason"] == "quorum holds and the join timeout has passed"
    assert 0.9 < time.monotonic() - began < 8


@pytest.mark.slow
def test_a_window_without_quorum_fails_and_tells_its_members() -> None:
    with RunningController(min_ranks=2, join_timeout=1, max_join_timeout=1, scale=0.1) as run:
        script = [hello(), Expect(Accept, formation_wait_secs=0), Expect(Abort), Close()]
        with FakeAgent(script).dial(*run.address) as member:
            report = run.report()
    assert (report.outcome, report.exit_code, report.exits) == ("window-failed", 3, {})
    assert report.reason == "quorum not met: 1 of at least 2 rank(s) have joined after 1 s"
    assert member.messages[-1] == Abort(reason=report.reason)
    assert run.events()[-1]["outcome"] == "window-failed"
    waiting = "join timeout passed and 1 of at least 2 rank(s) have joined; waiting on"
    assert (Severity.WARNING, waiting) in run.texts


@pytest.mark.slow
def test_a_window_that_failed_by_itself_has_not_been_stopped() -> None:
    with RunningController(min_ranks=2, join_timeout=1, max_join_timeout=1, scale=0.1) as run:
        aborted = threading.Event()
        script = [hello(), Expect(Accept), Expect(Abort), Call(aborted.set), WaitEnd()]
        with FakeAgent(script).dial(*run.address):
            assert aborted.wait(10)
            run.controller.stop()
            run.controller.stop()
            assert run.report().outcome == "window-failed"


# -- what is told -----------------------------------------------------------------------------


def test_dials_that_never_say_who_they_are_are_told_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [100.0]
    names = ("time", "strftime", "gmtime")
    fake = SimpleNamespace(
        **{name: getattr(time, name) for name in names}, monotonic=lambda: clock[0]
    )
    monkeypatch.setattr(announcer, "time", fake)

    with RunningController(target_ranks=1) as run:
        for _ in range(5):
            assert answer(dial(run.address, b"a port scan")) == b""
        # Once this one has its answer, all before it have been dealt with.
        refused = [hello(devices=()), Expect(Reject), WaitEnd()]
        with FakeAgent(refused).dial(*run.address):
            pass
        clock[0] += announcer.QUIET
        assert answer(dial(run.address, b"scan")) == b""
        with FakeAgent.joining().dial(*run.address):
            run.report()
    told = [(event["host"], event["suppressed"]) for event in run.events("rejected")]
    assert told == [(None, 0), ("a", 0), (None, 4)]
    assert any(text.endswith("(and 4 more since the last line)") for _, text in run.texts)


@pytest.mark.parametrize(
    ("code", "name"),
    [(0, None), (7, None), (-9, "SIGKILL"), (-64, "SIGRTMAX"), (-65, None), (-1000, None)],
)
def test_the_name_of_a_signal(code: int, name: str | None) -> None:
    assert signal_name(code) == name
