"""Carries out what a controller's machines want: one port, every dialer on deadlines of its own."""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from typing import Any, Protocol

from joinproto import effects as fx
from joinproto.connection import ControllerConnection
from joinproto.errors import ConfigError
from joinproto.grammar import WIRES
from joinproto.inputs import MemberLost, Offered, RankReported, Start, StopRequested
from joinproto.machines.controller import Admission
from joinproto.machines.window import WINDOW, Member, WindowConfig, WindowContext
from joinproto.record import Record
from joinproto.runtime import artifacts
from joinproto.runtime.addresses import cleartext_warning, format_address, is_loopback
from joinproto.runtime.loop import READ, Loop
from joinproto.runtime.stream import Stream, configure
from joinproto.runtime.torch import MASTER_PORT
from joinproto.session import Session

BACKLOG = 4096
ACCEPTS_PER_ROUND = 64
"""So that a flood of dials leaves time for those that are already in."""

ACCEPT_PAUSE = 0.2
"""Seconds without accepting, when the process is out of descriptors."""


class Watcher(Protocol):
    """Who is told what happens; `peer` is an address, for people."""

    def joined(self, member: Member, peer: str, context: WindowContext) -> None:
        """A host is in."""

    def rejected(self, peer: str, host: str | None, reason: str) -> None:
        """A dial ended without its host being admitted."""

    def formed(self, reason: str, context: WindowContext) -> None:
        """The world is complete."""

    def rank_exited(self, rank: int, code: int, host: str) -> None:
        """A rank ended."""

    def member_lost(self, member: Member, cause: str, context: WindowContext) -> None:
        """The link of an admitted host ended while it was needed."""

    def told(self, severity: fx.Severity, text: str) -> None:
        """Something that people should know."""


class Terms(Record):
    """On what terms a controller runs.

    Attributes:
        admission: how hosts are admitted.
        window: what the join window waits for.
        wires: the versions that are spoken.
        advertise: host and port that envelopes name; the port may be None (the bound one); None:
            the address at which each worker reached this controller.
        relay: every host runs a relay too.
        master_port: a port on rank 0's host, told to ranks that run torch.distributed.
    """

    admission: Admission
    window: WindowConfig
    wires: frozenset[int] = frozenset(WIRES)
    advertise: tuple[str, int | None] | None = None
    relay: bool = False
    master_port: int = MASTER_PORT


def listen(host: str, port: int) -> socket.socket:
    """A listening, non-blocking socket; port 0 takes a free one.

    Raises:
        ConfigError: the address cannot be bound.
    """
    where = format_address(host, port)
    if not 0 <= port < 2**16:
        # The system would take it modulo 2^16.
        raise ConfigError(f"cannot listen on {where}: a port is a number from 0 to 65535")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        sock = socket.socket(family, socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"cannot listen on {where}: {_words(error)}") from None
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise ConfigError(f"cannot listen on {where}: {_words(error)}") from None
    sock.setblocking(False)
    return sock


