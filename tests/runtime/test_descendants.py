"""descendants: all of them are found and ended, wherever they have gone, and nobody else is."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from joinproto.runtime import descendants as module
from joinproto.runtime.descendants import (
    PARENT,
    SESSION,
    STARTED,
    about,
    children,
    descendants,
    kill,
    parent_of,
    prctl,
    reap_one,
    sweep,
    wait_for_one,
)
from tests.support.processes import bystander, state
from tests.support.python import PATIENCE, run_python, wait_until

Process = subprocess.Popen[bytes]

NEVER_USED = 2**22 + 1
"""A number beyond what any kernel gives to a process."""


@contextmanager
def running(script: str) -> Iterator[Process]:
    """A shell script that has said `up`, in a group of its own, which is killed in the end."""
    process = subprocess.Popen(
        ["sh", "-c", script], stdout=subprocess.PIPE, start_new_session=True, bufsize=0
    )
    assert process.stdout is not None
    with process.stdout as pipe:
        try:
            assert pipe.read(3) == b"up\n"
            yield process
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(PATIENCE)


# -- looking around ---------------------------------------------------------------------------


def test_what_the_kernel_tells_of_a_process() -> None:
    me = os.getpid()
    assert parent_of(me) == about(me, PARENT) == os.getppid()
    assert about(me, SESSION) == os.getsid(0)
    with bystander() as process:
        older, younger = about(me, STARTED), about(process.pid, STARTED)
        assert older is not None
        assert younger is not None
        assert older < younger
        assert about(process.pid, SESSION) == process.pid


def test_a_process_that_is_gone() -> None:
    assert parent_of(NEVER_USED) is None
    with bystander() as process:
        pass
    assert parent_of(process.pid) is None


def test_a_process_with_a_name_that_looks_like_what_follows_it(tmp_path: Path) -> None:
    program = tmp_path / "a) 1 (b"
    program.write_text("#!/bin/sh\necho up\nread x\n")
    program.chmod(0o755)
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        assert Path(f"/proc/{process.pid}/comm").read_text() == "a) 1 (b\n"
        assert parent_of(process.pid) == os.getpid()


def test_descendants_are_found_in_other_sessions_too() -> None:
    script = "setsid sh -c 'echo up; sleep 600; :' & wait"
    with running(script) as process:
        (child,) = children()[process.pid]
        wait_until(lambda: child in children(), "the grandchild is there")
        (grandchild,) = children()[child]
        assert about(child, SESSION) == child
        try:
            assert descendants(process.pid) == [child, grandchild]
            assert descendants(grandchild) == []
            assert {process.pid, child, grandchild} <= set(descendants(os.getpid()))
        finally:
            os.killpg(child, signal.SIGKILL)


# -- ending one -------------------------------------------------------------------------------


def test_only_descendants_are_killed() -> None:
    with bystander() as one, bystander() as other:
        kill(one.pid, other.pid)
        kill(one.pid, one.pid)
        kill(os.getpid(), one.pid)
        kill(NEVER_USED, os.getpid())
        assert state(one.pid) in "RSD"
    with running("echo up; exec sleep 600") as process:
        kill(process.pid, os.getpid())
        assert process.wait(PATIENCE) == -signal.SIGKILL


def test_a_process_that_may_not_be_signalled_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, number: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(signal, "pidfd_send_signal", refuse)
    with bystander() as process:
        kill(process.pid, os.getpid())


# -- ending them all --------------------------------------------------------------------------

SWEEP = """
import os, signal, subprocess, time
from joinproto.runtime import descendants

before = descendants.become_subreaper(), descendants.become_subreaper()
process = subprocess.Popen(["sh", "-c", args[0]], stdout=subprocess.PIPE, start_new_session=True)
for _ in range(args[1]):
    process.stdout.readline()
