"""forward: every byte in order, in whole lines behind a prefix, in bounded memory and time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joinproto.limits import CARRIAGE_RETURN_AGE, LINE_PIECE_BYTES
from joinproto.runtime.forward import CHUNK, DRAIN_CHUNKS, Forwarder, Liner
from joinproto.runtime.loop import Loop
from joinproto.runtime.output import Sink
from tests.support.python import PATIENCE
from tests.support.tcp import run_until

P = b"[h:0:r1] "
AGE = CARRIAGE_RETURN_AGE
NOON = 43_200.0

# -- lines, by example ------------------------------------------------------------------------


def lines(*contents: bytes) -> bytes:
    """These lines, as they are to be written."""
    return b"".join(P + content + b"\n" for content in contents)


def feed(liner: Liner, *pieces: bytes) -> bytes:
    """What comes of these bytes, which come at noon."""
    return b"".join(liner.feed(piece, NOON) for piece in pieces)


def test_a_line() -> None:
    liner = Liner(P)
    assert feed(liner, b"one\n") == lines(b"one")
    assert liner.held_bytes == 0
    assert liner.finish() == b""


def test_several_lines_and_the_beginning_of_one() -> None:
    liner = Liner(P)
    assert feed(liner, b"one\n\ntwo\nthr") == lines(b"one", b"", b"two")
    assert liner.held_bytes == 3
    assert feed(liner, b"ee") == b""
    assert feed(liner, b"\nfour\n") == lines(b"three", b"four")


def test_the_last_line_need_not_end() -> None:
    """It gets an end, or the next process's line would be glued to it."""
    liner = Liner(P)
    assert feed(liner, b"one\ndone") == lines(b"one")
    assert liner.finish() == lines(b"done")
    assert liner.finish() == b""
    assert liner.held_bytes == 0


def test_only_lf_ends_a_line() -> None:
    content = "a\x0bb\x0cc\x1cd\u0085e\u2028f\rg\r".encode()
    assert feed(Liner(P), content + b"\n") == lines(content)


def test_bytes_are_left_as_they_are() -> None:
    assert feed(Liner(P), b"ok\n\xff\xfe\n\x00\n") == lines(b"ok", b"\xff\xfe", b"\x00")
    assert feed(Liner(P), b"\xe2\x82", b"\xac\n") == lines("€".encode())


@pytest.mark.parametrize("pieces", [(b"x\r\n",), (b"x\r", b"\n"), (b"x", b"\r", b"\n")])
def test_the_line_ends_of_another_system(pieces: tuple[bytes, ...]) -> None:
    assert feed(Liner(P), *pieces, b"y\r\n") == lines(b"x\r", b"y\r")


def due(liner: Liner) -> float | None:
    """When a progress bar comes due."""
    return liner.flush_at


# -- long lines -------------------------------------------------------------------------------


def test_a_line_of_ten_mebibytes() -> None:
    line = bytes(range(128, 256)) * 8 * 10 * 1024
    assert len(line) == 10 * LINE_PIECE_BYTES
    liner = Liner(P)
    got = bytearray()
    for at in range(0, len(line), CHUNK):
        got += liner.feed(line[at : at + CHUNK], NOON)
        assert liner.held_bytes < LINE_PIECE_BYTES
    got += liner.feed(b"\n", NOON)
    starts = range(0, len(line), LINE_PIECE_BYTES)
    assert bytes(got) == lines(*(line[at : at + LINE_PIECE_BYTES] for at in starts))
    assert liner.finish() == b""


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        ((b"abcd",), (b"abcd",)),
        ((b"abcd", b"\n"), (b"abcd",)),
        ((b"abcd\n",), (b"abcd",)),
        ((b"abcd", b"\n\n"), (b"abcd", b"")),
        ((b"abcd", b"\n", b"\n"), (b"abcd", b"")),
        ((b"abcd", b"\n", b"x\n"), (b"abcd", b"x")),
        ((b"abcd", b"e\n"), (b"abcd", b"e")),
        ((b"abcde", b"\n"), (b"abcd", b"e")),
        ((b"abcdefghij\nk",), (b"abcd", b"efgh", b"ij", b"k")),
        ((b"x\nabcdefgh\n\n",), (b"x", b"abcd", b"efgh", b"")),
        ((b"ab", b"cdefghi", b"j\n"), (b"abcd", b"efgh", b"ij")),
    ],
)
def test_a_piece_is_no_longer_than_it_may_be(
    pieces: tuple[bytes, ...], expected: tuple[bytes, ...]
) -> None:
    liner = Liner(P, 4)
    assert feed(liner, *pieces) + liner.finish() == lines(*expected)


