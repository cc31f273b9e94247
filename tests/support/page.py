"""A controller's page, served with states that a test makes up."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

from tests.support.python import PATIENCE
from tests.support.web import Request, web

KINDS = {"index.html": "text/html", "page.css": "text/css", "page.js": "text/javascript"}

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:"
)


class Stage:
    """What the server shows; every subscriber hears the newest state.

    Attributes:
        asked: the targets of all requests, in order.
        start_answer: status and text of the answer to a POST.
        refuse_events: answer those who want to listen that this cannot be.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.start_answer = (200, "armed")
        self.refuse_events = False
        self._state: dict[str, Any] | None = None
        self._version = 0
        self._refusing = False
        self._change = threading.Condition()

    def show(self, state: dict[str, Any]) -> None:
        """Send a state to all who listen now or later."""
        with self._change:
            self._state = state
            self._version += 1
            self._refusing = False
            self._change.notify_all()

    def drop(self) -> None:
        """End all connections of listeners, and refuse new ones until there is a new state."""
        with self._change:
            self._refusing = True
            self._change.notify_all()

    def answer(self, request: Request) -> None:
        """Answer one request."""
        self.asked.append(request.path)
        path = request.path.partition("?")[0]
        name = "index.html" if path == "/" else path.removeprefix("/")
        if request.command == "POST":
            status, text = self.start_answer
            request.answer(status, text.encode(), "text/plain")
        elif name in KINDS:
            self._file(request, name)
        elif name == "events":
            self._events(request)
        else:
            request.answer(404, b"")

    def _file(self, request: Request, name: str) -> None:
        body = (files("joinproto.runtime") / "page" / name).read_bytes()
        request.send_response(200)
        request.send_header("Content-Type", f"{KINDS[name]}; charset=utf-8")
        request.send_header("Content-Length", str(len(body)))
        request.send_header("Content-Security-Policy", POLICY)
        request.end_headers()
        request.wfile.write(body)

    def _events(self, request: Request) -> None:
        if self._refusing:
            request.close_connection = True
            return
        if self.refuse_events:
            request.answer(503, b"")
            return
        request.send_response(200)
        request.send_header("Content-Type", "text/event-stream; charset=utf-8")
        request.end_headers()
        request.wfile.write(b"retry: 50\n\n")
        version = 0
        while (news := self._next(version)) is not None:
            version, state = news
            request.wfile.write(b"data: %s\n\n" % json.dumps(state).encode())
            if state["outcome"] is not None:
                return

    def _next(self, version: int) -> tuple[int, dict[str, Any]] | None:
        """Wait for a state after that one; None when listeners are to go."""
        with self._change:
            self._change.wait_for(lambda: self._version > version or self._refusing, PATIENCE)
            if self._refusing or self._version == version:
                return None
            assert self._state is not None
            return self._version, self._state


@contextmanager
def staged() -> Iterator[tuple[Stage, str]]:
    """A stage, and the address of its page."""
    stage = Stage()
    with web(stage.answer) as address:
        try:
            yield stage, f"http://{address}/"
        finally:
            stage.drop()


def state(phase: str, *members: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A state with these hosts, as a controller makes it."""
    ranks = [rank for member in members for rank in member["ranks"]]
    formed = phase in ("forming", "training", "done", "failed")
    return {
        "phase": phase,
        "joined_ranks": len(ranks),
        "joined_hosts": len(members),
        "min_rank_start": 4,
        "target_ranks": 6,
        "window_remaining_secs": 60,
        "cap_remaining_secs": 600,
        "start_mode": "auto",
        "start_armed": False,
        "world_size": len(ranks) if formed else None,
        "num_hosts": len(members),
        "reason": None,
        "outcome": None,
        "turned_away": 0,
        "unadmitted": 0,
        "exited_ranks": sum(rank["code"] is not None for rank in ranks),
        "failed_ranks": sum(bool(rank["code"]) or rank["state"] == "lost" for rank in ranks),
        "members": list(members),
        **more,
    }


def member(host: str, *ranks: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A host with these ranks."""
    return {
        "host": host,
        "peer": "127.0.0.1",
        "wire": 2,
        "libtorch": "2.7.0",
        "gpus": ["NVIDIA H100 80GB HBM3"] * len(ranks),
        "joined_at_secs": 1.234,
        "connected": True,
        "lost": None,
        "left_at_secs": None,
        "ranks": list(ranks),
        **more,
    }


def rank(number: int, state: str = "waiting", **more: Any) -> dict[str, Any]:
    """A rank of a host with eight devices."""
    return {
        "rank": number,
        "device": number % 8,
        "state": state,
        "code": None,
        "signal": None,
        "started_at_secs": None if state == "waiting" else 5.5,
        "ended_at_secs": None,
        **more,
    }
