"""What build_peers.sh says when it cannot build."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("build_peers.sh")
TOOLS = ("cat", "cut", "dirname", "flock", "ls", "mkdir", "sh", "sha256sum")


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder of programs, among them all that the script needs but cargo."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found, tool
        (folder / tool).symlink_to(found)
    return folder


def build(tools: Path, peers: Path, *versions: str) -> subprocess.CompletedProcess[str]:
    """Run the script with nothing but those programs."""
    environment = {"PATH": str(tools), "JOINPROTO_PEERS": str(peers)}
    return subprocess.run(
        [SCRIPT, *versions], env=environment, capture_output=True, text=True, check=False
    )


def test_without_cargo(tools: Path, tmp_path: Path) -> None:
    result = build(tools, tmp_path / "peers", "0.7.0")
    assert result.returncode == 1
    assert result.stdout == ""
    assert result.stderr.startswith("build_peers: cargo is not on PATH")
    assert result.stderr.count("\n") == 1


def test_a_version_that_there_is_none_of(tools: Path, tmp_path: Path) -> None:
    result = build(tools, tmp_path / "peers", "0.7.0", "9.9.9")
    assert result.returncode == 1
    assert result.stderr == "build_peers: no peer version 9.9.9; there are: 0.7.0 0.8.0\n"
    assert not (tmp_path / "peers").exists()


def test_a_failed_build_leaves_no_peer(tools: Path, tmp_path: Path) -> None:
    cargo = tools / "cargo"
    cargo.write_text("#!/bin/sh\nexit 101\n")
    cargo.chmod(0o700)
    (tools / "env").symlink_to(shutil.which("env") or "")
    result = build(tools, tmp_path / "peers", "0.8.0")
    assert result.returncode == 1
    assert result.stderr == "build_peers: cargo could not build flodl-peer-0.8.0\n"
    assert sorted(path.name for path in (tmp_path / "peers").iterdir()) == [".lock"]
