"""Carries out what a controller's machines want: one port, every dialer on deadlines of its own."""

from __future__ import annotations

import os
import socket
from bisect import bisect
from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

from joinproto import effects as fx
from joinproto.errors import JoinprotoError
from joinproto.grammar import WIRES
from joinproto.inputs import (
    DialTurnedAway,
    GiveUp,
    MemberLost,
    RankReported,
    Settled,
    Start,
    StartGiven,
    StopRequested,
)
from joinproto.machines.controller import Admission
from joinproto.machines.window import (
    WINDOW,
    Member,
    WindowConfig,
    WindowContext,
    WindowState,
    why_no_start,
)
from joinproto.record import Record
from joinproto.runtime.addresses import cleartext_warning, is_loopback
from joinproto.runtime.dialer import DialerLink
from joinproto.runtime.listener import Acceptor
from joinproto.runtime.loop import READ, Loop
from joinproto.runtime.makers import HostPart, Made, Maker, World
from joinproto.runtime.stream import configure
from joinproto.runtime.timers import Timers
from joinproto.runtime.torch import MASTER_PORT
from joinproto.runtime.unadmitted import Limits, Unadmitted
from joinproto.session import Session

if TYPE_CHECKING:
    from joinproto.runtime.web import Web

FAREWELL = 1.0
"""Seconds in which whoever watches over HTTP may take the last state."""


class Watcher(Protocol):
    """Who is told what happens; `peer` is an address, for people."""

    def joined(self, member: Member, context: WindowContext) -> None:
        """A host is in; its Accept leaves when this returns.

        Raises:
            JoinprotoError: it must not leave: the run is given up.
        """

    def rejected(self, peer: str, host: str | None, reason: str) -> None:
        """A dial ended without its host being admitted."""

    def formed(self, reason: str, context: WindowContext) -> None:
        """The world is complete; no WorldFormed leaves before this returns.

        Raises:
            JoinprotoError: none must leave: the run is given up.
        """

    def rank_exited(self, rank: int, code: int, host: str) -> None:
        """A rank ended."""

    def member_lost(self, member: Member, cause: str, context: WindowContext) -> None:
        """The link of an admitted host ended while it was needed."""

    def told(self, severity: fx.Severity, text: str) -> None:
        """Something that people should know."""

    def changed(self) -> None:
        """Something that shows has changed."""


class Terms(Record):
    """On what terms a controller runs.

    Attributes:
        admission: how hosts are admitted.
        window: what the join window waits for.
        wires: the versions that are spoken.
        advertise: host and port that envelopes name; the port may be None (the bound one); None:
            the address at which each worker reached this controller.
        master_port: a port on rank 0's host, told to ranks that run torch.distributed.
        limits: how many connections may be unadmitted at a time.
    """

    admission: Admission
    window: WindowConfig
    wires: frozenset[int] = frozenset(WIRES)
    advertise: tuple[str, int | None] | None = None
    master_port: int = MASTER_PORT
    limits: Limits = Limits()


