"""One HTTP connection on the loop: h11 reads it, somebody answers, bounded in size and time."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Protocol

from joinproto.runtime.exchange import HEADERS, Answer, Request, phrase, read_request
from joinproto.runtime.loop import Loop
from joinproto.runtime.stream import Stream
from joinproto.runtime.timers import Timers

if TYPE_CHECKING:
    import h11

HEADER_BYTES = 16 * 1024
BODY_BYTES = 64 * 1024
AHEAD_BYTES = 64 * 1024
"""What may come unasked: behind a request that is not answered yet, or that is the last one."""

PATIENCE = 10.0
"""Seconds for a whole request, between two of them, and for a reader to take a piece."""

DRAIN = 2.0
"""Seconds in which the other end may close first: an answer is not lost to a reset."""

PIECE = 64 * 1024


class Answering(Protocol):
    """Who answers the requests on a connection."""

    def answer(self, request: Request) -> Answer:
        """The answer."""

    def refuse(self, status: int) -> Answer:
        """The answer to what is not a request that can be read."""

    def closed(self, connection: HttpConnection) -> None:
        """A connection is done with."""


class Phase(Enum):
    """Where a connection is."""

    READING = "reading"
    RESPONDING = "responding"
    STREAMING = "streaming"
    DRAINING = "draining"


class HttpConnection:
    """A connection of which requests are read and answered, one after the other.

    Args:
        loop: where it is watched.
        timers: has its deadlines.
        sock: the socket, non-blocking, which it owns from now on.
        peer_host: the other end's numeric address.
        answering: answers the requests.

    Raises:
        OSError: the other end is gone already; the socket is still the caller's.
    """

    def __init__(
        self,
        loop: Loop,
        timers: Timers,
        sock: socket.socket,
        peer_host: str,
        answering: Answering,
    ) -> None:
        import h11

        self._loop = loop
        self._timers = timers
        self._peer_host = peer_host
        self._answering = answering
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_BYTES)
        self._request: h11.Request | None = None
        self._body = 0
        self._ahead = 0
        self._phase = Phase.READING
        self._idle = False
        self._out: deque[memoryview] = deque()
        self._flushed = True
        self._working = False
        self._finishing = False
        self.eased: Callable[[HttpConnection], None] | None = None
        """Told each time that all of a stream's parts are sent."""
        self._stream = Stream(loop, sock, self)

    @property
    def idle(self) -> bool:
        """Whether it waits between two requests."""
        return self._phase is Phase.READING and self._idle

    @property
    def eager(self) -> bool:
        """Whether all that was sent on it is with the system."""
        return self._flushed and not self._out

    def start(self, head: bytes) -> None:
        """Begin, with what has come already."""
        self._allow(PATIENCE)
        self._receive(head)

    def send(self, part: bytes) -> None:
        """Send a part of a stream."""
        import h11

        if self._phase is Phase.STREAMING:
            self._put(h11.Data(data=part))
            self._work()

    def finish(self, part: bytes | None) -> None:
        """Come to an end: a stream with this last part, an answer on its way once it is sent."""
        import h11

        self._finishing = True
        if self._phase is Phase.STREAMING:
            if part is not None:
                self._put(h11.Data(data=part))
            self._put(h11.EndOfMessage())
            self._phase = Phase.RESPONDING
        if self._phase is Phase.RESPONDING:
            self._work()
        else:
            self.abort()

    def abort(self) -> None:
        """Close at once."""
        self._stream.abort()
        self._gone()

    # -- what the stream tells ----------------------------------------------------------------

    def stream_data(self, data: bytes) -> None:
        """Bytes came in."""
        self._receive(data)

    def stream_eof(self) -> None:
        """The other end will send no more."""
        if self._phase in (Phase.STREAMING, Phase.DRAINING):
            self.abort()
        else:
            self._http.receive_data(b"")
            self._work()

    def stream_broken(self, cause: str) -> None:
        """The connection failed."""
        self._gone()

    def stream_flushed(self) -> None:
        """What was to be sent is with the system."""
        self._flushed = True
        self._timers.clear(self)
        self._work()

    # -- inside -------------------------------------------------------------------------------

    def _receive(self, data: bytes) -> None:
        if self._phase is not Phase.READING:
            self._ahead += len(data)
            if self._ahead > AHEAD_BYTES:
                self.abort()
                return
        if self._phase in (Phase.STREAMING, Phase.DRAINING):
            return
        if self._idle:
            self._idle = False
            self._allow(PATIENCE)
        self._http.receive_data(data)
        self._work()

    def _work(self) -> None:
        # What is sent may be flushed before `send` returns: a loop here, so that no number of
        # pieces or requests makes this call itself ever deeper.
        if self._working:
            return
        self._working = True
        try:
            while not self._stream.closed and self._flushed and self._step():
                continue
        finally:
            self._working = False

    def _step(self) -> bool:
        """Do the next thing; whether there may be one more."""
        if self._out:
            self._send_piece()
            return True
        match self._phase:
            case Phase.READING:
                return self._read()
            case Phase.RESPONDING:
                return self._answered()
            case Phase.STREAMING if self.eased is not None:
                self.eased(self)
        return bool(self._out)

    def _send_piece(self) -> None:
        piece = bytearray()
        while self._out and len(piece) < PIECE:
            part = self._out.popleft()
            room = PIECE - len(piece)
            piece += part[:room]
            if len(part) > room:
                self._out.appendleft(part[room:])
        self._flushed = False
        self._stream.send(bytes(piece))
        if not self._flushed and not self._stream.closed:
            self._allow(PATIENCE)

    def _read(self) -> bool:
        import h11

        try:
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            # Its text may hold what came, and so a token.
            self._respond(self._answering.refuse(error.error_status_hint))
            return True
        match event:
            case h11.Request():
                return self._take_request(event)
            case h11.Data(data=data):
                return self._count_body(len(data))
            case h11.EndOfMessage():
                self._respond(self._answer())
                return True
            case h11.ConnectionClosed():
                self.abort()
        return False

    def _take_request(self, request: h11.Request) -> bool:
        self._request = request
        self._body = 0
        size = len(request.target) + sum(len(name) + len(value) for name, value in request.headers)
        lengths = [value for name, value in request.headers if name == b"content-length"]
        # h11 has seen to it that it is a number; not to it that int() takes one as long as that.
        if size > HEADER_BYTES:
            self._respond(self._answering.refuse(431))
        elif lengths and (len(lengths[0]) > 15 or int(lengths[0]) > BODY_BYTES):
            self._respond(self._answering.refuse(413))
        elif self._http.they_are_waiting_for_100_continue:
            # It asks whether to send the body, which nobody would read.
            self._respond(self._answer())
        return True

    def _count_body(self, count: int) -> bool:
        self._body += count
        if self._body > BODY_BYTES:
            self._respond(self._answering.refuse(413))
        return True

    def _answer(self) -> Answer:
        request = self._request
        assert request is not None
        read = read_request(request, self._peer_host)
        return self._answering.refuse(400) if read is None else self._answering.answer(read)

    def _respond(self, answer: Answer) -> None:
        import h11

        is_head = self._request is not None and self._request.method == b"HEAD"
        headers = [("Content-Type", answer.kind), *HEADERS, *answer.headers]
        if answer.stream is None:
            headers.append(("Content-Length", str(len(answer.body))))
        if self._http.their_state is not h11.DONE or self._http.trailing_data[0]:
            # What is not read to its end has no next one; and who sends requests without waiting
            # for answers gets no more than one at a time.
            headers.append(("Connection", "close"))
        self._put(
            h11.Response(status_code=answer.status, reason=phrase(answer.status), headers=headers)
        )
        if answer.stream is not None and not is_head:
            self._timers.clear(self)
            self._phase = Phase.STREAMING
            answer.stream(self)
            return
        if answer.body and not is_head:
            self._put(h11.Data(data=answer.body))
        self._put(h11.EndOfMessage())
        self._phase = Phase.RESPONDING

    def _put(self, event: h11.Event) -> None:
        parts = self._http.send_with_data_passthrough(event) or ()
        self._out.extend(memoryview(part) for part in parts if part)

    def _answered(self) -> bool:
        """An answer is sent: on to the next request, or to the end."""
        import h11

        if self._finishing:
            self._stream.close()
            self._gone()
            return False
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
            self._request = None
            self._ahead = 0
            self._phase = Phase.READING
            self._idle = not self._http.trailing_data[0]
            self._allow(PATIENCE)
            return True
        self._drain()
        return False

    def _drain(self) -> None:
        self._phase = Phase.DRAINING
        if self._http.trailing_data[1]:
            self._stream.close()
            self._gone()
        else:
            self._stream.end_sending()
            self._allow(DRAIN)

    def _allow(self, seconds: float) -> None:
        self._timers.set(self, self._loop.now() + seconds, self._late)

    def _late(self, now: float) -> None:
        if self._phase is Phase.READING and not self._idle:
            self._respond(self._answering.refuse(408))
            self._work()
        else:
            self.abort()

    def _gone(self) -> None:
        self._timers.clear(self)
        self._out.clear()
        self._answering.closed(self)
