"""output: a reader that stalls stops nobody, one that is gone hurts nobody, and no byte is lost."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest

from joinproto.runtime.loop import READ, Loop
from joinproto.runtime.output import Output, Sink, flush, same_file, widen
from tests.support.python import PATIENCE
from tests.support.tcp import run_until

LINES = b"".join(b"line %06d\n" % number for number in range(150_000))
"""Bytes whose place shows, more than a pipe or a socket takes."""


class Reader:
    """The reading end of a pipe or socket, or the master of a terminal, which is not in a hurry."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        os.set_blocking(fd, False)

    def take(self, size: int = 65536) -> bytes:
        """What is there, at most `size` bytes."""
        try:
            return os.read(self.fd, size)
        except BlockingIOError:
            return b""

    def go(self) -> None:
        """Be gone; the descriptor is closed for good by whoever opened it."""
        os.dup2(0, self.fd)

    def take_all(self, loop: Loop, size: int) -> bytes:
        """What comes, until it is `size` bytes."""
        got = bytearray()
        loop.watch(self.fd, READ, lambda _: got.extend(self.take()))
        run_until(loop, lambda: len(got) >= size, f"{size} bytes are read")
        loop.forget(self.fd)
        return bytes(got)


@contextmanager
def a_pipe() -> Iterator[tuple[Reader, int]]:
    reader, writer = os.pipe()
    with open(reader, "rb", 0), open(writer, "wb", 0):
        yield Reader(reader), writer


@contextmanager
def a_socket() -> Iterator[tuple[Reader, int]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield Reader(theirs.fileno()), ours.fileno()


@contextmanager
def a_terminal() -> Iterator[tuple[Reader, int]]:
    master, slave = pty.openpty()
    with open(master, "rb", 0), open(slave, "wb", 0):
        yield Reader(master), slave


Kind = Callable[[], Any]


def refuse(*_: object) -> NoReturn:
    raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


@contextmanager
def somebody_elses_pipe() -> Iterator[tuple[Reader, int]]:
    """A pipe that cannot be opened once more, as behind `su`."""
    with a_pipe() as ends, pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "open", refuse)
        yield ends


KINDS = {
    "pipe": a_pipe,
    "socket": a_socket,
    "terminal": a_terminal,
    "somebody else's pipe": somebody_elses_pipe,
}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())


def never() -> NoReturn:
    raise AssertionError("nothing was held")


def ignore() -> None:
    """It does not matter here."""


def newline(kind: Kind, data: bytes) -> bytes:
    """What of `data` comes out: a terminal has line ends of its own."""
    return data.replace(b"\n", b"\r\n") if kind is a_terminal else data


# -- one destination --------------------------------------------------------------------------


@every_kind
def test_what_fits_is_written_at_once(loop: Loop, kind: Kind) -> None:
    with kind() as (reader, writer), closing(Sink(loop, writer, never)) as sink:
        sink.write(b"one\n")
        sink.write(b"two\n")
        expected = newline(kind, b"one\ntwo\n")
        assert reader.take_all(loop, len(expected)) == expected
        assert (sink.held_bytes, sink.written_bytes) == (0, 8)


@every_kind
def test_a_reader_that_stalls(loop: Loop, kind: Kind) -> None:
    resumed: list[int] = []

    def caught_up() -> None:
        resumed.append(sink.held_bytes)

    with kind() as (reader, writer), closing(Sink(loop, writer, caught_up)) as sink:
        sink.write(LINES)
        assert 0 < sink.held_bytes < len(LINES)
        sink.write(b"more\n")
        sink.write(b"and more\n")
        data = LINES + b"more\nand more\n"
        assert sink.held_bytes + sink.written_bytes == len(data)
        loop.run_once(loop.now())
        assert resumed == []
        expected = newline(kind, data)
        assert reader.take_all(loop, len(expected)) == expected
        assert resumed == [0]
        assert sink.written_bytes == len(data)
        # All is well again, and it may stall once more.
        sink.write(b"once more\n")
        sink.write(LINES)
        expected = newline(kind, b"once more\n" + LINES)
        assert reader.take_all(loop, len(expected)) == expected
        assert resumed == [0, 0]
        loop.run_once(loop.now())
        assert resumed == [0, 0]


