"""What went wrong in the field with ranks' output, with real processes, down to the last byte.

Each test names the case it is of; what is right there is what it asserts.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import termios
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interop.processes import MARK, clean_environment, kill_marked, marked
from joinproto.limits import DRAIN, LINE_PIECE_BYTES
from joinproto.messages import Abort, Hello, RankExited, WorldFormed
from joinproto.runtime.output import PIPE_BYTES
from joinproto.runtime.streams import HELD_BYTES
from joinproto.testing.fakes import FakeController
from joinproto.testing.script import Admit, Call, Expect, ExpectExits, Say, Until, WaitEnd
from joinproto.testing.stage import Step
from tests.support.processes import children, memory
from tests.support.python import PATIENCE, is_gone, wait_until
from tests.support.roles import OURS, shell

WORLD = WorldFormed(envelope_hex=b'{"controller":{}}'.hex())
PYTHON = (sys.executable, "-I", "-S", "-c")


class Agent:
    """An agent whose standard output nobody reads but when it is told to; a context manager.

    Args:
        address: of the controller.
        command: what ranks run.
        options: more for the agent.
        ranks: how many.
        environment: the agent's, on top of a clean one.
    """

    def __init__(
        self,
        address: str,
        command: Sequence[str],
        *options: str,
        ranks: int = 1,
        environment: Mapping[str, str] = {},
    ) -> None:
        self.mark = uuid.uuid4().hex
        devices = ",".join(map(str, range(ranks)))
        where = ("--controller", address, "--host", "h", "--devices", devices)
        read, write = os.pipe()
        self.out = open(read, "rb", 0)  # noqa: SIM115
        err_read, err_write = os.pipe()
        self.err = open(err_read, "rb", 0)  # noqa: SIM115
        try:
            self.process = subprocess.Popen(
                [*OURS, "agent", *where, *options, "--", *command],
                env={**clean_environment(), **environment, MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=err_write,
                start_new_session=True,
            )
        except BaseException:
            self.out.close()
            self.err.close()
            raise
        finally:
            os.close(write)
            os.close(err_write)

    def wait(self) -> int:
        """Its exit code, which comes whether somebody reads or not."""
        return self.process.wait(PATIENCE)

    def rest(self) -> bytes:
        """All of its standard output, to the end."""
        return self.out.readall()

    def said(self) -> str:
        """All of its standard error, to the end."""
        return self.err.readall().decode()

    def until(self, wanted: bytes) -> bytes:
        """Its standard output up to where these bytes are in it."""
        got = b""
        while wanted not in got:
            data = self.out.read(65536)
            assert data, f"it ended, and said {got[-1000:]!r}"
            got += data
        return got

    @property
    def waiting(self) -> int:
        """How much of its standard output nobody has read yet."""
        return _waiting(self.out.fileno())

    def wait_until_stalled(self) -> None:
        """Wait until the pipe takes no more, since nobody reads it."""
        room = fcntl.fcntl(self.out.fileno(), fcntl.F_GETPIPE_SZ)
        wait_until(lambda: self.waiting > room - 65536, "the pipe to the reader is full")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        kill_marked(self.mark)
        self.process.wait(PATIENCE)
        self.out.close()
        self.err.close()


def _waiting(fd: int) -> int:
    count = fcntl.ioctl(fd, termios.FIONREAD, bytes(4))
    return int.from_bytes(count, sys.byteorder)


def python(code: str) -> tuple[str, ...]:
    """The command line of a rank that runs this code, with `out` to write bytes at once."""
    begin = "import os, signal, sys, time\nout = lambda data, fd=1: os.write(fd, data)\n"
    return (*PYTHON, begin + code)


def output(
    command: Sequence[str], *options: str, codes: Mapping[int, int] | None = None, **others: Any
) -> bytes:
    """What comes of ranks that end by themselves with these codes."""
    codes = {0: 0} if codes is None else codes
    with (
        FakeController.admitting(codes=codes, timeout=PATIENCE) as fake,
        Agent(fake.address, command, *options, ranks=len(codes), **others) as agent,
    ):
        got = agent.rest()
        assert agent.wait() == 0, agent.said()
    return got


def contents(got: bytes, rank: int = 0) -> list[bytes]:
    """A rank's lines, without prefix; every line of all is that of some rank, and ends."""
    lines = got.split(b"\n")
    assert lines.pop() == b""
    found = []
    for line in lines:
        match = re.match(rb"\[h:(\d+):r\1\] ", line)
        assert match is not None, line
        if int(match[1]) == rank:
            found.append(line[match.end() :])
    return found


