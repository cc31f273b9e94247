"""What holds for the files of the project: where they lie and what stands in none of them."""

from __future__ import annotations

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]

WHOLE = {
    "test_agent_reports.py": "of what whole agents tell programs",
    "test_bench.py": "of the measurements in bench",
    "test_examples.py": "of the scripts in examples",
    "test_dissectors.py": "of the grammar and the dissector in specs",
    "test_docs.py": "of README.md and docs",
    "test_field.py": "of failures seen in the field, on the machines",
    "test_field_spawning.py": "of failures seen in the field, with children of all sorts",
    "test_field_output.py": "of failures seen in the field, with what ranks write",
    "test_field_processes.py": "of failures seen in the field, with whole processes",
    "test_fuzz_targets.py": "of the fuzz targets in fuzz, and what they begin with",
    "test_fuzz_faults.py": "of the fuzz harness, by seeded faults",
    "test_guards.py": "of tests/guards.py",
    "test_layers.py": "of the imports of all modules",
    "test_mutants.py": "of the conformance suite, by seeded faults",
    "test_page.py": "of the page of a run, in a browser",
    "test_specs.py": "of the schemas in specs",
    "test_stateful.py": "of agents and controller together",
    "test_survivors.py": "of what is left when an agent has ended",
    "test_tree.py": "of the files of the project",
    "test_transcripts.py": "of the conversations in specs/vectors",
    "test_vectors.py": "of specs/vectors and what makes them",
    "test_window_model.py": "of the window, in every order of everything",
}
"""Tests of more than one module, or of none, and what they are of."""

UNWANTED = {
    "a path of one machine": r"(?<![\w.}])/(?:work|home/\w+|root|Users/\w+)/\w",
    "a path out of the project": r"\.\./shared",
    "work that is not done": r"\b(?:TODO|FIXME|XXX)\b",
    "a merge that is not done": r"^(?:<{7}|>{7}) ",
    "the line end of another system": r"\r\n",
}
"""What stands in no file, as patterns."""

NOT_OURS_TO_WORD = ("fuzz/corpus/", "fuzz/regressions/", "specs/vectors/", "tests/test_tree.py")
"""Bytes of other programs, cases of fuzz targets, and the examples below."""


def files() -> list[Path]:
    """The project's files, those not added yet included, from the root."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    ).stdout.decode()
    return [Path(name) for name in listed.split("\0") if name and (ROOT / name).is_file()]


def mirror(source: Path) -> tuple[set[str], set[str]]:
    """The test files that the modules of the package in `source` must have, and may have.

    A package's own code (cli/__init__.py) is tested beside its folder (test_cli.py); most packages
    have none.
    """
    must: set[str] = set()
    may: set[str] = set()
    for path in source.rglob("*.py"):
        package = path.name == "__init__.py"
        named = (path.parent if package else path).relative_to(source.parent)
        test = named.with_name(f"test_{named.stem.strip('_')}.py").as_posix()
        (may if package else must).add(test.removeprefix(f"{source.name}/"))
    return must, may


def texts() -> Iterator[tuple[Path, str]]:
    """The files that are text, and it."""
    for path in files():
        content = (ROOT / path).read_bytes()
        if b"\0" not in content:
            yield path, content.decode(errors="replace")


def unwanted(text: str) -> list[str]:
    """What stands in `text` that should stand nowhere: line, sort and the words themselves."""
    return [
        f"line {text.count(chr(10), 0, hit.start()) + 1}: {sort} ({hit[0].strip()})"
        for sort, pattern in UNWANTED.items()
        for hit in re.finditer(pattern, text, re.MULTILINE)
    ]


MUST, MAY = mirror(ROOT / "src" / "joinproto")
THERE = {
    path.relative_to(ROOT / "tests").as_posix() for path in (ROOT / "tests").rglob("test_*.py")
}


def test_every_module_has_its_test_file() -> None:
    assert sorted(MUST - THERE) == []


def test_every_test_file_has_its_module() -> None:
    assert sorted(THERE - MUST - MAY - WHOLE.keys()) == []
    assert sorted(WHOLE.keys() - THERE) == []


def test_the_mirror_of_a_package(tmp_path: Path) -> None:
    source = tmp_path / "joinproto"
    for name in ("__init__", "__main__", "codec", "cli/__init__", "cli/agent"):
        (source / name).parent.mkdir(exist_ok=True)
        (source / name).with_suffix(".py").touch()
    must, may = mirror(source)
    assert must == {"test_main.py", "test_codec.py", "cli/test_agent.py"}
    assert may == {"test_joinproto.py", "test_cli.py"}


def test_no_file_holds_what_none_should() -> None:
    found = [
        f"{path}, {complaint}"
        for path, text in texts()
        if not path.as_posix().startswith(NOT_OURS_TO_WORD)
        for complaint in unwanted(text)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "see /home/ann/joinproto",
        "cp x '/root/out'",
        "open('../shared/a')",
        "a\n# TODO: b",
        "<<<<<<< ours",
        "one\r\ntwo",
    ],
)
def test_what_no_file_should_hold(text: str) -> None:
    assert len(unwanted(text)) == 1


@pytest.mark.parametrize("text", ["{home}/root/x", "lib/work/x", "a/home/x", "XXXX", "~/.cache"])
def test_what_a_file_may_hold(text: str) -> None:
    assert unwanted(text) == []


def test_scripts_can_be_run_and_nothing_else_claims_to_be_one() -> None:
    for path in files():
        runnable = bool((ROOT / path).stat().st_mode & 0o111)
        assert runnable == (ROOT / path).read_bytes().startswith(b"#!"), path


def test_the_lock_meets_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"], *project["optional-dependencies"]["testing"]]
    asked += re.findall(r"^[\w-]+.*", (ROOT / "requirements/dev.in").read_text(), re.MULTILINE)
    lock = (ROOT / "requirements/dev.lock").read_text()
    locked = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", lock, re.MULTILINE))
    for requirement in map(Requirement, asked):
        version = locked.get(requirement.name.lower())
        assert version, f"{requirement} is not in requirements/dev.lock: make lock"
        assert requirement.specifier.contains(version), f"{requirement} is locked at {version}"
