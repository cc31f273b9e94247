"""reaper: the helper, spoken to as an agent speaks to it."""

from __future__ import annotations

import errno
import marshal
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

import joinproto
from tests.support.processes import children, descriptors, state, wait_for_end
from tests.support.python import PATIENCE, is_gone, run_python, wait_until
from tests.support.roles import shell

SOURCE = str(Path(joinproto.__file__).parents[1])
IMPORT = "import os, sys; sys.path.insert(0, sys.argv[1]); from joinproto.runtime import reaper"
NO_GROUP = (
    "from joinproto.runtime.cgroup import Cgroup; reaper.make_cgroup = lambda _: Cgroup(None)"
)

Message = tuple[Any, ...]


class Helper:
    """A helper, and the agent's end of the socket to it.

    Args:
        patch: Python code that is run in it before it begins.
        wrapper: a command that runs the one that is put behind it.
        inherits: whether it gets what is inheritable here, as it does from an agent.
    """

    def __init__(
        self, patch: str = "", wrapper: Sequence[str] = (), *, inherits: bool = False
    ) -> None:
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(PATIENCE)
        program = f"{IMPORT}\n{NO_GROUP}\n{patch}\nreaper.main()"
        with theirs:
            self.process = subprocess.Popen(
                [*wrapper, sys.executable, "-I", "-S", "-c", program, SOURCE],
                stdin=theirs.fileno(),
                start_new_session=True,
                close_fds=not inherits,
            )
        assert self.hear() == ("ready", None)

    @property
    def pid(self) -> int:
        return self.process.pid

    def say(self, *message: Any) -> None:
        self.sock.sendall(marshal.dumps(message))

    def hear(self) -> Message:
        """What it says next."""
        data = self.sock.recv(65536)
        assert data, "it is gone"
        message: Message = marshal.loads(data)
        return message

    def ask(self, slot: int, script: str, directory: Path | None = None) -> None:
        """Ask it to start a shell script whose output goes nowhere."""
        environment = {os.fsencode(k): os.fsencode(v) for k, v in os.environ.items()}
        where = None if directory is None else os.fsencode(directory)
        request = marshal.dumps(([os.fsencode(w) for w in shell(script)], environment, where))
        memory = os.memfd_create("request")
        nowhere = os.open(os.devnull, os.O_WRONLY)
        try:
            os.write(memory, request)
            fds = [memory, nowhere, nowhere]
            socket.send_fds(self.sock, [marshal.dumps(("spawn", slot))], fds)
        finally:
            os.close(memory)
            os.close(nowhere)

    def spawn(self, slot: int, script: str) -> Message:
        """The same; what it says to that."""
        self.ask(slot, script)
        return self.hear()

    def start(self, slot: int, script: str) -> int:
        """The same, for one that can be started; its number."""
        word, told, pid = self.spawn(slot, script)
        assert (word, told) == ("started", slot)
        return int(pid)

    def prepare(self, count: int) -> list[int]:
        """Have it fork so many processes ahead; their numbers."""
        self.say("prepare", count)
        wait_until(lambda: len(children(self.pid)) == count, "they are forked")
        return children(self.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.sock.close()
        try:
            assert self.process.wait(PATIENCE) == 0
        finally:
            self.process.kill()
            self.process.wait(PATIENCE)


@pytest.fixture
def helper() -> Iterator[Helper]:
    with Helper() as helper:
        yield helper


def file_of(pid: int, path: Path) -> int:
    """The number in a file that a child of `pid` writes."""
    wait_until(lambda: path.exists() and path.read_text().endswith("\n"), f"{path} is written")
    return int(path.read_text())


# -- its life ---------------------------------------------------------------------------------


def test_it_ends_with_the_agent_and_leaves_nothing(tmp_path: Path) -> None:
    there = tmp_path / "pid"
    with Helper() as helper:
        child = helper.start(0, "trap '' TERM; sleep 600; :")
        helper.start(1, f"(setsid sh -c 'echo $$ > {there}; exec sleep 600' &)")
        orphan = file_of(helper.pid, there)
        assert helper.hear() == ("exited", 1, 0)
        assert not is_gone(orphan)
    assert [state(child), state(orphan)] == ["", ""]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE])