@every_kind
def test_a_reader_that_stalled_before_us(loop: Loop, kind: Kind) -> None:
    with kind() as (reader, writer), closing(Sink(loop, writer, ignore)) as sink:
        size = 0
        os.set_blocking(writer, False)
        with suppress(BlockingIOError):
            while True:
                size += os.write(writer, b"." * 4096)
        os.set_blocking(writer, True)
        sink.write(b"x\n")
        assert (sink.held_bytes, sink.written_bytes) == (2, 0)
        expected = newline(kind, b"." * size + b"x\n")
        assert reader.take_all(loop, len(expected)) == expected


@pytest.mark.parametrize(("has", "asked", "gets"), [(4096, 65536, 65536), (65536, 4096, 65536)])
def test_a_pipe_is_made_wider_and_never_narrower(has: int, asked: int, gets: int) -> None:
    with a_pipe() as (_, writer):
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, has)
        widen(writer, asked)
        assert fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ) == gets


def test_what_cannot_be_made_wider_is_left_alone() -> None:
    with a_socket() as (_, writer):
        widen(writer, 65536)


@every_kind
def test_the_descriptor_stays_as_it_is(loop: Loop, kind: Kind) -> None:
    """It is shared with whoever started us; they would not expect it to be non-blocking."""
    with kind() as (_, writer):
        before = fcntl.fcntl(writer, fcntl.F_GETFL)
        assert not before & os.O_NONBLOCK
        with closing(Sink(loop, writer, never)) as sink:
            sink.write(LINES)
            assert sink.held_bytes
            assert fcntl.fcntl(writer, fcntl.F_GETFL) == before
        assert fcntl.fcntl(writer, fcntl.F_GETFL) == before


@every_kind
def test_closing_loses_what_is_held_and_watches_nothing(loop: Loop, kind: Kind) -> None:
    with kind() as (reader, writer):
        sink = Sink(loop, writer, never)
        sink.write(LINES)
        sink.close()
        sink.write(b"too late\n")
        got = b""
        while piece := reader.take():
            got += piece
            loop.run_once(loop.now())
        assert newline(kind, LINES).startswith(got)


@pytest.mark.parametrize("kind", [a_pipe, somebody_elses_pipe, a_socket])
def test_a_reader_that_is_gone(loop: Loop, kind: Kind) -> None:
    with kind() as (reader, writer), closing(Sink(loop, writer, never)) as sink:
        reader.go()
        sink.write(b"one\n")
        sink.write(b"two\n")
        assert sink.gone
        assert (sink.held_bytes, sink.written_bytes) == (0, 0)


@every_kind
def test_a_reader_that_goes_while_it_stalls(loop: Loop, kind: Kind) -> None:
    """Whoever waits for it to catch up need not wait any longer."""
    resumed: list[int] = []

    def caught_up() -> None:
        resumed.append(sink.held_bytes)

    with kind() as (reader, writer), closing(Sink(loop, writer, caught_up)) as sink:
        sink.write(LINES)
        reader.go()
        run_until(loop, lambda: resumed, "it is noticed")
        assert sink.gone
        assert resumed == [0]
        sink.write(b"more\n")
        loop.run_once(loop.now())
        assert (resumed, sink.held_bytes) == ([0], 0)


def test_a_reader_that_was_never_there(loop: Loop) -> None:
    """The pipe cannot be opened once more, and what is written to it is lost."""
    with a_pipe() as (reader, writer):
        reader.go()
        with closing(Sink(loop, writer, never)) as sink:
            sink.write(b"x\n")
            assert sink.gone


def test_a_file(loop: Loop, tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"before\n")
    with path.open("ab", 0) as file:
        with closing(Sink(loop, file.fileno(), never)) as sink:
            sink.write(LINES)
            file.write(b"somebody else\n")
            sink.write(b"after\n")
            assert (sink.held_bytes, sink.written_bytes) == (0, len(LINES) + 6)
        assert path.read_bytes() == b"before\n" + LINES + b"somebody else\nafter\n"


