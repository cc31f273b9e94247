from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.python import environment, is_gone, run_python, wait_until

PRELUDE = """
import os, signal, threading, time
from joinproto.runtime import probe

way, *args = args
if way == "spawn":
    threading.Thread(target=threading.Event().wait, daemon=True).start()
assert probe._can_fork() == (way == "fork")

def ask(script, seconds=30, **environ):
    it = probe.Probe("execute", ["/bin/sh", "-c", script], environ={**os.environ, **environ})
    return it.outcome(time.monotonic() + seconds, allowed=seconds)

def tell(outcome):
    print(json.dumps([outcome.output.decode(), outcome.code, outcome.fault]))
"""
"""A process with a thread must not fork Python code; both ways have to give the same."""


@pytest.fixture(params=["fork", "spawn"])
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def asked(way: str, code: str, *arguments: object, **env: str) -> Any:
    extra = {name.encode(): value.encode() for name, value in env.items()}
    return run_python(PRELUDE + code, way, *arguments, env=extra)


@pytest.mark.parametrize(
    ("script", "output", "code"),
    [
        ("echo out; echo err >&2", "out\nerr\n", 0),
        ("exit 3", "", 3),
        ("kill -9 $$", "", -9),
        ("read x || echo no input", "no input\n", 0),
        ("head -c 200000 /dev/zero | tr '\\0' x", "x" * 200_000, 0),
    ],
)
def test_what_is_written_and_how_it_ended(way: str, script: str, output: str, code: int) -> None:
    assert asked(way, "tell(ask(args[0]))", script) == [output, code, ""]


def test_a_program_that_is_not_there(way: str) -> None:
    code = """
it = probe.Probe("execute", ["/nowhere/nvidia-smi"], environ={})
tell(it.outcome(time.monotonic() + 30, allowed=30))
"""
    output, status, fault = asked(way, code)
    assert (status, fault) == (127, "")
    assert output == "[Errno 2] No such file or directory: '/nowhere/nvidia-smi'\n"