LENGTHS = {
    "short": [10] * 5000,
    "long": [2000] * 100,
    "very long": [70_000] * 5,
    "long, then short": [5000] * 5 + [0] * 3000,
    "short, then long": [0] * 3000 + [5000] * 50,
    "one short among long ones": [3000] * 10 + [1] + [3000] * 10,
    "one long among short ones": [1] * 1000 + [100_000] + [1] * 1000,
}


@pytest.mark.parametrize("lengths", LENGTHS.values(), ids=LENGTHS.keys())
@pytest.mark.parametrize("chunk", [999, 16 * 1024, CHUNK])
def test_lines_of_every_length_are_alike(lengths: list[int], chunk: int) -> None:
    contents = [bytes([33 + n % 90]) * length for n, length in enumerate(lengths)]
    text = b"".join(content + b"\n" for content in contents)
    pieces = (text[at : at + chunk] for at in range(0, len(text), chunk))
    assert feed(Liner(P), *pieces) == lines(*contents)


# -- progress bars ----------------------------------------------------------------------------


def test_a_progress_bar_waits_for_its_end_a_while() -> None:
    liner = Liner(P)
    assert due(liner) is None
    liner.feed(b" 10%", NOON)
    assert due(liner) is None
    liner.feed(b"\r 20%\r", NOON + 0.5)
    liner.feed(b" 30%\r", NOON + 0.7)
    # From the first carriage return on.
    assert due(liner) == NOON + 0.5 + AGE
    assert liner.flush_old(NOON + 0.4 + AGE) == b""
    assert liner.held_bytes == 15
    assert liner.flush_old(NOON + 0.5 + AGE) == lines(b" 10%\r 20%\r 30%\r")
    assert due(liner) is None
    assert liner.flush_old(NOON + 100) == b""


def test_a_line_without_a_carriage_return_waits_for_ever() -> None:
    liner = Liner(P)
    liner.feed(b"working ...", NOON)
    assert liner.flush_at is None
    assert liner.flush_old(NOON + 1000 * AGE) == b""
    assert liner.feed(b" done\n", NOON + 1000 * AGE) == lines(b"working ... done")


def test_a_line_that_ends_is_old_no_more() -> None:
    liner = Liner(P)
    liner.feed(b"50%\r", NOON)
    assert liner.feed(b"100%\nnext", NOON + 0.1) == lines(b"50%\r100%")
    assert liner.flush_at is None
    assert liner.flush_old(NOON + 2 * AGE) == b""


def test_each_piece_of_a_progress_bar_is_old_by_itself() -> None:
    liner = Liner(P)
    liner.feed(b"1\r", NOON)
    liner.flush_old(NOON + AGE)
    liner.feed(b"2\r", NOON + AGE + 0.3)
    assert liner.flush_at == NOON + AGE + 0.3 + AGE


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        (b"\n", ()),
        (b"\n\n", (b"",)),
        (b"\nnext\n", (b"next",)),
        (b"done\n", (b"done",)),
        (b"\r\n", (b"\r",)),
    ],
)
def test_the_end_of_a_line_that_went_out_early_is_not_written_twice(
    rest: bytes, expected: tuple[bytes, ...]
) -> None:
    liner = Liner(P)
    liner.feed(b"x\r", NOON)
    assert liner.flush_old(NOON + AGE) == lines(b"x\r")
    assert liner.feed(rest, NOON + AGE) == lines(*expected)
    assert liner.finish() == b""


def test_a_piece_that_takes_a_carriage_return_with_it_takes_its_age_too() -> None:
    """What then comes due must not swallow the end of a line that is to come."""
    liner = Liner(P, 4)
    assert liner.feed(b"abc\r", NOON) == lines(b"abc\r")
    assert liner.flush_at is None
    assert liner.feed(b"\n", NOON) == b""
    assert liner.flush_old(NOON + 2 * AGE) == b""
    assert liner.feed(b"\n", NOON) == lines(b"")


