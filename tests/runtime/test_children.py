"""children: what the agent asks of its helper, what it hears, and what becomes of either's end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from interop.processes import variables
from joinproto.errors import CommandNotFound, SpawnFailed
from joinproto.runtime import children as module
from joinproto.runtime.children import Children
from joinproto.runtime.loop import Loop
from tests.support import processes
from tests.support.processes import bystander, state
from tests.support.python import PATIENCE, is_gone, wait_until
from tests.support.roles import shell
from tests.support.tcp import run_until

ENVIRONMENT = {"PATH": os.environ["PATH"]}


class Recorder:
    """A family that takes down what it hears."""

    def __init__(self) -> None:
        self.started: dict[int, int] = {}
        self.failed: dict[int, SpawnFailed] = {}
        self.exited: dict[int, int] = {}
        self.order: list[int] = []
        self.lost: Mapping[int, int] | None = None
        self.on_exit: Callable[[], None] = lambda: None

    def child_started(self, slot: int, pid: int) -> None:
        self.started[slot] = pid

    def child_failed(self, slot: int, error: SpawnFailed) -> None:
        self.failed[slot] = error

    def child_exited(self, slot: int, code: int) -> None:
        assert slot in self.started
        assert slot not in self.exited, "told twice"
        self.exited[slot] = code
        self.order.append(slot)
        self.on_exit()

    def helper_died(self, codes: Mapping[int, int]) -> None:
        assert self.lost is None
        self.lost = codes


class Home:
    """Children of this process, and what is heard of them."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.family = Recorder()
        before = set(processes.children(os.getpid()))
        self.children = Children(loop, self.family)
        (self.helper,) = set(processes.children(os.getpid())) - before
        self.pipes: dict[int, tuple[int, int]] = {}
        self.closed = False

    def start(
        self,
        slot: int,
        command: str | Sequence[str],
        environment: Mapping[str, str] = ENVIRONMENT,
        directory: str | None = None,
    ) -> int:
        """Start a child, a shell script where it is a str; its number."""
        self.ask(slot, command, environment, directory)
        started, failed = self.family.started, self.family.failed
        run_until(self.loop, lambda: slot in started or slot in failed, f"{slot} starts")
        assert slot in started, failed[slot]
        return started[slot]

    def ask(
        self,
        slot: int,
        command: str | Sequence[str],
        environment: Mapping[str, str] = ENVIRONMENT,
        directory: str | None = None,
    ) -> None:
        """Ask for a child."""
        argv = shell(command) if isinstance(command, str) else command
        self.pipes[slot] = self.children.spawn(slot, argv, environment, directory)

    def failure(self, slot: int) -> SpawnFailed:
        """Why a child could not be started."""
        run_until(self.loop, lambda: slot in self.family.failed, f"{slot} fails")
        return self.family.failed[slot]

    def code(self, slot: int) -> int:
        """How a child ends."""
        run_until(self.loop, lambda: slot in self.family.exited, f"{slot} ends")
        return self.family.exited[slot]

    def read(self, slot: int, which: int = 0) -> bytes:
        """What a child writes to its standard output (or, 1, error), to the end."""
        fd = self.pipes[slot][which]
        assert not os.get_blocking(fd)
        os.set_blocking(fd, True)
        found = b""
        while data := os.read(fd, 65536):
            found += data
        return found

    def line(self, slot: int) -> bytes:
        """The next line of a child's standard output."""
        fd = self.pipes[slot][0]
        os.set_blocking(fd, True)
        found = b""
        while not found.endswith(b"\n"):
            data = os.read(fd, 1)
            assert data, f"the output ended behind {found!r}"
            found += data
        return found

    def close(self, seconds: float = 10.0) -> list[int]:
        """End it all; those that would not."""
        self.closed = True
        return self.children.close(seconds)

    def let_go(self) -> None:
        """End it all, unless a test has, and close what is open."""
        if not self.closed:
            self.close()
        for fds in self.pipes.values():
            for fd in fds:
                os.close(fd)


@pytest.fixture
def home(loop: Loop) -> Iterator[Home]:
    home = Home(loop)
    try:
        yield home
    finally:
        home.let_go()


# -- starting ---------------------------------------------------------------------------------


