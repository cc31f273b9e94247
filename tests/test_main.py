"""`python -m joinproto`."""

from __future__ import annotations

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


def test_imported_it_does_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    sys.modules.pop("joinproto.__main__", None)
    import_module("joinproto.__main__")
    assert capsys.readouterr() == ("", "")