def test_signals_mean_the_agent(helper: Helper, number: signal.Signals) -> None:
    os.kill(helper.pid, number)
    helper.start(0, "exit 3")
    assert helper.hear() == ("exited", 0, 3)


def test_it_keeps_nothing_open_that_it_was_not_meant_to_have() -> None:
    with open("/etc/passwd", "rb") as file:
        os.set_inheritable(file.fileno(), True)
        with Helper(inherits=True) as helper:
            paths = list(descriptors(helper.pid).values())
    assert "/etc/passwd" not in paths
    # The standard ones, and one for what it gives to children.
    assert paths.count("/dev/null") == 4
    assert sum(path.startswith("socket:") for path in paths) == 1


def test_orphans_are_reaped(helper: Helper, tmp_path: Path) -> None:
    helper.start(0, f"(sleep 0.01 &); (sleep 0.02 &); (sleep 0.03 &); echo 1 > {tmp_path}/done")
    assert helper.hear() == ("exited", 0, 0)
    wait_until(lambda: children(helper.pid) == [], "none is left, dead or alive")


def test_a_sweep_is_answered_when_all_is_gone(helper: Helper) -> None:
    pid = helper.start(0, "trap '' TERM; sleep 600; :")
    helper.say("sweep", 10.0)
    assert helper.hear() == ("exited", 0, -9)
    assert helper.hear() == ("swept", [])
    assert state(pid) == ""
    helper.say("sweep", 10.0)
    assert helper.hear() == ("swept", [])
    helper.say("sweep", 0.0)
    assert helper.hear() == ("swept", [])


# -- processes forked ahead -------------------------------------------------------------------


def test_they_become_what_is_asked_for_and_more_are_forked_when_they_are_used_up(
    helper: Helper,
) -> None:
    waiting = helper.prepare(2)
    started = [helper.start(slot, "exec sleep 600") for slot in range(3)]
    assert set(started[:2]) == set(waiting)
    assert started[2] not in waiting
    assert set(children(helper.pid)) == set(started)


def test_they_end_with_the_agent() -> None:
    with Helper() as helper:
        waiting = helper.prepare(3)
    assert [state(pid) for pid in waiting] == [""] * 3


def test_they_can_be_swept(helper: Helper) -> None:
    helper.prepare(3)
    helper.say("sweep", 10.0)
    assert helper.hear() == ("swept", [])
    assert children(helper.pid) == []
    helper.start(0, "exit 3")
    assert helper.hear() == ("exited", 0, 3)


@pytest.mark.parametrize("killed", [1, 2])
def test_one_that_is_killed_while_it_waits_does_no_harm(helper: Helper, killed: int) -> None:
    before = descriptors(helper.pid)
    waiting = helper.prepare(2)
    for pid in waiting[:killed]:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(children(helper.pid)) == 2 - killed, "they are reaped")
    for slot in range(2):
        assert helper.start(slot, "exit 3") not in waiting[:killed]
        assert helper.hear() == ("exited", slot, 3)
    helper.say("sweep", 0.0)
    assert helper.hear() == ("swept", [])
    assert descriptors(helper.pid) == before


@pytest.mark.parametrize("killed", [1, 2])
def test_nor_when_the_helper_has_not_heard_of_it_yet(helper: Helper, killed: int) -> None:
    waiting = helper.prepare(2)
    os.kill(helper.pid, signal.SIGSTOP)
    wait_until(lambda: state(helper.pid) == "T", "the helper stands still")
    # The request first, so that it is what the helper sees first.
    helper.ask(0, "exit 3")
    for pid in waiting[:killed]:
        os.kill(pid, signal.SIGKILL)
        wait_for_end(pid, time.monotonic() + PATIENCE)
    os.kill(helper.pid, signal.SIGCONT)
    word, slot, pid = helper.hear()
    assert (word, slot) == ("started", 0)
    assert pid not in waiting[:killed]
    assert helper.hear() == ("exited", 0, 3)


