"""oom: kills for want of memory are told from others by the kernel's count of them."""

from __future__ import annotations

import json
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest

from interop.processes import Watched, clean_environment
from joinproto.runtime import oom as module
from joinproto.runtime.cgroup import own_cgroup
from joinproto.runtime.oom import KillWatch
from joinproto.testing.fakes import FakeController
from tests.support.python import wait_until
from tests.support.roles import OURS, shell

KILLED, BY_SHELL = -signal.SIGKILL, 128 + signal.SIGKILL


class Counter:
    """A file in which a kernel counts; its other rows are those of memory.events."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count(0)

    def count(self, kills: int) -> None:
        self.path.write_text(f"low 0\nhigh 5\nmax 9\noom 3\noom_kill {kills}\noom_group_kill 0\n")


@pytest.fixture
def counter(tmp_path: Path) -> Counter:
    return Counter(tmp_path / "memory.events")


# -- the count --------------------------------------------------------------------------------


def test_a_kill_that_was_counted_explains_one_end(counter: Counter) -> None:
    watch = KillWatch([str(counter.path)])
    assert not watch.explains(KILLED, by_agent=False)
    counter.count(1)
    assert watch.explains(KILLED, by_agent=False)
    assert not watch.explains(KILLED, by_agent=False)


def test_kills_of_several_at_once_explain_as_many_ends(counter: Counter) -> None:
    watch = KillWatch([str(counter.path)])
    counter.count(3)
    ends = [watch.explains(KILLED, by_agent=False) for _ in range(4)]
    assert ends == [True, True, True, False]


def test_kills_before_its_time_explain_nothing(counter: Counter) -> None:
    counter.count(7)
    assert not KillWatch([str(counter.path)]).explains(KILLED, by_agent=False)


@pytest.mark.parametrize("code", [0, 1, 9, 137 + 1, -signal.SIGTERM, -signal.SIGSEGV])
def test_another_end_is_no_such_kill_and_uses_the_count_up(counter: Counter, code: int) -> None:
    """A helper of a rank was killed, and the rank ended for the lack of it."""
    watch = KillWatch([str(counter.path)])
    counter.count(1)
    assert not watch.explains(code, by_agent=False)
    assert not watch.explains(KILLED, by_agent=False)


def test_a_shell_that_ends_as_its_command_did_was_killed_too(counter: Counter) -> None:
    watch = KillWatch([str(counter.path)])
    assert not watch.explains(BY_SHELL, by_agent=False)
    counter.count(1)
    assert watch.explains(BY_SHELL, by_agent=False)


def test_what_the_agent_killed_the_kernel_did_not(counter: Counter) -> None:
    watch = KillWatch([str(counter.path)])
    counter.count(1)
    assert not watch.explains(KILLED, by_agent=True)
    assert not watch.explains(KILLED, by_agent=False)


def test_the_first_file_that_answers_is_kept_to(tmp_path: Path) -> None:
    none, small, large = (tmp_path / name for name in ("none", "small", "large"))
    none.write_text("oom 1\noom_kill\noom_kill x\n")
    Counter(small)
    Counter(large).count(50)
    watch = KillWatch(map(str, (tmp_path / "missing", none, small, large)))
    small.unlink()
    assert not watch.explains(KILLED, by_agent=False)
    Counter(small).count(1)
    assert watch.explains(KILLED, by_agent=False)


def test_where_nothing_counts_nothing_is_explained(tmp_path: Path) -> None:
    for sources in ([], [str(tmp_path)], [str(tmp_path / "missing")]):
        assert not KillWatch(sources).explains(KILLED, by_agent=False)


def test_this_system_counts_and_nobody_was_killed_just_now() -> None:
    assert any(module._count_in(path) is not None for path in module._sources())
    assert not KillWatch().explains(KILLED, by_agent=False)


@pytest.mark.parametrize(
    ("listed", "group"),
    [
        ("9:name=systemd:/\n4:memory:/a/b\n0::/\n", "/a/b"),
        ("4:cpu,memory:/docker/x:y\n", "/docker/x:y"),
        ("0::/user.slice\n", None),
        ("4:memorable:/a\n", None),
        ("nonsense\n", None),
        ("", None),
    ],
)
def test_the_older_group_of_this_process(tmp_path: Path, listed: str, group: str | None) -> None:
    path = tmp_path / "cgroup"
    assert module._memory_cgroup(str(path)) is None
    path.write_text(listed)
    assert module._memory_cgroup(str(path)) == group


@pytest.mark.parametrize("unified", [None, "/sys/fs/cgroup/u"])
@pytest.mark.parametrize("older", [None, "/o"])
def test_a_groups_own_count_is_asked_before_that_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, unified: str | None, older: str | None
) -> None:
    monkeypatch.setattr(module, "own_cgroup", lambda: unified)
    monkeypatch.setattr(module, "_memory_cgroup", lambda: older)
    own = [] if unified is None else ["/sys/fs/cgroup/u/memory.events"]
    if older is not None:
        own.append("/sys/fs/cgroup/memory/o/memory.oom_control")
        own.append("/sys/fs/cgroup/memory/memory.oom_control")
    assert list(module._sources()) == [*own, "/proc/vmstat"]


# -- a kill -----------------------------------------------------------------------------------

LIMIT = 64 * 1024 * 1024
GREEDY = """
import sys
print("about to", file=sys.stderr)
held = bytearray(b"x") * (1 << 30)
"""


@pytest.fixture
def small_group() -> Iterator[Path]:
    """A control group that may hold little memory; skips where none can be made."""
    made = _make_older() or _make_unified()
    if made is None:
        pytest.skip("no memory control group can be made here (not root, or no controller)")
    yield made
    wait_until(lambda: not (made / "cgroup.procs").read_text(), f"{made} is empty")
    made.rmdir()


def _make_older() -> Path | None:
    """One of version 1, below that of this process."""
    inside = module._memory_cgroup()
    if inside is None:
        return None
    parent = Path(f"/sys/fs/cgroup/memory{inside}")
    return _make(parent, "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", str(LIMIT))


def _make_unified() -> Path | None:
    """One of version 2, below one that has no processes of its own but hands memory out."""
    own = own_cgroup()
    for parent in () if own is None else Path(own).parents:
        hands_out = parent / "cgroup.subtree_control"
        if hands_out.exists() and "memory" in hands_out.read_text().split():
            return _make(parent, "memory.max", "memory.swap.max", "0")
    return None


def _make(parent: Path, memory: str, swap: str, swapped: str) -> Path | None:
    made = parent / f"joinproto-{uuid4().hex}"
    try:
        made.mkdir()
    except OSError:
        return None
    try:
        (made / memory).write_text(str(LIMIT))
    except OSError:
        made.rmdir()
        return None
    with suppress(OSError):  # a kernel that does not account for swap
        (made / swap).write_text(swapped)
    return made


@pytest.mark.slow
def test_a_rank_that_the_kernel_kills_for_want_of_memory_is_told_as_such(
    small_group: Path,
) -> None:
    with FakeController.admitting(ranks=(5, 6), codes={5: -9, 6: 0}) as fake:
        options = ("--controller", fake.address, "--host", "a", "--devices", "0,1")
        reports = ("--events", "json", "--events-fd", "1", "--only-ranks", "99")
        command = (sys.executable, "-c", GREEDY)
        script = f'[ "$FLODL_INTERNAL_LOCAL_RANK" = 1 ] && exit; exec {shlex.join(command)}'
        argv = (*OURS, "agent", *options, *reports, "--", *shell(script))
        enter = shell('echo $$ > "$0"/cgroup.procs; exec "$@"')
        watched = Watched((*enter, str(small_group), *argv), environment=clean_environment())
        with watched as process:
            assert process.wait_exit() == 0
            events = [json.loads(line) for line in process.lines("stdout")]
            told = process.lines("stderr")
    exited = {event["rank"]: event for event in events if event["event"] == "exited"}
    assert {rank: event["out_of_memory"] for rank, event in exited.items()} == {5: True, 6: False}
    assert exited[5]["signal"] == "SIGKILL"
    (line,) = (line for line in told if "killed" in line)
    assert re.fullmatch(
        r"joinproto agent: rank 5 \(device 0\) was killed by SIGKILL after \d+\.\d s "
        r"\(out of memory\)",
        line,
    )
    assert "joinproto agent:   | about to" in told
