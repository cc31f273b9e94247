"""logs: every byte of a child in files of a bounded size, and never two streams on one line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from joinproto.errors import ConfigError
from joinproto.runtime.logs import LOG_BYTES, PIECE_BYTES, TOTAL_BYTES, Log, check_directory
from joinproto.runtime.logs import size_of_each as share

PLENTY = 1 << 30


class Logged:
    """A log whose complaints are kept."""

    def __init__(self, path: Path, limit: int = PLENTY) -> None:
        self.path = path
        self.complaints: list[str] = []
        self.log = Log(str(path), limit, self.complaints.append)

    @property
    def now(self) -> bytes:
        """What is in the file."""
        return self.path.read_bytes()

    @property
    def before(self) -> bytes:
        """What is in the generation before it."""
        return self.path.with_name(f"{self.path.name}.1").read_bytes()


@contextmanager
def logged(path: Path, limit: int = PLENTY) -> Iterator[Logged]:
    made = Logged(path, limit)
    with closing(made.log):
        yield made
    assert made.complaints == []


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rank-0.log"


# -- the directory and the sizes --------------------------------------------------------------


def test_the_directory_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    check_directory(str(folder))
    assert folder.is_dir()
    check_directory(str(folder))


@pytest.mark.parametrize(
    ("name", "told"), [("file", "File exists"), ("file/x", "Not a directory"), ("", "No such file")]
)
def test_a_directory_that_cannot_be(tmp_path: Path, name: str, told: str) -> None:
    (tmp_path / "file").touch()
    path = str(tmp_path / name) if name else ""
    with pytest.raises(ConfigError, match=f"^--log-dir {path}: {told}"):
        check_directory(path)


def test_a_directory_that_may_not_be_written_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Root may write everywhere, so the system's answer is made up.
    monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
    with pytest.raises(ConfigError, match=f"^--log-dir {tmp_path}: may not be written to$"):
        check_directory(str(tmp_path))


@pytest.mark.parametrize("files", [0, 1, 8, 257])
@pytest.mark.parametrize("each", [1, 4096, LOG_BYTES])
@pytest.mark.parametrize("total", [600, 1 << 20, TOTAL_BYTES])
def test_all_logs_and_what_was_rotated_stay_within_the_total(
    files: int, each: int, total: int
) -> None:
    size = share(files, each=each, total=total)
    assert 1 <= size <= each
    assert 2 * files * size <= total


def test_what_one_log_may_take() -> None:
    assert share(8) == LOG_BYTES
    assert share(8, total=TOTAL_BYTES // 2) == LOG_BYTES // 2


# -- bytes ------------------------------------------------------------------------------------


def test_a_log_holds_what_came(path: Path) -> None:
    with logged(path) as to:
        to.log.feed("out", b"one\ntw")
        assert to.now == b"one\n"
        to.log.feed("err", b"\xff\x00\r\n")
        to.log.feed("out", b"o\n")
        assert to.now == b"one\n\xff\x00\r\ntwo\n"


def test_only_the_last_line_gets_an_end(path: Path) -> None:
    with logged(path) as to:
        to.log.feed("out", b"one\ntwo")
        to.log.feed("err", b"three\n")
        to.log.end("err")
        to.log.end("out")
        assert to.now == b"one\nthree\ntwo\n"


def test_a_long_line_is_written_as_it_comes(path: Path) -> None:
    with logged(path) as to:
        to.log.feed("out", b"a" * PIECE_BYTES)
        assert to.now == b""
        to.log.feed("out", b"b")
        assert to.now == b"a" * PIECE_BYTES + b"b"
        to.log.feed("out", b"c\n")
        to.log.end("out")
        assert to.now == b"a" * PIECE_BYTES + b"bc\n"


def test_a_long_line_that_never_ends_gets_one_end(path: Path) -> None:
    with logged(path) as to:
        to.log.feed("out", bytes(2 * PIECE_BYTES))
        to.log.end("out")
        to.log.end("err")
        assert to.now == bytes(2 * PIECE_BYTES) + b"\n"


def test_a_long_line_that_is_interrupted_goes_on_in_a_line_of_its_own(path: Path) -> None:
    long = b"a" * (PIECE_BYTES + 1)
    with logged(path) as to:
        to.log.feed("out", long)
        to.log.feed("err", b"oh\n")
        to.log.feed("out", b"bc\n")
        assert to.now == long + b"\noh\nbc\n"


@given(
    st.lists(st.tuples(st.sampled_from(["out", "err"]), st.text("ab\n", max_size=12)), max_size=20)
)
def test_no_line_holds_parts_of_two_streams(
    tmp_path_factory: pytest.TempPathFactory, chunks: list[tuple[str, str]]
) -> None:
    path = tmp_path_factory.mktemp("logs") / "x"
    # Each stream writes letters of its own, and lines that are short of a piece.
    alphabet = {"out": str.lower, "err": str.upper}
    with logged(path) as to:
        for stream, text in chunks:
            to.log.feed(stream, alphabet[stream](text).encode())
        for stream in alphabet:
            to.log.end(stream)
        lines = to.now.decode().split("\n")
    assert lines.pop() == ""
    for spell in alphabet.values():
        own = [line for line in lines if line and spell(line) == line]
        said = "".join(text for stream, text in chunks if alphabet[stream] is spell)
        assert own == [spell(line) for line in said.split("\n") if line]
    assert all(line in (line.lower(), line.upper()) for line in lines)


# -- rotation ---------------------------------------------------------------------------------


def test_a_log_is_rotated_at_the_end_of_a_line(path: Path) -> None:
    with logged(path, limit=10) as to:
        to.log.feed("out", b"123\n567\n")
        to.log.feed("out", b"abc\n")
        assert (to.before, to.now) == (b"123\n567\n", b"abc\n")
        to.log.feed("out", b"efghi\nA\nB\n")
        assert (to.before, to.now) == (b"abc\nefghi\n", b"A\nB\n")


def test_a_log_that_is_just_full_is_not_rotated_yet(path: Path) -> None:
    with logged(path, limit=4) as to:
        to.log.feed("out", b"123\n")
        assert to.now == b"123\n"
        assert not path.with_name("rank-0.log.1").exists()


def test_a_line_that_is_longer_than_a_file_is_cut(path: Path) -> None:
    with logged(path, limit=4) as to:
        to.log.feed("out", b"0123456789\n")
        assert (to.before, to.now) == (b"4567", b"89\n")


def test_what_an_agent_before_this_one_wrote_counts(path: Path) -> None:
    path.write_bytes(b"123456789\n")
    with logged(path, limit=12) as to:
        to.log.feed("out", b"a\n")
        assert to.now == b"123456789\na\n"
        to.log.feed("out", b"b\n")
        assert (to.before, to.now) == (b"123456789\na\n", b"b\n")


def test_a_log_that_is_larger_than_it_may_be_is_rotated_at_once(path: Path) -> None:
    path.write_bytes(b"123456789\n")
    with logged(path, limit=4) as to:
        to.log.feed("out", b"a\n")
        assert (to.before, to.now) == (b"123456789\n", b"a\n")


@given(
    limit=st.integers(1, 9),
    chunks=st.lists(st.text("ab\n", max_size=30).map(str.encode), max_size=9),
)
def test_no_file_grows_beyond_its_limit_and_the_newest_bytes_are_there(
    tmp_path_factory: pytest.TempPathFactory, limit: int, chunks: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("logs") / "x"
    with logged(path, limit=limit) as to:
        for chunk in chunks:
            to.log.feed("out", chunk)
        to.log.end("out")
        files = [each.read_bytes() for each in sorted(path.parent.iterdir(), reverse=True)]
    whole = b"".join(chunks)
    whole += b"\n" if whole and not whole.endswith(b"\n") else b""
    assert all(len(file) <= limit for file in files)
    assert whole.endswith(b"".join(files))
    assert len(b"".join(files)) > min(len(whole), limit) - 1


# -- what goes wrong --------------------------------------------------------------------------


def test_a_log_is_for_the_owner_and_the_group(path: Path) -> None:
    before = os.umask(0)
    try:
        with logged(path) as to:
            assert to.path.stat().st_mode & 0o777 == 0o640
    finally:
        os.umask(before)


def test_a_log_that_cannot_be_opened_is_told_once_and_the_child_goes_on(path: Path) -> None:
    path.mkdir()
    made = Logged(path)
    made.log.feed("out", b"a\n")
    made.log.end("out")
    made.log.close()
    assert made.complaints == [f"log {path}: Is a directory; it is written no further"]


def test_a_link_in_its_place_is_not_followed(path: Path, tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"precious")
    path.symlink_to(tmp_path / "precious")
    made = Logged(path)
    made.log.feed("out", b"a\n")
    assert len(made.complaints) == 1
    assert (tmp_path / "precious").read_bytes() == b"precious"


def test_a_pipe_in_its_place_is_not_waited_for(path: Path) -> None:
    os.mkfifo(path)
    assert Logged(path).complaints == [
        f"log {path}: No such device or address; it is written no further"
    ]


def test_a_full_disk_is_told_once() -> None:
    made = Logged(Path("/dev/full"))
    made.log.feed("out", b"a\n")
    made.log.feed("out", b"b\n")
    made.log.close()
    assert made.complaints == ["log /dev/full: No space left on device; it is written no further"]


def test_a_log_that_cannot_be_rotated_is_told_once(path: Path) -> None:
    path.with_name("rank-0.log.1").mkdir()
    made = Logged(path, limit=4)
    made.log.feed("out", b"123\nabc\nABC\n")
    made.log.feed("out", b"more\n")
    assert made.now == b"123\n"
    assert made.complaints == [f"log {path}: Is a directory; it is written no further"]


def test_nothing_is_written_after_the_end(path: Path) -> None:
    with logged(path) as to:
        to.log.feed("out", b"a\n")
        to.log.close()
        to.log.feed("out", b"b\n")
        to.log.close()
        assert to.now == b"a\n"