def test_a_file_that_is_not_at_its_beginning(loop: Loop, tmp_path: Path) -> None:
    """`(echo first; joinproto agent …; echo last) > log`: one place in the file for all three."""
    path = tmp_path / "log"
    with path.open("wb", 0) as file:
        file.write(b"first\n")
        with closing(Sink(loop, file.fileno(), never)) as sink:
            sink.write(b"second\n")
        file.write(b"last\n")
    assert path.read_bytes() == b"first\nsecond\nlast\n"


def test_no_room(loop: Loop) -> None:
    """As with a reader that is gone: nothing is raised, and the ranks go on."""
    with open("/dev/full", "wb", 0) as full, closing(Sink(loop, full.fileno(), never)) as sink:
        sink.write(b"x\n")
        sink.write(b"y\n")
        assert sink.held_bytes == 0


def test_room_for_a_part(loop: Loop, tmp_path: Path) -> None:
    """A file is not waited for, even if it has taken the half of what it was given."""
    path = tmp_path / "log"
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with path.open("wb", 0) as file, closing(Sink(loop, file.fileno(), never)) as sink:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
        try:
            sink.write(b"one\n")
            sink.write(b"two and three\n")
            sink.write(b"four\n")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert sink.held_bytes == 0
    assert path.read_bytes() == b"one\ntwo an"


def test_nowhere(loop: Loop) -> None:
    with open(os.devnull, "wb", 0) as null, closing(Sink(loop, null.fileno(), never)) as sink:
        sink.write(LINES)
        assert sink.written_bytes == len(LINES)


# -- what waits for a reader to have it ---------------------------------------------------------


def test_what_is_to_follow_follows_at_once_when_nothing_is_held(loop: Loop) -> None:
    told: list[str] = []
    with a_pipe() as (_, writer), closing(Sink(loop, writer, never)) as sink:
        sink.after(lambda: told.append("before any"))
        sink.write(b"one\n")
        sink.after(lambda: told.append("after one"))
        assert told == ["before any", "after one"]


@every_kind
def test_what_is_to_follow_waits_for_what_came_before_it(loop: Loop, kind: Kind) -> None:
    told: list[tuple[str, int]] = []
    size = len(LINES)

    def note(name: str) -> Callable[[], None]:
        return lambda: told.append((name, sink.written_bytes))

    with kind() as (reader, writer), closing(Sink(loop, writer, ignore)) as sink:
        sink.write(LINES)
        sink.after(note("first"))
        sink.after(lambda: sink.write(b"written in between\n"))
        sink.write(LINES)
        sink.after(note("second"))
        assert told == []
        expected = newline(kind, 2 * LINES + b"written in between\n")
        assert reader.take_all(loop, len(expected)) == expected
    assert [name for name, _ in told] == ["first", "second"]
    (_, first), (_, second) = told
    assert size <= first < second
    assert second >= 2 * size


def test_what_is_to_follow_does_not_wait_for_a_reader_that_is_gone(loop: Loop) -> None:
    told: list[str] = []
    with a_pipe() as (reader, writer), closing(Sink(loop, writer, ignore)) as sink:
        sink.write(LINES)
        sink.after(lambda: told.append("first"))
        sink.write(LINES)
        sink.after(lambda: told.append("second"))
        reader.go()
        run_until(loop, lambda: sink.gone, "it is noticed")
        assert told == ["first", "second"]
        sink.after(lambda: told.append("third"))
        assert told == ["first", "second", "third"]


def test_readers_that_take_something_are_waited_for(loop: Loop) -> None:
    got = bytearray()
    with a_pipe() as (reader, writer), closing(Sink(loop, writer, ignore)) as sink:
        sink.write(LINES)
        loop.watch(reader.fd, READ, lambda _: got.extend(reader.take(4096)))
        flush(loop, (sink,), PATIENCE)
        assert sink.held_bytes == 0
        loop.forget(reader.fd)
        got += reader.take_all(loop, len(LINES) - len(got))
    assert got == LINES


def test_readers_that_stall_are_given_up(loop: Loop) -> None:
    with a_pipe() as (_, writer), closing(Sink(loop, writer, never)) as sink:
        sink.write(LINES)
        held = sink.held_bytes
        before = loop.now()
        flush(loop, (sink,), 0.01)
        assert before + 0.01 <= loop.now() < before + PATIENCE
        assert sink.held_bytes == held