def test_a_line_that_is_cut_off_goes_on_as_another() -> None:
    liner = Liner(P)
    assert liner.cut() == b""
    assert feed(liner, b"\n") == lines(b"")
    feed(liner, b"one, tw")
    assert liner.cut() == lines(b"one, tw")
    assert liner.cut() == b""
    assert feed(liner, b"\n", b"\n") == lines(b"")
    feed(liner, b"thr\r")
    assert liner.cut() == lines(b"thr\r")
    assert liner.flush_at is None
    assert feed(liner, b"ee\n") == lines(b"ee")


def test_two_thousand_updates() -> None:
    updates = b"".join(b"\r%79d" % number for number in range(2000))
    liner = Liner(P)
    got = b"".join(
        liner.feed(updates[at : at + 80], NOON + at / 16_000) + liner.flush_old(NOON + at / 16_000)
        for at in range(0, len(updates), 80)
    )
    got += liner.feed(b"\n", NOON + 10)
    # Ten seconds of them, each line a second's worth.
    assert 9 <= got.count(b"\n") <= 11
    assert got.endswith(b"%79d\n" % 1999)
    assert got.replace(P, b"").replace(b"\n", b"") == updates


# -- lines, by property -----------------------------------------------------------------------

texts = st.lists(
    st.sampled_from([b"\n", b"\r", b"\r\n", b"a", b"bc", b"\xff", b"12345678", P]), max_size=25
).map(b"".join)
"""Bytes in which much happens: ends of lines, and lines about as long as a piece."""


@st.composite
def split(draw: st.DrawFn, texts: st.SearchStrategy[bytes]) -> tuple[bytes, list[bytes]]:
    """A text, and the same in pieces, none of them empty."""
    text = draw(texts)
    bits = draw(st.integers(0, 2 ** len(text) - 1))
    ends = [at for at in range(1, len(text)) if bits >> at & 1] + [len(text)]
    return text, [text[a:b] for a, b in zip([0, *ends], ends, strict=False) if a < b]


def wanted(text: bytes, piece: int) -> bytes:
    """What is to come of a text however it is split, as long as no time passes."""
    *whole, last = text.split(b"\n")
    contents = []
    for line in whole + ([last] if last else []):
        contents += [line[at : at + piece] for at in range(0, max(1, len(line)), piece)]
    return lines(*contents)


@pytest.mark.slow
@given(split(texts | st.binary(max_size=60)), st.integers(1, 9))
def test_the_lines_do_not_depend_on_how_the_bytes_come(
    given: tuple[bytes, list[bytes]], piece: int
) -> None:
    text, pieces = given
    liner = Liner(P, piece)
    assert feed(liner, *pieces) + liner.finish() == wanted(text, piece)


Written = tuple[str, bytes]


def run(liner: Liner, pieces: list[bytes], pauses: list[float | None]) -> Iterator[Written]:
    """What is written, and why, when the bytes come with pauses, or a cut in place of one."""
    now = NOON
    for piece, pause in zip(pieces, pauses, strict=True):
        yield "fed", liner.feed(piece, now)
        assert liner.flush_at is None or now < liner.flush_at <= now + AGE
        if pause is None:
            yield "cut", liner.cut()
            assert liner.held_bytes == 0
            continue
        # Whoever asks late, or without need, does no harm.
        now += pause
        flushed = liner.flush_old(now)
        assert liner.flush_at is None or liner.flush_at > now
        yield "old", flushed
    yield "rest", liner.finish()


@pytest.mark.slow
@given(split(texts), st.data(), st.integers(1, 9))
def test_no_byte_is_lost_nor_a_line_end_made_up(
    given: tuple[bytes, list[bytes]], data: st.DataObject, piece: int
) -> None:
    """Prefixes and added line ends taken out again, the output is the input."""
    text, pieces = given
    some = st.sampled_from([0.0, 0.4 * AGE, AGE, 3 * AGE, None])
    pauses = data.draw(st.lists(some, min_size=len(pieces), max_size=len(pieces)))
    liner = Liner(P, piece)
    at = 0
    for why, written in run(liner, pieces, pauses):
        assert not written or written.endswith(b"\n")
        for line in written.split(b"\n")[:-1]:
            assert line.startswith(P)
            content = line[len(P) :]
            assert len(content) <= piece
            assert text[at : at + len(content)] == content
            at += len(content)
            if text[at : at + 1] == b"\n":
                at += 1
            else:
                # This end is ours: of a full piece, an old one, one cut off, or the last.
                assert content
                assert len(content) == piece or why != "fed"
        assert why == "fed" or written.count(b"\n") == bool(written)
        assert why != "old" or not written or b"\r" in written
    assert at == len(text)
    assert liner.held_bytes == 0