found = len(descendants.descendants(os.getpid()))
reaped = {}
left = descendants.sweep(time.monotonic() + 10, lambda pid, status: reaped.update({pid: status}))
own = os.waitstatus_to_exitcode(reaped[process.pid])
process.returncode = own
process.stdout.close()
descendants.cease_to_be_subreaper()
print(json.dumps([before, found, left, own, len(reaped), descendants.become_subreaper()]))
"""
TREES = {
    "alone": ("echo up; exec sleep 600", 1, 1),
    "ignoring all it can": ("trap '' TERM INT HUP; echo up; sleep 600; :", 1, 2),
    "another session": ("setsid sh -c 'echo up; exec sleep 600' & wait", 1, 2),
    "an orphan": ("(setsid sh -c 'echo up; exec sleep 600' &); exec sleep 600", 1, 2),
    "an orphan's orphan": (
        "(setsid sh -c '(setsid sh -c \"echo up; exec sleep 600\" &); exec sleep 600' &)\n"
        "exec sleep 600",
        1,
        3,
    ),
    "stopped": ("echo up; kill -STOP $$", 1, 1),
    "many": ("for i in $(seq 100); do (echo up; exec sleep 600) & done; wait", 100, 101),
}


@pytest.mark.parametrize(("script", "ups", "count"), TREES.values(), ids=TREES)
def test_all_are_ended(script: str, ups: int, count: int) -> None:
    before, found, left, own, reaped, afterwards = run_python(SWEEP, script, ups)
    assert before == [True, False]
    assert (left, own) == ([], -signal.SIGKILL)
    assert found >= 1
    # What lies deeper is reaped by its own parent, where that dies later.
    assert 1 <= reaped <= count
    assert afterwards is True


def test_one_that_forks_as_fast_as_it_can_is_caught() -> None:
    """It is in many generations at once, each of them a session of its own."""
    script = "while :; do (setsid sleep 600 &); echo up; done"
    _, _, left, own, reaped, _ = run_python(SWEEP, script, 20)
    assert (left, own) == ([], -signal.SIGKILL)
    assert reaped > 20


def test_nothing_to_end() -> None:
    assert (
        run_python(
            "import time\n"
            "from joinproto.runtime.descendants import sweep\n"
            "print(json.dumps(sweep(time.monotonic() + 10, print)))"
        )
        == []
    )


OTHERS = """
import os, subprocess, time
from joinproto.runtime import descendants

ours = subprocess.Popen(["sh", "-c", "setsid sleep 600 & echo up; wait"], stdout=subprocess.PIPE)
theirs = subprocess.Popen(["sleep", "600"])
dead = subprocess.Popen(["true"])
os.waitid(os.P_PID, dead.pid, os.WEXITED | os.WNOWAIT)
ours.stdout.readline()
descendants.become_subreaper()
reaped = []
mine = lambda pid: pid not in (theirs.pid, dead.pid)
left = descendants.sweep(time.monotonic() + 10, lambda pid, status: reaped.append(pid), mine)
ours.returncode = 0
ours.stdout.close()
alive = theirs.poll() is None
theirs.kill()
print(json.dumps([left, reaped[0] == ours.pid, len(reaped), alive, theirs.wait(), dead.wait()]))
"""


def test_children_that_are_not_meant_are_neither_ended_nor_reaped() -> None:
    assert run_python(OTHERS) == [[], True, 2, True, -signal.SIGKILL, 0]


def test_what_cannot_be_ended_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(module, "kill", lambda pid, root: asked.append(pid))
    reaped: list[Any] = []
    with running("sleep 600 & echo up; wait") as process:
        (child,) = children()[process.pid]
        start = time.monotonic()
        left = sweep(start + 0.1, lambda *end: reaped.append(end), lambda pid: pid == process.pid)
        assert time.monotonic() >= start + 0.1
        assert left == [process.pid, child]
    assert asked[:2] == left
    assert reaped == []


def test_a_child_that_somebody_else_has_reaped_counts_as_ended() -> None:
    with bystander() as process:
        assert not reap_one(process.pid, _not_called)
    assert reap_one(process.pid, _not_called)


def _not_called(pid: int, status: int) -> None:
    raise AssertionError(f"{pid} was reaped with {status}")


# -- waiting ----------------------------------------------------------------------------------


def test_waiting_ends_with_the_first_end() -> None:
    with bystander() as one, running("echo up; exec sleep 600") as other:
        start = time.monotonic()
        wait_for_one([one.pid, other.pid], 0.05)
        assert time.monotonic() >= start + 0.05
        other.kill()
        wait_for_one([one.pid, other.pid], PATIENCE)
        wait_for_one([one.pid, NEVER_USED], PATIENCE)
        assert time.monotonic() < start + PATIENCE
    wait_for_one([], -1.0)


# -- the system call --------------------------------------------------------------------------


def test_a_system_call_that_fails() -> None:
    with pytest.raises(OSError, match="Invalid argument"):
        prctl(12345, 0)
