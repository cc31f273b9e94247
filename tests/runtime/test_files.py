"""files: what somebody names is opened at once, whatever it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from joinproto.runtime.files import open_at_once, readable_by_all


def test_a_named_pipe_is_not_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with open(pipe, "rb", opener=open_at_once) as file:
        assert file.read() in (b"", None)


def test_a_file_that_is_made_is_its_owners_and_closed_by_exec(tmp_path: Path) -> None:
    fd = open_at_once(tmp_path / "new", os.O_WRONLY | os.O_CREAT)
    assert os.fstat(fd).st_mode & 0o777 == 0o600
    assert not os.get_inheritable(fd)
    os.close(fd)


@pytest.mark.parametrize(("mode", "others"), [(0o600, False), (0o640, False), (0o604, True)])
def test_who_can_read_it(tmp_path: Path, mode: int, others: bool) -> None:
    path = tmp_path / "file"
    path.touch()
    path.chmod(mode)
    assert readable_by_all(path.stat().st_mode) is others


def test_what_is_no_plain_file_is_nobodys_to_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe, 0o666)
    pipe.chmod(0o666)
    assert not readable_by_all(pipe.stat().st_mode)