def test_where_nothing_is_held_nobody_is_waited_for(loop: Loop) -> None:
    with a_pipe() as (_, writer), closing(Sink(loop, writer, never)) as sink:
        sink.write(b"x\n")
        flush(loop, (sink,), PATIENCE)
        flush(loop, (), PATIENCE)


# -- standard output and error ----------------------------------------------------------------


@contextmanager
def output(loop: Loop, out: int, err: int, resumed: Callable[[], None] = never) -> Iterator[Output]:
    with closing(Output(loop, out=out, err=err, resumed=resumed)) as made:
        yield made


@every_kind
def test_two_descriptors_of_one_file_share_a_sink(loop: Loop, kind: Kind) -> None:
    with kind() as (reader, writer):
        again = os.dup(writer)
        assert same_file(writer, again)
        with output(loop, writer, again) as both:
            assert both.out is both.err
            assert both.sinks == (both.out,)
            both.out.write(b"one\n")
            both.err.write(b"two\n")
            expected = newline(kind, b"one\ntwo\n")
            assert reader.take_all(loop, len(expected)) == expected
            assert both.written_bytes == 8
        os.close(again)


def test_a_file_opened_twice_is_one_file(loop: Loop, tmp_path: Path) -> None:
    """`> log 2> log`: with a place in the file each, they would overwrite each other."""
    path = tmp_path / "log"
    with ExitStack() as stack:
        one, other = (stack.enter_context(path.open("wb", 0)) for _ in range(2))
        both = stack.enter_context(output(loop, one.fileno(), other.fileno()))
        both.out.write(b"one\n")
        both.err.write(b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"


def test_two_files(loop: Loop) -> None:
    resumed: list[int] = []
    with a_pipe() as (out, one), a_pipe() as (err, other):
        assert not same_file(one, other)
        with output(loop, one, other, lambda: resumed.append(0)) as both:
            assert both.sinks == (both.out, both.err)
            both.out.write(b"one\n")
            both.err.write(b"two\n")
            assert (out.take(), err.take()) == (b"one\n", b"two\n")
            both.out.write(LINES)
            held = both.held_bytes
            assert held == both.out.held_bytes > 0
            both.err.write(LINES)
            assert both.held_bytes == held + both.err.held_bytes
            assert both.written_bytes + both.held_bytes == 8 + 2 * len(LINES)
            # One that stalls does not hold up the other.
            assert err.take_all(loop, len(LINES)) == LINES
            assert resumed == [0]
            assert both.held_bytes == held
            assert out.take_all(loop, len(LINES)) == LINES
            assert resumed == [0, 0]


@every_kind
def test_whether_it_leads_to_the_same(loop: Loop, kind: Kind) -> None:
    with kind() as (_, writer), a_pipe() as (_, another):
        sink = Sink(loop, writer, never)
        assert sink.leads_to(writer)
        assert not sink.leads_to(another)
        sink.close()
        assert not sink.leads_to(writer)


@pytest.mark.parametrize("closed", ["out", "err"])
def test_a_descriptor_that_is_not_open(loop: Loop, closed: str) -> None:
    with a_pipe() as (_, writer):
        not_open = os.dup(writer)
        os.close(not_open)
        descriptors = {"out": writer, "err": writer, closed: not_open}
        with pytest.raises(OSError, match="Bad file descriptor"):
            Output(loop, out=descriptors["out"], err=descriptors["err"], resumed=never)


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ("host 'a' joined", "host 'a' joined"),
        ("two\nlines\r\n", "two\\nlines\\r\\n"),
        ("✓ é", "✓ é"),
        ("\udcff and \ud800", "\\udcff and \\ud800"),
        ("", ""),
    ],
)
def test_a_line_of_its_own(loop: Loop, line: str, written: str) -> None:
    with a_pipe() as (out, one), a_pipe() as (err, other), output(loop, one, other) as both:
        both.say(line)
        assert err.take() == f"joinproto agent: {written}\n".encode()
        assert out.take() == b""


def test_its_own_lines_can_be_left_out(loop: Loop) -> None:
    with a_pipe() as (reader, writer):
        with closing(Output(loop, out=writer, err=writer, resumed=never, mute=True)) as both:
            both.say("nobody reads this")
            both.err.write(b"a child's line\n")
        assert reader.take() == b"a child's line\n"
