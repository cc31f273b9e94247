"""A controller's side of HTTP, scripted by a test."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias

Answering: TypeAlias = Callable[["Request"], None]


class Request(BaseHTTPRequestHandler):
    """One request; a test's function answers it."""

    answering: Answering

    def do_GET(self) -> None:
        """Answer."""
        type(self).answering(self)

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""

    def answer(self, status: int, document: object, kind: str = "application/json") -> None:
        """Send an answer: bytes as they are, anything else as JSON."""
        body = document if isinstance(document, bytes) else json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def stream(self, *states: Mapping[str, Any]) -> None:
        """Send these as events, as a server does that sends no length."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.end_headers()
        self.wfile.write(b": hello\n\n")
        for state in states:
            self.wfile.write(b"event: state\ndata: %s\n\n" % json.dumps(state).encode())


@contextmanager
def web(answering: Answering) -> Iterator[str]:
    """A server on loopback that answers so; its address."""
    kind = type("Scripted", (Request,), {"answering": staticmethod(answering)})
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    # What hangs by design ends with the client.
    server.daemon_threads = False
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
