"""web: a run over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from joinproto.runtime.access import Access
from joinproto.runtime.exchange import HEADERS
from joinproto.runtime.web import CONNECTIONS, PAGE, SUBSCRIBERS
from tests.support.served import Answered, Served, asking, read_answer, served

TOKEN = "correct-horse"
SALT = "c0ffee00" * 4
GUARDED = Access(open=False, token=TOKEN, salt_hex=SALT)
HTML = "Accept: text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"
FAR = "192.0.2.7"

SHOWN_TO_SOME = [("/", HTML), ("/events", "A: b"), ("/metrics", "A: b")]
"""Paths that are not for all, each with a header that they are asked for with."""


@pytest.fixture
def run() -> Iterator[Served]:
    with served() as run:
        yield run


@pytest.fixture
def guarded() -> Iterator[Served]:
    with served(GUARDED) as run:
        yield run


def error(answer: Answered) -> str:
    """The reason that an answer gives."""
    assert answer.headers["content-type"] == "application/json"
    told = json.loads(answer.body)["error"]
    assert isinstance(told, str)
    assert "\n" not in told
    return told


def status(run: Served, raw: bytes) -> int:
    """The status of the answer, which may have no end."""
    client = run.dial(raw)
    client.wait(b"\r\n\r\n")
    answer = int(bytes(client.said).split()[1])
    client.close()
    return answer


# -- what is shown ----------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["/state.json", "/", "/state.json?x=1", "http://a/state.json"])
def test_the_state(run: Served, target: str) -> None:
    answer = run.ask(asking(target))
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert json.loads(answer.body) == run.board.state


def test_a_page_for_browsers(run: Served) -> None:
    answer = run.ask(asking("/", HTML))
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.body.startswith(b"<!doctype html>")


@pytest.mark.parametrize("path", ["/page.css", "/page.js"])
def test_what_belongs_to_the_page(run: Served, path: str) -> None:
    first, second = run.ask(asking(path)), run.ask(asking(path))
    assert first.status == 200
    assert first.headers["content-type"] == PAGE[path][1]
    assert first.body == second.body != b""


def test_a_page_that_is_not_there(run: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PAGE, "/page.css", ("none.css", "text/css"))
    assert run.ask(asking("/page.css")).status == 404


def test_health(run: Served) -> None:
    run.board.state = None
    answer = run.ask(asking("/healthz"))
    assert (answer.status, answer.body) == (200, b"ok\n")


def test_metrics(run: Served) -> None:
    answer = run.ask(asking("/metrics"))
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=")
    names = {family.name for family in text_string_to_metric_families(answer.body.decode())}
    assert {"joinproto_ranks", "joinproto_phase", "joinproto_turned_away"} <= names


@pytest.mark.parametrize("path", ["/state.json", "/", "/healthz", "/metrics", "/page.js"])
def test_a_head_is_the_same_without_a_body(run: Served, path: str) -> None:
    whole = run.ask(asking(path))
    client = run.dial(asking(path, method="HEAD"))
    head = client.answer(asking(path, method="HEAD"))
    assert (head.status, head.headers, head.body) == (200, whole.headers, b"")
    # Nothing of a body is on its way.
    assert client.ask(asking("/healthz")).body == b"ok\n"


def test_a_head_of_the_events_has_an_end(run: Served) -> None:
    answer = run.ask(asking("/events", method="HEAD"))
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")


@pytest.mark.parametrize("path", ["/state.json", "/", "/metrics", "/events"])
def test_before_there_is_a_state(run: Served, path: str) -> None:
    run.board.state = None
    answer = run.ask(asking(path))
    assert (answer.status, error(answer)) == (503, "there is no state yet")


@pytest.mark.parametrize("target", ["/nope", "/state.json/", "//state.json", "/page/page.js", "*"])
def test_what_is_not_there(run: Served, target: str) -> None:
    answer = run.ask(asking(target))
    assert (answer.status, error(answer)) == (404, "not found")
    assert "POST /start" in json.loads(answer.body)["endpoints"]


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("POST", "/state.json", "GET, HEAD"),
        ("DELETE", "/", "GET, HEAD"),
        ("OPTIONS", "/events", "GET, HEAD"),
        ("GET", "/start", "POST"),
        ("HEAD", "/start", "POST"),
        ("PUT", "/start", "POST"),
    ],
)
def test_other_methods(run: Served, method: str, path: str, allow: str) -> None:
    answer = run.ask(asking(path, method=method))
    assert (answer.status, answer.headers["allow"]) == (405, allow)
    assert run.board.armed_by == []


@pytest.mark.parametrize("raw", [asking("/"), asking("/nope"), asking("/", HTML), b"GET /\r\n\r\n"])
def test_every_answer_says_what_a_browser_may_do_with_it(run: Served, raw: bytes) -> None:
    answer = run.ask(raw)
    assert {name: answer.headers[name.lower()] for name, _ in HEADERS} == dict(HEADERS)
    assert "access-control-allow-origin" not in answer.headers


# -- who may see it ---------------------------------------------------------------------------


@pytest.mark.parametrize(("path", "header"), SHOWN_TO_SOME)
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_what_is_not_for_all(guarded: Served, path: str, header: str, method: str) -> None:
    refusal = guarded.ask(asking(path, header, method=method))
    assert (refusal.status, refusal.headers["www-authenticate"]) == (401, "Bearer")
    for wrong in ("?token=", "?token=x", f"?token={SALT}", "?Token=" + TOKEN):
        assert status(guarded, asking(path + wrong, header, method=method)) == 401
    assert status(guarded, asking(f"{path}?token={TOKEN}", header, method=method)) == 200
    bearer = f"Authorization: Bearer {TOKEN}"
    assert status(guarded, asking(path, header, bearer, method=method)) == 200


@pytest.mark.parametrize("path", ["/state.json", "/", "/healthz", "/page.css", "/page.js"])
def test_what_is_for_all(guarded: Served, path: str) -> None:
    assert guarded.ask(asking(path), peer_host=FAR).status == 200


@pytest.mark.parametrize(("path", "header"), SHOWN_TO_SOME)
def test_a_name_that_was_made_to_lead_here(run: Served, path: str, header: str) -> None:
    raw = asking(path, header).replace(b"localhost", b"evil.example")
    assert run.ask(raw).status == 403


@pytest.mark.parametrize(
    "raw",
    [
        asking("/events?token=s3cret"),
        asking("/nope?token=s3cret"),
        asking("/start?token=s3cret", "Origin: http://s3cret", method="POST"),
        asking("/metrics", "Authorization: Bearer s3cret"),
        b"GET /?token=s3cret\r\n\r\n",
        b"GET http://[s3cret HTTP/1.0\r\n\r\n",
    ],
)
def test_nothing_of_a_token_comes_back(
    guarded: Served, raw: bytes, capfd: pytest.CaptureFixture[str]
) -> None:
    client = guarded.dial(raw)
    client.wait(b"}")
    assert b"s3cret" not in client.said
    assert "s3cret" not in "".join(capfd.readouterr())


# -- the start --------------------------------------------------------------------------------


def test_a_start(run: Served) -> None:
    answer = run.ask(asking("/start", method="POST"))
    told = {"armed": True, "joined_ranks": 0, "min_rank_start": 2}
    assert (answer.status, json.loads(answer.body)) == (200, told)
    assert run.board.armed_by == ["127.0.0.1"]


def test_a_start_that_cannot_be(run: Served) -> None:
    run.board.why_not = "start mode is auto"
    answer = run.ask(asking("/start", method="POST"))
    assert (answer.status, error(answer)) == (409, "start mode is auto")


def test_a_start_before_there_is_a_window(run: Served) -> None:
    run.board.state = None
    assert run.ask(asking("/start", method="POST")).status == 503
    assert run.board.armed_by == []


def test_a_start_from_elsewhere(guarded: Served) -> None:
    for target, expected in (("/start", 403), (f"/start?token={SALT}", 200)):
        answer = guarded.ask(asking(target, method="POST"), peer_host=FAR)
        assert answer.status == expected
    assert guarded.board.armed_by == [FAR]


def test_a_start_by_the_page_of_another_site(run: Served) -> None:
    for header in ("Origin: http://evil.example", "Sec-Fetch-Site: cross-site"):
        assert run.ask(asking("/start", header, method="POST")).status == 403
    assert run.board.armed_by == []


# -- limits and the end -----------------------------------------------------------------------


def test_no_more_connections_than_that(run: Served) -> None:
    for _ in range(CONNECTIONS):
        run.dial(b"GET ")
    refused = run.dial(asking())
    answer = read_answer(refused.wait_end(), ended=True)
    assert answer is not None
    assert (answer.status, error(answer)) == (503, "too many connections")
    assert run.web.open_connections == CONNECTIONS


def test_who_only_waits_makes_room(run: Served) -> None:
    idle = run.dial(asking())
    idle.answer(asking())
    for _ in range(CONNECTIONS - 1):
        run.dial(b"GET ")
    assert run.ask(asking()).status == 200
    idle.wait_end()


def test_no_more_subscribers_than_that(run: Served) -> None:
    clients = [run.dial(asking("/events")) for _ in range(SUBSCRIBERS)]
    answer = run.ask(asking("/events"))
    assert (answer.status, error(answer)) == (503, "too many follow the events already")
    clients[0].close()
    run.until(lambda: run.web.open_connections == SUBSCRIBERS - 1)
    assert status(run, asking("/events")) == 200


def test_at_the_end_nothing_is_left_open(run: Served) -> None:
    waiting, following = run.dial(b"GET "), run.dial(asking("/events"))
    run.web.close(final=False)
    assert (run.web.open_connections, run.timers.next) == (0, None)
    waiting.wait_end()
    following.wait_end()
    late = run.dial(asking())
    assert late.wait_end() == b""


def test_at_a_peaceful_end_answers_are_sent_to_theirs(run: Served) -> None:
    assert run.board.state is not None
    run.board.state["members"] = ["x" * (8 * 1024 * 1024)]
    client, idle = run.dial(b"GET "), run.dial(b"GET ")
    client.stall()
    client.send(asking()[4:])
    run.until(lambda: not all(each.eager for each in run.web._connections))
    run.web.close(final=True)
    idle.wait_end()
    client.read_on()
    answer = read_answer(client.wait_end(), ended=True)
    assert answer is not None
    assert json.loads(answer.body) == run.board.state
    assert run.web.open_connections == 0


def test_libraries_are_loaded_only_when_they_are_needed() -> None:
    code = (
        "import sys, joinproto.runtime.web, joinproto.runtime.metrics; "
        "print(sorted({'h11', 'prometheus_client', 'http', 'urllib'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
