"""local: a launcher's own children, all of them or none, and every byte they print."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

from joinproto.effects import Spawn
from joinproto.errors import ArtifactError, CommandNotFound, SpawnFailed
from joinproto.runtime import forward, local, processes
from joinproto.runtime.job import Job
from joinproto.runtime.local import LocalChild, OutputForwarder, start_all
from joinproto.runtime.output import PIPE_BYTES, Output, widen
from tests.support.python import PATIENCE, is_gone, wait_until
from tests.support.tcp import no_more_descriptors

FORWARDER_THREAD = "joinproto-forwarder"
P = b"[h:5:r3] "


# -- children ---------------------------------------------------------------------------------


def rank(number: int = 3, device: int = 5, *, artifact: str = "7b7d", wire: int = 2) -> Spawn:
    return Spawn(
        slot=number,
        artifact_hex=artifact,
        rank=number,
        local_rank=0,
        device=device,
        wire=wire,
    )


RELAY = Spawn(slot=0, artifact_hex="7b7d", rank=None, local_rank=None, device=None, wire=2)


def job(*command: str, relay: tuple[str, ...] | None = None) -> Job:
    return Job(
        controller=("127.0.0.1", 1),
        command=command,
        relay_command=relay,
        environ=dict(os.environ),
        extra={"MARK": "laid over"},
    )


def shell(script: str, relay: str | None = None) -> Job:
    return job("/bin/sh", "-c", script, relay=None if relay is None else ("/bin/sh", "-c", relay))


def python(code: str) -> Job:
    return job(sys.executable, "-c", code)


def join_forwarders() -> None:
    """Wait until the threads that forward have let go of what they hold."""
    for thread in threading.enumerate():
        if thread.name == FORWARDER_THREAD:
            thread.join(PATIENCE)
            assert not thread.is_alive()


@pytest.fixture(autouse=True)
def started(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[processes.Child]]:
    """The processes that a test starts; those that it forgets are ended."""
    seen: list[processes.Child] = []
    start = processes.start

    def noted(*args: object, **options: object) -> processes.Child:
        child = start(*args, **options)  # type: ignore[arg-type]
        seen.append(child)
        return child

    monkeypatch.setattr(local, "start", noted)
    yield seen
    for child in seen:
        with suppress(OSError):
            child.reap()
    join_forwarders()


# -- this process's output --------------------------------------------------------------------


class Reader:
    """The reading end of one of this process's standard streams."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def lines(self, count: int) -> bytes:
        """So many lines, and what comes with the last of them."""
        got = bytearray()
        while count > 0:
            piece = os.read(self.fd, 65536)
            assert piece, bytes(got)
            count -= piece.count(b"\n")
            got += piece
        return bytes(got)

    def until(self, forwarder: OutputForwarder) -> None:
        """Read on until all has been forwarded."""
        os.set_blocking(self.fd, False)

        def ended() -> bool:
            with suppress(BlockingIOError):
                os.read(self.fd, 65536)
            return forwarder.join(0)

        wait_until(ended, "all is forwarded")

    def go(self) -> None:
        """Be gone."""
        os.dup2(0, self.fd)


@contextmanager
def redirected(fd: int) -> Iterator[Reader]:
    """Have a standard stream lead to a reader."""
    saved = os.dup(fd)
    reader, writer = os.pipe()
    os.dup2(writer, fd)
    os.close(writer)
    try:
        yield Reader(reader)
    finally:
        os.dup2(saved, fd)
        os.close(saved)
        os.close(reader)


def fill(fd: int) -> int:
    """Have no room left in the pipe behind a standard stream; the bytes that took."""
    own = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_NONBLOCK)
    size = 0
    # As roomy as it will be made for the output of children.
    widen(own, PIPE_BYTES)
    with open(own, "wb", 0), suppress(BlockingIOError):
        while True:
            size += os.write(own, b"." * 4096)
    return size


@contextmanager
def both() -> Iterator[tuple[Reader, Reader]]:
    """Readers of standard output and error."""
    with ExitStack() as stack:
        sys.stdout.flush()
        sys.stderr.flush()
        yield stack.enter_context(redirected(1)), stack.enter_context(redirected(2))


def finish(children: tuple[LocalChild, ...]) -> list[int | None]:
    """Their exit codes, once all they printed is out."""
    codes = [child.wait(PATIENCE) for child in children]
    assert all(child.forwarder.join(PATIENCE) for child in children)
    join_forwarders()
    return codes


# -- the usual --------------------------------------------------------------------------------