def test_one_that_hangs_before_it_is_a_program_is_in_nobodys_way(helper: Helper) -> None:
    waiting = helper.prepare(2)
    for pid in waiting:
        os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: {state(pid) for pid in waiting} == {"T"}, "they stand still")
    for slot in range(2):
        helper.ask(slot, "exit 3")
    helper.start(2, "exit 3")
    assert helper.hear() == ("exited", 2, 3)
    # It can be killed like any other child, or is swept.
    helper.say("signal", 0, signal.SIGKILL.value)
    assert helper.hear()[:2] == ("started", 0)
    assert helper.hear() == ("exited", 0, -signal.SIGKILL)
    helper.say("sweep", 10.0)
    assert helper.hear()[:2] == ("started", 1)
    assert helper.hear() == ("exited", 1, -signal.SIGKILL)
    assert helper.hear() == ("swept", [])
    assert children(helper.pid) == []


def test_a_child_that_was_forked_ahead_has_three_descriptors(
    helper: Helper, tmp_path: Path
) -> None:
    helper.prepare(3)
    helper.start(0, f"ls /proc/self/fd > {tmp_path}/fds")
    assert helper.hear() == ("exited", 0, 0)
    # ls itself has the folder open.
    assert (tmp_path / "fds").read_text() == "0\n1\n2\n3\n"


def test_no_room_to_fork_ahead_is_told_only_where_a_child_is_asked_for() -> None:
    with Helper(FAILS_ONCE.format(call="os.fork", number=errno.EAGAIN)) as helper:
        helper.say("prepare", 2)
        helper.start(0, "exit 3")
        assert helper.hear() == ("exited", 0, 3)


HANGS = """
chdir = os.chdir
def hang(directory):
    if directory == b"{slow}":
        with open(directory + b"/gate", "rb") as file:
            file.read()
    chdir(directory)
os.chdir = hang
"""


BEFORE_SETSID = "import time; os.setsid = lambda: time.sleep(600)"


@pytest.mark.parametrize("patch", [HANGS, BEFORE_SETSID], ids=["chdir", "setsid"])
def test_a_child_that_hangs_before_its_exec_can_be_killed(tmp_path: Path, patch: str) -> None:
    os.mkfifo(tmp_path / "gate")
    with Helper(patch.format(slow=tmp_path)) as helper:
        helper.ask(0, "exit 4", directory=tmp_path)
        helper.say("signal", 0, int(signal.SIGKILL))
        word, slot, pid = helper.hear()
        assert (word, slot) == ("started", 0)
        assert helper.hear() == ("exited", 0, -9)
        assert state(pid) == ""


# -- what may go wrong ------------------------------------------------------------------------

FAILS_ONCE = """
import socket

def fail(*given):
    {call} = call
    raise OSError({number}, "no")

def run(self):
    {call} = fail
    go(self)

call, go, reaper.Reaper.run = {call}, reaper.Reaper.run, run
"""