def _words(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


class _Dial:
    """One dialer: its socket, its connection, and who it is in the window."""

    def __init__(self, server: Server, number: int, sock: socket.socket) -> None:
        self.number = number
        self.connection = ControllerConnection(server.terms.admission, wires=server.terms.wires)
        self._server = server
        self.stream = Stream(server.loop, sock, self)

    # -- what the stream tells ----------------------------------------------------------------

    def stream_data(self, data: bytes) -> None:
        """Bytes came in."""
        self.do(self.connection.receive_data(data, self._server.loop.now()))

    def stream_eof(self) -> None:
        """The dialer will send no more."""
        self.do(self.connection.receive_eof(self._server.loop.now()))

    def stream_broken(self, cause: str) -> None:
        """The connection failed."""
        self.do(self.connection.link_broken(cause, self._server.loop.now()))

    def stream_flushed(self) -> None:
        """Everything that was to be sent is with the system."""
        self.do(self.connection.flushed(self._server.loop.now()))

    # -- effects ------------------------------------------------------------------------------

    def do(self, effects: list[Any]) -> None:
        """Carry out what the connection's machine wants, bytes first."""
        self._send()
        for effect in effects:
            self._one(effect)
            self._send()

    def _send(self) -> None:
        data = self.connection.data_to_send()
        if data:
            self.stream.send(data)

    def _one(self, effect: Any) -> None:
        server = self._server
        match effect:
            case fx.Offer(hello=hello):
                wire = self.connection.wire
                server.window(Offered(connection=self.number, hello=hello, wire=wire))
            case fx.ReportRank(rank=rank, code=code):
                server.window(RankReported(connection=self.number, rank=rank, code=code))
            case fx.TurnedAway(reason=reason):
                host = self.connection.context.host or None
                server.watcher.rejected(self.stream.peer, host, reason)
            case fx.Lost(cause=cause):
                server.member_lost(self.number, cause)
            case fx.EndSending():
                self.stream.end_sending()
            case fx.CloseLink():
                self.stream.close()
                server.forget(self.number)
            case fx.Tell(severity=severity, text=text):
                server.watcher.told(severity, text)
            case _:
                raise NotImplementedError(type(effect).__name__)


class Server:
    """A controller on its loop.

    Args:
        loop: the loop it runs on.
        listener: the socket it listens on, which it owns from now on.
        terms: on what terms it runs.
        watcher: who is told what happens.
    """

    def __init__(self, loop: Loop, listener: socket.socket, terms: Terms, watcher: Watcher) -> None:
        self.loop = loop
        self.terms = terms
        self.watcher = watcher
        self.ended = False
        self.stopped = False
        """The run was given up because somebody asked for that."""
        self._listener = listener
        self._window = Session(WINDOW, WindowContext(config=terms.window))
        self._dials: dict[int, _Dial] = {}
        self._dialed = 0
        self._accept_at: float | None = None
        self._starved = False
        self._warned: set[str] = set()
        self._asked: deque[Any] = deque()
        self._told_to_stop = False
        self._closed = False
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        loop.watch(self._wake_read, READ, self._woken)

    @property
    def context(self) -> WindowContext:
        """What the window knows."""
        return self._window.context

    def run(self) -> None:
        """Run until nothing of the world is left to wait for."""
        self.loop.watch(self._listener.fileno(), READ, self._accept)
        self.window(Start())
        while not (self.ended and not self._dials):
            self.loop.run_once(self._next_timer())
            self._handle_timers(self.loop.now())

    def ask(self, given: RankReported | StopRequested) -> None:
        """Give the window an input, from any thread; asked to stop twice, wait for nobody."""
        if self._closed:
            return
        self._asked.append(given)
        try:
            os.write(self._wake_write, b"\0")
        except BlockingIOError:
            # It has been woken often enough.
            return

    def close(self) -> None:
        """Let go of every socket at once; may be called again."""
        if self._closed:
            return
        self._closed = True
        self._drop_all()
        self.loop.forget(self._listener.fileno())
        self._listener.close()
        self.loop.forget(self._wake_read)
        os.close(self._wake_read)
        os.close(self._wake_write)

    # -- the window ---------------------------------------------------------------------------

    def window(self, given: Any) -> None:
        """Step the window and carry out what it wants."""
        self._obey(self._window.step(given, self.loop.now()))

    def member_lost(self, number: int, cause: str) -> None:
        """The link of an admitted host ended."""
        member = self.context.member(number)
        self.window(MemberLost(connection=number, cause=cause))
        if member is not None and self._missed(member):
            self.watcher.member_lost(member, cause, self.context)

    def _missed(self, member: Member) -> bool:
        """Whether that link was still needed: ranks of it run, or were yet to."""
        context = self.context
        if not context.formed:
            return context.failure is None
        return member.host in (host for host, _ in context.lost)

    def _obey(self, effects: list[Any]) -> None:
        for effect in effects:
            self._one(effect)

    def _one(self, effect: Any) -> None:
        now = self.loop.now()
        match effect:
            case fx.AdmitHost(connection=number, ranks=ranks, formation_wait_secs=wait):
                dial = self._dials[number]
                member = self.context.member(number)
                if member is not None:
                    self.watcher.joined(member, dial.stream.peer, self.context)
                dial.do(dial.connection.admit(ranks, wait, now))
            case fx.RefuseHost(connection=number, reason=reason):
                dial = self._dials[number]
                dial.do(dial.connection.refuse(reason, now))
            case fx.DismissHost(connection=number, reason=reason):
                dial = self._dials[number]
                dial.do(dial.connection.dismiss(reason, now))
            case fx.FormWorld(reason=reason):
                self.watcher.formed(reason, self.context)
                self._form()
            case fx.AbortAll(reason=reason):
                self._abort(reason)
            case fx.RankEnded(rank=rank, code=code):
                self.watcher.rank_exited(rank, code, self._host_of(rank))
            case fx.RunEnded():
                self._end()
            case fx.Tell(severity=severity, text=text):
                self.watcher.told(severity, text)
            case _:
                raise NotImplementedError(type(effect).__name__)

    def _host_of(self, rank: int) -> str:
        return next(member.host for member in self.context.members if rank in member.ranks)

    def _form(self) -> None:
        members = self.context.members
        size = sum(len(member.ranks) for member in members)
        master = self._master()
        for group, member in enumerate(members):
            # A dialer may be gone by now: the loss is on its way to the window.
            dial = self._dials.get(-1 if member.connection is None else member.connection)
            if dial is not None:
                envelope, relay = self._artifacts(member, dial, size, len(members), group, master)
                dial.do(dial.connection.form(envelope, relay, self.loop.now()))

    def _artifacts(
        self,
        member: Member,
        dial: _Dial,
        size: int,
        hosts: int,
        group: int,
        master: tuple[str, int] | None,
    ) -> tuple[str, str | None]:
        host, port = self._advertised(dial)
        salt = self.terms.admission.salt
        envelope = artifacts.build_envelope(
            controller_host=host,
            controller_port=port,
            world_size=size,
            num_workers=hosts,
            host=member.host,
            ranks=member.ranks,
            local_devices=member.hello.local_devices,
            salt=salt,
            group_rank=group,
            master=master,
        )
        if not self.terms.relay:
            return envelope, None
        relay = artifacts.build_relay_spec(
            controller_host=host,
            controller_port=port,
            world_size=size,
            host=member.host,
            ranks=member.ranks,
            salt=salt,
        )
        return envelope, relay

    def _master(self) -> tuple[str, int] | None:
        """Where rank 0 can be reached: its host's address, as seen from here.

        A host on this machine is seen on loopback, where the others cannot reach it; they can
        reach it where they reached this controller.
        """
        dials = [self._dials.get(m.connection or -1) for m in self.context.members]
        first = dials[0]
        if first is None:
            return None
        host = first.stream.peer_host
        elsewhere = [d for d in dials if d is not None and not is_loopback(d.stream.peer_host)]
        if is_loopback(host) and elsewhere:
            host = self._advertised(elsewhere[0])[0]
        return host, self.terms.master_port

    def _advertised(self, dial: _Dial) -> tuple[str, int]:
        bound = int(self._listener.getsockname()[1])
        if self.terms.advertise is None:
            return dial.stream.local_host, bound
        host, port = self.terms.advertise
        return host, bound if port is None else port

    def _abort(self, reason: str) -> None:
        for dial in list(self._dials.values()):
            dial.do(dial.connection.abort(reason, self.loop.now()))

    def _end(self) -> None:
        self._stop_listening()
        # What is still there was never a member; a Reject on its way is left the time to arrive.
        self._abort("the run is over")

    def _stop_listening(self) -> None:
        self.ended = True
        self.loop.forget(self._listener.fileno())
        self._accept_at = None

    # -- dialers ------------------------------------------------------------------------------

    def forget(self, number: int) -> None:
        """A connection is done with."""
        self._dials.pop(number, None)

    def _accept(self, _: int) -> None:
        for _ in range(ACCEPTS_PER_ROUND):
            try:
                sock, _address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._cannot_accept(error)
                return
            self._starved = False
            self._take(sock)

    def _cannot_accept(self, error: OSError) -> None:
        if error.errno in (errno.ECONNABORTED, errno.EPROTO, errno.EINTR):
            return
        # Out of descriptors or memory: the listener stays ready, so looking away is what helps.
        if not self._starved:
            self._starved = True
            text = f"cannot accept a connection ({_words(error)}); pausing"
            self.watcher.told(fx.Severity.WARNING, text)
        self.loop.forget(self._listener.fileno())
        self._accept_at = self.loop.now() + ACCEPT_PAUSE

    def _take(self, sock: socket.socket) -> None:
        try:
            configure(sock, self.terms.admission.scale)
            self._dialed += 1
            dial = _Dial(self, self._dialed, sock)
        except OSError:
            # Gone before it was looked at: a port scan, or a health check.
            sock.close()
            return
        self._dials[dial.number] = dial
        self._warn_cleartext(dial.stream.peer_host)
        dial.do(dial.connection.start(self.loop.now()))

    def _warn_cleartext(self, host: str) -> None:
        warning = cleartext_warning(host)
        if warning is not None and host not in self._warned:
            self._warned.add(host)
            self.watcher.told(fx.Severity.WARNING, warning)

    # -- time and threads ---------------------------------------------------------------------

    def _next_timer(self) -> float | None:
        times = [self._window.next_timer, self._accept_at]
        times += [dial.connection.next_timer for dial in self._dials.values()]
        return min((time for time in times if time is not None), default=None)

    def _handle_timers(self, now: float) -> None:
        if self._accept_at is not None and now >= self._accept_at:
            self._accept_at = None
            self.loop.watch(self._listener.fileno(), READ, self._accept)
        for dial in list(self._dials.values()):
            dial.do(dial.connection.handle_timer(now))
        self._obey(self._window.expire(now))

    def _woken(self, _: int) -> None:
        os.read(self._wake_read, 4096)
        while self._asked:
            given = self._asked.popleft()
            if isinstance(given, StopRequested):
                self._told_once_more()
            self.window(given)

    def _told_once_more(self) -> None:
        """Somebody wants an end; at the second time the hosts' last reports are not waited for."""
        if self._told_to_stop:
            self._stop_listening()
            self._drop_all()
        self._told_to_stop = True
        # A window that failed or ended by itself did not do so for this.
        if self.context.failure is None and not self._window.final:
            self.stopped = True

    def _drop_all(self) -> None:
        for dial in list(self._dials.values()):
            dial.stream.abort()
            self.forget(dial.number)
