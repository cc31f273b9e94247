"""The command line: how a sub-command is found, started and ended."""

from __future__ import annotations

import argparse
import io
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from joinproto import cli, errors
from joinproto.cli import main, split_command
from joinproto.grammar import WIRES
from tests.support.python import PATIENCE, run_python

ROOT = Path(__file__).parents[1]
Install = Callable[..., None]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Makes a function the `run` of a sub-command `try`."""

    def install(run: Callable[[argparse.Namespace], int], *, takes_command: bool = False) -> None:
        module: Any = ModuleType("joinproto.cli.try")
        module.add_arguments = lambda parser: parser.add_argument("--number", type=int, default=0)
        module.run = run
        if takes_command:
            module.TAKES_COMMAND = True
        monkeypatch.setitem(sys.modules, "joinproto.cli.try", module)
        monkeypatch.setattr(cli, "COMMANDS", {"try": "try 100% of it"})

    return install


def raises(error: BaseException) -> Callable[[argparse.Namespace], int]:
    def run(args: argparse.Namespace) -> int:
        raise error

    return run


def says(text: str) -> Callable[[argparse.Namespace], int]:
    def run(args: argparse.Namespace) -> int:
        print(text)
        return 0

    return run


def version() -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return str(project["version"])


# -- finding a sub-command --------------------------------------------------------------------


def test_every_command_has_its_module() -> None:
    for name in cli.COMMANDS:
        assert find_spec(f"joinproto.cli.{name}"), name


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_tells_every_command(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([flag]) == 0
    shown = capsys.readouterr().out
    for name, purpose in cli.COMMANDS.items():
        assert f"  {name} " in shown
        assert purpose in shown


def test_the_version_names_the_wire_versions(capsys: pytest.CaptureFixture[str]) -> None:
    spoken = ", ".join(map(str, sorted(WIRES)))
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"joinproto {version()} (wire {spoken})\n"


def test_nothing_asked_for_is_a_usage_error_with_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "usage: joinproto COMMAND" in shown.err


@pytest.mark.parametrize(
    ("argument", "told"),
    [
        ("decoed", "there is no command 'decoed'"),
        ("", "there is no command ''"),
        ("--verbose", "there is no option '--verbose'"),
        ("a\nb", r"there is no command 'a\nb'"),
    ],
)
def test_an_unknown_word(argument: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([argument]) == 2
    assert capsys.readouterr().err == f"joinproto: {told}; see joinproto --help\n"


def test_the_arguments_of_the_process_are_the_default(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["joinproto", "--version"])
    assert main() == 0
    assert version() in capsys.readouterr().out


def test_only_what_is_asked_for_is_imported() -> None:
    code = """
