"""The guards fail the tests that they are there to fail, and no others."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import guards

Run = Callable[[str], pytest.RunResult]


def run(pytester: pytest.Pytester, source: str) -> pytest.RunResult:
    """What a pytest run of its own, under the guards, says of the test module `source`."""
    pytester.makepyfile(source)
    return pytester.runpytest_inprocess("-p", "tests.guards", "-p", "no:joinproto")


class TestTime:
    BUSY = """
        import time, pytest

        {mark}
        def test_busy():
            start = time.process_time()
            while time.process_time() - start < 0.02:
                pass
    """

    @pytest.fixture
    def tight(self, monkeypatch: pytest.MonkeyPatch, pytester: pytest.Pytester) -> Run:
        """`run` with a limit of 10 ms, which doesn't hold for the test that uses it."""

        def tight(source: str) -> pytest.RunResult:
            with monkeypatch.context() as patch:
                patch.setattr(guards, "CPU_LIMIT", 0.01)
                return run(pytester, source)

        return tight

    def test_a_busy_test_fails(self, tight: Run) -> None:
        result = tight(self.BUSY.format(mark=""))
        result.assert_outcomes(failed=1)
        result.stdout.fnmatch_lines(["took * s of processor time; make it faster or mark it slow"])

    @pytest.mark.parametrize("mark", guards.UNHURRIED)
    def test_a_marked_one_passes(self, pytester: pytest.Pytester, tight: Run, mark: str) -> None:
        pytester.makeini(f"[pytest]\nmarkers = {mark}")
        result = tight(self.BUSY.format(mark=f"@pytest.mark.{mark}"))
        result.assert_outcomes(passed=1)

    def test_waiting_is_not_counted(self, tight: Run) -> None:
        result = tight("import select\ndef test_idle(): select.select([], [], [], 0.02)")
        result.assert_outcomes(passed=1)


class TestChildren:
    def leak(self, pytester: pytest.Pytester, command: str, then: str) -> tuple[int, str]:
        """The pid of a child that a test leaves behind, and what the run says."""
        source = f"""
            import os, pathlib

            def test_leaks():
                pid = os.posix_spawnp("{command.split()[0]}", {command.split()}, os.environ)
                pathlib.Path("pid").write_text(str(pid))
                {then}
        """
        result = run(pytester, source)
        result.assert_outcomes(passed=1, errors=1)
        return int(Path("pid").read_text()), result.stdout.str()

    def test_a_running_one_fails_and_is_ended(self, pytester: pytest.Pytester) -> None:
        pid, said = self.leak(pytester, "sleep 60", then="")
        assert f"left behind: child {pid} (sleep 60)" in said
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)

    def test_one_that_nobody_waited_for_fails(self, pytester: pytest.Pytester) -> None:
        ended = "os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)"
        pid, said = self.leak(pytester, "true", then=ended)
        assert f"left behind: child {pid} (ended, never waited for)" in said

    def test_one_that_was_there_before_is_let_be(self, pytester: pytest.Pytester) -> None:
        source = """
            import subprocess, pytest

            @pytest.fixture(scope="module")
            def child():
                with subprocess.Popen(["sleep", "60"]) as process:
                    yield process
                    assert process.poll() is None
                    process.kill()

            def test_uses_it(child): pass
        """
        run(pytester, source).assert_outcomes(passed=1)


class TestDescriptors:
    @pytest.mark.parametrize(
        ("opening", "target"),
        [
            ("socket.socket().detach()", "socket:"),
            ("os.dup(os.pipe()[0])", "pipe:"),
            ("os.pidfd_open(os.getpid())", "anon_inode:[pidfd]"),
        ],
        ids=["socket", "pipe", "pidfd"],
    )
    def test_an_open_one_fails(self, pytester: pytest.Pytester, opening: str, target: str) -> None:
        before = set(os.listdir("/proc/self/fd"))
        result = run(pytester, f"import os, socket\ndef test_leaks(): {opening}")
        for number in set(os.listdir("/proc/self/fd")) - before:
            os.close(int(number))
        result.assert_outcomes(passed=1, errors=1)
        assert f"({target}" in result.stdout.str()

    def test_a_closed_one_passes(self, pytester: pytest.Pytester) -> None:
        source = "import socket\ndef test_closes():\n  with socket.socket(): pass"
        run(pytester, source).assert_outcomes(passed=1)

    def test_a_file_is_none_of_its_business(self, pytester: pytest.Pytester) -> None:
        source = "import os\ndef test_opens(): os.open(os.devnull, os.O_RDONLY)"
        before = set(os.listdir("/proc/self/fd"))
        result = run(pytester, source)
        for number in set(os.listdir("/proc/self/fd")) - before:
            os.close(int(number))
        result.assert_outcomes(passed=1)
