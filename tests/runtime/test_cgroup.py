"""cgroup: a control group where one may be made, and its lack where not."""

from __future__ import annotations

import io
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from joinproto.runtime import cgroup as module
from joinproto.runtime.cgroup import Cgroup, make_cgroup, own_cgroup
from tests.support.processes import state
from tests.support.python import PATIENCE, wait_until

# -- the lack of one --------------------------------------------------------------------------


def test_nothing_can_be_done_with_the_lack_of_one() -> None:
    lack = Cgroup(None)
    lack.enter()
    assert not lack.leave()
    lack.kill()
    lack.remove()
    assert lack.path is None


# -- its files, in a folder like any other ----------------------------------------------------


@pytest.fixture
def group(tmp_path: Path) -> Cgroup:
    (tmp_path / "cgroup.procs").touch()
    folder = tmp_path / "ours"
    folder.mkdir()
    for name in ("cgroup.procs", "cgroup.kill"):
        (folder / name).touch()
    return Cgroup(str(folder))


def test_what_is_written_where(tmp_path: Path, group: Cgroup) -> None:
    group.enter()
    assert (tmp_path / "ours/cgroup.procs").read_text() == "0"
    group.kill()
    assert (tmp_path / "ours/cgroup.kill").read_text() == "1"
    assert (tmp_path / "cgroup.procs").read_text() == ""
    assert group.leave()
    assert (tmp_path / "cgroup.procs").read_text() == "0"


def test_one_that_is_gone(tmp_path: Path) -> None:
    gone = Cgroup(str(tmp_path / "gone"))
    gone.enter()
    gone.kill()
    assert not gone.leave()
    gone.remove()


def test_the_system_may_say_no(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    (tmp_path / "cgroup.procs").symlink_to("/dev/full")
    assert not Cgroup(str(tmp_path / "ours")).leave()


def test_only_an_empty_one_is_removed(tmp_path: Path, group: Cgroup) -> None:
    group.remove()
    assert (tmp_path / "ours").is_dir()
    for path in (tmp_path / "ours").iterdir():
        path.unlink()
    group.remove()
    assert not (tmp_path / "ours").exists()


# -- making one -------------------------------------------------------------------------------


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The control group of this process, which is a folder like any other."""
    monkeypatch.setattr(module, "own_cgroup", lambda: str(tmp_path))
    return tmp_path


def test_it_is_made_below_that_of_the_process(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = os.mkdir

    def populated(path: str) -> None:
        make(path)
        Path(path, "cgroup.kill").touch()

    monkeypatch.setattr(os, "mkdir", populated)
    assert make_cgroup("new").path == str(own / "new")


def test_without_a_kill_of_all_it_is_of_no_use(own: Path) -> None:
    assert make_cgroup("new").path is None
    assert not (own / "new").exists()


def test_one_that_may_not_be_made(own: Path) -> None:
    (own / "new").touch()
    assert make_cgroup("new").path is None


def test_nowhere_to_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "own_cgroup", lambda: None)
    assert make_cgroup("new").path is None


def test_what_helpers_left_that_are_gone_is_removed(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait(PATIENCE)
    names = [f"joinproto-{number}" for number in (gone.pid, os.getpid(), "new", "")]
    for name in (*names, str(gone.pid), f"other-{gone.pid}"):
        (own / name).mkdir()
    before = {path.name for path in own.iterdir()}
    made = f"joinproto-{gone.pid}0"
    (own / made).mkdir()
    monkeypatch.setattr(os, "mkdir", lambda path: Path(path, "cgroup.kill").touch())
    assert make_cgroup(made).path == str(own / made)
    left = {path.name for path in own.iterdir()}
    assert left == (before | {made}) - {names[0]}


# -- where the process is ---------------------------------------------------------------------

UNIFIED = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
OTHERS = "22 28 0:20 / /sys rw shared:7 - sysfs sysfs rw\n23 28 0:21 / /proc rw - proc proc rw\n"
HYBRID = "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
WHERE = {
    "unified": ("0::/user.slice/a.scope\n", OTHERS + UNIFIED, "/sys/fs/cgroup/user.slice/a.scope"),
    "hybrid": ("1:cpu:/\n0::/\n", OTHERS + HYBRID, "/sys/fs/cgroup/unified"),
    "version 1 alone": ("9:name=systemd:/a\n1:cpu:/a\n", OTHERS, None),
    "not mounted": ("0::/a\n", OTHERS, None),
    "a line of another form": ("0::/a\n", "22 28 0:20\n" + UNIFIED, None),
    "nothing": ("", "", None),
    "a name that is no UTF-8": ("0::/\udcff\n", UNIFIED, "/sys/fs/cgroup/\udcff"),
}


@pytest.mark.parametrize(("groups", "mounts", "where"), WHERE.values(), ids=WHERE)
def test_where_the_process_is(
    monkeypatch: pytest.MonkeyPatch, groups: str, mounts: str, where: str | None
) -> None:
    files = {"/proc/self/cgroup": groups, "/proc/self/mountinfo": mounts}

    def opened(path: str, **how: Any) -> io.TextIOWrapper:
        content = files[path].encode(errors="surrogateescape")
        return io.TextIOWrapper(io.BytesIO(content), **how)

    monkeypatch.setattr(module, "open", opened, raising=False)
    assert own_cgroup() == where


def test_a_system_that_does_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, **how: Any) -> io.TextIOWrapper:
        raise FileNotFoundError(path)

    monkeypatch.setattr(module, "open", refuse, raising=False)
    assert own_cgroup() is None


# -- a real one -------------------------------------------------------------------------------


@pytest.fixture
def real() -> Iterator[Cgroup]:
    made = make_cgroup(f"joinproto-test-{os.getpid()}")
    if made.path is None:
        pytest.skip("no control group of version 2 may be made here")
    try:
        yield made
    finally:
        made.kill()
        made.remove()


def test_all_in_it_end_at_one_stroke(real: Cgroup) -> None:
    assert real.path is not None
    procs = Path(real.path, "cgroup.procs")

    def inside() -> list[str]:
        return [Path(f"/proc/{pid}/comm").read_text() for pid in procs.read_text().split()]

    script = f"echo 0 > {real.path}/cgroup.procs; (setsid sleep 600 &); exec sleep 600"
    process = subprocess.Popen(["sh", "-c", script])
    try:
        wait_until(lambda: inside() == ["sleep\n", "sleep\n"], "two processes are in it")
        pids = [int(pid) for pid in procs.read_text().split()]
        real.kill()
        assert process.wait(PATIENCE) == -signal.SIGKILL
        wait_until(lambda: all(state(pid) in ("", "Z") for pid in pids), "all of it is gone")
    finally:
        process.kill()
        process.wait(PATIENCE)
    real.remove()
    assert not Path(real.path).exists()