def test_relay_and_ranks() -> None:
    script = 'echo "$FLODL_INTERNAL_LOCAL_RANK on $CUDA_VISIBLE_DEVICES, $MARK"; echo oops >&2'
    with both() as (out, err):
        children = start_all("h", (RELAY, rank(3, 5), rank(4, 6)), shell(script, "echo relay"))
        assert [child.name for child in children] == ["relay", "rank 3", "rank 4"]
        assert [child.rank for child in children] == [None, 3, 4]
        assert [child.device for child in children] == [None, 5, 6]
        assert finish(children) == [0, 0, 0]
        assert sorted(out.lines(3).splitlines()) == [
            b"[h:5:r3] 0 on 5, laid over",
            b"[h:6:r4] 0 on 6, laid over",
            b"[h:relay] relay",
        ]
        assert sorted(err.lines(2).splitlines()) == [b"[h:5:r3] oops", b"[h:6:r4] oops"]


def test_they_are_children_of_the_caller_and_lead_their_group() -> None:
    with both() as (out, _):
        children = start_all("h", (rank(),), shell("echo $$ $PPID; read line"))
        assert finish(children) == [1]
        assert out.lines(1) == P + b"%d %d\n" % (children[0].pid, os.getpid())


def test_nothing_to_start() -> None:
    assert start_all("h", (), shell("exit 1")) == ()
    join_forwarders()


@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -KILL $$", -9),
        ("kill -SEGV $$", -11),
        ("kill -TERM $$", -15),
    ],
)
def test_how_it_ended(script: str, code: int) -> None:
    (child,) = start_all("h", (rank(),), shell(f"ulimit -c 0; {script}"))
    assert finish((child,)) == [code]
    assert child.wait() == code
    assert child.wait(0) == code


def test_a_host_whose_name_is_not_text_to_python() -> None:
    """The bytes of the command line come out as they went in."""
    with both() as (out, _):
        children = start_all(os.fsdecode(b"h\xff"), (rank(),), shell("echo hi"))
        assert finish(children) == [0]
        assert out.lines(1) == b"[h\xff:5:r3] hi\n"


# -- waiting and ending -----------------------------------------------------------------------


def test_waiting_may_be_given_up() -> None:
    (child,) = start_all("h", (rank(),), shell("exec sleep 600"))
    for timeout in (0, 0.01, -1):
        assert child.wait(timeout) is None
    assert not child.forwarder.join(0)
    child.kill()
    assert finish((child,)) == [-signal.SIGKILL]


@pytest.mark.parametrize(("how", "code"), [("terminate", -15), ("kill", -9)])
def test_its_whole_group_is_ended(how: str, code: int) -> None:
    with both() as (out, _):
        (child,) = start_all("h", (rank(),), shell("sleep 600 & echo $!; wait"))
        grandchild = int(out.lines(1).removeprefix(P))
        getattr(child, how)()
        assert finish((child,)) == [code]
        wait_until(lambda: is_gone(grandchild), "the grandchild is gone")


def test_once_its_end_is_told_nothing_is_signalled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its number may belong to somebody else by then."""
    (child,) = start_all("h", (rank(),), shell(":"))
    finish((child,))
    signalled: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda pid, _: signalled.append(pid))
    child.terminate()
    child.kill()
    assert signalled == []


def test_many_may_wait_for_one() -> None:
    (child,) = start_all("h", (rank(),), shell("exec sleep 600"))
    codes: list[int | None] = []
    threads = [
        threading.Thread(target=lambda: codes.append(child.wait(PATIENCE))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    child.terminate()
    for thread in threads:
        thread.join(PATIENCE)
    assert codes == [-15] * 8
    assert finish((child,)) == [-15]


# -- all or none ------------------------------------------------------------------------------


def none_is_left(started: list[processes.Child], count: int) -> None:
    """So many were started, and all are dead and reaped."""
    assert len(started) == count
    for child in started:
        with pytest.raises(ChildProcessError):
            os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)


def test_a_command_that_is_not_there(started: list[processes.Child]) -> None:
    with pytest.raises(CommandNotFound, match="/no/such: No such file"):
        start_all("h", (RELAY, rank()), job("/no/such", relay=("sleep", "600")))
    none_is_left(started, 1)


def test_an_artifact_that_cannot_be_read(started: list[processes.Child]) -> None:
    with pytest.raises(ArtifactError):
        start_all(
            "h", (rank(1), rank(2), rank(3, artifact="rubbish", wire=4)), shell("exec sleep 600")
        )
    none_is_left(started, 2)


def test_no_thread_to_forward_with(
    started: list[processes.Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: threading.Thread) -> NoReturn:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(SpawnFailed, match="output cannot be forwarded: can't start new thread"):
        start_all("h", (rank(1), rank(2)), shell("exec sleep 600"))
    none_is_left(started, 2)


def test_no_descriptors(started: list[processes.Child]) -> None:
    with no_more_descriptors(), pytest.raises(SpawnFailed, match="cannot be forwarded: Too many"):
        start_all("h", (rank(),), shell("exec sleep 600"))
    none_is_left(started, 0)


def test_too_few_descriptors(started: list[processes.Child]) -> None:
    """Enough for the loop, not for this process's output."""
    spare = os.dup(0)
    with no_more_descriptors():
        os.close(spare)
        with pytest.raises(SpawnFailed, match="cannot be forwarded: Too many"):
            start_all("h", (rank(),), shell("exec sleep 600"))
    none_is_left(started, 0)


