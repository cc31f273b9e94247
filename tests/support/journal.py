"""Events as a journal holds them, and journals made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from joinproto.runtime.journal import Journal

TIME = "2026-12-01T00:00:00.000Z"
SYNCED = ("joined", "formed")


def event(name: str, **members: Any) -> dict[str, Any]:
    return {"event": name, "time": TIME, **members}


def joined(host: str, *ranks: int, wire: int = 4) -> dict[str, Any]:
    return event(
        "joined",
        host=host,
        ranks=list(ranks),
        devices=list(range(len(ranks))),
        gpus=[],
        libtorch="",
        wire=wire,
        peer="127.0.0.1:5000",
    )


def formed(**hosts: Sequence[int]) -> dict[str, Any]:
    size = sum(map(len, hosts.values()))
    world = [{"host": host, "ranks": list(ranks), "wire": 4} for host, ranks in hosts.items()]
    return event("formed", reason="target reached", world_size=size, hosts=world)


def exited(rank: int, code: int) -> dict[str, Any]:
    return event("rank_exited", rank=rank, host="?", code=code, signal=None)


def lost(host: str, *, formed: bool) -> dict[str, Any]:
    return event("member_lost", host=host, ranks=[0], cause="reset", formed=formed)


FINISHED = event("finished", outcome="ok", exit_code=0, failed_ranks=[], lost_hosts=[], reason=None)
LISTENING = event("listening", host="127.0.0.1", port=7077)
STORY = (
    LISTENING,
    joined("a", 0, 1),
    event("rejected", peer="127.0.0.1:9", host=None, reason="no frame", suppressed=0),
    joined("gone", 2),
    lost("gone", formed=False),
    joined("b", 2),
    formed(a=[0, 1], b=[2]),
    exited(0, 0),
    exited(1, -9),
    lost("b", formed=True),
)


def written(path: Path, events: Sequence[Mapping[str, Any]]) -> bytes:
    """A journal of these events in `path`, and its content."""
    with closing(Journal.create(path)) as journal:
        for each in events:
            journal.write(each, sync=each["event"] in SYNCED)
    return path.read_bytes()
