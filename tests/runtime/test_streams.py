"""streams: all ranks' output, each line behind its prefix, in bounded memory whoever reads it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joinproto.effects import Severity, Spawn
from joinproto.errors import ConfigError
from joinproto.limits import CARRIAGE_RETURN_AGE
from joinproto.runtime.forward import BATCH_BYTES
from joinproto.runtime.loop import Loop
from joinproto.runtime.output import Output, flush
from joinproto.runtime.prefix import Prefix
from joinproto.runtime.streams import (
    HELD_BYTES,
    STALLED_BYTES,
    UNENDED_BYTES,
    OutputSettings,
    Streams,
    parse_ranks,
)
from tests.support.tcp import run_until

ROOM = 1024 * 1024
"""What a pipe to a reader takes by itself."""


def spawn(rank: int | None) -> Spawn:
    """A rank on the device of its number, one place behind the relay."""
    slot = 0 if rank is None else rank + 1
    return Spawn(slot=slot, artifact_hex="", rank=rank, local_rank=rank, device=rank, wire=4)


class Reader:
    """The reading end of a pipe."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        os.set_blocking(fd, False)

    def take(self) -> bytes:
        """All that is there now."""
        parts = []
        while part := self._read():
            parts.append(part)
        return b"".join(parts)

    def _read(self) -> bytes:
        try:
            return os.read(self.fd, 1 << 20)
        except BlockingIOError:
            return b""


