"""What is asked and answered over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from joinproto.record import Record

if TYPE_CHECKING:
    import h11

    from joinproto.runtime.http import HttpConnection

HEADERS = (
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
)
"""On every answer."""


class Request(Record):
    """A request that came in whole; its body does not count.

    Names of headers are in lower case, the values of one that came several times joined by commas.
    """

    hidden = frozenset({"query", "headers"})  # a token may be there
    method: str
    path: str
    query: Mapping[str, Sequence[str]]
    headers: Mapping[str, str]
    peer_host: str


class Answer(Record):
    """What is said to a request; with `stream`, there is no end to it.

    Whoever `stream` is sends parts through `HttpConnection.send` from when it is called.
    """

    status: int = 200
    kind: str = "application/json"
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    stream: Callable[[HttpConnection], None] | None = None


def read_request(request: h11.Request, peer_host: str) -> Request | None:
    """A request taken apart; None: its target cannot be."""
    from urllib.parse import parse_qs, urlsplit

    headers: dict[str, str] = {}
    for name, value in request.headers:
        key, text = name.decode("ascii"), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    target = request.target.decode("ascii")
    try:
        parts = urlsplit(f"http://x{target}" if target.startswith("/") else target)
        query = parse_qs(parts.query, max_num_fields=32)
    except ValueError:
        return None
    return Request(
        method=request.method.decode("ascii"),
        path=parts.path,
        query=query,
        headers=headers,
        peer_host=peer_host,
    )


def phrase(status: int) -> str:
    """What a status is called."""
    from http import HTTPStatus

    return HTTPStatus(status).phrase
