"""Reads a target's replies to HTTP requests."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import h11


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A whole reply.

    Attributes:
        at: when its last byte came.
        status: its number.
        body: what it carries.
    """

    at: float
    status: int
    body: bytes

    @property
    def json(self) -> Any:
        """The body read as JSON; None where it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


class ReplyReader:
    """Takes the bytes of one connection, gives replies."""

    def __init__(self) -> None:
        self._reader = h11.Connection(h11.CLIENT)
        # h11 wants to know what was asked; the request itself was sent as bytes of the case.
        request = h11.Request(method="GET", target="/", headers=[("Host", "suite")])
        self._reader.send(request)
        self._reader.send(h11.EndOfMessage())
        self.begun = False
        """Something of a reply has come."""
        self._status = 0
        self._body = bytearray()

    def feed(self, data: bytes, at: float) -> Reply | None:
        """Take bytes (none: the end of the stream); returns the reply when it is whole.

        Raises:
            h11.ProtocolError: they are no reply.
        """
        self.begun = True
        self._reader.receive_data(data)
        while True:
            event = self._reader.next_event()
            if isinstance(event, h11.Response):
                self._status = event.status_code
            elif isinstance(event, h11.Data):
                self._body += event.data
            elif isinstance(event, h11.EndOfMessage):
                return Reply(at=at, status=self._status, body=bytes(self._body))
            elif event in (h11.NEED_DATA, h11.PAUSED) or isinstance(event, h11.ConnectionClosed):
                return None
