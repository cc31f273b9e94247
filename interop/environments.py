"""What a rank or a relay finds in its environment, and how far two of them may differ.

The two are of the same world: one was started by a published agent, the other by ours.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from interop.peers import unhex_json

Environment = dict[str, Any]
"""Name → value; an artifact's value is its parsed JSON."""

DUMP = 'cat /proc/$$/environ > "$DUMPS/$FLODL_HOST_NAME.${FLODL_INTERNAL_LOCAL_RANK-relay}"'
"""The shell command with which a child leaves its environment, as it was started, in `$DUMPS`."""

ARTIFACTS = ("FLODL_INTERNAL_CLUSTER_JSON", "FLODL_INTERNAL_RELAY_JSON")

ADDED = {
    "PYTHONUNBUFFERED": "a rank's lines are to come out when they are written, not when a buffer "
    "of its own is full; published agents leave that to the user",
}
"""Variable → why our agent may set it where a published one does not."""

OF_THE_TEST = {
    "JOINPROTO_INTEROP_MARK": "tells apart what two `Watched` started; one for all of a launcher's",
    "PEER_RANK_CMD": "the published rank's command",
    "PEER_RELAY_CMD": "the published relay's command",
    "_": "the shell that runs a launcher's worker sets it to the path of the worker's script",
}
"""Variable → why it says nothing about an agent."""


def read_environment(dumps: Path, host: str, slot: int | str) -> Environment:
    """What `DUMP` left for the rank at position `slot` of `host`, or for its `"relay"`."""
    raw = (dumps / f"{host}.{slot}").read_bytes().decode()
    entries = dict(entry.split("=", 1) for entry in raw.split("\0") if entry)
    return {
        name: unhex_json(value) if name in ARTIFACTS else value
        for name, value in entries.items()
        if name not in OF_THE_TEST
    }


def as_host(theirs: Environment, host: str, ranks: list[int]) -> Environment:
    """What the same child would have found on `host`, which has as many ranks: `ranks`."""
    expected = copy.deepcopy(theirs)
    expected["FLODL_HOST_NAME"] = host
    envelope = expected.get("FLODL_INTERNAL_CLUSTER_JSON", {})
    if worker := envelope.get("worker"):
        worker |= {"host": host, "ranks": ranks}
    if "group_rank" in envelope:
        # Ours; published controllers do not say it, and published agents and ranks let it pass.
        envelope["group_rank"] = ranks[0] // len(ranks)
    if relay := expected.get("FLODL_INTERNAL_RELAY_JSON"):
        relay |= {"host": host, "ranks": ranks}
    return expected


def without_added(ours: Environment) -> Environment:
    """`ours` without what it may have beyond a published agent's."""
    return {name: value for name, value in ours.items() if name not in ADDED}