def test_a_child_runs_with_what_it_was_given_and_nothing_else(home: Home, tmp_path: Path) -> None:
    environment = {**ENVIRONMENT, "A": "1 2", "EMPTY": "", "ODD": os.fsdecode(b"\xff")}
    home.start(0, ["env"], environment)
    home.start(
        1, ["sh", "-c", 'printf "%s|" "$@"; pwd', "", "a b", "", "ü"], directory=str(tmp_path)
    )
    home.start(2, "echo to error >&2; cat")
    lines = home.read(0).splitlines()
    assert sorted(lines) == sorted(os.fsencode(f"{k}={v}") for k, v in environment.items())
    assert home.read(1) == f"a b||ü|{tmp_path}\n".encode()
    assert (home.read(2), home.read(2, 1)) == (b"", b"to error\n")
    assert [home.code(slot) for slot in range(3)] == [0, 0, 0]


@pytest.mark.parametrize("expected", [0, 3])
def test_a_child_has_three_descriptors(home: Home, expected: int) -> None:
    """Not even those of its parent that are inheritable, or those its pipes came as."""
    read, write = os.pipe()
    try:
        os.set_inheritable(read, True)
        home.children.expect(expected)
        for slot in range(3):
            home.start(slot, ["ls", "/proc/self/fd"])
            # ls itself has the folder open.
            assert home.read(slot) == b"0\n1\n2\n3\n"
    finally:
        os.close(read)
        os.close(write)