class Server:
    """A controller on its loop.

    Args:
        loop: the loop it runs on.
        timers: the deadlines that go with it.
        listener: the socket it listens on, which it owns from now on.
        terms: on what terms it runs.
        watcher: who is told what happens.
        maker: makes the artifacts of the world.
    """

    def __init__(
        self,
        loop: Loop,
        timers: Timers,
        listener: socket.socket,
        terms: Terms,
        watcher: Watcher,
        maker: Maker,
    ) -> None:
        self.loop = loop
        self.timers = timers
        self.terms = terms
        self.watcher = watcher
        self.web: Web | None = None
        """Serves those who speak HTTP; None: they are turned away."""
        self.ended = False
        self.forming = False
        """The artifacts of the world are being made."""
        self.stopped = False
        """The run was given up because somebody asked for that."""
        self.unadmitted = Unadmitted(terms.limits)
        self._maker = maker
        self._window = Session(WINDOW, WindowContext(config=terms.window))
        self._dials: dict[int, DialerLink] = {}
        self._dialed = 0
        self._unsettled = False
        self._warned: set[str] = set()
        self._asked: deque[Any] = deque()
        self._told_to_stop = False
        self._closed = False
        self._acceptor = Acceptor(
            loop,
            timers,
            listener,
            take=self._take,
            relieve=self._relieve,
            warn=lambda text: watcher.told(fx.Severity.WARNING, text),
        )
        # Whoever is accepted inherits all of it.
        configure(listener, terms.admission.scale)
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        loop.watch(self._wake_read, READ, self._woken)

    @property
    def context(self) -> WindowContext:
        """What the window knows."""
        return self._window.context

    @property
    def state(self) -> WindowState:
        """Where the run is."""
        state = self._window.state
        assert isinstance(state, WindowState)
        return state

    def run(self) -> None:
        """Run until nothing of the world is left to wait for."""
        self._acceptor.start()
        self.window(Start())
        while not (self.ended and not self._dials):
            self._turn(self.timers.next)
        self._say_farewell()

    def _turn(self, until: float | None) -> None:
        # An Accept that cannot be written shows when the loop has looked at its socket once more;
        # only then is there a world of those who are left.
        unsettled, self._unsettled = self._unsettled, False
        self.loop.run_once(self.loop.now() if unsettled else until)
        self.timers.run(self.loop.now())
        if unsettled:
            self.window(Settled())

    def _say_farewell(self) -> None:
        if self.web is not None:
            self.web.close(final=True)
            until = self.loop.now() + FAREWELL
            while self.web.open_connections and self.loop.now() < until:
                self._turn(min(until, self.timers.next or until))

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

    def arm(self, by: str) -> str | None:
        """Give the start, as the operator; returns why that cannot be, or None when it was done.

        Args:
            by: where the operator is, for people.
        """
        is_open = self.state in (WindowState.WAITING, WindowState.OVERTIME)
        why_not = why_no_start(self.context, open=is_open)
        if why_not is None:
            self.window(StartGiven(by=by))
        return why_not

    def close(self) -> None:
        """Let go of every socket at once; may be called again."""
        if self._closed:
            return
        self._closed = True
        self._maker.cancel()
        self._drop_all()
        if self.web is not None:
            self.web.close(final=False)
        self._acceptor.close()
        self.loop.forget(self._wake_read)
        os.close(self._wake_read)
        os.close(self._wake_write)

    # -- the window ---------------------------------------------------------------------------

    def window(self, given: Any) -> None:
        """Step the window and carry out what it wants."""
        before = self.context
        self._obey(self._window.step(given, self.loop.now()))
        self.timers.set("window", self._window.next_timer, self._window_due)
        if self.context is not before:
            self.watcher.changed()

    def _window_due(self, now: float) -> None:
        self._obey(self._window.expire(now))
        self.timers.set("window", self._window.next_timer, self._window_due)
        self.watcher.changed()

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
        return member.host in context.lost

    def turned_away(self, dial: DialerLink, reason: str) -> None:
        """A dial ended without its host being admitted."""
        self.watcher.rejected(dial.stream.peer, dial.connection.context.host or None, reason)
        self.window(DialTurnedAway())

    def _obey(self, effects: list[Any]) -> None:
        for effect in effects:
            self._one(effect)

    def _one(self, effect: Any) -> None:
        now = self.loop.now()
        match effect:
            case fx.AdmitHost(connection=number, ranks=ranks, formation_wait_secs=wait):
                self._admit(number, ranks, wait)
            case fx.RefuseHost(connection=number, reason=reason):
                dial = self._dials[number]
                dial.do(dial.connection.refuse(reason, now))
            case fx.DismissHost(connection=number, reason=reason):
                dial = self._dials[number]
                dial.do(dial.connection.dismiss(reason, now))
            case fx.Settle():
                self._unsettled = True
            case fx.FormWorld(reason=reason):
                self._form(reason)
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

    def _admit(self, number: int, ranks: tuple[int, ...], wait: int) -> None:
        dial = self._dials[number]
        member = self.context.member(number)
        assert member is not None
        try:
            self.watcher.joined(member, self.context)
        except JoinprotoError as error:
            self.window(MemberLost(connection=number, cause="its Accept was not sent"))
            self.window(GiveUp(reason=str(error)))
            return
        self.unadmitted.remove(number)
        dial.do(dial.connection.admit(ranks, wait, self.loop.now()))

    def _host_of(self, rank: int) -> str:
        # Members stand in the order of their ranks.
        members = self.context.members
        return members[bisect(members, rank, key=lambda member: member.ranks[0]) - 1].host

    # -- forming ------------------------------------------------------------------------------

    def _form(self, reason: str) -> None:
        self.forming = True
        try:
            self.watcher.formed(reason, self.context)
        except JoinprotoError as error:
            self.window(GiveUp(reason=str(error)))
            return
        self._maker.make(self._world(), self._made)

    def _world(self) -> World:
        members = self.context.members
        parts = []
        for group, member in enumerate(members):
            dial = self._dial_of(member)
            if dial is not None:
                host, port = self._advertised(dial)
                parts.append(
                    HostPart(
                        host=member.host,
                        ranks=member.ranks,
                        local_devices=member.hello.local_devices,
                        gpus=member.hello.gpus,
                        libtorch=member.hello.libtorch,
                        wire=member.wire,
                        group_rank=group,
                        peer_host=dial.stream.peer_host,
                        controller_host=host,
                        controller_port=port,
                    )
                )
        return World(
            world_size=self.context.world_size,
            num_hosts=len(members),
            hosts=tuple(parts),
            salt=self.terms.admission.salt,
            master=self._master(),
        )

    def _dial_of(self, member: Member) -> DialerLink | None:
        """A member's connection; None: it is gone, and the window knows or is about to hear."""
        return self._dials.get(-1 if member.connection is None else member.connection)

    def _made(self, made: Made | str) -> None:
        self.forming = False
        if isinstance(made, str):
            self.window(GiveUp(reason=made))
            return
        for member in self.context.present:
            dial = self._dial_of(member)
            if dial is not None:
                envelope, relay = made[member.host]
                dial.do(dial.connection.form(envelope, relay, self.loop.now()))
        self.watcher.changed()

    def _master(self) -> tuple[str, int] | None:
        """Where rank 0 can be reached: its host's address, as seen from here.

        A host on this machine is seen on loopback, where the others cannot reach it; they can
        reach it where they reached this controller.
        """
        dials = [self._dial_of(member) for member in self.context.members]
        first = dials[0]
        if first is None:
            return None
        host = first.stream.peer_host
        elsewhere = [d for d in dials if d is not None and not is_loopback(d.stream.peer_host)]
        if is_loopback(host) and elsewhere:
            host = self._advertised(elsewhere[0])[0]
        return host, self.terms.master_port

    def _advertised(self, dial: DialerLink) -> tuple[str, int]:
        bound = self._acceptor.port
        if self.terms.advertise is None:
            return dial.stream.local_host, bound
        host, port = self.terms.advertise
        return host, bound if port is None else port

    # -- ending -------------------------------------------------------------------------------

    def _abort(self, reason: str) -> None:
        self.forming = False
        self._maker.cancel()
        for dial in list(self._dials.values()):
            dial.do(dial.connection.abort(reason, self.loop.now()))

    def _end(self) -> None:
        self._stop_listening()
        # What is still there was never a member; a Reject on its way is left the time to arrive.
        self._abort("the run is over")

    def _stop_listening(self) -> None:
        self.ended = True
        self._acceptor.stop()

    # -- dialers ------------------------------------------------------------------------------

    def forget(self, number: int) -> None:
        """A connection is done with."""
        self._dials.pop(number, None)
        self.unadmitted.remove(number)
        self.timers.clear(number)

    def hand_over(self, number: int) -> None:
        """A connection speaks HTTP."""
        dial = self._dials[number]
        sock = dial.stream.detach()
        self.forget(number)
        if self.web is None:
            sock.close()
        else:
            self.web.take(sock, dial.connection.head, dial.stream.peer_host)

    def holds(self, number: int, count: int) -> None:
        """Take note of what an unadmitted connection holds."""
        if number in self.unadmitted:
            self._drop(self.unadmitted.holds(number, count))

    def _take(self, sock: socket.socket) -> None:
        try:
            sock.setblocking(False)
            self._dialed += 1
            dial = DialerLink(self, self._dialed, sock)
        except OSError:
            # Gone before it was looked at: a port scan, or a health check.
            sock.close()
            return
        self._dials[dial.number] = dial
        host = dial.stream.peer_host
        self._warn_cleartext(host)
        self._drop(self.unadmitted.add(dial.number, host))
        dial.do(dial.connection.start(self.loop.now()))

    def _relieve(self) -> bool:
        """Out of descriptors: let go of the oldest connection that is not admitted."""
        oldest = self.unadmitted.oldest
        if oldest is not None:
            self._drop((oldest, "this controller is out of descriptors"))
        return oldest is not None

    def _drop(self, victim: tuple[int, str] | None) -> None:
        if victim is not None:
            number, reason = victim
            dial = self._dials[number]
            self.watcher.rejected(dial.stream.peer, None, f"dropped: {reason}")
            dial.stream.abort()
            self.forget(number)
            self.window(DialTurnedAway())

    def _warn_cleartext(self, host: str) -> None:
        warning = cleartext_warning(host)
        if warning is not None and host not in self._warned:
            self._warned.add(host)
            self.watcher.told(fx.Severity.WARNING, warning)

    # -- threads ------------------------------------------------------------------------------

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
