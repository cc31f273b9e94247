"""A world of real things: a target process, sockets on loopback, and the clock."""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, Protocol

from joinproto.conformance.conversation import MAX_HELD, Conversation
from joinproto.conformance.crew import Crew
from joinproto.conformance.target import FLOOD, Target
from joinproto.conformance.telling import exit_text
from joinproto.conformance.world import (
    Child,
    Exit,
    Flood,
    Keys,
    Line,
    Trace,
    Unreachable,
)

CHUNK = 262144
KEPT_LINES = 10_000

LOOK = 0.2
"""Seconds; how often a case that waits looks whether the run was given up."""

REDIAL = 0.01
"""Seconds between two tries to reach a target that is only just starting."""

START = 20.0
"""Seconds in which a target that was just started must take connections."""

PATIENCE = 5.0
"""Seconds in which a process does what it is told."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Cancelled(Exception):
    """The whole run was given up."""


class Slot(Protocol):
    """A place among the cases that run at a time; one that only waits gives it up meanwhile."""

    def acquire(self) -> object:
        """Take it."""

    def release(self) -> object:
        """Give it up."""


class _Socket:
    """A socket, and the conversation on it."""

    def __init__(self, sock: socket.socket, conversation: Conversation) -> None:
        self.sock = sock
        self.conversation = conversation
        self.out = bytearray()
        self.then: str = ""
        self.open = True


class LoopbackWorld:
    """See `joinproto.conformance.world.World`.

    Args:
        keys: the secrets of the case.
        host: the name of the target, an agent.
        scale: of every network deadline.
        slot: what is given up while the case only waits; None: nothing is.
        given_up: whether the whole run is to end.

    Attributes:
        start: starts the target.
    """

    def __init__(
        self,
        keys: Keys,
        *,
        host: str,
        scale: float,
        slot: Slot | None = None,
        given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        self.keys = keys
        self.host = host
        self.scale = scale
        self.trace = Trace()
        self.address = ("127.0.0.1", 0)
        self.conversations: dict[str, Conversation] = {}
        self.exit: Exit | None = None
        self.lines: list[Line] = []
        self.target: Target | None = None
        self.start: Callable[[], None] = lambda: None
        self._slot = slot
        self._given_up = given_up
        self._began = time.monotonic()
        self._selector = selectors.DefaultSelector()
        self._sockets: dict[str, _Socket] = {}
        self._dials: list[socket.socket] = []
        self._listener: socket.socket | None = None
        self._reached = False
        self._happened = False
        self.crew = Crew(self._watch, self.now, self.trace)

    @property
    def children(self) -> dict[str, list[Child]]:
        """What the target started."""
        return self.crew.children

    @property
    def dials_waiting(self) -> int:
        """How many dials wait for `accept`."""
        return len(self._dials)

    def now(self) -> float:
        """Seconds since the case began."""
        return time.monotonic() - self._began

    # -- the target ---------------------------------------------------------------------------

    def reserve(self) -> None:
        """Have an address where dials are refused until `listen`."""
        self._listener = socket.socket()
        self._listener.setblocking(False)
        self._listener.bind(("127.0.0.1", 0))
        self.address = self._listener.getsockname()

    def listen(self) -> None:
        """Take dials, which so far were refused."""
        assert self._listener is not None
        self._listener.listen(256)
        self._watch(self._listener, self._take_dial)

    def watch_target(self, target: Target, *, reads: bool = True) -> None:
        """Take a target that was just started; its output is read only if `reads`."""
        self.target = target
        self.trace.add(self.now(), "suite", "act", text="the target is started")
        self._selector.register(target.pidfd, selectors.EVENT_READ, self._target_ended)
        for stream, pipe in target.pipes.items() if reads else ():
            self._selector.register(pipe, selectors.EVENT_READ, self._reader(stream))

    def restart(self) -> None:
        """End the target and what connects to it, and start it anew."""
        assert self.target is not None
        for link in self._sockets.values():
            self._shut(link)
        watched = self._selector.get_map()
        sources: list[Any] = [self.target.pidfd, *self.target.pipes.values()]
        for source in sources:
            if source in watched:
                self._selector.unregister(source)
        self.target.close()
        self.exit = None
        self._reached = False
        self.start()

    def signal(self, number: int) -> None:
        """Send the target a signal."""
        assert self.target is not None
        self.trace.add(self.now(), "suite", "act", text=f"the target is sent signal {number}")
        self.target.signal(number)

    def order(self, child: Child, command: Any) -> None:
        """Have a process that the target started do something."""
        commands = command if isinstance(command, list) else [command]
        self.trace.add(self.now(), "suite", "act", text=f"{child.name} is told {commands}")
        self.crew.order(child, commands)
        # What it must not hear may come next; what it is to write, or its end, is for the case.
        due = self.now() + PATIENCE
        while any("ignore" in each for each in commands) and not self.crew.obeyed(child):
            if self.now() >= due:
                break
            self.run(due)

    # -- time ---------------------------------------------------------------------------------

    def run(self, until: float) -> None:
        """Let things happen until something did, or until that time.

        Raises:
            Flood: the target sends or writes without end.
            Cancelled: the run was given up.
        """
        self._happened = False
        while True:
            for link in list(self._sockets.values()):
                self._write(link)
            if self._given_up():
                raise Cancelled
            patience = min(LOOK, max(0.0, until - self.now()))
            for key, events in self._selector.select(patience):
                self._ready(key, events)
            if self._happened or self.now() >= until:
                return

    def resting(self, rests: bool) -> Any:
        """Give up the slot while a case only waits for a deadline."""
        return self._rest() if rests and self._slot is not None else nullcontext()

    @contextmanager
    def _rest(self) -> Iterator[None]:
        assert self._slot is not None
        self._slot.release()
        try:
            yield
        finally:
            self._slot.acquire()

    def clear(self) -> None:
        """Let go of all connections, and of what was taken down; the target goes on."""
        for link in self._sockets.values():
            self._shut(link)
        self._sockets.clear()
        self.conversations.clear()
        self.lines.clear()
        self.trace.clear()

    def end(self) -> None:
        """End the target and let go of everything."""
        if self.target is not None:
            self.target.close()
        for link in self._sockets.values():
            link.sock.close()
        for sock in self._dials:
            sock.close()
        if self._listener is not None:
            self._listener.close()
        self.crew.close()
        self._selector.close()

    # -- connections --------------------------------------------------------------------------

    def accept(self, name: str) -> bool:
        """Take the next dial under that name; returns whether there was one."""
        if not self._dials:
            return False
        self._connected(name, self._dials.pop(0), dialed=True, raw=False)
        return True

    def dial(self, name: str, *, raw: bool) -> None:
        """Dial the target; one that is only just starting is given some time.

        Raises:
            Unreachable: it takes no connections.
        """
        patience = 2.0 if self._reached else START
        due = self.now() + patience
        while True:
            try:
                sock = socket.create_connection(self.address, timeout=5)
                break
            except OSError as error:
                if self.now() >= due or self.exit is not None:
                    raise Unreachable(self._why_unreachable(error)) from None
            self.run(self.now() + REDIAL)
        self._reached = True
        self._connected(name, sock, dialed=False, raw=raw)

    def _why_unreachable(self, error: OSError) -> str:
        if self.exit is not None:
            return exit_text(self.exit.code)
        host, port = self.address
        return f"cannot connect to {host}:{port}: {error.strerror or error}"

    def send(self, name: str, data: bytes, text: str) -> None:
        """Send bytes; what the network does not take at once goes out while the case runs."""
        link = self._sockets[name]
        self.trace.add(self.now(), "suite", "bytes", connection=name, data=data, text=text)
        link.conversation.sent += len(data)
        if link.open:
            link.out += data
            self._write(link)

    def half_close(self, name: str) -> None:
        """Send no more."""
        self._then(name, "half-close", "fin")
        self._sockets[name].conversation.half_closed = True

    def close(self, name: str) -> None:
        """Close the connection once everything is sent."""
        self._then(name, "close", "fin")
        self._sockets[name].conversation.closed = True

    def reset(self, name: str) -> None:
        """Break the connection."""
        link = self._sockets[name]
        self.trace.add(self.now(), "suite", "rst", connection=name)
        link.conversation.closed = True
        if link.open:
            link.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self._shut(link)

    # -- inside -------------------------------------------------------------------------------

    def _then(self, name: str, what: str, shown: str) -> None:
        link = self._sockets[name]
        self.trace.add(self.now(), "suite", shown, connection=name, text=what)
        link.then = what
        self._write(link)

    def _watch(self, sock: socket.socket, call: Callable[[], None] | None) -> None:
        if call is not None:
            self._selector.register(sock, selectors.EVENT_READ, call)
        elif sock.fileno() >= 0:
            self._selector.unregister(sock)

    def _ready(self, key: selectors.SelectorKey, events: int) -> None:
        if isinstance(key.data, _Socket):
            if events & selectors.EVENT_WRITE:
                self._write(key.data)
            if events & selectors.EVENT_READ and key.data.open:
                self._read(key.data)
            return
        self._happened = True
        key.data()

    def _take_dial(self) -> None:
        assert self._listener is not None
        with suppress(OSError):  # it has gone again
            sock, _ = self._listener.accept()
            self._dials.append(sock)

    def _connected(self, name: str, sock: socket.socket, *, dialed: bool, raw: bool) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        keys = self.keys
        conversation = Conversation(
            name, join_key=keys.join, session_key=keys.session, dialed=dialed, raw=raw
        )
        self.trace.add(self.now(), "target" if dialed else "suite", "open", connection=name)
        self.conversations[name] = conversation
        link = self._sockets[name] = _Socket(sock, conversation)
        self._selector.register(sock, selectors.EVENT_READ, link)

    def _read(self, link: _Socket) -> None:
        conversation = link.conversation
        try:
            data = link.sock.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            self._ended(link, "rst")
            self._shut(link)
            return
        if not data:
            self._ended(link, "fin")
            self._interest(link)
            return
        self._happened = True
        self.trace.add(self.now(), "target", "bytes", connection=conversation.name, data=data)
        conversation.feed(data, self.now())
        if conversation.received > MAX_HELD:
            raise Flood(f"more than {MAX_HELD} bytes on connection {conversation.name}")

    def _ended(self, link: _Socket, how: str) -> None:
        self._happened = True
        if link.conversation.ended is None:
            self.trace.add(self.now(), "target", how, connection=link.conversation.name)
        link.conversation.end(how, self.now())

    def _write(self, link: _Socket) -> None:
        while link.open and link.out:
            try:
                del link.out[: link.sock.send(link.out)]
            except BlockingIOError:
                break
            except OSError:
                # A reset shows in reading too, with what came before it.
                link.out.clear()
        if link.open and not link.out and link.then:
            self._finish(link)
        self._interest(link)

    def _finish(self, link: _Socket) -> None:
        then, link.then = link.then, ""
        if then == "close":
            self._shut(link)
        else:
            with suppress(OSError):  # the target was quicker
                link.sock.shutdown(socket.SHUT_WR)

    def _interest(self, link: _Socket) -> None:
        """Watch a socket for what can still happen on it."""
        if not link.open:
            return
        events = 0 if link.conversation.ended else selectors.EVENT_READ
        events |= selectors.EVENT_WRITE if link.out else 0
        registered = link.sock in self._selector.get_map()
        if events and registered:
            self._selector.modify(link.sock, events, link)
        elif events:
            self._selector.register(link.sock, events, link)
        elif registered:
            self._selector.unregister(link.sock)

    def _shut(self, link: _Socket) -> None:
        if link.open:
            link.open = False
            if link.sock in self._selector.get_map():
                self._selector.unregister(link.sock)
            link.sock.close()

    # -- the process --------------------------------------------------------------------------

    def _target_ended(self) -> None:
        assert self.target is not None
        self._selector.unregister(self.target.pidfd)
        self.exit = Exit(at=self.now(), code=self.target.reap())
        self.trace.add(self.exit.at, "target", "exit", text=exit_text(self.exit.code))

    def _reader(self, stream: str) -> Callable[[], None]:
        return lambda: self._read_lines(stream)

    def _read_lines(self, stream: str) -> None:
        assert self.target is not None
        lines = self.target.read(stream)
        if lines is None:
            self._selector.unregister(self.target.pipes[stream])
            return
        for text in lines:
            self.lines.append(Line(at=self.now(), stream=stream, text=text))
            self.trace.add(self.now(), "target", "line", text=f"{stream}: {text[:1000]}")
        del self.lines[:-KEPT_LINES]
        if self.target.written > FLOOD:
            raise Flood(f"more than {FLOOD} bytes of output")