@pytest.mark.parametrize(
    ("call", "number"),
    [
        ("os.fork", errno.EAGAIN),
        ("os.pidfd_open", errno.EMFILE),
        ("socket.socketpair", errno.EMFILE),
    ],
)
def test_a_start_that_fails_is_told_and_the_next_works(call: str, number: int) -> None:
    patch = FAILS_ONCE.format(call=call, number=number)
    with Helper(patch) as helper:
        before = descriptors(helper.pid)
        assert helper.spawn(0, "exec sleep 600") == ("failed", 0, number, b"")
        # It has come to another request, and so is through with that one.
        helper.say("sweep", 0.0)
        assert helper.hear() == ("swept", [])
        assert children(helper.pid) == []
        assert descriptors(helper.pid) == before
        helper.start(1, "exit 3")
        assert helper.hear() == ("exited", 1, 3)


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_request_that_cannot_be_handed_over_costs_no_process(ahead: int) -> None:
    patch = FAILS_ONCE.format(call="socket.send_fds", number=errno.ETOOMANYREFS)
    with Helper(patch) as helper:
        helper.prepare(ahead)
        assert helper.spawn(0, "exit 3") == ("failed", 0, errno.ETOOMANYREFS, b"")
        (waiting,) = children(helper.pid)
        assert helper.start(1, "exit 3") == waiting
        assert helper.hear() == ("exited", 1, 3)


@pytest.mark.parametrize("swept", [False, True])
def test_a_process_that_no_request_could_be_handed_to_is_ended(swept: bool) -> None:
    patch = FAILS_ONCE.format(call="socket.send_fds", number=errno.ETOOMANYREFS)
    with Helper(patch) as helper:
        assert helper.spawn(0, "exit 3") == ("failed", 0, errno.ETOOMANYREFS, b"")
        (waiting,) = children(helper.pid)
        if swept:
            helper.say("sweep", 10.0)
            assert helper.hear() == ("swept", [])
        else:
            os.kill(waiting, signal.SIGKILL)
        wait_until(lambda: children(helper.pid) == [], "it is reaped")
        helper.start(1, "exit 3")
        assert helper.hear() == ("exited", 1, 3)


DEAD_AT_ONCE = """
def await_request(self, sock):
    os._exit(127)

def fork():
    pid = call()
    if pid:
        # It is dead when its request is there, and not reaped.
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        os.fork, reaper.Reaper._await_request = call, go
    return pid

call, os.fork = os.fork, fork
go, reaper.Reaper._await_request = reaper.Reaper._await_request, await_request
"""


def test_one_that_dies_as_soon_as_it_is_forked_is_told_and_the_next_works() -> None:
    with Helper(DEAD_AT_ONCE) as helper:
        assert helper.spawn(0, "exit 3") == ("failed", 0, errno.EPIPE, b"")
        helper.start(1, "exit 3")
        assert helper.hear() == ("exited", 1, 3)


WATCHES_RUN_OUT = """
class Full:
    def __init__(self, real, left):
        self.real, self.left = real, left

    def __getattr__(self, name):
        return getattr(self.real, name)

    def register(self, *given):
        self.left -= 1
        if self.left == -1:
            raise OSError({number}, "no")
        self.real.register(*given)

def run(self):
    # Two for the helper itself.
    self._epoll = Full(self._epoll, 2 + {there})
    go(self)

go, reaper.Reaper.run = reaper.Reaper.run, run
"""


@pytest.mark.parametrize("there", [0, 1])
def test_a_child_that_cannot_be_watched_is_ended_and_the_next_works(there: int) -> None:
    with Helper(WATCHES_RUN_OUT.format(number=errno.ENOSPC, there=there)) as helper:
        before = descriptors(helper.pid)
        assert helper.spawn(0, "exec sleep 600") == ("failed", 0, errno.ENOSPC, b"")
        helper.say("sweep", 0.0)
        assert helper.hear() == ("swept", [])
        assert (children(helper.pid), descriptors(helper.pid)) == ([], before)
        helper.start(1, "exit 3")
        assert helper.hear() == ("exited", 1, 3)