# -- A1: an exit does not wait for the end of a pipe ------------------------------------------


@pytest.mark.slow
def test_a1_a_grandchild_that_keeps_the_pipe_keeps_nobody_waiting(tmp_path: Path) -> None:
    told: list[float] = []
    script: list[Step] = [Expect(Hello), Admit(), Say(WORLD), Expect(RankExited(rank=0, code=3))]
    script += [Call(lambda: told.append(time.monotonic())), WaitEnd()]
    with FakeController(script) as fake:
        command = shell(f"sleep 600 & echo $! > {tmp_path}/pid; echo hi; exit 3")
        with Agent(fake.address, command) as agent:
            agent.until(b"[h:0:r0] hi\n")
            said = time.monotonic()
            assert agent.wait() == 0
            assert agent.rest() == b""
            assert told[0] - said < DRAIN + 1.0
            assert is_gone(int((tmp_path / "pid").read_text()))
            assert marked(agent.mark) == []


def test_a1_what_comes_late_follows() -> None:
    """The grandchild that kept the pipe writes to it after the exit has been reported."""
    reported = threading.Event()
    script: list[Step] = [Expect(Hello), Admit(), Say(WORLD), Expect(RankExited(rank=0, code=3))]
    script += [Call(reported.set), Expect(RankExited(rank=1, code=0)), WaitEnd()]
    ranks = python(
        """
if os.environ["FLODL_INTERNAL_LOCAL_RANK"] == "0":
    read, write = os.pipe()
    if os.fork():
        out(b"early\\nhalf ")
        os._exit(3)
    os.setsid()
    signal.signal(signal.SIGUSR1, lambda *_: out(b"late\\nand later\\n"))
    out(b"%d\\n" % os.getpid(), 2)
    time.sleep(600)
signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))
out(b"%d\\n" % os.getpid(), 2)
time.sleep(600)
"""
    )
    with (
        FakeController(script) as fake,
        Agent(fake.address, ranks, "--net-timeout-scale", "0.1", ranks=2) as agent,
    ):
        pids: dict[int, int] = {}
        while len(pids) < 2:
            line = agent_line(agent)
            match = re.match(rb"\[h:(\d):r\d\] (\d+)$", line)
            if match is not None:
                pids[int(match[1])] = int(match[2])
        assert reported.wait(PATIENCE)
        os.kill(pids[0], signal.SIGUSR1)
        got = agent.until(b"and later\n")
        os.kill(pids[1], signal.SIGUSR1)
        assert agent.wait() == 0
        assert contents(got + agent.rest()) == [b"early", b"half late", b"and later"]
        assert marked(agent.mark) == []


def agent_line(agent: Agent) -> bytes:
    """The next line of its standard error."""
    line = b""
    while not line.endswith(b"\n"):
        data = agent.err.read(1)
        assert data, f"it ended, and said {line!r}"
        line += data
    return line[:-1]


# -- B1: long lines ---------------------------------------------------------------------------


def test_b1_a_long_line_without_an_end() -> None:
    got = output(python("out(b'x' * 100_000)"))
    assert contents(got) == [b"x" * 100_000]


