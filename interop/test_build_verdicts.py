"""What build_verdicts.sh says when it cannot build."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("build_verdicts.sh")
TOOLS = ("cat", "cp", "cut", "dirname", "env", "flock", "grep", "head", "ls", "mkdir", "rm", "sed")


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder of programs, among them all that the script needs but cargo."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in (*TOOLS, "sh", "sha256sum"):
        found = shutil.which(tool)
        assert found, tool
        (folder / tool).symlink_to(found)
    return folder


def build(tools: Path, home: Path, *versions: str) -> subprocess.CompletedProcess[str]:
    """Run the script with nothing but those programs."""
    environment = {
        "PATH": str(tools),
        "JOINPROTO_PEERS": str(home / "peers"),
        "CARGO_HOME": str(home / "cargo"),
    }
    return subprocess.run(
        [SCRIPT, *versions], env=environment, capture_output=True, text=True, check=False
    )


def stand_in(tools: Path, script: str) -> None:
    """A cargo that does what a test says."""
    cargo = tools / "cargo"
    cargo.write_text(f"#!/bin/sh\n{script}\n")
    cargo.chmod(0o700)


def test_without_cargo(tools: Path, tmp_path: Path) -> None:
    result = build(tools, tmp_path, "0.7.0")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("build_verdicts: cargo is not on PATH")
    assert result.stderr.count("\n") == 1


def test_a_version_that_there_is_none_of(tools: Path, tmp_path: Path) -> None:
    result = build(tools, tmp_path, "0.7.0", "9.9.9")
    assert result.returncode == 1
    assert result.stderr == "build_verdicts: no version 9.9.9; there are: 0.7.0 0.8.0\n"
    assert not (tmp_path / "peers").exists()


def test_a_crate_that_cannot_be_fetched(tools: Path, tmp_path: Path) -> None:
    stand_in(tools, "exit 101")
    result = build(tools, tmp_path, "0.8.0")
    assert result.returncode == 1
    assert result.stderr == "build_verdicts: cargo could not fetch flodl 0.8.0\n"
    assert not list((tmp_path / "peers").glob("flodl-*"))


def test_a_crate_without_the_module(tools: Path, tmp_path: Path) -> None:
    stand_in(tools, "exit 0")
    source = tmp_path / "cargo/registry/src/index/flodl-0.8.0/src/distributed"
    source.mkdir(parents=True)
    (source / "mod.rs").write_text("pub(crate) mod cable;\n")
    result = build(tools, tmp_path, "0.8.0")
    assert result.returncode == 1
    assert result.stderr == "build_verdicts: flodl 0.8.0 has no module wire\n"
