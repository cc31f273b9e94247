"""Code run in an interpreter of its own, where the test's must not be forked, killed or changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

PATIENCE = 30.0
"""Seconds until what must happen counts as not happening; never waited for when all is well."""


def environment(extra: Mapping[bytes, bytes] | None = None) -> dict[bytes, bytes]:
    """This process's environment with `extra` on top."""
    return {**os.environb, **(extra or {})}


def run_python(code: str, *arguments: object, env: Mapping[bytes, bytes] | None = None) -> Any:
    """Run `code` with `args` set to `arguments`; the JSON value that it prints.

    Anything on its stderr, and any exit code but 0, fails the test.
    """
    code = f"import json, sys\nargs = json.loads(sys.argv[1])\n{code}"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, json.dumps(arguments)],
        env=environment(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return json.loads(done.stdout)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition that nothing announces; fail the test when it does not come true."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.005)


def is_gone(pid: int) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"