@pytest.mark.slow
def test_b1_a_line_of_ten_mebibytes() -> None:
    size = 10 * 1024 * 1024
    line = (bytes(range(33, 123)) * (size // 90 + 1))[:size]
    code = f"line = (bytes(range(33, 123)) * {size // 90 + 1})[:{size}]\n"
    got = contents(output(python(code + "sys.stdout.buffer.write(line + b'\\n')")))
    assert b"".join(got) == line
    assert [len(piece) for piece in got] == [LINE_PIECE_BYTES] * (size // LINE_PIECE_BYTES)


# -- B2: bytes that are no UTF-8 --------------------------------------------------------------


def test_b2_bytes_stay_as_they_are() -> None:
    code = "out(b'ok\\n\\xff\\xfe\\n')\nsys.stdout.buffer.write(b'\\x80' * 300_000)"
    got = contents(output(python(code)))
    assert got == [b"ok", b"\xff\xfe", b"\x80" * 300_000]


def test_b2_a_character_that_comes_in_two_parts() -> None:
    got = output(python("out(b'\\xe2\\x82')\ntime.sleep(0.4)\nout(b'\\xac\\n')"))
    assert contents(got) == ["€".encode()]


# -- B3: carriage returns, and what else some take for the end of a line ----------------------


def test_b3_a_progress_bar() -> None:
    code = "for n in range(2000): out(b'\\r' + b'%079d' % n)\nout(b'\\n')"
    got = contents(output(python(code)))
    assert b"".join(got) == b"".join(b"\r" + b"%079d" % n for n in range(2000))
    assert got[-1].endswith(b"1999")


@pytest.mark.slow
def test_b3_a_progress_bar_that_takes_its_time_is_seen_before_it_ends() -> None:
    code = "out(b'10%\\r')\nsignal.signal(signal.SIGUSR1, lambda *_: os._exit(0))\n"
    code += "out(b'%d\\n' % os.getpid(), 2)\ntime.sleep(600)"
    with FakeController.admitting(codes={0: 0}) as fake, Agent(fake.address, python(code)) as agent:
        assert agent.until(b"\n") == b"[h:0:r0] 10%\r\n"
        while (match := re.match(rb"\[h:0:r0\] (\d+)$", agent_line(agent))) is None:
            continue
        os.kill(int(match[1]), signal.SIGUSR1)
        assert agent.wait() == 0
        assert agent.rest() == b""


def test_b3_only_lf_ends_a_line() -> None:
    content = "a\x0bb\x0cc\x1cd\u0085e\u2028f".encode()
    got = output(python(f"out({content!r} + b'\\n')\nout(b'x\\r')\nout(b'\\n')"))
    assert contents(got) == [content, b"x\r"]


# -- B4: the last line ------------------------------------------------------------------------


def test_b4_a_last_line_without_an_end_is_not_glued_to_another_ranks(tmp_path: Path) -> None:
    go = tmp_path / "go"
    os.mkfifo(go)
    command = shell(
        'if [ "$FLODL_INTERNAL_LOCAL_RANK" = 0 ]; then printf done; exit; fi\n'
        f"read x < {go}; echo x"
    )
    script: list[Step] = [Expect(Hello), Admit(), Say(WORLD), Expect(RankExited(rank=0, code=0))]
    script += [Call(lambda: os.close(os.open(go, os.O_WRONLY)))]
    script += [Expect(RankExited(rank=1, code=0)), WaitEnd()]
    with FakeController(script) as fake, Agent(fake.address, command, ranks=2) as agent:
        assert agent.rest() == b"[h:0:r0] done\n[h:1:r1] x\n"
        assert agent.wait() == 0


def test_b4_last_words_before_a_kill() -> None:
    got = output(shell("printf 'last words'; kill -9 $$"), codes={0: -9})
    assert contents(got) == [b"last words"]


# -- B7: what the agent's locale cannot say ---------------------------------------------------


@pytest.mark.parametrize(
    "environment",
    [{"PYTHONIOENCODING": "ascii"}, {"LANG": "oops", "LC_ALL": "oops"}, {"PYTHONUTF8": "0"}],
    ids=lambda variables: "-".join(variables),
)
def test_b7_bytes_know_no_locale(environment: dict[str, str]) -> None:
    got = output(python("out('✓\\n'.encode())\nout(b'\\xff\\n')"), environment=environment)
    assert contents(got) == ["✓".encode(), b"\xff"]


# -- B9: lines that ranks hold back themselves ------------------------------------------------


def test_b9_a_python_rank_is_heard_while_it_runs() -> None:
    seen = threading.Event()
    script = [Expect(Hello), Admit(), Say(WORLD), Until(seen.is_set), Say(Abort(reason="enough"))]
    script += [ExpectExits({0: -15}), WaitEnd()]
    command = (sys.executable, "-c", "print('step 1'); import time; time.sleep(600)")
    with FakeController(script) as fake, Agent(fake.address, command) as agent:
        assert agent.until(b"\n") == b"[h:0:r0] step 1\n"
        seen.set()
        assert agent.wait() == 1


@pytest.mark.parametrize(
    ("inherited", "options", "found"),
    [
        ({}, (), b"1"),
        ({"PYTHONUNBUFFERED": ""}, (), b""),
        ({}, ("--env", "PYTHONUNBUFFERED="), b""),
    ],
    ids=["unset", "the agent's own", "set for ranks"],
)
def test_b9_a_value_of_the_users_own_is_kept(
    inherited: dict[str, str], options: tuple[str, ...], found: bytes
) -> None:
    got = output(shell('echo "<$PYTHONUNBUFFERED>"'), *options, environment=inherited)
    assert contents(got) == [b"<" + found + b">"]


# -- output and exits -------------------------------------------------------------------------


def test_a_ranks_output_is_out_before_its_exit_is_told() -> None:
    got = bytearray()
    late: list[int] = []

    def look() -> None:
        """Take what is there when an exit has been told; the rank's last line must be in it."""
        got.extend(agent.out.read(agent.waiting) if agent.waiting else b"")
        told = fake.messages[-1]
        assert isinstance(told, RankExited)
        if contents(bytes(got), told.rank)[-1:] != [b"end"]:
            late.append(told.rank)

    script: list[Step] = [Expect(Hello), Admit(), Say(WORLD)]
    for _ in range(8):
        script += [Expect(RankExited), Call(look)]
    looked = threading.Event()
    command = python("for n in range(200): out(b'%0199d\\n' % n)\nout(b'end')")
    with (
        FakeController([*script, Call(looked.set), WaitEnd()]) as fake,
        Agent(fake.address, command, ranks=8) as agent,
    ):
        assert agent.wait() == 0
        # The agent may be gone before the last look at what it wrote.
        assert looked.wait(PATIENCE)
        got += agent.rest()
    assert late == []
    for rank in range(8):
        assert contents(bytes(got), rank) == [*(b"%0199d" % n for n in range(200)), b"end"]


# -- readers that stall -----------------------------------------------------------------------

LINE = b"x" * 99
POLICIES = pytest.mark.parametrize("policy", ["block", "drop"])


def room() -> int:
    """What a pipe to a reader holds here, once an agent has given it as much as it may."""
    read, write = os.pipe()
    try:
        with suppress(PermissionError):
            fcntl.fcntl(write, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        return fcntl.fcntl(write, fcntl.F_GETPIPE_SZ)
    finally:
        os.close(read)
        os.close(write)


@POLICIES
def test_an_exit_is_told_although_nobody_reads(policy: str) -> None:
    """And the bytes follow when somebody does, where they are not to be dropped."""
    reported, over = threading.Event(), threading.Event()
    script: list[Step] = [Expect(Hello), Admit(), Say(WORLD), Expect(RankExited(rank=0, code=5))]
    script += [Call(reported.set), Until(over.is_set), Say(Abort(reason="enough"))]
    script += [Expect(RankExited(rank=1, code=-15)), WaitEnd()]
    lines = (room() + 300_000) // 100
    ranks = python(
        f"if os.environ['FLODL_INTERNAL_LOCAL_RANK'] == '0':\n"
        f"    for _ in range({lines}): out(b'x' * 99 + b'\\n')\n"
        f"    os._exit(5)\n"
        f"time.sleep(600)"
    )
    options = ("--on-stalled-output", policy, "--net-timeout-scale", "0.1")
    with (
        FakeController(script, timeout=PATIENCE) as fake,
        Agent(fake.address, ranks, *options, ranks=2) as agent,
    ):
        assert reported.wait(PATIENCE), agent.waiting
        assert agent.waiting > 0
        reader = threading.Thread(target=lambda: got.append(agent.rest()))
        got: list[bytes] = []
        reader.start()
        over.set()
        assert agent.wait() == 1
        reader.join()
        said = agent.said()
    found = contents(got[0])
    dropped = sum(int(n) for n in re.findall(r"dropped (\d+) line", said))
    assert set(found) == {LINE}
    assert len(found) + dropped == lines
    assert policy == "drop" or dropped == 0


@POLICIES
def test_an_abort_is_carried_out_although_nobody_reads(policy: str) -> None:
    stalled = threading.Event()
    script = [Expect(Hello), Admit(), Say(WORLD), Until(stalled.is_set)]
    script += [Say(Abort(reason="enough")), ExpectExits(dict.fromkeys(range(4), -15)), WaitEnd()]
    options = ("--on-stalled-output", policy, "--net-timeout-scale", "0.1")
    flood = python(
        "if os.environ['FLODL_INTERNAL_LOCAL_RANK'] != '0': time.sleep(600)\n"
        "line = b'x' * 99 + b'\\n'\n"
        f"for _ in range({(room() + 300_000) // 100}): out(line)\n"
        "out(b'stalled\\n', 2)\n"
        "while True: out(line)"
    )
    with (
        FakeController(script, timeout=PATIENCE) as fake,
        Agent(fake.address, flood, *options, ranks=4) as agent,
    ):
        # More than the pipe to the reader and that of a rank take together.
        while not agent_line(agent).endswith(b"] stalled"):
            continue
        stalled.set()
        assert agent.wait() == 1
        assert marked(agent.mark) == []
        got, said = agent.rest(), agent.said()
    whole = got[: got.rfind(b"\n") + 1]
    assert set(contents(whole)) == {LINE}
    assert re.search(r"\d+ bytes of output are lost: nobody reads them", said)
    assert policy == "block" or re.search(r"dropped \d+ line\(s\), \d+ bytes", said)
    assert said.splitlines()[-1].endswith("run aborted: enough")


@pytest.mark.slow
def test_a_signal_ends_the_wait_for_a_reader() -> None:
    """The ranks have ended well, and that has been told; what nobody reads is all there is left."""
    told = threading.Event()
    script = [Expect(Hello), Admit(), Say(WORLD), ExpectExits({0: 0}), WaitEnd(), Call(told.set)]
    lines = (room() + 300_000) // 100
    command = python(f"for _ in range({lines}): out(b'x' * 99 + b'\\n')")
    with FakeController(script) as fake, Agent(fake.address, command) as agent:
        assert told.wait(PATIENCE)
        wait_until(lambda: not children(agent.process.pid), "its helper is gone")
        start = time.monotonic()
        # One that comes before it waits has nothing to end.
        wait_until(lambda: ended(agent.process, signal.SIGTERM), "the agent ends")
        assert time.monotonic() - start < DRAIN
        assert agent.wait() == 143
        assert "bytes of output are lost: nobody reads them" in agent.said()


def ended(process: subprocess.Popen[bytes], number: signal.Signals) -> bool:
    """Whether it has ended; if not, it is sent a signal."""
    if process.poll() is None:
        process.send_signal(number)
    return process.returncode is not None


@pytest.mark.slow
@POLICIES
def test_memory_is_bounded_whatever_ranks_write(policy: str, tmp_path: Path) -> None:
    """Four ranks, 200 MB, and nobody to read."""
    for rank in range(4):
        os.mkfifo(tmp_path / f"go{rank}")
    ranks = python(
        "out(b'up\\n')\n"
        f"go = '{tmp_path}/go' + os.environ['FLODL_INTERNAL_LOCAL_RANK']\n"
        "os.read(os.open(go, 0), 1)\n"
        "for _ in range(1000): sys.stdout.buffer.write((b'x' * 99 + b'\\n') * 500)"
    )
    codes = dict.fromkeys(range(4), 0)
    options = ("--on-stalled-output", policy, "--net-timeout-scale", "0.1")
    with (
        FakeController.admitting(codes=codes, timeout=60.0) as fake,
        Agent(fake.address, ranks, *options, ranks=4) as agent,
    ):
        got = b""
        while got.count(b"up\n") < 4:
            got += agent.out.read(65536)
        before = memory(agent.process.pid)
        for rank in range(4):
            os.close(os.open(tmp_path / f"go{rank}", os.O_WRONLY))
        agent.wait_until_stalled()
        if policy == "drop":
            fake.join()
        grown = memory(agent.process.pid, "VmHWM") - before
        count = size = 0
        while data := agent.out.read(1 << 20):
            size += len(data)
            count += data.count(b"\n")
        assert agent.wait() == 0
        said = agent.said()
    assert grown <= HELD_BYTES + SLACK
    dropped = sum(int(n) for n in re.findall(r"dropped (\d+) line", said))
    assert count + dropped == 4 * 500_000
    assert size == count * (9 + 100)
    assert (dropped > 0) == (policy == "drop")


SLACK = 8 * 1024 * 1024
"""What the interpreter itself takes for a batch in work, and does not give back."""


# -- any bytes in any splits ------------------------------------------------------------------

REPLAY = """
import json
for which, data in json.load(open(sys.argv[1] + os.environ["FLODL_INTERNAL_LOCAL_RANK"])):
    out(data.encode("latin-1"), which)
"""
CHUNK = st.one_of(
    st.binary(max_size=200),
    st.lists(st.sampled_from((b"\n", b"\r", b"[h:1:r1] ", b"\xe2", b"\x82\xac", b"ab"))).map(
        b"".join
    ),
    st.integers(1, 3).map(lambda n: b"y" * (n * 70_000)),
)
SAID = st.lists(
    st.lists(st.tuples(st.sampled_from((1, 2)), CHUNK), max_size=30), min_size=3, max_size=3
)


@pytest.mark.slow
@settings(max_examples=8)
@given(SAID)
def test_output_can_be_taken_apart_again(
    tmp_path_factory: pytest.TempPathFactory, said: list[list[tuple[int, bytes]]]
) -> None:
    """By the prefix, into what each rank has written, to each of its two streams."""
    folder = tmp_path_factory.mktemp("said")
    for rank, chunks in enumerate(said):
        written = [(which, data.decode("latin-1")) for which, data in chunks]
        (folder / str(rank)).write_text(json.dumps(written))
    command = (*python(REPLAY), f"{folder}/")
    with (
        FakeController.admitting(codes=dict.fromkeys(range(3), 0)) as fake,
        Agent(fake.address, command, ranks=3) as agent,
    ):
        out = threading.Thread(target=lambda: got.update({1: agent.rest()}))
        got: dict[int, bytes] = {}
        out.start()
        got[2] = agent.err.readall()
        out.join()
        assert agent.wait() == 0
    own = b"joinproto agent: "
    ranks = b"".join(line for line in got[2].splitlines(keepends=True) if not line.startswith(own))
    got[2] = ranks
    for rank, chunks in enumerate(said):
        for which in (1, 2):
            whole = b"".join(data for stream, data in chunks if stream == which)
            ended = whole + b"\n" * (whole[-1:] not in (b"", b"\n"))
            assert b"".join(line + b"\n" for line in contents(got[which], rank)) == ended
