"""README.md and docs/: their examples run and print what stands behind them, their lists are whole.

Of the fenced blocks
* `python` is a whole program, run as it stands; a `text` block right behind it is what it prints;
* `python` that begins with `# test_NAME.py` is a file of tests, and is given to pytest;
* `console` is a session in a shell, run line by line; `…` stands for any text;
* all others are for the eye.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from interop.processes import clean_environment
from joinproto.cli import COMMANDS
from joinproto.limits import SCALE_VARIABLE
from joinproto.runtime.environment import AGENT_VARIABLE, NOTIFY_VARIABLES, SALT_VARIABLE
from tests.support.python import PATIENCE

ROOT = Path(__file__).parents[1]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
REFERENCE = {
    "agent": "docs/agent.md",
    "controller": "docs/controller.md",
    "conform": "docs/conformance.md",
    "fuzz": "docs/fuzzing.md",
}
"""Command → the page that lists its options."""


class Block(NamedTuple):
    """A fenced block of a page, and the one right behind it."""

    page: str
    line: int
    language: str
    text: str
    behind: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def blocks(page: str, source: str) -> Iterator[Block]:
    """The blocks of a page; `behind` is the text block that follows with nothing in between."""
    fence = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    following = re.compile(r"\s*^```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    for found in fence.finditer(source):
        behind = following.match(source, found.end())
        line = source.count("\n", 0, found.start()) + 1
        yield Block(page, line, found[1], found[2], None if behind is None else behind[1])


def is_tests(block: Block) -> bool:
    return block.text.startswith("# test_")


BLOCKS = [
    block
    for path in PAGES
    for block in blocks(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
]
PYTHON = [block for block in BLOCKS if block.language == "python"]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """That of somebody who has installed joinproto, and nothing else that concerns it."""
    command = tmp_path / "bin" / "joinproto"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m joinproto "$@"\n')
    command.chmod(0o755)
    clean = clean_environment()
    return {
        **clean,
        "PATH": f"{command.parent}:{clean['PATH']}",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "src"), clean.get("PYTHONPATH")])),
        # The examples below may come with an installed plugin or without.
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        # Its tables of Unicode take seconds to make, and are there.
        "HYPOTHESIS_STORAGE_DIRECTORY": str(ROOT / ".hypothesis"),
    }


def run(argv: list[str], directory: Path, environment: dict[str, str]) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a program."""
    done = subprocess.run(
        argv,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
    )
    return done.returncode, done.stdout, done.stderr


# -- examples ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("block", [each for each in PYTHON if not is_tests(each)], ids=str)
def test_a_program(block: Block, tmp_path: Path, environment: dict[str, str]) -> None:
    code, out, err = run([sys.executable, "-W", "error", "-c", block.text], tmp_path, environment)
    assert code == 0, err
    assert out == (block.behind or "")


@pytest.mark.slow
@pytest.mark.parametrize("block", [each for each in PYTHON if is_tests(each)], ids=str)
def test_a_file_of_tests(block: Block, tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / block.text.split()[1]).write_text(block.text)
    options = ["-q", "-W", "error", "-p", "joinproto.testing.plugin", "-p", "no:cacheprovider"]
    argv = [sys.executable, "-m", "pytest", *options, "--rootdir", str(tmp_path)]
    code, out, err = run(argv, tmp_path, environment)
    assert code == 0, out + err


@pytest.mark.slow
@pytest.mark.parametrize("block", [b for b in BLOCKS if b.language == "console"], ids=str)
def test_a_session_in_a_shell(block: Block, tmp_path: Path, environment: dict[str, str]) -> None:
    for command, expected in session(block.text):
        _, out, err = run(["sh", "-c", command], tmp_path, environment)
        assert re.fullmatch(expected, out + err, re.DOTALL), f"{command}\n{out}{err}"


def session(text: str) -> Iterator[tuple[str, str]]:
    """Each command of a session, and a pattern of what it prints."""
    for part in text.removeprefix("$ ").split("\n$ "):
        command, _, printed = part.partition("\n")
        pattern = re.escape(printed.removesuffix("\n")).replace("…", ".+?")
        yield command, f"{pattern}\n?"


def test_there_are_examples_of_every_kind() -> None:
    assert {block.language for block in BLOCKS} >= {"python", "console", "text"}
    assert any(map(is_tests, PYTHON))
    assert any(block.behind for block in PYTHON)


def test_the_blocks_of_a_page() -> None:
    page = "a\n```python\nx\n```\n\n```text\ny\n```\nb\n```text\nz\n```\n"
    assert [(b.line, b.language, b.text, b.behind) for b in blocks("p", page)] == [
        (2, "python", "x\n", "y\n"),
        (6, "text", "y\n", None),
        (10, "text", "z\n", None),
    ]


def test_the_lines_of_a_session() -> None:
    (first, nothing), (second, some) = session("$ a\n$ b\nx (…)\ny\n")
    assert (first, second) == ("a", "b")
    assert re.fullmatch(nothing, "")
    assert not re.fullmatch(nothing, "x\n")
    assert re.fullmatch(some, "x (1, 2)\ny\n")
    assert not re.fullmatch(some, "x ()\ny\n")


# -- lists ------------------------------------------------------------------------------------


def options(command: str) -> set[str]:
    """The options of a command, but for --help."""
    parser = Options()
    import_module(f"joinproto.cli.{command}").add_arguments(parser)
    return set(options_of(parser))


class Options(argparse.ArgumentParser):
    """A parser that is only asked for its options."""

    def __init__(self, *, usage_exit: int = 2, **others: Any) -> None:
        super().__init__(**{**others, "add_help": False})


def options_of(parser: argparse.ArgumentParser) -> Iterator[str]:
    """The options of a parser, and of the parsers below it."""
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from options_of(below)


@pytest.mark.parametrize("command", REFERENCE)
def test_a_page_lists_every_option(command: str) -> None:
    page = (ROOT / REFERENCE[command]).read_text(encoding="utf-8")
    listed = set(re.findall(r"`(--?[a-z][a-z-]*)", page))
    assert sorted(options(command) - listed) == []


def test_no_page_names_an_option_that_is_not_there() -> None:
    known = set().union(*map(options, COMMANDS), {"--help", "--version"})
    for path in PAGES:
        page = path.read_text(encoding="utf-8")
        # Whole words in running text; in blocks other programs have options too.
        prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
        named = set(re.findall(r"(?<![\w-])(--[a-z][a-z-]*)", prose))
        assert sorted(named - known) == [], path


def test_the_agents_page_lists_every_variable() -> None:
    page = (ROOT / REFERENCE["agent"]).read_text(encoding="utf-8")
    for name in (AGENT_VARIABLE, SALT_VARIABLE, SCALE_VARIABLE, *NOTIFY_VARIABLES):
        assert f"`{name}`" in page, name


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_link_within_the_project_leads_somewhere(path: Path) -> None:
    page = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)\s]+)\)", page):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        other = path if not file else path.parent / file
        assert other.exists(), target
        if anchor:
            assert anchor in anchors(other.read_text(encoding="utf-8")), target


def anchors(page: str) -> set[str]:
    """What headings can be linked to by."""
    outside = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", outside, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}