# -- output -----------------------------------------------------------------------------------

COUNT = 10_000
"""So many lines, two megabytes of them, do not fit in the pipes on their way."""

MUCH = """
import sys
for number in range(10_000):
    print(f"{{number:0200}}", file=sys.{0})
print("end", end="", file=sys.{0})
"""


def much(prefix: bytes = P) -> bytes:
    numbered = (b"%0200d" % number for number in range(COUNT))
    return b"".join(prefix + line + b"\n" for line in (*numbered, b"end"))


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_reader_that_stalls_loses_nothing(stream: str) -> None:
    with both() as readers:
        reader = readers[stream == "stderr"]
        (child,) = start_all("h", (rank(),), python(MUCH.format(stream)))
        got = reader.lines(1)
        assert not child.forwarder.join(0)
        got += reader.lines(COUNT + 1 - got.count(b"\n"))
        assert got == much()
        assert finish((child,)) == [0]


@pytest.fixture
def output(monkeypatch: pytest.MonkeyPatch) -> list[Output]:
    """The outputs that are made."""
    made: list[Output] = []

    class Noted(Output):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            made.append(self)

    monkeypatch.setattr(local, "Output", Noted)
    return made


def await_file(path: Path) -> str:
    """A line of a shell script that waits for this file."""
    return f"until [ -e '{path}' ]; do sleep 0.01; done"


def test_its_output_has_not_ended_before_a_reader_has_it(
    output: list[Output], tmp_path: Path
) -> None:
    """A caller who joins the forwarder and then exits must not cut off the last line."""
    go_on = tmp_path / "go on"
    with both() as (out, _):
        (child,) = start_all("h", (rank(),), shell(f"{await_file(go_on)}; printf done"))
        filling = fill(1)
        go_on.touch()
        assert child.wait(PATIENCE) == 0
        wait_until(lambda: output[0].held_bytes > 0, "the reader stalls")
        assert not child.forwarder.join(0.01)
        assert out.lines(1) == b"." * filling + P + b"done\n"
        assert finish((child,)) == [0]


def test_one_reader_catches_up_and_the_other_stalls(
    output: list[Output], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The children are not read on, or what is kept for the other would have no bound."""
    monkeypatch.setattr(forward, "CARRIAGE_RETURN_AGE", 0.01)
    first, second = tmp_path / "first", tmp_path / "second"
    script = f"""
        {await_file(first)}
        printf '50%%\\r' >&2
        {await_file(second)}
        while echo more; do :; done
    """
    with both() as (out, err):
        (child,) = start_all("h", (rank(),), shell(script))
        fill(1)
        filling = fill(2)
        first.touch()
        wait_until(lambda: output[0].err.held_bytes > 0, "one reader stalls")
        second.touch()
        wait_until(lambda: output[0].out.held_bytes > 0, "the other stalls too")
        held = output[0].out.held_bytes
        assert err.lines(1) == b"." * filling + P + b"50%\r\n"
        wait_until(lambda: not output[0].err.held_bytes, "the one has caught up")
        # Time for what must not happen; the child waits for the other reader.
        assert child.wait(0.05) is None
        assert output[0].out.held_bytes == held
        # Once the other reads on, so do we.
        out.lines(10_000)
        child.kill()
        assert child.wait(PATIENCE) == -9
        out.until(child.forwarder)


def test_a_reader_that_is_gone_harms_nobody() -> None:
    with both() as (out, err):
        out.go()
        (child,) = start_all(
            "h", (rank(),), python(MUCH.format("stdout") + "\nsys.stderr.write('well')")
        )
        assert finish((child,)) == [0]
        assert err.lines(1) == P + b"well\n"


def test_a_progress_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "CARRIAGE_RETURN_AGE", 0.01)
    with both() as (out, _):
        (child,) = start_all("h", (rank(),), shell("printf '50%%\\r'; exec sleep 600"))
        assert out.lines(1) == P + b"50%\r\n"
        child.kill()
        assert finish((child,)) == [-9]


def test_a_grandchild_that_keeps_the_output() -> None:
    """The child's end is told all the same; that of its output comes with the grandchild's."""
    with both() as (out, _):
        (child,) = start_all("h", (rank(),), shell("sleep 600 & echo $!; exit 3"))
        grandchild = int(out.lines(1).removeprefix(P))
        assert child.process.ended() or child.wait(PATIENCE) == 3
        assert not child.forwarder.join(0.01)
        os.kill(grandchild, signal.SIGKILL)
        assert finish((child,)) == [3]
