"""Our `status` and `start` with the published launcher."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interop.peers import OURS, Launcher, Worker, launcher
from interop.processes import PATIENCE, Watched, clean_environment

pytestmark = pytest.mark.interop

SALT = "00112233445566778899aabbccddeeff"
HOST = "theirs"
WORKER = Worker(host=HOST, devices=(4, 6))
HOLD = "while [ ! -e $HELD/go ]; do sleep 0.05; done"
"""What ranks do: run until they are let go."""


def ask(command: str, world: Launcher, *options: str) -> tuple[int, list[str], list[str]]:
    """Exit code and output of a command of ours that is given the launcher's address."""
    argv = (*OURS, command, f"127.0.0.1:{world.port}", *options)
    with Watched(argv, environment=clean_environment()) as asked:
        return asked.wait_exit(), asked.lines("stdout"), asked.lines("stderr")


def state(world: Launcher) -> dict[str, Any]:
    """What `status --json` shows."""
    code, (line,), err = ask("status", world, "--json")
    assert (code, err) == (0, [])
    shown: dict[str, Any] = json.loads(line)
    return shown


@pytest.fixture(scope="module")
def waiting(version: str) -> Iterator[Launcher]:
    """A launcher of each version whose window waits for more hosts than come."""
    join = {"min_rank_start": 3, "target_ranks": 3, "open_admission": True}
    with launcher(version, [WORKER], join=join) as world:
        world.ranks(HOST)
        yield world


def test_the_state_as_json(version: str, waiting: Launcher) -> None:
    shown = state(waiting)
    (member,) = shown["members"]
    assert (shown["phase"], shown["joined_ranks"], shown["min_rank_start"]) == ("waiting", 2, 3)
    assert (member["host"], member["ranks"], member["local_devices"]) == (HOST, [0, 1], [4, 6])
    assert ("start_mode" in shown) == (version == "0.8.0")


def test_the_state_for_people(waiting: Launcher) -> None:
    code, lines, err = ask("status", waiting)
    assert (code, err) == (0, [])
    assert lines[0].startswith("waiting: 2 rank(s) on 1 host(s) of at least 3")
    assert any(line.split()[:4] == [HOST, "0–1", "4,", "6"] for line in lines)


def test_a_start_that_is_not_to_be_had(version: str, waiting: Launcher) -> None:
    code, out, (err,) = ask("start", waiting)
    assert (code, out) == (1, [])
    told = {
        "0.7.0": "cannot be started by hand: such a controller (0.7) has no start",
        "0.8.0": "is not to be started (409): start mode is auto",
    }
    assert told[version] in err
    # It took no harm.
    assert state(waiting)["phase"] == "waiting"


@pytest.mark.parametrize("with_token", [False, True], ids=["loopback", "token"])
def test_a_start_by_hand(both_versions: list[str], tmp_path: Path, with_token: bool) -> None:
    token = tmp_path / "token"
    token.write_text(SALT + "\n")
    token.chmod(0o600)
    join = {"min_rank_start": 2, "start": "manual", "token": SALT}
    extra = {"HELD": str(tmp_path)}
    with launcher(both_versions[-1], [WORKER], join=join, rank=HOLD, extra=extra) as world:
        world.ranks(HOST)
        shown = state(world)
        assert (shown["phase"], shown["start_armed"]) == ("staging", False)
        options = ("--token-file", str(token)) if with_token else ()
        code, (line,), err = ask("start", world, *options)
        assert (code, err) == (0, [])
        assert line.endswith("has the start: the world forms as soon as there is quorum")
        world.wait_line("world formed")
        code, _, (refusal,) = ask("start", world)
        assert code == 1
        assert "is not to be started (409): window is not open" in refusal
        (tmp_path / "go").touch()
        assert world.wait_exit() == 0


def test_a_run_watched(version: str, tmp_path: Path) -> None:
    join = {"min_rank_start": 2, "target_ranks": 2, "open_admission": True}
    extra = {"HELD": str(tmp_path)}
    with launcher(version, [WORKER], join=join, rank=HOLD, extra=extra) as world:
        world.wait_line("world formed")
        argv = (*OURS, "status", f"127.0.0.1:{world.port}", "--watch", "--json")
        with Watched(argv, environment=clean_environment()) as watching:
            watching.wait_line('"phase": "training"')
            (tmp_path / "go").touch()
            code = watching.wait_exit(within=PATIENCE)
            phases = [json.loads(line)["phase"] for line in watching.lines("stdout")]
            # It ends so soon after its ranks that its last phase is seldom seen.
            if phases[-1] == "done":
                assert (code, watching.lines("stderr")) == (0, [])
            else:
                (err,) = watching.lines("stderr")
                assert (code, phases[-1]) == (1, "training")
                assert err.endswith("when last seen, the run was in phase 'training'")
