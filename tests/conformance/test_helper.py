"""What the helper needs itself; what it does in the hands of the suite is in test_crew.py."""

from __future__ import annotations

import ast
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from joinproto.conformance import helper


def test_it_stands_alone() -> None:
    tree = ast.parse(Path(helper.__file__).read_text())
    imported = {
        name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names
    } | {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {
        *("__future__", "json", "os", "select"),
        *("signal", "socket", "sys", "typing"),
    }


def test_all_of_a_long_text_is_written() -> None:
    read, write = os.pipe()
    saved = os.dup(1)
    try:
        os.dup2(write, 1)
        helper.write(1, {"text": "ab", "times": 10_000})
    finally:
        os.dup2(saved, 1)
        for fd in (saved, write):
            os.close(fd)
    with open(read, "rb") as pipe:
        assert pipe.read() == b"ab" * 10_000


def test_without_a_suite_it_ends(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-I", "-S", helper.__file__, str(tmp_path / "none")],
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert ended.returncode != 0


def test_a_suite_that_hangs_up_ends_it(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", helper.__file__, str(tmp_path / "s")]
        )
        listener.accept()[0].close()
        assert process.wait(20) in (0, 1)


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_the_streams_by_name(stream: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found: list[int] = []
    monkeypatch.setattr(helper, "write", lambda number, what: found.append(number))
    with socket.socket() as sock:
        helper.do({"write": {"stream": stream, "text": ""}}, "", sock)
    assert found == [1 if stream == "stdout" else 2]


def test_what_it_tells_of_its_files_and_its_input(tmp_path: Path) -> None:
    code = "import helper; print(helper.open_files(), helper.stdin_is_empty())"
    argv = [sys.executable, "-S", "-c", code]
    folder = Path(helper.__file__).parent
    read, write = os.pipe()

    def told(stdin: int, *files: int) -> str:
        return subprocess.run(
            argv,
            cwd=folder,
            stdin=stdin,
            pass_fds=files,
            capture_output=True,
            check=True,
            text=True,
        ).stdout.strip()

    try:
        assert told(subprocess.DEVNULL) == "[] True"
        assert told(read, write) == f"[{write}] False"
        os.write(write, b"x")
        assert told(read) == "[] False"
    finally:
        os.close(read)
        os.close(write)
    assert helper.read("/proc/self/cmdline").endswith("\0")


def test_variables_besides_the_artifacts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FLODL_INTERNAL_CLUSTER_JSON", "FLODL_INTERNAL_RELAY_JSON", "X_OTHER"):
        monkeypatch.setenv(name, "x")
    names = helper.besides()
    assert "X_OTHER" in names
    assert not [name for name in names if name.startswith("FLODL_")]
