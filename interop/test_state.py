"""What published controllers say of a run over HTTP, and what ours says of the same run."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest

from interop.peers import Worker, launcher, our_controller
from joinproto.messages import Accept, Hello
from joinproto.testing.fakes import FakeAgent
from joinproto.testing.script import Expect, Say, Until

pytestmark = pytest.mark.interop

HOST = "theirs"
DEVICES = (4, 6)
WORKER = Worker(host=HOST, devices=DEVICES)
JOIN = {"min_rank_start": 3, "target_ranks": 4, "open_admission": True}
COUNTDOWNS = ("window_remaining_secs", "cap_remaining_secs")


def ask(port: int, method: str, path: str) -> tuple[int, str, bytes]:
    """Status, content type and body of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10.0)
    try:
        connection.request(method, path, headers={"Accept": "*/*"})
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type", ""), answer.read()
    finally:
        connection.close()


def answers(port: int, *, starts: bool) -> dict[str, Any]:
    """What a controller shows, at both paths, and what it says to a start and to a wrong path."""
    shown = {path: ask(port, "GET", path) for path in ("/state.json", "/")}
    return {
        "types": {path: (status, kind) for path, (status, kind, _) in shown.items()},
        "state": json.loads(shown["/state.json"][2]),
        "same": set(json.loads(shown["/"][2])) == set(json.loads(shown["/state.json"][2])),
        "start": ask(port, "POST", "/start")[0] if starts else None,
        "nowhere": ask(port, "GET", "/nowhere")[0],
    }


def theirs(version: str) -> dict[str, Any]:
    with launcher(version, [WORKER], join=JOIN) as world:
        world.ranks(HOST)
        # 0.7 knows no POST, and hangs up.
        return answers(world.port, starts=version == "0.8.0")


def ours(labels: Mapping[str, Any]) -> dict[str, Any]:
    """Ours, with a host in it that says what the other controller showed of its own."""
    seen = threading.Event()
    with our_controller("--target-ranks", "4", ranks=3) as world:
        hello = Hello(
            host=HOST,
            local_devices=DEVICES,
            gpus=tuple(labels["gpus"]),
            libtorch=labels["libtorch"],
        )
        script = [Say(hello), Expect(Accept), Until(seen.is_set)]
        with FakeAgent(script).dial("127.0.0.1", world.port):
            world.wait_event("joined")
            found = answers(world.port, starts=True)
            seen.set()
        return found


def shape(value: object) -> Any:
    """The names and types of a JSON value."""
    if isinstance(value, dict):
        return {name: shape(each) for name, each in value.items()}
    if isinstance(value, list):
        return [shape(each) for each in value]
    return type(value).__name__


def test_ours_shows_what_theirs_does(version: str) -> None:
    other = theirs(version)
    own = ours(other["state"]["members"][0])
    for answer in (other, own):
        # They go by the clock, and a host joins when it does.
        for name in COUNTDOWNS:
            assert answer["state"][name] in range(700)
        answer["state"]["members"][0].pop("joined_at_secs")
    assert own["types"] == other["types"]
    assert own["same"]
    assert other["same"]
    assert own["nowhere"] == other["nowhere"] == 404
    if version == "0.8.0":
        assert shape(own["state"]) == shape(other["state"])
        assert own["start"] == other["start"] == 409
    else:
        # 0.7's fields are a part of 0.8's.
        known = {name: own["state"][name] for name in other["state"]}
        assert shape(known) == shape(other["state"])
    for name in other["state"].keys() - set(COUNTDOWNS):
        assert own["state"][name] == other["state"][name], name