def test_a_soft_limit_that_is_too_low_is_lifted_for_the_helper_alone(tmp_path: Path) -> None:
    limit = shell('ulimit -Sn 32; exec "$@"')
    with Helper(wrapper=[*limit, "sh"]) as helper:
        for slot in range(40):
            helper.start(slot, "exec sleep 600")
        helper.start(40, f"ulimit -Sn > {tmp_path}/soft; ulimit -Hn > {tmp_path}/hard")
        assert helper.hear() == ("exited", 40, 0)
    assert (tmp_path / "soft").read_text() == "32\n"
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    unlimited = hard == resource.RLIM_INFINITY
    assert (tmp_path / "hard").read_text() == ("unlimited\n" if unlimited else f"{hard}\n")


@pytest.mark.parametrize("kind", ["OSError", "ValueError"])
def test_limits_that_may_not_be_set(kind: str) -> None:
    patch = f"def no(*_): raise {kind}\nreaper.resource.setrlimit = no"
    with Helper(patch) as helper:
        helper.start(0, "exit 3")
        assert helper.hear() == ("exited", 0, 3)


def test_an_agent_that_is_gone_while_it_is_told_something(tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    with Helper() as helper:
        pid = helper.start(0, f"read x < {go}; kill -STOP $PPID")
        other = helper.start(1, "trap '' TERM; sleep 600; :")
        os.close(os.open(go, os.O_WRONLY))
        wait_until(lambda: state(helper.pid) == "T", "the helper stands still")
        helper.sock.close()
        os.kill(helper.pid, signal.SIGCONT)
        assert helper.process.wait(PATIENCE) == 0
    assert [state(pid), state(other)] == ["", ""]


ONE_ROUND = """
import marshal, os, socket, time
from joinproto.runtime import cgroup, reaper

reaper.make_cgroup = lambda name: cgroup.Cgroup(None)
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
helper = reaper.Reaper(theirs)
request = os.memfd_create("request")
os.write(request, marshal.dumps(([b"sleep", b"600"], dict(os.environb), None)))
helper._prepare(1)
(child,) = helper._blanks
start = time.monotonic()
helper._heard(child)
helper._ended(child)
helper._spawn(7, request, os.dup(1), os.dup(2))
while child.sock.fileno() >= 0:
    helper._heard(child)
helper._ended(child)
told = [marshal.loads(ours.recv(1000))[:2]]
ours.setblocking(False)
helper._end(time.monotonic() + 10)
told.append(marshal.loads(ours.recv(1000)))
ours.close()
theirs.close()
print(json.dumps([told, time.monotonic() - start < 10]))
"""


def test_an_event_of_an_earlier_child_whose_descriptor_had_the_number() -> None:
    """The helper must not wait for the end of the child that has it now."""
    told, soon = run_python(ONE_ROUND)
    assert told == [["started", 7], ["exited", 7, -9]]
    assert soon


# -- a helper that is killed ------------------------------------------------------------------


def test_children_die_with_it() -> None:
    helper = Helper()
    try:
        pids = [helper.start(slot, "trap '' TERM HUP; exec sleep 600") for slot in range(3)]
        helper.process.kill()
        until = time.monotonic() + 2.0
        for pid in pids:
            wait_for_end(pid, until)
        assert all(is_gone(pid) for pid in pids)
    finally:
        helper.sock.close()
        helper.process.kill()
        helper.process.wait(PATIENCE)


BETWEEN = """
fork = os.fork
def fork_and_die():
    pid = fork()
    if pid:
        os.kill(os.getpid(), 9)
    # What a child does first comes after the end of its parent.
    while os.getppid() == reaper_pid:
        pass
    return 0
reaper_pid = os.getpid()
os.fork = fork_and_die
"""


def test_a_child_whose_helper_died_right_behind_the_fork_does_not_begin(tmp_path: Path) -> None:
    helper = Helper(BETWEEN)
    try:
        with pytest.raises(AssertionError, match="it is gone"):
            helper.spawn(0, f"echo x > {tmp_path}/began")
        assert helper.process.wait(PATIENCE) == -signal.SIGKILL
    finally:
        helper.sock.close()
        helper.process.kill()
        helper.process.wait(PATIENCE)
    assert not (tmp_path / "began").exists()
