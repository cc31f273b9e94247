from __future__ import annotations

import json
from pathlib import Path

import pytest

from joinproto.conformance.export import export, specs


def test_everything_is_there(tmp_path: Path) -> None:
    target = tmp_path / "new" / "data"
    count = export(target, "1.2.3")
    there = [path.relative_to(target).as_posix() for path in target.rglob("*") if path.is_file()]
    assert len(there) == count
    for name in (
        "README.md",
        "clauses.json",
        "cases/agent/sanity.json",
        "specs/protocol.md",
        "specs/joinproto.ksy",
        "specs/joinproto.lua",
        "specs/conformance-cases.schema.json",
        "specs/conformance-results.schema.json",
    ):
        assert name in there
    assert any(name.startswith("specs/vectors/") for name in there)
    assert not any(name.endswith(".py") for name in there)
    assert "1.2.3" in (target / "README.md").read_text()
    assert json.loads((target / "clauses.json").read_text())


def test_what_the_readme_names_is_there(tmp_path: Path) -> None:
    export(tmp_path, "1")
    text = (tmp_path / "README.md").read_text()
    for name in text.split("`")[1::2]:
        assert (tmp_path / name).exists(), name


def test_nothing_is_written_over(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    with pytest.raises(FileExistsError):
        export(tmp_path, "1")


def test_the_specs_of_a_project() -> None:
    assert (specs() / "protocol.md").is_file()
