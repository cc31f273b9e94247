"""subscribers: each change once, and no more of them than can be afforded."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from joinproto.runtime.http import PATIENCE
from joinproto.runtime.subscribers import APART, KEEPALIVE
from tests.support.served import Client, Served, asking, served

BIG = 8 * 1024 * 1024


@pytest.fixture
def run() -> Iterator[Served]:
    with served() as run:
        yield run


def follow(run: Served) -> Client:
    """One who follows the events, and has heard the first."""
    client = run.dial(asking("/events"))
    client.wait(b"\n\n\r\n")
    return client


def events(client: Client) -> list[tuple[int, dict[str, Any]]]:
    """Number and state of every event so far."""
    found = re.findall(rb"id: (\d+)\ndata: (.*)\n\n", client.said)
    return [(int(number), json.loads(state)) for number, state in found]


def numbers(client: Client) -> list[int]:
    """Of every event so far; states may be big, and are not looked at."""
    whole = client.said.split(b"\n\n")[:-1]
    found = (re.search(rb"id: (\d+)\ndata: ", event) for event in whole)
    return [int(number[1]) for number in found if number is not None]


def change(run: Served, **fields: Any) -> None:
    """The run changes, and the web is told."""
    assert run.board.state is not None
    run.board.state.update(fields)
    run.board.version += 1
    run.web.changed()


def test_the_state_is_there_at_once(run: Served) -> None:
    client = follow(run)
    assert b"\r\nContent-Type: text/event-stream\r\n" in client.said
    assert b"\r\nretry: 1000\nid: 1\n" in client.said
    assert events(client) == [(1, run.board.detail())]


def test_a_change_is_told_to_all(run: Served) -> None:
    clients = [follow(run), follow(run)]
    change(run, phase="forming")
    run.until(lambda: all(numbers(client) == [1, 2] for client in clients))
    assert events(clients[0])[1][1]["phase"] == "forming"


def test_nobody_is_told_without_a_change(run: Served) -> None:
    client = follow(run)
    run.later(KEEPALIVE - 1)
    assert numbers(client) == [1]


def test_changes_in_quick_succession_are_told_as_one(run: Served) -> None:
    client = follow(run)
    made_at = run.loop.now()
    for joined in range(50):
        change(run, joined_ranks=joined)
    run.until(lambda: len(events(client)) == 2)
    assert events(client)[1][0] == 51
    assert events(client)[1][1]["joined_ranks"] == 49
    # The next is not told sooner than that.
    change(run)
    assert run.timers.next is not None
    assert run.timers.next >= made_at + APART


def test_what_is_dear_to_render_is_told_less_often(run: Served) -> None:
    follow(run)
    rendering = run.web._event
    rendering.apart = 5.0
    change(run)
    assert run.timers.next == pytest.approx(rendering.made_at + 5.0)


def test_a_sign_of_life(run: Served) -> None:
    client = follow(run)
    for count in (1, 2):
        # The clock stands still: the second is due as much later again.
        run.later(count * KEEPALIVE)
        run.until(lambda count=count: client.said.count(b": still here\n\n") == count)  # type: ignore[misc]


def test_what_a_subscriber_says_does_not_matter(run: Served) -> None:
    client = follow(run)
    client.send(asking("/state.json"))
    change(run)
    run.until(lambda: numbers(client) == [1, 2])


def test_of_old_programs_they_end_with_the_connection(run: Served) -> None:
    client = run.dial(b"GET /events HTTP/1.0\r\n\r\n")
    client.wait(b"\n\n")
    assert b"chunked" not in client.said
    run.web.close(final=True)
    client.wait_end()
    assert numbers(client) == [1, 1]


def test_when_the_last_is_gone_there_is_nothing_to_do(run: Served) -> None:
    client = follow(run)
    client.close()
    change(run)
    run.until(lambda: run.web.open_connections == 0)
    assert run.timers.next is None
    change(run)
    assert run.timers.next is None


# -- slow readers -----------------------------------------------------------------------------


def stuck(run: Served) -> Client:
    """One who does not read, and to whom no more can be sent."""
    client = follow(run)
    client.stall()
    change(run, members=["x" * BIG])
    (connection,) = list(run.web._connections)
    run.until(lambda: not connection.eager)
    # What so big a state costs to make is not waited for.
    run.web._event.apart = 0.0
    return client


def test_a_slow_reader_gets_the_newest_and_none_in_between(run: Served) -> None:
    client = stuck(run)
    change(run, members=[])
    quick = follow(run)
    for version in (4, 5):
        change(run)
        run.until(lambda version=version: numbers(quick)[-1] == version)  # type: ignore[misc]
    client.read_on()
    run.until(lambda: numbers(client) == [1, 2, 5])


def test_a_slow_reader_holds_no_more_than_one_state(run: Served) -> None:
    stuck(run)
    change(run, members=[])
    quick = follow(run)
    (connection, _) = list(run.web._connections)
    held = sum(map(len, connection._out))
    for version in (4, 5):
        change(run)
        run.until(lambda version=version: numbers(quick)[-1] == version)  # type: ignore[misc]
    assert sum(map(len, connection._out)) == held


def test_signs_of_life_do_not_pile_up(run: Served) -> None:
    client = stuck(run)
    (connection,) = list(run.web._connections)
    held = sum(map(len, connection._out))
    run.web._subscribers._stay_alive(run.loop.now())
    assert sum(map(len, connection._out)) == held
    client.read_on()
    run.until(lambda: numbers(client) == [1, 2])
    assert b"still here" not in client.said


def test_a_reader_that_stalls_is_let_go(run: Served) -> None:
    stuck(run)
    run.later(PATIENCE)
    assert run.web.open_connections == 0
    assert run.timers.next is None


# -- the end ----------------------------------------------------------------------------------


def test_the_last_state_ends_the_stream(run: Served) -> None:
    client = follow(run)
    change(run, phase="done")
    run.web.close(final=True)
    said = client.wait_end()
    assert said.endswith(b"\n\n\r\n0\r\n\r\n")
    assert numbers(client) == [1, 2]
    assert events(client)[-1][1]["phase"] == "done"
    assert (run.web.open_connections, run.timers.next) == (0, None)


def test_a_slow_reader_gets_the_last_state_too(run: Served) -> None:
    client = stuck(run)
    change(run, phase="done", members=[])
    run.web.close(final=True)
    assert run.web.open_connections == 1
    client.read_on()
    client.wait_end()
    assert numbers(client) == [1, 2, 3]
    assert (run.web.open_connections, run.timers.next) == (0, None)


def test_an_end_without_a_state(run: Served) -> None:
    client = follow(run)
    run.board.state = None
    run.web.close(final=True)
    assert client.wait_end().endswith(b"0\r\n\r\n")
    assert numbers(client) == [1]
