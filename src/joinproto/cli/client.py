"""Asks a controller over HTTP on its port: what `joinproto status` and `joinproto start` share.

The published controllers answer alike, but know fewer paths (0.7 knows no POST at all).
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any, Final

from joinproto.cli.live import clean
from joinproto.errors import ConfigError, RemoteError, Unreachable
from joinproto.runtime.addresses import format_address, parse_address
from joinproto.runtime.files import open_at_once, readable_by_all
from joinproto.runtime.stream import configure

TIMEOUT: Final = 10.0
"""Seconds (unscaled) for the dial, and then for the whole answer."""

ANSWER_BYTES: Final = 64 * 1024 * 1024
TOKEN_BYTES: Final = 1024
STREAM: Final = "text/event-stream"


def read_token(program: str, path: str, option: str = "--token-file") -> str:
    """The token in a file; white space around it does not count.

    That other users can read it too is told on stderr.

    Raises:
        ConfigError: it cannot be read, or holds anything but one printable word of ASCII.
    """
    where = f"{option} {path}"
    try:
        with open(path, "rb", opener=open_at_once) as file:
            status = os.fstat(file.fileno())
            raw = file.read(TOKEN_BYTES + 1) or b""
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where}: {getattr(error, 'strerror', None) or error}") from None
    token = raw.decode("ascii", "replace").strip()
    if len(raw) > TOKEN_BYTES or not token.isascii() or not token.isprintable() or " " in token:
        raise ConfigError(f"{where}: a token is one word of ASCII, of at most {TOKEN_BYTES} bytes")
    if not token:
        raise ConfigError(f"{where}: it is empty")
    if readable_by_all(status.st_mode):
        told = f"token file {path!r} can be read by every user of this host; chmod o-r it"
        print(f"joinproto {program}: {told}", file=sys.stderr, flush=True)
    return token


class Answer:
    """An answer that is there as a whole; `text` is what it says of itself, for people."""

    def __init__(self, status: int, body: bytes) -> None:
        self.status = status
        self.body = body

    @property
    def text(self) -> str:
        """The reason it gives; else its first line; never with control characters in it."""
        try:
            document = json.loads(self.body)
        except (ValueError, RecursionError):
            document = None
        error = document.get("error") if isinstance(document, dict) else None
        if not isinstance(error, str):
            error = (self.body.decode(errors="replace").splitlines() or [""])[0]
        return clean(error[:500])


class Client:
    """A controller at an address.

    Args:
        address: HOST:PORT.
        token: goes with every request; None: none does.
        scale: of the deadline.

    Raises:
        ConfigError: the address is written wrongly.
    """

    def __init__(self, address: str, *, token: str | None = None, scale: float = 1.0) -> None:
        self.host, self.port = parse_address(address)
        self.where = format_address(self.host, self.port)
        self._token = token
        self._timeout = TIMEOUT * scale
        self._scale = scale

    def ask(self, method: str, path: str) -> Answer:
        """The answer to one request.

        Raises:
            Unreachable: there is no connection to be had.
            RemoteError: the connection broke, or no whole answer came in time.
        """
        with self._talk(method, path) as (watch, response):
            body = self._body(response)
            if watch.late:
                # Where no length was given, the end that the watch made looks like the answer's.
                raise self._broken(watch, TimeoutError())
            return Answer(response.status, body)

    def follow(self, path: str) -> Iterator[Mapping[str, Any]]:
        """The objects that a stream of events (server-sent) brings, until it ends.

        Gives nothing when the controller has no such stream, or not for this token.

        Raises:
            Unreachable: there is no connection to be had.
            RemoteError: the first event does not come in time, one is too long, or the connection
                broke.
        """
        with self._talk("GET", path) as (watch, response):
            kind = response.headers.get_content_type()
            if response.status != 200 or kind != STREAM:
                return
            for event in _events(response):
                # From the first one on, a run may be silent for as long as it likes.
                watch.stop()
                yield event

    def state(self) -> dict[str, Any] | None:
        """What `/state.json` says; None: the controller has no state yet.

        Raises:
            Unreachable: there is no connection to be had.
            RemoteError: it answers with anything else.
        """
        answer = self.ask("GET", "/state.json")
        if answer.status == 503:
            return None
        if answer.status != 200:
            raise RemoteError(f"{self.where} answers {answer.status}: {answer.text}")
        state = _object(answer.body)
        if state is None or not isinstance(state.get("phase"), str):
            raise RemoteError(f"{self.where} answers with what is not the state of a controller")
        return state

    # -- inside -------------------------------------------------------------------------------

    @contextmanager
    def _talk(self, method: str, path: str) -> Iterator[tuple[_Watch, HTTPResponse]]:
        """A request, its answer up to the body, and the watch on its deadline."""
        try:
            connection = HTTPConnection(self.host, self.port, timeout=self._timeout)
            connection.connect()
        except (OSError, ValueError, HTTPException) as error:
            why = getattr(error, "strerror", None) or clean(error)
            raise Unreachable(f"cannot reach {self.where}: {why}") from None
        watch = _Watch(connection.sock, self._timeout)
        try:
            # A run may be silent for hours; that its host is gone shows all the same.
            configure(connection.sock, self._scale)
            connection.sock.settimeout(None)
            connection.request(method, path, headers=self._headers())
            with connection.getresponse() as response:
                yield watch, response
        except (OSError, HTTPException) as error:
            raise self._broken(watch, error) from None
        finally:
            watch.stop()
            connection.close()

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": f"application/json, {STREAM}", "Connection": "close"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token}"
        return headers

    def _broken(self, watch: _Watch, error: Exception) -> RemoteError:
        if watch.late:
            return RemoteError(f"{self.where} does not answer within {self._timeout:g} s")
        if isinstance(error, OSError):
            why = getattr(error, "strerror", None) or "the connection ended"
            return RemoteError(f"{self.where} gave no answer: {why}")
        return RemoteError(f"{self.where} does not answer as HTTP does")

    def _body(self, response: HTTPResponse) -> bytes:
        body = response.read(ANSWER_BYTES + 1)
        if len(body) > ANSWER_BYTES:
            raise RemoteError(f"{self.where} answers with more than {ANSWER_BYTES // 2**20} MiB")
        if response.length:
            raise RemoteError(f"{self.where} gave no answer: it ended in the middle")
        return body


class _Watch:
    """Ends a connection when its time is over, however slowly its bytes come."""

    def __init__(self, sock: socket.socket, seconds: float) -> None:
        self._sock = sock
        self.late = False
        self._timer = threading.Timer(seconds, self._too_late)
        self._timer.daemon = True
        self._timer.start()

    def stop(self) -> None:
        """The time does not matter any more."""
        self._timer.cancel()
        self._timer.join()

    def _too_late(self) -> None:
        self.late = True
        try:
            self._sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            # It has ended by itself.
            return


def _events(response: HTTPResponse) -> Iterator[Mapping[str, Any]]:
    data: list[bytes] = []
    size = 0
    while line := response.readline(ANSWER_BYTES + 1):
        size += len(line)
        if size > ANSWER_BYTES:
            raise RemoteError(f"an event of more than {ANSWER_BYTES // 2**20} MiB")
        line = line.rstrip(b"\r\n")
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))
        elif not line:
            event = _object(b"\n".join(data))
            data, size = [], 0
            if event is not None:
                yield event


def _object(raw: bytes) -> dict[str, Any] | None:
    """An object of JSON; None: it is none."""
    try:
        document = json.loads(raw, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _no_constant(name: str) -> object:
    raise ValueError(name)
