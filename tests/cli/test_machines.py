"""`joinproto machines`, and the drawings in specs/machines that it makes."""

from __future__ import annotations

import json
import pkgutil
from pathlib import Path

import pytest

import joinproto.machines
from joinproto.cli import main
from joinproto.cli.machines import MACHINES

DRAWINGS = Path(__file__).parents[2] / "specs" / "machines"
SUFFIXES = {"mermaid": "mmd", "dot": "dot", "json": "json"}


def test_every_machine_is_known() -> None:
    modules = {module.name for module in pkgutil.iter_modules(joinproto.machines.__path__)}
    assert set(MACHINES) == modules


@pytest.mark.parametrize("form", SUFFIXES)
@pytest.mark.parametrize("name", MACHINES)
def test_the_drawing_in_the_specs_is_that_of_the_table(
    name: str, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["machines", name, "--format", form]) == 0
    drawn = (DRAWINGS / f"{name}.{SUFFIXES[form]}").read_text()
    assert drawn == capsys.readouterr().out, "the table changed: make specs"


def test_nothing_else_lies_among_the_drawings() -> None:
    there = {path.name for path in DRAWINGS.iterdir()}
    assert there == {f"{name}.{suffix}" for name in MACHINES for suffix in SUFFIXES.values()}


def test_all_of_them_as_mermaid_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["machines"]) == 0
    shown = capsys.readouterr().out
    assert shown.count("stateDiagram-v2") == len(MACHINES)
    assert shown.index("The agent machine") < shown.index("The child machine")


def test_all_of_them_as_json_is_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["machines", "--format", "json"]) == 0
    assert [body["name"] for body in json.loads(capsys.readouterr().out)] == list(MACHINES)


def test_an_unknown_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["machines", "door"]) == 2
    assert "'agent', 'controller', 'window', 'child'" in capsys.readouterr().err