import joinproto.cli
start = sorted(sys.modules)
sys.argv = ["joinproto", "machines", "child"]
joinproto.cli.COMMANDS["pick"] = "x"
import types
pick = types.ModuleType("joinproto.cli.pick")
pick.add_arguments = lambda parser: None
pick.run = lambda args: 0
sys.modules["joinproto.cli.pick"] = pick
assert joinproto.cli.main(["pick"]) == 0
print(json.dumps([start, sorted(sys.modules)]))
"""
    start, end = run_python(code)
    costly = {"construct", "transitions", "nacl", "asyncio", "importlib.metadata", "subprocess"}
    assert not costly & set(start)
    ours = {name for name in end if name.startswith("joinproto.")}
    assert ours == {"joinproto.cli", "joinproto.errors", "joinproto.cli.pick"}


# -- options ----------------------------------------------------------------------------------


def test_options_and_the_exit_code_go_through(install: Install) -> None:
    install(lambda args: int(args.number))
    assert main(["try", "--number", "7"]) == 7


def test_a_commands_help(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(raises(AssertionError()))
    assert main(["try", "--help"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("usage: joinproto try [-h] [--number NUMBER]\n")
    assert "Try 100% of it." in shown


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--number", "x"], "argument --number: invalid int value: 'x'"),
        (["--numb", "1"], "unrecognized arguments: --numb 1"),
        (["a\nb"], r"unrecognized arguments: a\nb"),
    ],
)
def test_an_option_that_is_wrong(
    install: Install, arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    install(raises(AssertionError()))
    assert main(["try", *arguments]) == 2
    assert capsys.readouterr().err == f"joinproto try: {told}; see joinproto try --help\n"


@pytest.mark.parametrize(
    ("arguments", "options", "command"),
    [
        ([], [], ()),
        (["-v"], ["-v"], ()),
        (["-v", "--"], ["-v"], ()),
        (["-v", "--", "run", "-v"], ["-v"], ("run", "-v")),
        (["--", "run", "--", "--help"], [], ("run", "--", "--help")),
    ],
)
def test_a_command_is_split_off(
    arguments: list[str], options: list[str], command: tuple[str, ...]
) -> None:
    assert split_command(arguments) == (options, command)


def test_a_command_is_handed_over_word_for_word(install: Install) -> None:
    given: list[argparse.Namespace] = []

    def keep(args: argparse.Namespace) -> int:
        given.append(args)
        return 0

    install(keep, takes_command=True)
    assert main(["try", "--number", "1", "--", "run", "--number", "x", "--", "-h"]) == 0
    assert main(["try"]) == 0
    assert [args.command for args in given] == [("run", "--number", "x", "--", "-h"), ()]
    assert [args.number for args in given] == [1, 0]


def test_help_shows_where_a_command_goes(
    install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install(raises(AssertionError()), takes_command=True)
    assert main(["try", "--help"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == "usage: joinproto try [-h] [--number NUMBER] -- COMMAND [ARG ...]"


def test_a_usage_of_its_own_is_kept(
    install: Install, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.usage = "joinproto try [options] -- COMMAND"

    install(raises(AssertionError()), takes_command=True)
    monkeypatch.setattr(sys.modules["joinproto.cli.try"], "add_arguments", add_arguments)
    assert main(["try", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: joinproto try [options] -- COMMAND\n")


# -- ends -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (errors.ConfigError("no devices"), 2, "no devices"),
        (errors.ConfigError("bad path 'a\r\nb'"), 2, r"bad path 'a\r\nb'"),
        (errors.SpawnFailed("too many processes"), 1, "too many processes"),
        (errors.Rejected("full"), 3, "join rejected by the controller: full"),
        (OSError(28, "No space left on device"), 1, "[Errno 28] No space left on device"),
    ],
)
def test_an_error_is_one_line(
    install: Install,
    error: Exception,
    code: int,
    told: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    install(raises(error))
    assert main(["try"]) == code
    assert capsys.readouterr().err == f"joinproto try: {told}\n"


def test_an_interrupt_is_no_traceback(install: Install, capsys: pytest.CaptureFixture[str]) -> None:
    install(raises(KeyboardInterrupt()))
    assert main(["try"]) == 130
    assert capsys.readouterr().err == ""


def test_a_bug_is_not_hidden(install: Install) -> None:
    install(raises(ZeroDivisionError()))
    with pytest.raises(ZeroDivisionError):
        main(["try"])


def test_a_reader_that_went_away_is_told_quietly() -> None:
    writer = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "joinproto", "machines"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with writer:
        assert writer.stdout is not None
        assert writer.stderr is not None
        writer.stdout.close()
        told = writer.stderr.read()
        assert (writer.wait(PATIENCE), told) == (141, "")


def test_a_reader_that_went_away_from_a_stand_in(install: Install) -> None:
    install(raises(BrokenPipeError()))
    assert main(["try"]) == 141


def test_a_terminal_without_the_character(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    install(says("höst"))
    assert main(["try"]) == 0
    assert raw.getvalue() == b"h\\xf6st\n"


def test_a_closed_stdout_is_no_traceback(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    install(says("lost"))
    assert main(["try"]) == 0
