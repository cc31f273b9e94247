"""Direct children: how they are started, signalled, waited for and let go."""

from __future__ import annotations

import errno
import os
import select
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from joinproto.errors import CommandNotFound, SpawnFailed
from joinproto.runtime.processes import Child, start
from tests.support.python import PATIENCE, is_gone, wait_until


@pytest.fixture
def children() -> Iterator[list[Child]]:
    started: list[Child] = []
    yield started
    for child in started:
        child.reap()
        for fd in (child.stdout, child.stderr):
            with suppress(OSError):
                os.close(fd)


def run(children: list[Child], script: str, **variables: str) -> Child:
    """A shell that runs `script`."""
    environment = {"PATH": os.defpath, **variables}
    child = start(["sh", "-c", script], environment=environment, directory=None)
    children.append(child)
    return child


def wait(child: Child) -> int | None:
    """Wait for the child's end; its code."""
    ready, _, _ = select.select([child.pidfd], [], [], PATIENCE)
    assert ready
    assert child.ended()
    return child.code


def read(fd: int) -> bytes:
    """Everything from a pipe, until its end."""
    os.set_blocking(fd, True)
    with open(fd, "rb", closefd=False) as file:
        return file.read()


def test_what_it_finds(children: list[Child], tmp_path: Path) -> None:
    script = (
        "cat; echo $MARK; pwd; echo problem >&2; ps -o sid=,pgid= -p $$; ls /proc/self/fd | wc -l"
    )
    child = start(
        ["sh", "-c", script],
        environment={"PATH": os.environ["PATH"], "MARK": "here"},
        directory=str(tmp_path),
    )
    children.append(child)
    mark, folder, ids, descriptors = read(child.stdout).decode().splitlines()
    assert (mark, folder) == ("here", str(tmp_path))
    assert ids.split() == [str(child.pid)] * 2, "a session and a group of its own"
    assert int(descriptors) == 4, "three streams, and the one that ls opens"
    assert read(child.stderr) == b"problem\n"
    assert wait(child) == 0


def test_its_output_never_blocks_the_reader(children: list[Child]) -> None:
    child = run(children, "exec sleep 600")
    for fd in (child.stdout, child.stderr):
        with pytest.raises(BlockingIOError):
            os.read(fd, 1)


@pytest.mark.parametrize(
    ("script", "code"),
    [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", -9), ("kill -SEGV $$", -11), ("exit 256", 0)],
)
def test_how_it_ended(children: list[Child], script: str, code: int) -> None:
    child = run(children, f"ulimit -c 0; {script}")
    assert wait(child) == code
    assert child.ended(), "and may be asked again"


def test_one_that_runs_has_not_ended(children: list[Child]) -> None:
    child = run(children, "exec sleep 600")
    assert not child.ended()
    assert child.code is None


def test_a_signal_reaches_its_group(children: list[Child]) -> None:
    child = run(children, "sleep 600 & echo $!; wait")
    grandchild = int(os.read(wait_readable(child.stdout), 100))
    child.signal_group(signal.SIGTERM)
    assert wait(child) == -signal.SIGTERM
    wait_until(lambda: is_gone(grandchild), "the grandchild is gone")


def wait_readable(fd: int) -> int:
    assert select.select([fd], [], [], PATIENCE)[0]
    return fd


def test_what_is_left_of_its_group_ends_with_it(children: list[Child]) -> None:
    child = run(children, "sleep 600 & echo $!")
    grandchild = int(os.read(wait_readable(child.stdout), 100))
    assert wait(child) == 0
    assert not is_gone(grandchild)
    child.reap()
    wait_until(lambda: is_gone(grandchild), "the grandchild is gone")


def test_one_that_runs_is_ended_and_reaped(children: list[Child]) -> None:
    child = run(children, "trap '' TERM; while :; do sleep 600; done")
    child.reap()
    assert not os.path.exists(f"/proc/{child.pid}")
    child.reap()


def test_nothing_is_signalled_once_it_is_let_go(
    children: list[Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    child = run(children, "exit 0")
    wait(child)
    child.forget()
    signalled: list[tuple[int, int]] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", lambda *call: signalled.append(call))
        child.signal_group(signal.SIGKILL)
        child.reap()
    assert signalled == []


def test_an_empty_group_is_no_error(children: list[Child], monkeypatch: pytest.MonkeyPatch) -> None:
    child = run(children, "exit 0")

    def nobody(*_: int) -> None:
        raise ProcessLookupError

    with monkeypatch.context() as patch:
        patch.setattr(os, "killpg", nobody)
        child.signal_group(signal.SIGTERM)
    assert wait(child) == 0


def test_what_cannot_be_started(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("no program")
    for argv, directory, told in (
        (["no-such-command"], None, "no-such-command: No such file or directory"),
        ([str(plain)], None, f"{plain}: Permission denied"),
        (["true"], str(tmp_path / "gone"), f"directory {tmp_path / 'gone'}: No such file"),
    ):
        with pytest.raises(CommandNotFound) as caught:
            start(argv, environment={"PATH": os.defpath}, directory=directory)
        assert told in str(caught.value)
        assert caught.value.exit_code == 2


def test_what_cannot_be_passed_on_is_not_repeated() -> None:
    with pytest.raises(SpawnFailed, match="true: an argument or a variable cannot") as caught:
        start(["true"], environment={"SECRET": "hush\0"}, directory=None)
    assert "hush" not in str(caught.value)


def test_too_large_an_environment() -> None:
    with pytest.raises(SpawnFailed, match="true: Argument list too long") as caught:
        start(["true"], environment={"X": "x" * 200_000}, directory=None)
    assert not isinstance(caught.value, CommandNotFound)
    assert caught.value.exit_code == 1


def test_one_that_cannot_be_watched_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def none_left(pid: int) -> int:
        asked.append(pid)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pidfd_open", none_left)
        with pytest.raises(SpawnFailed, match="sleep: Too many open files"):
            start(["sleep", "600"], environment={"PATH": os.defpath}, directory=None)
    (pid,) = asked
    assert not os.path.exists(f"/proc/{pid}")
