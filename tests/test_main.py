"""`python -m joinproto`."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
from importlib import import_module

import pytest

from tests.support.python import PATIENCE


@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), (["nonsense"], 2)])
def test_the_module_is_the_command(arguments: list[str], code: int) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "joinproto", *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == code
    assert (done.stdout or done.stderr).startswith("joinproto")
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("arguments", "code"), [(["--version"], 0), ([], 2)])
def test_run_it_exits_with_the_commands_code(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int
) -> None:
    monkeypatch.setattr(sys, "argv", ["joinproto", *arguments])
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("joinproto", run_name="__main__")
    assert caught.value.code == code


def test_imported_it_does_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    sys.modules.pop("joinproto.__main__", None)
    import_module("joinproto.__main__")
    assert capsys.readouterr() == ("", "")
