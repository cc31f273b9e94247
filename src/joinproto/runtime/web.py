"""A run over HTTP, on the port that hosts join at.

| path | answer |
| --- | --- |
| `GET /state.json` | the state, as published controllers show it |
| `GET /` | the page where HTML is asked for, else the same as `/state.json` |
| `GET /events` | server-sent events: the state in detail now, and when it has changed |
| `GET /metrics` | for Prometheus |
| `GET /healthz` | `ok` |
| `POST /start` | arms the start: 200, or 409 with the reason why not |

`/state.json`, `/` as JSON and `/healthz` are open to all; for the rest see `Access`.

Compared with the launcher of flodl 0.8.0, the bodies of `/state.json` and of `/start` are the same,
and every error is `{"error": ...}` here too.  Different are: connections are kept alive; a known
path with another method is answered 405, not 404; HTTP/1.1 without a Host, and a request line that
is none, are answered 400; HEAD is known; there is no `Access-Control-Allow-Origin: *`, since with
it any page in a browser on this machine could read what is on loopback; and a start sent by the
page of another site is refused.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

from joinproto.runtime.access import Access
from joinproto.runtime.exchange import Answer, Request
from joinproto.runtime.http import HttpConnection
from joinproto.runtime.loop import Loop
from joinproto.runtime.rendering import Rendering
from joinproto.runtime.subscribers import Subscribers
from joinproto.runtime.timers import Timers

__all__ = ["Access", "Web"]

CONNECTIONS = 64
SUBSCRIBERS = 16

TOO_MANY = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
    b"Content-Length: 32\r\nRetry-After: 1\r\nConnection: close\r\n\r\n"
    b'{"error":"too many connections"}'
)

PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
"""Path → file in the package, and its content type."""

REFUSALS = {
    400: "this is not a request of HTTP/1.0 or 1.1 that can be read",
    408: "the request took too long",
    413: "the body is too long; none is needed",
    431: "the headers are too long",
    501: "this transfer encoding is not known here",
}

Handler: TypeAlias = Callable[[Request], Answer]


class Board(Protocol):
    """What is shown of a run."""

    version: int

    def published(self) -> dict[str, Any]:
        """The state as published controllers show it; LookupError: not yet."""

    def detail(self) -> dict[str, Any]:
        """The state in detail; LookupError: not yet."""

    def arm(self, peer: str) -> str | None:
        """Give the start; returns why not, or None."""


class Web:
    """Serves HTTP on connections that are handed to it.

    Args:
        loop: where they are watched.
        timers: has their deadlines.
        board: shows the run.
        access: who may see what.
    """

    def __init__(self, loop: Loop, timers: Timers, board: Board, access: Access) -> None:
        self._loop = loop
        self._timers = timers
        self._board = board
        self._access = access
        self._connections: dict[HttpConnection, None] = {}
        self._closed = False
        self._page: dict[str, bytes | None] = {}
        self._metrics_kind = ""
        self._state = Rendering(loop.now, lambda: _json(board.published()))
        self._event = Rendering(loop.now, self._make_event)
        self._metrics = Rendering(loop.now, self._make_metrics)
        self._subscribers = Subscribers(loop, timers, self._event)
        self._routes: dict[str, dict[str, Handler]] = {
            "/": {"GET": self._get_root},
            "/state.json": {"GET": self._get_state},
            "/healthz": {"GET": lambda _: Answer(kind="text/plain; charset=utf-8", body=b"ok\n")},
            "/page.css": {"GET": self._get_file},
            "/page.js": {"GET": self._get_file},
            "/events": {"GET": self._get_events},
            "/metrics": {"GET": self._get_metrics},
            "/start": {"POST": self._post_start},
        }

    @property
    def open_connections(self) -> int:
        """How many there are."""
        return len(self._connections)

    def take(self, sock: socket.socket, head: bytes, peer_host: str) -> None:
        """Serve a connection from now on.

        Args:
            sock: the connection, which it owns.
            head: what has come on it so far, at least a method.
            peer_host: the other end's numeric address.
        """
        sock.setblocking(False)
        if self._closed:
            sock.close()
            return
        if len(self._connections) >= CONNECTIONS and not self._drop_idle():
            with suppress(OSError):
                sock.send(TOO_MANY)
            sock.close()
            return
        try:
            connection = HttpConnection(self._loop, self._timers, sock, peer_host, self)
        except OSError:
            # It is gone already.
            sock.close()
            return
        self._connections[connection] = None
        connection.start(head)

    def changed(self) -> None:
        """The board shows something else than before."""
        self._subscribers.changed()

    def close(self, final: bool) -> None:
        """Serve no more.

        Args:
            final: subscribers get the last state and answers are sent to their end; what is still
                open then is in `open_connections`.  Otherwise all is closed at once.
        """
        self._closed = True
        self._subscribers.close()
        last = self._last_event() if final else None
        for connection in list(self._connections):
            if final:
                connection.finish(last)
            else:
                connection.abort()

    # -- for connections ----------------------------------------------------------------------

    def answer(self, request: Request) -> Answer:
        """The answer to a request."""
        methods = self._routes.get(request.path)
        if methods is None:
            return _error(404, "not found", endpoints=["GET /state.json", "POST /start"])
        method = "GET" if request.method == "HEAD" else request.method
        handler = methods.get(method)
        if handler is None:
            allowed = "GET, HEAD" if "GET" in methods else "POST"
            return _error(405, f"only {allowed}", ("Allow", allowed))
        try:
            return handler(request)
        except LookupError:
            return _error(503, "there is no state yet")

    def refuse(self, status: int) -> Answer:
        """The answer to what cannot be read as a request."""
        return _error(status, REFUSALS.get(status, REFUSALS[400]))

    def closed(self, connection: HttpConnection) -> None:
        """A connection is done with."""
        self._connections.pop(connection, None)
        self._subscribers.remove(connection)

    # -- answers ------------------------------------------------------------------------------

    def _get_root(self, request: Request) -> Answer:
        if "text/html" not in request.headers.get("accept", "").lower():
            return self._get_state(request)
        return self._unshown(request) or self._get_file(request)

    def _get_state(self, request: Request) -> Answer:
        return Answer(body=self._state.recent())

    def _get_file(self, request: Request) -> Answer:
        name, kind = PAGE[request.path]
        if name not in self._page:
            self._page[name] = _read_page(name)
        body = self._page[name]
        return _error(404, "not found") if body is None else Answer(kind=kind, body=body)

    def _get_events(self, request: Request) -> Answer:
        if refusal := self._unshown(request):
            return refusal
        if len(self._subscribers) >= SUBSCRIBERS:
            return _error(503, "too many follow the events already")
        self._event.recent()  # before there is a state, it says so here
        return Answer(kind="text/event-stream", stream=self._subscribers.add)

    def _get_metrics(self, request: Request) -> Answer:
        if refusal := self._unshown(request):
            return refusal
        body = self._metrics.recent()
        return Answer(kind=self._metrics_kind, body=body)

    def _post_start(self, request: Request) -> Answer:
        refusal = self._access.why_not_started(request)
        if refusal is not None:
            return _error(*refusal)
        state = self._board.published()
        why_not = self._board.arm(request.peer_host)
        if why_not is not None:
            return _error(409, why_not)
        told = {name: state[name] for name in ("joined_ranks", "min_rank_start")}
        return Answer(body=_json({"armed": True, **told}))

    # -- inside -------------------------------------------------------------------------------

    def _unshown(self, request: Request) -> Answer | None:
        refusal = self._access.why_not_shown(request)
        if refusal is None:
            return None
        status, why = refusal
        return _error(status, why, *([("WWW-Authenticate", "Bearer")] if status == 401 else []))

    def _make_event(self) -> bytes:
        # Taken first: a state newer than its number does no harm.
        version = self._board.version
        return b"id: %d\ndata: %s\n\n" % (version, _json(self._board.detail()))

    def _make_metrics(self) -> bytes:
        from joinproto.runtime.metrics import render

        body, self._metrics_kind = render(self._board.detail())
        return body

    def _last_event(self) -> bytes | None:
        if not self._subscribers:
            return None
        try:
            return self._event.fresh()
        except LookupError:
            return None

    def _drop_idle(self) -> bool:
        """Close the oldest connection that waits between two requests; whether there is one."""
        idle = next((each for each in self._connections if each.idle), None)
        if idle is not None:
            idle.abort()
        return idle is not None


def _json(document: object) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode("ascii")


def _error(status: int, text: str, *headers: tuple[str, str], **more: object) -> Answer:
    return Answer(status=status, body=_json({"error": text, **more}), headers=headers)


def _read_page(name: str) -> bytes | None:
    from importlib.resources import files

    try:
        return files("joinproto.runtime").joinpath("page", name).read_bytes()
    except OSError:
        return None