# -- pipes ------------------------------------------------------------------------------------


def never() -> NoReturn:
    raise AssertionError("a file holds nothing up")


class Forwarded:
    """A forwarder between a pipe and a file."""

    def __init__(self, loop: Loop, path: Path, **options: Any) -> None:
        self.loop = loop
        self.path = path
        self.ends: list[str] = []
        self.takings = 0
        self.on_took: Callable[[], object] = int
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        self._file = path.open("wb", 0)
        self._sink = Sink(loop, self._file.fileno(), never)
        self.forwarder = Forwarder(
            loop, self.reader, P, self._sink, self._ended, self._took, **options
        )

    def close(self) -> None:
        """Let go of all of it."""
        self.forwarder.close()
        self._sink.close()
        self._file.close()
        self.hang_up()

    def hang_up(self) -> None:
        """Close the writing end."""
        if self.writer >= 0:
            os.close(self.writer)
        self.writer = -1

    def write(self, data: bytes) -> None:
        """Have the child write."""
        assert os.write(self.writer, data) == len(data)

    def given(self) -> bytes:
        """What has been given on."""
        return self.path.read_bytes()

    def once(self) -> None:
        """One round of the loop, without waiting."""
        self.loop.run_once(self.loop.now())

    def until_ended(self) -> None:
        """Run to the end."""
        run_until(self.loop, lambda: self.ends, "its end")

    def _ended(self) -> None:
        assert not self.forwarder.open
        self.ends.append("ended")

    def _took(self) -> None:
        self.takings += 1
        self.on_took()


@pytest.fixture
def piped(loop: Loop, tmp_path: Path) -> Iterator[Forwarded]:
    with closing(Forwarded(loop, tmp_path / "out")) as piped:
        yield piped


@contextmanager
def writing(fd: int, data: bytes) -> Iterator[None]:
    """Meanwhile, all of this is written, and the descriptor closed."""

    def write() -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(fd, rest) :]
        os.close(fd)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        thread.join(PATIENCE)
        assert not thread.is_alive()


def is_open(fd: int) -> bool:
    """Whether this process has such a descriptor."""
    return os.path.exists(f"/proc/self/fd/{fd}")


def test_lines_as_they_come(piped: Forwarded) -> None:
    piped.write(b"one\ntw")
    piped.once()
    assert piped.given() == lines(b"one")
    assert piped.forwarder.held_bytes == 2
    piped.write(b"o")
    piped.once()
    assert piped.given() == lines(b"one")
    assert piped.takings == 2
    piped.write(b"\n")
    piped.once()
    assert piped.given() == lines(b"one", b"two")
    assert piped.takings == 3
    assert piped.forwarder.held_bytes == 0
    assert piped.ends == []


def test_the_end_and_the_last_line(piped: Forwarded) -> None:
    piped.write(b"one\ndone")
    piped.hang_up()
    assert piped.forwarder.open
    piped.until_ended()
    assert piped.given() == lines(b"one", b"done")
    assert piped.takings == 1
    assert not is_open(piped.reader)
    assert piped.forwarder.next_timer is None
    # Nothing that is done to it now does anything.
    piped.forwarder.pause()
    piped.forwarder.resume()
    piped.forwarder.drain()
    piped.forwarder.close()
    piped.forwarder.handle_timer(piped.loop.now() + 100)
    piped.once()
    piped.forwarder.cut()
    assert piped.ends == ["ended"]
    assert piped.takings == 1
    assert piped.given() == lines(b"one", b"done")


def test_an_end_without_a_byte(piped: Forwarded) -> None:
    piped.hang_up()
    piped.until_ended()
    assert (piped.given(), piped.takings, piped.ends) == (b"", 0, ["ended"])


def test_much(piped: Forwarded) -> None:
    data = b"".join(b"line %06d\n" % number for number in range(100_000))
    writer, piped.writer = piped.writer, -1
    with writing(writer, data):
        piped.until_ended()
    assert piped.given() == P + data[:-1].replace(b"\n", b"\n" + P) + b"\n"


def test_a_progress_bar_comes_due(piped: Forwarded) -> None:
    assert [piped.forwarder.next_timer] == [None]
    piped.write(b"50%\r")
    before = piped.loop.now()
    piped.once()
    due = piped.forwarder.next_timer
    assert due is not None
    assert before + AGE <= due <= piped.loop.now() + AGE
    piped.forwarder.handle_timer(due - 0.001)
    assert piped.given() == b""
    piped.forwarder.handle_timer(due)
    assert piped.given() == lines(b"50%\r")
    assert piped.forwarder.next_timer is None
    piped.write(b"\n")
    piped.hang_up()
    piped.until_ended()
    assert piped.given() == lines(b"50%\r")


