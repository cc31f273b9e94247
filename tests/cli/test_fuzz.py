from __future__ import annotations

from pathlib import Path

import pytest

from joinproto.cli import main


def fuzz(*arguments: str) -> int:
    return main(["fuzz", *arguments])


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["agent"], "no target: a command behind --, or --self"),
        (["controller"], "no target: --start COMMAND, --address HOST:PORT, or --self"),
        (["agent", "--self", "--", "x"], "only one target at a time"),
        (["controller", "--start", "x"], "the command must hold {port}"),
        (["controller", "--", "x"], "only an agent's command stands behind --"),
        (["controller", "--start", "x {port}", "--salt-file", "y"], "pre-shared admission"),
        (["controller", "--address", "nowhere"], "nowhere"),
        (["controller", "--address", "127.0.0.1:1", "--jobs", "2"], "use --jobs 1"),
        (["agent", "--self", "--expect", "/nowhere/x"], "/nowhere/x: No such file"),
        (["agent", "--self", "--max-time", "0"], "'0' is no number of seconds"),
        (["agent", "--self", "--max-time", "nan"], "'nan' is no number of seconds"),
        (["agent", "--self", "--max-cases", "0"], "'0' is not a number from 1"),
        (["agent", "--self", "--stop-after", "x"], "'x' is not a number from 1"),
        (["agent", "--self", "--wire", "3"], "invalid choice"),
        (["agent", "--self", "--open", "--salt-file", "x"], "not allowed with"),
        (["replay", "/nowhere/x", "--self"], "/nowhere/x: No such file"),
        (["frobnicate"], "invalid choice"),
        ([], "required"),
    ],
)
def test_wrong_usage_is_one_line_and_3(
    arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fuzz(*arguments) == 3
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_help_tells_of_everything(capsys: pytest.CaptureFixture[str]) -> None:
    for what in ("agent", "controller"):
        assert fuzz(what, "--help") == 0
        said = capsys.readouterr().out
        for option in ("--max-time", "--max-cases", "--stop-after", "--seed", "--jobs", "--corpus"):
            assert option in said


def test_a_corpus_that_holds_something_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cases").mkdir()
    (tmp_path / "cases" / "x.json").write_text("{}")
    assert fuzz("agent", "--self", "--corpus", str(tmp_path)) == 3
    assert "x.json: not a case" in capsys.readouterr().err