@pytest.mark.parametrize(
    "script", ["sleep 3600", "trap '' TERM; sleep 3600", "exec >&-; sleep 3600"]
)
def test_what_never_ends_is_killed_at_the_deadline(way: str, script: str, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    output, status, fault = asked(way, "tell(ask(args[0], 0.3))", f"echo $$ > {pid}; {script}")
    assert (output, status, fault) == ("", None, "did not answer within 0.3 s")
    if pid.exists():  # else it was killed before it began
        assert is_gone(int(pid.read_text()))


def test_an_end_is_seen_while_a_grandchild_holds_the_pipe(way: str, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"sleep 3600 & echo $! > {pid}; echo all"
    assert asked(way, "tell(ask(args[0]))", script) == ["all\n", 0, ""]
    wait_until(lambda: is_gone(int(pid.read_text())), "the grandchild ended with the probe")


def test_an_endless_answer_is_cut_off(way: str) -> None:
    code = """
outcome = ask("exec cat /dev/zero")
print(json.dumps([len(outcome.output) < 2 * probe.MAX_ANSWER_BYTES, outcome.code, outcome.fault]))
"""
    assert asked(way, code) == [True, None, "wrote over 1048576 bytes"]


def test_no_secret_reaches_it(way: str) -> None:
    code = 'tell(ask("env", JOINPROTO_SALT="5a17", FLODL_INTERNAL_AGENT_JSON="5a17", KEPT="kept"))'
    output, _, _ = asked(way, code, JOINPROTO_SALT="5a17", FLODL_INTERNAL_RELAY_JSON="5a17")
    assert "KEPT=kept" in output
    assert "5a17" not in output


def test_it_has_its_own_process_group_and_no_core(way: str) -> None:
    output, _, _ = asked(way, "tell(ask('ulimit -c; cut -d\" \" -f1,5 /proc/$$/stat'))")
    core, numbers = output.splitlines()
    assert core == "0"
    pid, group = numbers.split()
    assert pid == group


def test_signals_reach_it_as_if_no_one_had_touched_them(way: str) -> None:
    code = """
signal.signal(signal.SIGTERM, lambda *_: None)
signal.signal(signal.SIGPIPE, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
tell(ask("exec grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status"))
"""
    masks = dict(line.split(":\t") for line in asked(way, code)[0].splitlines())
    assert int(masks["SigBlk"], 16) == 0
    # 32 and 33 are the C library's own, and its posix_spawn ignores them.
    assert int(masks["SigIgn"], 16) & 0x7FFF_FFFF == 0
    assert int(masks["SigCgt"], 16) >> (signal.SIGTERM - 1) & 1 == 0


def test_nothing_is_left_behind(way: str) -> None:
    code = """
before = os.listdir("/proc/self/fd")
ask("true"); ask("sleep 3600", 0.1)
it = probe.Probe("execute", ["/bin/sleep", "3600"], environ=os.environ)
it.close()
it.close()
same = sorted(os.listdir("/proc/self/fd")) == sorted(before)
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print(json.dumps([same, "no child"]))
"""
    assert asked(way, code) == [True, "no child"]


def test_an_exception_while_waiting_ends_it(way: str) -> None:
    """As when a signal's handler stops the agent."""
    code = """
class Stop(Exception): pass
def handler(*_): raise Stop
signal.signal(signal.SIGUSR1, handler)
try:
    ask(f"kill -USR1 {os.getpid()}; exec sleep 3600")
except Stop:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        print(json.dumps("stopped, no child"))
"""
    assert asked(way, code) == "stopped, no child"


def test_a_signal_that_comes_during_the_fork_leaves_no_child() -> None:
    code = """
class Stop(Exception): pass
def handler(*_): raise Stop
signal.signal(signal.SIGUSR1, handler)
fork = os.fork
def interrupted():
    if pid := fork():
        os.kill(os.getpid(), signal.SIGUSR1)
    return pid
os.fork = interrupted
before = os.listdir("/proc/self/fd")
try:
    ask("exec sleep 3600")
except Stop:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        print(json.dumps(len(os.listdir("/proc/self/fd")) == len(before)))
"""
    assert asked("fork", code) is True


def test_no_pidfd(way: str) -> None:
    """As under a filter of system calls that is older than they are."""
    code = """
def refuse(pid): raise OSError(38, "Function not implemented")
os.pidfd_open = refuse
try:
    ask("exec sleep 3600")
except OSError as error:
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        print(json.dumps([error.errno, "no child"]))
"""
    assert asked(way, code) == [38, "no child"]


def test_a_child_that_another_reaped_is_not_signalled(way: str) -> None:
    """With SIGCHLD ignored the kernel reaps, and the number may soon be another process's."""
    code = """
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.killpg = signal.pidfd_send_signal = None
tell(ask("echo all"))
"""
    assert asked(way, code) == ["all\n", None, ""]


def test_no_process_can_be_started(way: str) -> None:
    code = """
def refuse(*args, **kwargs): raise OSError(11, "Resource temporarily unavailable")
os.fork = os.posix_spawn = refuse
before = os.listdir("/proc/self/fd")
try:
    ask("true")
except OSError as error:
    print(json.dumps([error.errno, len(os.listdir("/proc/self/fd")) == len(before)]))
"""
    assert asked(way, code) == [11, True]


def test_it_works_without_standard_descriptors(way: str, tmp_path: Path) -> None:
    answer = tmp_path / "answer"
    code = PRELUDE + "open(args[0], 'w').write(repr(ask('echo out; echo err >&2')))"
    inner = f"import json\nargs = {[way, str(answer)]!r}\n{code}"
    shell = 'exec "$0" -c "$1" <&- >&- 2>&-'
    subprocess.run(["/bin/sh", "-c", shell, sys.executable, inner], env=environment(), check=True)
    assert answer.read_text() == "Outcome(output=b'out\\nerr\\n', code=0, fault='')"


def test_it_ends_when_the_process_that_waits_is_killed(way: str, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    os.mkfifo(pid)
    code = PRELUDE + "ask(f'echo $$ > {args[0]}; exec sleep 3600')"
    inner = f"import json\nargs = {[way, str(pid)]!r}\n{code}"
    with subprocess.Popen([sys.executable, "-c", inner], env=environment()) as waiting:
        try:
            asking = int(pid.read_text())  # blocks until it runs
        finally:
            waiting.kill()
    wait_until(lambda: is_gone(asking), "the probe ended with the process that waited for it")


def test_a_fork_is_avoided_once_nvml_is_in_use() -> None:
    code = """
from joinproto.runtime import probe
first = probe._can_fork()
import pynvml
print(json.dumps([first, probe._can_fork()]))
"""
    assert run_python(code) == [True, False]