def test_paused_it_leaves_all_in_the_pipe(piped: Forwarded) -> None:
    data = b"".join(b"line %06d\n" % number for number in range(50_000))
    piped.on_took = piped.forwarder.pause
    writer, piped.writer = piped.writer, -1
    rounds = 0
    with writing(writer, data):
        while not piped.ends:
            size = len(piped.given())
            run_until(
                piped.loop, lambda: piped.ends or not piped.loop.watches(piped.reader), "it pauses"
            )
            if piped.ends:
                break
            rounds += 1
            assert size < len(piped.given()) <= size + 3 * CHUNK
            paused = piped.given()
            piped.once()
            assert piped.given() == paused
            piped.forwarder.resume()
            piped.forwarder.resume()
    assert rounds > 1
    assert piped.given().replace(P, b"") == data


def test_an_end_while_it_is_paused_waits(piped: Forwarded) -> None:
    piped.write(b"last words")
    piped.forwarder.pause()
    piped.forwarder.pause()
    piped.hang_up()
    piped.once()
    assert piped.ends == []
    piped.forwarder.resume()
    piped.until_ended()
    assert piped.given() == lines(b"last words")


def test_a_line_can_be_cut_off(piped: Forwarded) -> None:
    piped.forwarder.cut()
    piped.write(b"\nhalf a li")
    piped.once()
    piped.forwarder.cut()
    piped.forwarder.cut()
    assert piped.given() == lines(b"", b"half a li")
    assert piped.forwarder.held_bytes == 0
    piped.write(b"\n\nnext\n")
    piped.once()
    assert piped.given() == lines(b"", b"half a li", b"", b"next")


def test_somebody_else_gets_the_bytes_as_they_come(loop: Loop, tmp_path: Path) -> None:
    tapped: list[bytes] = []
    with closing(Forwarded(loop, tmp_path / "out", tap=tapped.append)) as piped:
        piped.write(b"one\ntw")
        piped.once()
        piped.write(b"o\r\nthree")
        piped.hang_up()
        piped.until_ended()
        assert piped.given() == lines(b"one", b"two\r", b"three")
    assert tapped == [b"one\ntw", b"o\r\nthree"]


def test_a_prefix_that_changes(loop: Loop, tmp_path: Path) -> None:
    times = iter(range(10))
    with closing(Forwarded(loop, tmp_path / "out", fresh=lambda: b"%d " % next(times))) as piped:
        piped.write(b"one\ntwo\nth")
        piped.once()
        piped.write(b"ree\nfour")
        piped.once()
        piped.forwarder.cut()
        assert piped.given() == b"0 one\n0 two\n1 three\n2 four\n"


def test_closed_it_gives_on_what_it_has_read(piped: Forwarded) -> None:
    piped.write(b"half a li")
    piped.once()
    piped.write(b"ne, never read")
    piped.forwarder.close()
    assert piped.given() == lines(b"half a li")
    assert piped.ends == ["ended"]
    assert not is_open(piped.reader)


@pytest.mark.parametrize("paused", [False, True])
def test_drained_it_takes_what_is_there_and_waits_for_nothing(
    piped: Forwarded, paused: bool
) -> None:
    if paused:
        piped.forwarder.pause()
    data = b"x" * 40_000 + b"\n" + b"y" * 20_000
    piped.write(data)
    piped.forwarder.drain()
    assert piped.given() == lines(b"x" * 40_000, b"y" * 20_000)
    assert piped.ends == ["ended"]
    assert not is_open(piped.reader)


def test_drained_at_the_end(piped: Forwarded) -> None:
    piped.write(b"one\n")
    piped.hang_up()
    piped.forwarder.drain()
    assert piped.given() == lines(b"one")
    assert piped.ends == ["ended"]


def test_somebody_who_goes_on_writing_is_drained_for_a_while(piped: Forwarded) -> None:
    piped.on_took = lambda: piped.write(b"more\n")
    piped.write(b"more\n")
    piped.forwarder.drain()
    assert piped.given() == lines(b"more") * DRAIN_CHUNKS
    assert piped.ends == ["ended"]
    assert not is_open(piped.reader)