def test_only_so_many_wait_and_the_others_are_forked_when_they_are_due(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_EXPECTED", 2)
    home.children.expect(5)
    # A child that has started says that what was asked for before it is done.
    running = {home.start(0, "exec sleep 600")}
    assert len(processes.children(home.helper)) == 2
    running |= {home.start(slot, "exec sleep 600") for slot in range(1, 5)}
    assert set(processes.children(home.helper)) == running
    assert len(running) == 5


def test_a_child_that_closes_its_output_has_closed_it(home: Home) -> None:
    home.start(0, "echo bye; exec >&- 2>&-; exec sleep 600")
    assert home.read(0) == b"bye\n"
    assert home.read(0, 1) == b""
    assert 0 not in home.family.exited


def test_a_child_leads_a_session_of_its_own(home: Home) -> None:
    pid = home.start(0, ["sleep", "600"])
    assert home.children.pids == {0: pid}
    _, parent, group, session, *_ = processes.stat(pid)
    assert [int(parent), int(group), int(session)] == [home.helper, pid, pid]


def test_a_child_minds_signals_as_usual(home: Home) -> None:
    """Whatever this process blocks, and the helper has no use for."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGCHLD))
    try:
        another = Home(home.loop)
        try:
            # Not by way of a shell, which has a mind of its own.
            another.start(0, ["grep", "^Sig[BI]", "/proc/self/status"])
            told = another.read(0).split()
        finally:
            another.let_go()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    masks = {name: int(mask, 16) for name, mask in zip(told[::2], told[1::2], strict=True)}
    usual = range(1, 32)
    assert all(not masks[b"SigBlk:"] >> number - 1 & 1 for number in usual)
    assert all(not masks[b"SigIgn:"] >> number - 1 & 1 for number in usual)


def test_a_request_of_any_size(home: Home) -> None:
    environment = {**ENVIRONMENT, **{f"V{number}": "x" * 100_000 for number in range(10)}}
    home.start(0, 'echo "${#V9}"', environment)
    assert home.read(0) == b"100000\n"


REFUSED: dict[str, tuple[Sequence[str], type[SpawnFailed], str]] = {
    "missing": (["./missing"], CommandNotFound, "./missing: No such file or directory"),
    "nowhere on the path": (["no-such-thing"], CommandNotFound, "no-such-thing: No such file"),
    "a folder": (["/"], CommandNotFound, "/: Permission denied"),
    "below a file": (["/dev/null/x"], CommandNotFound, "/dev/null/x: Not a directory"),
    "no program": (["./plain"], CommandNotFound, "./plain: Exec format error"),
    "without a name": ([""], SpawnFailed, ": Invalid argument"),
    "too long": (["sh", *["x" * 100_000] * 100], SpawnFailed, "sh: Argument list too long"),
}


@pytest.mark.parametrize(("argv", "kind", "told"), REFUSED.values(), ids=REFUSED)
def test_a_command_that_cannot_be_run(
    home: Home, tmp_path: Path, argv: Sequence[str], kind: type[SpawnFailed], told: str
) -> None:
    (tmp_path / "plain").write_bytes(b"\0")
    (tmp_path / "plain").chmod(0o755)
    home.ask(0, argv, directory=str(tmp_path))
    error = home.failure(0)
    assert type(error) is kind
    assert str(error).startswith(told)
    # It is none that ended, and others can be started.
    home.start(1, "exit 4")
    assert home.code(1) == 4
    assert home.family.started.keys() == {1}


def test_a_folder_that_is_not_there(home: Home, tmp_path: Path) -> None:
    home.ask(0, ["true"], directory=str(tmp_path / "x"))
    error = home.failure(0)
    assert type(error) is CommandNotFound
    assert str(error) == f"directory {tmp_path}/x: No such file or directory"


@pytest.mark.parametrize(
    ("argv", "environment"),
    [(["sh", "a\0b"], {}), (["sh"], {"A": "s3cr3t\0"}), (["sh", "\ud800"], {})],
)
def test_what_no_process_can_be_given(
    home: Home, argv: list[str], environment: dict[str, str]
) -> None:
    with pytest.raises(SpawnFailed) as caught:
        home.children.spawn(0, argv, environment, None)
    assert str(caught.value) == "sh: an argument or a variable cannot be passed on"


def test_a_variable_with_a_name_that_is_none(home: Home) -> None:
    home.ask(0, ["true"], {"A=B": "s3cr3t", **ENVIRONMENT})
    assert str(home.failure(0)) == "true: Invalid argument"


def test_no_descriptors_are_left_to_ask_with(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    pipe2 = os.pipe2

    def once(flags: int) -> tuple[int, int]:
        if made:
            raise OSError(24, "Too many open files")
        made.extend(pipe2(flags))
        return made[0], made[1]

    monkeypatch.setattr(os, "pipe2", once)
    with pytest.raises(SpawnFailed, match="^true: Too many open files$"):
        home.children.spawn(0, ["true"], ENVIRONMENT, None)
    assert not any(Path(f"/proc/self/fd/{fd}").exists() for fd in made)


def test_a_helper_that_cannot_be_started(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(SpawnFailed, match="^the helper process: No such file or directory$"):
        Children(loop, Recorder())


def test_the_helper_is_handed_nothing_secret(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOINPROTO_SALT", "s3cr3t")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/nowhere")
    another = Home(home.loop)
    try:
        another.start(0, ["true"])
        assert variables(another.helper) == {"PATH": os.defpath, "LD_LIBRARY_PATH": "/nowhere"}
    finally:
        another.let_go()


# -- ends and signals -------------------------------------------------------------------------


def test_how_children_end(home: Home) -> None:
    for slot, command in enumerate(("exit 0", "exit 7", "exit 255", "kill -9 $$", "kill -11 $$")):
        home.start(slot, command)
    assert [home.code(slot) for slot in range(5)] == [0, 7, 255, -9, -11]
    assert home.children.pids == {}


def test_a_signal_reaches_the_whole_group(home: Home) -> None:
    home.start(0, "sleep 600 & echo $!; wait")
    child = int(home.line(0))
    home.children.signal(0, signal.SIGTERM)
    assert home.code(0) == -signal.SIGTERM
    wait_until(lambda: is_gone(child), "the child's child has ended")


def test_nobody_is_signalled_once_a_child_has_ended(home: Home) -> None:
    """Its group may live on, and its number be somebody else's by then."""
    home.start(0, "sleep 600 & echo $!")
    child = int(home.line(0))
    assert home.code(0) == 0
    home.children.signal(0, signal.SIGKILL)
    home.children.signal(9, signal.SIGKILL)
    home.start(1, "exit 0")
    assert home.code(1) == 0
    assert not is_gone(child)


def test_ends_are_told_in_their_order_although_they_came_at_once(home: Home) -> None:
    count, order = 20, [*range(0, 20, 2), *range(19, 0, -2)]
    pids = [home.start(slot, "exec sleep 600") for slot in range(count)]
    os.kill(home.helper, signal.SIGSTOP)
    wait_until(lambda: state(home.helper) == "T", "the helper stands still")
    for slot in order:
        os.kill(pids[slot], signal.SIGKILL)
        processes.wait_for_end(pids[slot], time.monotonic() + PATIENCE)
    os.kill(home.helper, signal.SIGCONT)
    run_until(home.loop, lambda: len(home.family.order) == count, "all ends are told")
    assert home.family.order == order


def test_all_that_was_told_is_heard_in_one_turn(home: Home) -> None:
    for slot in range(10):
        home.start(slot, "exec sleep 600")
    for slot in range(10):
        home.children.signal(slot, signal.SIGKILL)
    wait_until(lambda: not processes.children(home.helper), "the helper has reaped all")
    # Its last word is on the way when the last child is gone; what came before must be heard.
    home.loop.run_once(None)
    assert len(home.family.exited) >= 9


def test_many_children_at_once(home: Home) -> None:
    count = 100
    for slot in range(count):
        home.ask(slot, ["sh", "-c", f"exit {slot}"])
    assert [home.code(slot) for slot in range(count)] == list(range(count))


# -- sweeping ---------------------------------------------------------------------------------

ORPHAN = "(setsid sh -c 'trap \"\" TERM; echo $$; exec sleep 600' &)"


def test_what_a_child_leaves_behind_stays_until_it_is_swept(home: Home) -> None:
    home.start(0, f"{ORPHAN}; exit 3")
    orphan = int(home.line(0))
    assert home.code(0) == 3
    assert not is_gone(orphan)
    home.children.sweep(10.0)
    wait_until(lambda: is_gone(orphan), "it is swept")
    assert home.close() == []


def test_a_sweep_ends_children_too_and_tells_of_it(home: Home) -> None:
    home.start(0, "trap '' TERM; echo up; sleep 600; :")
    home.line(0)
    home.children.sweep(10.0)
    assert home.code(0) == -signal.SIGKILL
    home.start(1, "exit 0")
    assert home.code(1) == 0


def test_closing_ends_everything(home: Home) -> None:
    home.children.prepare()
    pid = home.start(0, f"{ORPHAN}; exec sleep 600")
    orphan = int(home.line(0))
    assert home.close() == []
    assert home.family.exited == {0: -signal.SIGKILL}
    assert [state(each) for each in (pid, orphan, home.helper)] == ["", "", ""]
    # Whoever asks for something now is not heard, and nothing happens.
    home.children.signal(0, signal.SIGTERM)
    home.children.sweep(1.0)


def test_closing_ends_a_child_that_was_asked_for_and_has_not_started(home: Home) -> None:
    home.ask(0, ["sleep", "600"])
    assert home.close() == []
    (pid,) = home.family.started.values()
    assert state(pid) == ""
    assert home.family.exited == {0: -signal.SIGKILL}


def test_closing_ends_a_child_that_hangs_before_it_is_a_program(home: Home) -> None:
    home.children.expect(1)
    wait_until(lambda: len(processes.children(home.helper)) == 1, "it is forked")
    (pid,) = processes.children(home.helper)
    os.kill(pid, signal.SIGSTOP)
    home.ask(0, ["sleep", "600"])
    home.start(1, "exit 3")
    assert home.code(1) == 3
    assert 0 not in home.family.started
    assert home.close() == []
    assert home.family.exited == {0: -signal.SIGKILL, 1: 3}
    assert state(pid) == ""


def test_closing_goes_on_when_the_family_fails(home: Home) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    home.family.on_exit = fail
    pid = home.start(0, ["sleep", "600"])
    with pytest.raises(ZeroDivisionError):
        home.close()
    assert [state(pid), state(home.helper)] == ["", ""]


def test_those_that_will_not_end_are_named(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    unkillable = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from joinproto.runtime import descendants, reaper\n"
        "descendants.kill = lambda pid, root: None\n"
        "reaper.END_WAIT = 0.1\n"
        "reaper.make_cgroup = lambda name: __import__('joinproto.runtime.cgroup')"
        ".runtime.cgroup.Cgroup(None)\n"
        "reaper.main()"
    )
    monkeypatch.setattr(module, "_PROGRAM", unkillable)
    home = Home(loop)
    try:
        pid = home.start(0, ["sleep", "600"])
        assert home.close(0.1) == [pid]
    finally:
        # It does not hold on to it for ever.
        home.let_go()
        wait_until(lambda: is_gone(pid), "it dies with the helper")


# -- a helper that is gone --------------------------------------------------------------------


def helperless(home: Home) -> Mapping[int, int]:
    """Kill the helper; what is told of it."""
    os.kill(home.helper, signal.SIGKILL)
    run_until(home.loop, lambda: home.family.lost is not None, "it is noticed")
    assert home.family.lost is not None
    return home.family.lost


def test_a_helper_that_dies_takes_all_with_it(home: Home) -> None:
    home.children.prepare()
    pids = [home.start(slot, f"{ORPHAN}; exec sleep 600") for slot in (0, 1)]
    orphans = [int(home.line(slot)) for slot in (0, 1)]
    home.start(2, "exit 5")
    assert home.code(2) == 5
    assert helperless(home) == {0: -signal.SIGKILL, 1: -signal.SIGKILL}
    assert [state(pid) for pid in (*pids, *orphans, home.helper)] == [""] * 5
    assert home.children.pids == {}
    # There is nobody to ask any more.
    home.children.signal(0, signal.SIGTERM)
    home.children.sweep(1.0)
    with pytest.raises(SpawnFailed, match="^true: "):
        home.children.spawn(3, ["true"], ENVIRONMENT, None)
    assert home.close() == []


def test_a_helper_that_dies_before_it_has_said_anything(home: Home) -> None:
    home.children.prepare()
    home.ask(0, ["sleep", "600"])
    assert helperless(home).keys() <= {0}
    assert processes.children(home.helper) == []


def test_a_helper_that_dies_takes_those_with_it_that_wait(home: Home) -> None:
    home.children.prepare()
    home.children.expect(2)
    wait_until(lambda: len(processes.children(home.helper)) == 2, "they are forked")
    waiting = processes.children(home.helper)
    assert helperless(home) == {}
    assert [state(pid) for pid in (*waiting, home.helper)] == [""] * 3


def test_a_helper_that_dies_leaves_the_programs_other_processes_alone(home: Home) -> None:
    """An agent may be part of a program that has children of its own."""
    home.children.prepare()
    home.start(0, f"{ORPHAN}; exec sleep 600")
    orphan = int(home.line(0))
    dead = subprocess.Popen(["sh", "-c", "exit 9"])
    another = Home(home.loop)
    try:
        rank = another.start(0, ["sleep", "600"])
        wait_until(lambda: state(dead.pid) == "Z", "it has ended")
        with bystander(session=False):
            helperless(home)
            assert state(orphan) == ""
        assert dead.wait() == 9
        assert not is_gone(rank)
        another.children.signal(0, signal.SIGTERM)
        assert another.code(0) == -signal.SIGTERM
    finally:
        another.let_go()


def test_a_helper_that_dies_while_all_is_ended(home: Home) -> None:
    home.children.prepare()
    home.start(0, f"{ORPHAN}; exec sleep 600")
    orphan = int(home.line(0))
    os.kill(home.helper, signal.SIGKILL)
    assert home.close() == []
    assert home.family.lost == {0: -signal.SIGKILL}
    assert state(orphan) == ""


def test_a_helper_that_hangs_is_ended_with_all_it_has(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "END_WAIT", 0.2)
    home.children.prepare()
    pid = home.start(0, f"{ORPHAN}; exec sleep 600")
    orphan = int(home.line(0))
    os.kill(home.helper, signal.SIGSTOP)
    start = time.monotonic()
    assert home.close(0.1) == []
    assert time.monotonic() - start < 5.0
    assert [state(each) for each in (pid, orphan, home.helper)] == ["", "", ""]


def test_a_program_is_an_heir_no_longer_than_its_agent_lives(home: Home) -> None:
    home.children.prepare()
    home.close()
    process = subprocess.Popen(shell("sleep 600 >/dev/null & echo $!"), stdout=subprocess.PIPE)
    orphan = int(process.communicate()[0])
    try:
        assert orphan not in processes.children(os.getpid())
    finally:
        os.kill(orphan, signal.SIGKILL)


# -- threads ----------------------------------------------------------------------------------


def test_children_outlive_the_thread_that_asked_for_them(home: Home) -> None:
    """Parent-death signals follow threads; the helper's only one lives as long as it does."""
    pids: list[int] = []
    thread = threading.Thread(target=lambda: pids.append(home.start(0, "exec sleep 600")))
    thread.start()
    thread.join()
    home.start(1, "exit 0")
    # The signal would have come when the thread ended, long before this.
    assert home.code(1) == 0
    assert 0 not in home.family.exited
    assert not is_gone(pids[0])
