from __future__ import annotations

import json
import shlex
import signal
import sys
from pathlib import Path

import pytest

from joinproto.cli import main
from joinproto.conformance import runner as runner_module
from joinproto.conformance.case import load
from joinproto.conformance.play import Outcome
from joinproto.conformance.results import read
from joinproto.conformance.session import CannotStart, Played
from joinproto.conformance.verdicts import Verdict

SLEEPER = shlex.join([sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"])


@pytest.fixture
def verdicts(monkeypatch: pytest.MonkeyPatch) -> dict[str, Verdict | Exception]:
    """Case → what it comes to, in place of playing it; all others pass."""
    given: dict[str, Verdict | Exception] = {}

    def play(settings: object, case: object, **others: object) -> Played:
        verdict = given.get(case.id, Verdict.PASS)  # type: ignore[attr-defined]
        if isinstance(verdict, Exception):
            raise verdict
        outcome = Outcome(behaviour=verdict, expected="this", got="that")
        return Played(outcome=outcome, happenings=(), stderr="", seconds=0.0)

    monkeypatch.setattr(runner_module, "play_for_real", play)
    return given


def conform(*arguments: str) -> int:
    return main(["conform", *arguments])


def one_of(role: str) -> str:
    """A case that any target can be told."""
    return next(case.id for case in load(role) if not case.sanity and not case.needs)


# -- a run ------------------------------------------------------------------------------------


def test_ours_conform(verdicts: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert conform("agent", "--self", "--output", str(tmp_path)) == 0
    record = read((tmp_path / "results.jsonl").read_text().splitlines())
    assert record.summary is not None
    assert len(record.results) == record.run.selected == sum(record.summary.counts.values())
    there = {path.name for path in tmp_path.iterdir()}
    assert {"junit.xml", "report.html", "summary.md", "badge.svg", "badge.json"} <= there
    assert "passed" in capsys.readouterr().out


def test_signals_that_are_ignored_here_are_not_by_targets(verdicts: object) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert conform("agent", one_of("agent"), "--self") == 0
        assert callable(signal.getsignal(signal.SIGHUP))
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.slow
def test_ours_are_sane_for_real(capsys: pytest.CaptureFixture[str]) -> None:
    assert conform("controller", "controller/sanity", "--self", "--time-scale", "0.1") == 0
    assert "8 of 8 passed" in capsys.readouterr().out


def test_a_failure_prints_what_to_do(
    verdicts: dict[str, Verdict | Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    case = one_of("agent")
    verdicts[case] = Verdict.FAIL
    assert conform("agent", case, "--self", "--seed", "3") == 1
    out = capsys.readouterr().out
    for part in ("this", "that", "JP-", f"joinproto conform agent {case}@", "--seed 3"):
        assert part in out


def test_inconclusive_is_not_conforming(verdicts: dict[str, Verdict | Exception]) -> None:
    case = one_of("controller")
    verdicts[case] = Verdict.INCONCLUSIVE
    assert conform("controller", case, "--self") == 2


def test_a_target_that_cannot_be_run(
    verdicts: dict[str, Verdict | Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    verdicts["agent/sanity/says-hello"] = CannotStart("cannot run x: no")
    assert conform("agent", "--self") == 4
    assert capsys.readouterr().err == "joinproto conform agent: cannot run x: no\n"


def test_a_program_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert conform("agent", "agent/sanity/says-hello", "--", "/nowhere/at/all") == 4
    assert "cannot run /nowhere/at/all: No such file" in capsys.readouterr().err


def test_expectations_are_written_and_read(
    verdicts: dict[str, Verdict | Exception], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = one_of("agent")
    verdicts[case] = Verdict.FAIL
    file = tmp_path / "expected.json"
    assert conform("agent", case, "--self", "--write-expect", str(file)) == 1
    assert next(iter(json.loads(file.read_text()))).startswith(f"{case}@")
    assert conform("agent", case, "--self", "--expect", str(file)) == 0
    verdicts.clear()
    assert conform("agent", case, "--self", "--expect", str(file)) == 1
    file.write_text('{"agent/gone": "why"}')
    assert conform("agent", case, "--self", "--expect", str(file)) == 1
    assert "agent/gone" in capsys.readouterr().out


def test_a_command_with_placeholders(verdicts: object) -> None:
    command = "ctl {port} {min_ranks} {target_ranks}"
    assert conform("controller", "controller/sanity", "--start", command, "--wire", "4") == 0


def test_capabilities_may_hold_the_command(verdicts: object, tmp_path: Path) -> None:
    file = tmp_path / "caps.json"
    file.write_text('{"command": "ctl {port} {min_ranks} {target_ranks}", "wires": [2]}')
    assert conform("controller", "controller/sanity", "--capabilities", str(file)) == 0
    assert conform("controller", "--wire", "4", "--capabilities", str(file)) == 3


def test_a_running_controller(verdicts: object, tmp_path: Path) -> None:
    salt = tmp_path / "salt"
    salt.write_text("ab" * 16)
    salt.chmod(0o600)
    harmless = next(case.id for case in load("controller") if case.setup.get("harmless"))
    address = ["--address", "127.0.0.1:5"]
    assert conform("controller", harmless, *address) == 0
    assert conform("controller", harmless, *address, "--salt-file", str(salt)) == 0


# -- what is listed, exported, made anew ------------------------------------------------------


def test_the_cases_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert conform("agent", "agent/sanity", "--list") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == sum(
        len(case.wires) * len(case.admissions) for case in load("agent") if case.sanity
    )
    assert lines[0].startswith("agent/sanity/")


def test_cases_of_a_level(capsys: pytest.CaptureFixture[str]) -> None:
    assert conform("agent", "--level", "MAY", "--list") == 0
    some = capsys.readouterr().out.splitlines()
    assert conform("agent", "--list") == 0
    assert 0 < len(some) < len(capsys.readouterr().out.splitlines())


def test_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "out"
    assert conform("export", str(target)) == 0
    assert "files in" in capsys.readouterr().out
    assert conform("export", str(target)) == 3
    assert "there is something in it" in capsys.readouterr().err


def test_reports_are_made_anew(verdicts: object, tmp_path: Path) -> None:
    assert conform("agent", "agent/sanity", "--self", "--output", str(tmp_path)) == 0
    again = tmp_path / "again"
    assert conform("report", str(tmp_path / "results.jsonl"), "--output", str(again)) == 0
    assert (again / "report.html").read_text() == (tmp_path / "report.html").read_text()


def test_reports_of_a_run_that_was_cut_short(verdicts: object, tmp_path: Path) -> None:
    assert conform("agent", "agent/sanity", "--self", "--output", str(tmp_path)) == 0
    lines = (tmp_path / "results.jsonl").read_text().splitlines(keepends=True)
    (tmp_path / "cut.jsonl").write_text("".join(lines[:-1]))
    assert conform("report", str(tmp_path / "cut.jsonl"), "--output", str(tmp_path / "x")) == 2


def test_coverage(capsys: pytest.CaptureFixture[str]) -> None:
    assert conform("coverage") == 0
    assert capsys.readouterr().out.startswith("# What the conformance suite covers\n")


# -- wrong usage ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["agent"], "no target: a command behind --, or --self"),
        (["controller"], "no target: --start COMMAND, --address HOST:PORT, or --self"),
        (["agent", "--self", "--", "x"], "only one target at a time"),
        (["agent", "--", "x", "{ports}"], "{ports} is no placeholder"),
        (["controller", "--start", "x '"], "the command of the target: No closing quotation"),
        (["controller", "--start", "x"], "the command must hold {port}"),
        (["controller", "--", "x"], "only an agent's command stands behind --"),
        (["controller", "--self", "--salt-file", "x"], "--salt-file goes with --address"),
        (["controller", "--address", "nowhere"], "nowhere"),
        (["agent", "agent/nothing", "--self"], "no case matches the selection"),
        (["agent", "--self", "--expect", "/nowhere/x"], "/nowhere/x: No such file"),
        (["agent", "--self", "--capabilities", "/nowhere/x"], "/nowhere/x: No such file"),
        (["agent", "--self", "--jobs", "0"], "'0' is not a number from 1"),
        (["agent", "--self", "--time-scale", "0"], "not between 0.1 and 1000"),
        (["report", "/nowhere/x", "--output", "y"], "/nowhere/x: No such file"),
        (["frobnicate"], "invalid choice"),
        ([], "required"),
    ],
)
def test_wrong_usage_is_one_line_and_3(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert conform(*arguments) == 3
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_an_output_that_cannot_be_written(
    verdicts: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert conform("agent", "--self", "--output", str(tmp_path / "file")) == 3
    assert "File exists" in capsys.readouterr().err


def test_help_tells_of_everything(capsys: pytest.CaptureFixture[str]) -> None:
    assert conform("--help") == 0
    assert conform("agent", "--help") == 0
    assert "--time-scale" in capsys.readouterr().out
