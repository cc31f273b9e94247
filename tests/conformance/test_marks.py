from __future__ import annotations

import subprocess
import sys

from joinproto.conformance.marks import end_marked


def test_what_carries_the_mark_is_ended_and_nothing_else() -> None:
    # The marked one has moved to a session of its own, and to a parent that has ended.
    code = (
        "import os, signal; os.fork() and os._exit(0); os.setsid(); print(1, flush=True);"
        " signal.pause()"
    )
    marked = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", code],
        env={"MARK": '{"mark": "abc"}'},
        stdout=subprocess.PIPE,
    )
    other = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"],
        env={"MARK": '{"mark": "abd"}'},
    )
    try:
        assert marked.stdout is not None
        assert marked.stdout.readline() == b"1\n"
        assert end_marked("MARK", "abc") >= 1
        assert marked.stdout.read() == b""
        assert other.poll() is None
        assert end_marked("MARK", "abc") == 0
    finally:
        other.kill()
        other.wait()
        marked.wait()
        assert marked.stdout is not None
        marked.stdout.close()