class Child:
    """The writing ends of a child's two pipes."""

    def __init__(self, out: int, err: int) -> None:
        self.fds = {"out": out, "err": err}
        self.ended = 0
        self.errors = b""
        self.poured: dict[str, int] = {}
        self._left: dict[str, bytes] = {}

    def write(self, data: bytes, which: str = "out") -> int:
        """Write as much of it as there is room for; how much that is."""
        try:
            return os.write(self.fds[which], data)
        except BlockingIOError:
            return 0

    def pour(self, line: bytes, which: str = "out") -> int:
        """Write as much of one line over and over as there is room for; how much that is.

        Where one call has ended inside a line, the next goes on.
        """
        left = self._left.get(which) or line * (60_000 // len(line))
        count = self.write(left, which)
        self._left[which] = left[count:]
        self.poured[which] = self.poured.get(which, 0) + count
        return count

    def close(self, which: str | None = None) -> None:
        """Close one of them, or what is open."""
        for name in list(self.fds) if which is None else (which,):
            os.close(self.fds.pop(name))


class Host:
    """Streams that lead into two pipes."""

    def __init__(self, host: str = "a", children: int = 4, **settings: Any) -> None:
        self._stack = ExitStack()
        self.loop = Loop()
        self._stack.callback(self.loop.close)
        (out, out_end), (err, err_end) = (self._pipe() for _ in range(2))
        self.out, self.err = Reader(out), Reader(err)
        self.output = Output(self.loop, out=out_end, err=err_end, resumed=self._resume)
        self._stack.callback(self.output.close)
        self.told: list[tuple[Severity, str]] = []
        self.dropped: list[tuple[int, int]] = []
        self.streams = Streams(
            self.loop,
            self.output,
            host,
            OutputSettings(**settings),
            children,
            lambda *text: self.told.append(text),
            lambda *count: self.dropped.append(count),
        )
        self._stack.callback(self.streams.close)

    def _resume(self) -> None:
        self.streams.resume()

    def _pipe(self) -> tuple[int, int]:
        read, write = os.pipe()
        self._stack.callback(os.close, read)
        self._stack.callback(os.close, write)
        return read, write

    def attach(self, rank: int | None) -> Child:
        """A child more."""
        pipes = [os.pipe2(os.O_NONBLOCK) for _ in range(2)]
        child = Child(*(write for _, write in pipes))
        self._stack.callback(child.close)

        def ended() -> None:
            child.ended += 1

        def errors(data: bytes) -> None:
            child.errors += data

        self.streams.attach(spawn(rank), (pipes[0][0], pipes[1][0]), ended, errors)
        return child

    def turn(self, times: int = 1) -> None:
        """Deal with what is ready."""
        for _ in range(times):
            self.loop.run_once(self.loop.now())

    def until(self, condition: Callable[[], object], what: str) -> None:
        run_until(self.loop, condition, what)

    @property
    def held(self) -> int:
        """Everything that is held for readers, and of lines that have not ended."""
        forwarders = [
            each for child in self.streams._children.values() for each in child.forwarders
        ]
        return self.output.held_bytes + sum(each.held_bytes for each in forwarders)

    def flush(self) -> None:
        flush(self.loop, self.output.sinks, 0.05)

    def close(self) -> None:
        # Children first: what they leave in their pipes is no concern of these tests.
        self.streams.drain(lambda: None)
        self._stack.close()


@pytest.fixture
def make() -> Iterator[Callable[..., Host]]:
    """Makes hosts; takes what `Host` takes."""
    with ExitStack() as stack:

        def make(*args: Any, **settings: Any) -> Host:
            host = Host(*args, **settings)
            stack.callback(host.close)
            return host

        yield make


Make = Callable[..., Host]

# -- which ranks ------------------------------------------------------------------------------

RANKS = {
    "0": {0},
    "0,3-5": {0, 3, 4, 5},
    "7,7": {7},
    "2-2": {2},
    "007": {7},
    "5,1": {1, 5},
}


@pytest.mark.parametrize(("text", "ranks"), RANKS.items())
def test_ranks_as_people_list_them(text: str, ranks: set[int]) -> None:
    assert parse_ranks(text) == ranks


@pytest.mark.parametrize(
    "text",
    ["", ",", "0,", "a", "1-", "-1", "1-2-3", " 1", "1.0", "٣", "5-3", "0-200000", "1" * 10, "²"],
)
def test_what_is_no_list_of_ranks(text: str) -> None:
    with pytest.raises(ConfigError, match="^--only-ranks '"):
        parse_ranks(text)


# -- where lines go ---------------------------------------------------------------------------


def test_each_line_stands_behind_whose_it_is(make: Make) -> None:
    host = make()
    relay, zero, one = (host.attach(rank) for rank in (None, 0, 1))
    relay.write(b"one\n")
    zero.write(b"two\nthr")
    one.write(b"four\n")
    zero.write(b"oh\n", "err")
    host.turn(4)
    assert host.out.take() == b"[a:relay] one\n[a:0:r0] two\n[a:1:r1] four\n"
    assert host.err.take() == b"[a:0:r0] oh\n"
    zero.write(b"ee\n")
    host.turn()
    assert host.out.take() == b"[a:0:r0] three\n"
    assert (zero.errors, one.errors) == (b"oh\n", b"")


def test_no_prefix(make: Make) -> None:
    host = make(prefix=None)
    child = host.attach(3)
    child.write(b"one\ntwo")
    child.close("out")
    host.turn(2)
    assert host.out.take() == b"one\ntwo\n"


def test_a_prefix_that_says_when_and_which(make: Make) -> None:
    host = make(prefix=Prefix("{time} {stream} {local_rank}|"))
    child = host.attach(3)
    child.write(b"one\n")
    child.write(b"two\n", "err")
    host.turn()
    assert re.fullmatch(rb"\d\d:\d\d:\d\d\.\d{3} out 3\|one\n", host.out.take())
    assert re.fullmatch(rb"\d\d:\d\d:\d\d\.\d{3} err 3\|two\n", host.err.take())


def test_only_some_ranks_are_given_on(make: Make, tmp_path: Path) -> None:
    host = make(only_ranks=frozenset((1, 2)), log_dir=str(tmp_path))
    children = [host.attach(rank) for rank in (None, 0, 1)]
    for child in children:
        child.write(b"out\n")
        child.write(b"err\n", "err")
        child.close()
    host.turn(2)
    assert sorted(host.out.take().splitlines()) == [b"[a:1:r1] out", b"[a:relay] out"]
    assert sorted(host.err.take().splitlines()) == [b"[a:1:r1] err", b"[a:relay] err"]
    # All the same its end is told, and its log is whole.
    assert [child.ended for child in children] == [1, 1, 1]
    assert children[1].errors == b"err\n"
    assert sorted((tmp_path / "rank-0.log").read_bytes().splitlines()) == [b"err", b"out"]


def test_logs_get_every_byte(make: Make, tmp_path: Path) -> None:
    host = make(log_dir=str(tmp_path))
    relay, child = host.attach(None), host.attach(5)
    child.write(b"\xff\0 one\r\nlast")
    relay.write(b"relay\n", "err")
    child.close()
    host.turn(2)
    host.streams.close()
    assert (tmp_path / "rank-5.log").read_bytes() == b"\xff\0 one\r\nlast\n"
    assert (tmp_path / "relay.log").read_bytes() == b"relay\n"


def test_logs_that_cannot_be_written_are_told_of(make: Make, tmp_path: Path) -> None:
    host = make(log_dir=str(tmp_path / "missing"))
    child = host.attach(0)
    child.write(b"one\n")
    host.turn()
    assert host.out.take() == b"[a:0:r0] one\n"
    ((severity, text),) = host.told
    assert severity == Severity.WARNING
    assert "rank-0.log" in text


def test_logs_share_what_they_may_take_together(make: Make, tmp_path: Path) -> None:
    host = make(log_dir=str(tmp_path), log_bytes=10_000, log_total=1_000, children=5)
    child = host.attach(0)
    for _ in range(10):
        child.write(b"0123456789" * 5 + b"\n")
        host.turn()
    host.streams.close()
    sizes = [path.stat().st_size for path in tmp_path.iterdir()]
    assert len(sizes) == 2
    assert max(sizes) <= 100


# -- the end of a child -----------------------------------------------------------------------


def test_the_end_is_told_once_when_both_streams_have_ended(make: Make) -> None:
    host = make()
    child = host.attach(0)
    child.write(b"done")
    child.close("out")
    host.turn(2)
    assert (host.out.take(), child.ended) == (b"[a:0:r0] done\n", 0)
    child.close("err")
    host.turn(2)
    assert child.ended == 1
    host.streams.drain(host.flush)
    assert child.ended == 1


def test_the_end_is_told_when_the_reader_has_all_of_it(make: Make) -> None:
    host = make()
    loud, child = host.attach(0), host.attach(1)
    stall(host, loud)
    child.write(b"last words\n", "err")
    child.close()
    # Its standard output has ended, unread: it is paused as all of them are.
    host.turn(5)
    assert (child.ended, host.err.take()) == (0, b"[a:1:r1] last words\n")
    taken = host.out.take()
    host.until(lambda: child.ended, "the end is told")
    assert taken.count(b"\n") > 0


def test_a_reader_that_is_gone_keeps_no_end_from_being_told(make: Make) -> None:
    host = make()
    loud, child = host.attach(0), host.attach(1)
    stall(host, loud)
    child.close()
    os.dup2(host.err.fd, host.out.fd)
    host.until(lambda: child.ended, "the end is told")
    loud.write(b"into the void\n")
    loud.close()
    host.until(lambda: loud.ended, "its end is told too")


# -- progress bars ----------------------------------------------------------------------------


def due(host: Host) -> float | None:
    return host.streams.next_timer


def test_progress_bars_come_due(make: Make) -> None:
    host = make()
    assert due(host) is None
    first, second = host.attach(0), host.attach(1)
    first.write(b"10%\r")
    host.turn()
    soon = due(host)
    assert soon is not None
    second.write(b"20%\r")
    host.turn()
    assert due(host) == soon
    host.streams.handle_timer(soon)
    assert host.out.take() == b"[a:0:r0] 10%\r\n"
    later = due(host)
    assert later is not None
    assert soon <= later <= host.loop.now() + CARRIAGE_RETURN_AGE
    host.streams.handle_timer(later)
    assert host.out.take() == b"[a:1:r1] 20%\r\n"
    assert due(host) is None


# -- readers that stall -----------------------------------------------------------------------

LINE = b"x" * 99 + b"\n"


def stall(host: Host, child: Child) -> None:
    """Have a child write lines until nobody takes any more of them."""
    still = 0
    while still < 3:
        still = 0 if child.pour(LINE) else still + 1
        host.turn(2)
    assert child.poured["out"] > ROOM


def test_a_reader_that_stalls_makes_ranks_wait(make: Make) -> None:
    host = make()
    loud, other = host.attach(0), host.attach(1)
    stall(host, loud)
    assert STALLED_BYTES < host.output.out.held_bytes < STALLED_BYTES + 2 * BATCH_BYTES
    held = host.held
    other.write(b"waits\n")
    other.write(b"has a reader\n", "err")
    late = host.attach(2)
    late.write(b"late\n")
    host.turn(3)
    assert host.held == held
    assert host.err.take() == b"[a:1:r1] has a reader\n"
    for child in (loud, other, late):
        child.close()
    got = bytearray()

    def all_ended() -> bool:
        got.extend(host.out.take())
        return loud.ended == other.ended == late.ended == 1

    host.until(all_ended, "all of it is read")
    got += host.out.take()
    assert of_rank(got, 1) == b"waits\n"
    assert of_rank(got, 2) == b"late\n"
    mine = of_rank(got, 0)
    assert mine.rstrip(b"\n") == (LINE * (len(mine) // len(LINE) + 1))[: loud.poured["out"]].rstrip(
        b"\n"
    )
    assert host.told == []


def test_lines_are_dropped_where_that_was_chosen(make: Make) -> None:
    host = make(drop=True)
    loud, other = host.attach(0), host.attach(1)
    lines = 50_000
    block = LINE * 500
    for _ in range(lines // 500):
        assert loud.write(block) == len(block)
        host.turn()
    assert host.output.out.held_bytes < STALLED_BYTES + 2 * BATCH_BYTES
    other.write(b"has a reader\n", "err")
    host.turn()
    assert host.err.take() == b"[a:1:r1] has a reader\n"
    assert (host.dropped, host.told) == ([], [])
    got = bytearray()

    def caught_up() -> bool:
        got.extend(host.out.take())
        return bool(host.dropped)

    host.until(caught_up, "it is told")
    got += host.out.take()
    ((count, dropped),) = host.dropped
    assert got.count(b"\n") + dropped == lines
    assert set(bytes(got).split(b"\n")) == {b"[a:0:r0] " + LINE[:-1], b""}
    assert count == dropped * (9 + len(LINE))
    assert host.told == [
        (
            Severity.WARNING,
            f"dropped {dropped} line(s), {count} bytes: nobody read them in time",
        )
    ]
    # From then on lines come again.
    loud.write(b"again\n")
    host.turn()
    assert host.out.take() == b"[a:0:r0] again\n"


def test_what_was_dropped_is_told_at_the_latest_in_the_end(make: Make) -> None:
    host = make(drop=True)
    child = host.attach(0)
    for _ in range(100):
        child.write(LINE * 500)
        host.turn()
    child.close()
    assert host.dropped == []
    host.streams.drain(host.flush)
    ((count, lines),) = host.dropped
    assert lines > 0
    assert [text.partition(":")[0] for _, text in host.told] == [
        f"dropped {lines} line(s), {count} bytes"
    ]
    host.streams.resume()
    assert len(host.dropped) == 1


# -- memory -----------------------------------------------------------------------------------


def test_lines_that_do_not_end_are_cut_before_they_take_too_much(make: Make) -> None:
    host = make(children=8)
    children = [host.attach(rank) for rank in range(8)]
    sent = dict.fromkeys(range(8), b"")
    got = bytearray()
    most = 0
    for number in range(100):
        for rank, child in enumerate(children):
            # Of different lengths, so that the longest is another one each time.
            data = bytes([97 + number % 26]) * (8_000 + 500 * rank)
            sent[rank] += data[: child.write(data)]
            host.turn()
            most = max(most, host.held)
            got += host.out.take()
    assert most <= UNENDED_BYTES + 65536
    for child in children:
        child.close()

    def all_ended() -> bool:
        got.extend(host.out.take())
        return all(child.ended for child in children)

    host.until(all_ended, "all have ended")
    got += host.out.take()
    for rank in range(8):
        assert of_rank(got, rank).replace(b"\n", b"") == sent[rank]


@pytest.mark.parametrize("name", ["a", "n" * 64, "n" * 4096, "\N{SNOWMAN}" * 4096])
@pytest.mark.parametrize("drop", [False, True])
def test_whatever_ranks_write_only_so_much_is_held(make: Make, name: str, drop: bool) -> None:
    """Lines that never end, then nothing but empty ones, with nobody to read either stream."""
    host = make(name, children=4, drop=drop)
    children = [host.attach(rank) for rank in range(4)]
    most = 0
    # With a long name the first ones would not be through in a day.
    for block in (b"x" * 60_000, b"\n" * 3_000) if len(name) < 100 else (b"\n" * 600,):
        for which, sink in (("out", host.output.out), ("err", host.output.err)):
            more = 3
            while more:
                for child in children:
                    child.write(block, which)
                host.turn()
                most = max(most, host.held)
                more -= sink.held_bytes > STALLED_BYTES
    assert most <= HELD_BYTES
    host.streams.drain(lambda: None)
    assert host.held <= HELD_BYTES


def test_in_the_end_pipes_are_emptied_as_fast_as_somebody_reads(make: Make) -> None:
    host = make(children=8)
    children = [host.attach(rank) for rank in range(8)]
    for child in children:
        while child.pour(LINE):
            host.turn(2)
        child.close()
    got = bytearray()
    most = 0

    def read_a_little() -> None:
        nonlocal most
        most = max(most, host.held)
        got.extend(host.out.take())
        host.turn(3)

    host.streams.drain(read_a_little)
    assert STALLED_BYTES < most < HELD_BYTES
    while host.output.held_bytes:
        read_a_little()
    got += host.out.take()
    for rank, child in enumerate(children):
        assert child.ended == 1
        assert len(of_rank(got, rank)) - child.poured["out"] in (0, 1)


def test_in_the_end_a_long_prefix_costs_no_byte(make: Make) -> None:
    host = make("n" * 4096)
    child = host.attach(0)
    wrote = child.write((b"x" * 999 + b"\n") * 60)
    child.close()
    got = bytearray()

    def read() -> None:
        got.extend(host.out.take())
        host.turn()

    host.streams.drain(read)
    while host.output.held_bytes:
        read()
    got += host.out.take()
    assert (got.count(b"x" * 999), wrote) == (60, 60_000)


def test_in_the_end_nobody_is_waited_for_who_does_not_read(make: Make) -> None:
    host = make(children=8)
    children = [host.attach(rank) for rank in range(8)]
    for child in children:
        while child.write(LINE * 600):
            host.turn(2)
        child.write(b"err\n", "err")
        child.close()
    waits: list[int] = []
    host.streams.drain(lambda: waits.append(host.held))
    assert len(waits) == 1
    assert host.held < waits[0] + 65536
    # The other reader is there.
    assert host.err.take().count(b"err\n") == 8


# -- any bytes in any splits ------------------------------------------------------------------

TRICKY = (b"\n", b"\r", b"[a:1:r1] ", b"\xe2", b"\x82\xac", b"ab")
SAID = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(("out", "err")),
        st.one_of(
            st.binary(max_size=40),
            st.lists(st.sampled_from(TRICKY)).map(b"".join),
        ),
    ),
    max_size=40,
)


@given(SAID)
def test_output_can_be_taken_apart_again(said: list[tuple[int, str, bytes]]) -> None:
    host = Host(children=3)
    try:
        children = [host.attach(rank) for rank in range(3)]
        sent = {(rank, which): b"" for rank in range(3) for which in ("out", "err")}
        for rank, which, data in said:
            children[rank].write(data, which)
            sent[rank, which] += data
            host.turn()
        for child in children:
            child.close()
        host.until(lambda: all(child.ended for child in children), "all have ended")
        got = {"out": host.out.take(), "err": host.err.take()}
    finally:
        host.close()
    for which in ("out", "err"):
        for rank in range(3):
            whole = sent[rank, which]
            expected = whole + b"\n" * bool(whole and not whole.endswith(b"\n"))
            assert of_rank(got[which], rank) == expected


def of_rank(output: bytes | bytearray, rank: int) -> bytes:
    """A rank's lines."""
    prefix = b"[a:%d:r%d] " % (rank, rank)
    found = []
    for line in output.split(b"\n")[:-1]:
        assert re.match(rb"\[a:(\d):r\1\] ", line), line
        if line.startswith(prefix):
            found.append(line.removeprefix(prefix) + b"\n")
    return b"".join(found)
