"""The command `demo`: a whole world on this machine, with nothing but itself."""

from __future__ import annotations

import signal

import pytest

from interop.processes import Watched, clean_environment, marked
from joinproto.cli import main
from tests.support.roles import OURS


def run(capfd: pytest.CaptureFixture[str], *options: str) -> tuple[int, list[str], list[str]]:
    """Its exit code, and its lines on standard output and error."""
    code = main(["demo", "--pause", "0", *options])
    shown = capfd.readouterr()
    return code, shown.out.splitlines(), shown.err.splitlines()


def test_a_world_that_ends_well(capfd: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capfd, "--hosts", "2", "--ranks", "2")
    assert code == 0
    for host in ("host-0", "host-1"):
        for device in ("0", "1"):
            lines = [line for line in out if line.startswith(f"[{host}:{device}:r")]
            steps = [line.partition("] ")[2] for line in lines]
            assert steps == [f"step {step} of 3 on device {device}" for step in (1, 2, 3)]
    assert len(out) == 12
    assert "joinproto controller: world formed: 4 rank(s) on 2 host(s) (target reached)" in err
    assert "joinproto controller: finished: ok" in err
    ends = {f"joinproto agent: host 'host-{index}' finished cleanly" for index in range(2)}
    assert ends <= set(err)


def test_a_rank_fails_on_request(capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capfd, "--hosts", "2", "--ranks", "1", "--fail", "1", "--wire", "2")
    assert code == 1
    assert "joinproto controller: finished: failed; rank(s) 1 failed" in err
    joined = [line for line in err if " joined with rank(s) " in line]
    assert len(joined) == 2
    assert all("wire 2" in line for line in joined)


def test_whatever_the_shell_has_set_is_no_matter(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOINPROTO_SALT", "ff" * 16)
    monkeypatch.setenv("FLODL_INTERNAL_LOCAL_RANK", "3")
    monkeypatch.setenv("FLODL_INTERNAL_AGENT_JSON", "7b7d")
    code, _, _ = run(capfd, "--hosts", "1", "--ranks", "1")
    assert code == 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--hosts", "0"), "--hosts and --ranks are from 1 to 64, --pause is from 0 to 60"),
        (("--ranks", "65"), "--hosts and --ranks are from 1 to 64"),
        (("--pause", "-1"), "--pause is from 0 to 60"),
        (("--pause", "nan"), "--pause is from 0 to 60"),
        (("--fail", "6"), "--fail 6: the ranks are 0 to 5"),
        (("--fail", "-1"), "--fail -1: the ranks are 0 to 5"),
        (("--wire", "3"), "invalid choice: '3'"),
    ],
)
def test_numbers_that_make_no_world(
    capfd: pytest.CaptureFixture[str], options: tuple[str, ...], told: str
) -> None:
    code, out, err = run(capfd, *options)
    assert (code, out, len(err)) == (2, [], 1)
    assert told in err[0]


@pytest.mark.slow
def test_a_signal_ends_all_of_it() -> None:
    argv = (*OURS, "demo", "--hosts", "2", "--ranks", "1", "--pause", "60")
    with Watched(argv, environment=clean_environment()) as process:
        for device in ("host-0:0", "host-1:0"):
            process.wait_line(rf"^\[{device}:r\d\] step 1")
        process.signal(signal.SIGINT)
        assert process.wait_exit() == 1
        assert marked(process.mark) == []
    told = "joinproto controller: finished: failed: the controller was stopped (SIGINT)"
    assert [line for line in process.lines("stderr") if line.startswith(told)] == [
        f"{told}; rank(s) 0, 1 failed"
    ]
