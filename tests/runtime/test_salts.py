"""salts: where a salt may come from, what is refused, and that no error repeats it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from joinproto.errors import ConfigError
from joinproto.keys import Salt
from joinproto.runtime import salts
from joinproto.runtime.salts import new_salt, read_salt_fd, read_salt_file, salt_from_environ

DIGITS = "00112233445566778899aabbccddeeff"
SALT = Salt.from_hex(DIGITS)
FORMS = [DIGITS, DIGITS + "\n", DIGITS + "\r\n", f" \t{DIGITS} \n\n", DIGITS.upper()]
BAD = [
    (b"", "the salt is empty"),
    (b" \n", "the salt is empty"),
    (b"s3cret\n", "the salt is not made of"),
    (DIGITS[:-2].encode(), "a salt is 16 bytes"),
    (DIGITS.encode() * 2, "a salt is 16 bytes"),
    (DIGITS.replace("44", "4 4").encode(), "the salt is not made of hex digits"),
    ("s3crét".encode(), "it holds bytes that are not ASCII"),
    (b"\xef\xbb\xbf" + DIGITS.encode(), "it holds bytes that are not ASCII"),
    (DIGITS.encode() + b" " * 1000, "it is longer than 1024 bytes"),
]


def salt_file(folder: Path, content: bytes, mode: int = 0o600) -> Path:
    path = folder / "salt"
    path.write_bytes(content)
    path.chmod(mode)
    return path


def pipe_with(content: bytes) -> int:
    reader, writer = os.pipe()
    os.write(writer, content)
    os.close(writer)
    return reader


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


# -- files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_a_file(tmp_path: Path, form: str) -> None:
    assert read_salt_file(salt_file(tmp_path, form.encode())) == (SALT, None)


@pytest.mark.parametrize(("content", "why"), BAD)
def test_a_file_without_a_salt(tmp_path: Path, content: bytes, why: str) -> None:
    path = salt_file(tmp_path, content)
    with pytest.raises(ConfigError) as caught:
        read_salt_file(path)
    assert str(caught.value).startswith(f"salt file '{path}': {why}")
    assert caught.value.fault == "salt"
    assert content.decode(errors="replace").strip() not in str(caught.value) or not content.strip()


@pytest.mark.parametrize(
    ("name", "reason"),
    [("none", "No such file or directory"), ("", "Is a directory"), ("a\0b", "embedded null byte")],
)
def test_a_file_that_cannot_be_read(tmp_path: Path, name: str, reason: str) -> None:
    path = f"{tmp_path}/{name}"
    with pytest.raises(ConfigError) as caught:
        read_salt_file(path)
    assert str(caught.value) == f"salt file {path!r} cannot be read: {reason}"
    assert caught.value.fault == "salt"


def test_a_file_without_an_end_is_not_read_for_ever() -> None:
    with pytest.raises(ConfigError, match=r"^salt file '/dev/zero': it is longer than 1024 bytes"):
        read_salt_file("/dev/zero")


@pytest.mark.parametrize(
    ("mode", "warned"), [(0o600, False), (0o640, False), (0o604, True), (0o644, True)]
)
def test_a_file_that_everyone_can_read_is_told(tmp_path: Path, mode: int, warned: bool) -> None:
    path = salt_file(tmp_path, DIGITS.encode(), mode)
    salt, warning = read_salt_file(path)
    assert salt == SALT
    expected = f"salt file '{path}' can be read by every user of this host; chmod o-r it"
    assert warning == (expected if warned else None)


def test_a_named_pipe_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path, 0o644)
    writer = threading.Thread(target=path.write_text, args=(DIGITS + "\n",))
    writer.start()
    try:
        assert read_salt_file(path) == (SALT, None)
    finally:
        writer.join()


def test_a_named_pipe_without_a_writer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(salts, "SALT_WAIT", 0.02)
    path = tmp_path / "fifo"
    os.mkfifo(path)
    with pytest.raises(ConfigError, match=r"it has not ended within 0\.02 s"):
        read_salt_file(path)


# -- descriptors ------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_a_descriptor_is_read_and_closed(form: str) -> None:
    fd = pipe_with(form.encode())
    assert read_salt_fd(fd) == SALT
    assert not is_open(fd)


@pytest.mark.parametrize(("content", "why"), BAD)
def test_a_descriptor_without_a_salt_is_closed_too(content: bytes, why: str) -> None:
    fd = pipe_with(content)
    with pytest.raises(ConfigError) as caught:
        read_salt_fd(fd)
    assert str(caught.value).startswith(f"salt descriptor {fd}: {why}")
    assert caught.value.fault == "salt"
    assert not is_open(fd)


def test_pieces_are_put_together() -> None:
    reader, writer = os.pipe()

    def write() -> None:
        for piece in (DIGITS[:7], DIGITS[7:], "\n"):
            os.write(writer, piece.encode())
        os.close(writer)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert read_salt_fd(reader) == SALT
    finally:
        thread.join()


def test_a_writer_that_stays_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(salts, "SALT_WAIT", 0.02)
    reader, writer = os.pipe()
    try:
        os.write(writer, DIGITS.encode())
        with pytest.raises(ConfigError, match=r"it has not ended within 0\.02 s"):
            read_salt_fd(reader)
        assert not is_open(reader)
    finally:
        os.close(writer)


def test_a_descriptor_that_is_not_open() -> None:
    fd = pipe_with(b"")
    os.close(fd)
    with pytest.raises(
        ConfigError, match=f"^salt descriptor {fd} cannot be read: Bad file"
    ) as caught:
        read_salt_fd(fd)
    assert caught.value.fault == "salt"


@pytest.mark.parametrize("fd", [-1, 2**31, 10**30])
def test_a_number_that_is_no_descriptor(fd: int) -> None:
    with pytest.raises(ConfigError, match=f"^salt descriptor {fd}: there is no such descriptor$"):
        read_salt_fd(fd)


def test_standard_input_stays_open() -> None:
    saved = os.dup(0)
    reader = pipe_with(DIGITS.encode())
    try:
        os.dup2(reader, 0)
        assert read_salt_fd(0) == SALT
        assert is_open(0)
    finally:
        os.dup2(saved, 0)
        os.close(saved)
        os.close(reader)


# -- the environment, and new ones ------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_the_environment(form: str) -> None:
    assert salt_from_environ({"JOINPROTO_SALT": form}) == SALT


def test_an_environment_without_a_salt() -> None:
    assert salt_from_environ({}) is None


@pytest.mark.parametrize("value", ["", " ", "s3cret", "s3crét", DIGITS[1:], "\udcff" * 32])
def test_an_environment_with_a_bad_salt(value: str) -> None:
    with pytest.raises(ConfigError, match=r"^JOINPROTO_SALT: ") as caught:
        salt_from_environ({"JOINPROTO_SALT": value})
    assert caught.value.fault == "salt"
    assert not value.strip() or value not in str(caught.value)


def test_new_salts_differ() -> None:
    assert len({new_salt().raw for _ in range(100)}) == 100
