"""`FakeController` and `FakeAgent`: the other end of a test, playing back a script.

Both play it over a real socket on loopback (as a context manager, or with `listen` and `dial`), or
in memory and without waiting for anything (`end`, for a `joinproto.testing.link.Link`).  Neither
knows the protocol's states: what a script says is done, however wrong it is.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Self

from joinproto.grammar import JOIN_MAGIC, WIRES
from joinproto.keys import Salt
from joinproto.messages import Accept, Hello, Message, WorldFormed
from joinproto.runtime.addresses import format_address
from joinproto.runtime.artifacts import build_envelope, build_relay_spec
from joinproto.testing.clock import FakeClock
from joinproto.testing.link import End
from joinproto.testing.record import Entry, exits_in, messages_in
from joinproto.testing.script import (
    Admit,
    Close,
    Expect,
    ExpectExits,
    ReportExits,
    Say,
    WaitEnd,
)
from joinproto.testing.stage import SESSION, Stage, Step
from joinproto.testing.tcp import Player

TIMEOUT = 10.0
"""Seconds that a script may take on a socket; only a peer that does otherwise makes it wait."""


class _Fake:
    """What both fakes have in common."""

    def __init__(self, stage: Stage, timeout: float) -> None:
        self._stage = stage
        self._timeout = timeout
        self._player: Player | None = None
        self._told = False

    @property
    def record(self) -> list[Entry]:
        """Everything that happened so far, in order."""
        return list(self._stage.record)

    @property
    def messages(self) -> list[Message]:
        """Every message that was received so far, in order."""
        return messages_in(self.record)

    @property
    def hello(self) -> Hello | None:
        """The last Hello, received or sent."""
        return self._stage.hello

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks of the last Accept, received or sent."""
        return self._stage.ranks

    @property
    def exits(self) -> dict[int, int]:
        """Rank → code, of every RankExited that was received so far."""
        return exits_in(self.record)

    @property
    def finished(self) -> bool:
        """Whether every step of the script is done."""
        return self._stage.finished

    def received(self, connection: int = -1) -> bytes:
        """Every byte that came in on a connection: 0 for the first, -1 for the last."""
        return bytes(self._stage.connections[connection].received)

    def end(self, clock: FakeClock) -> End:
        """A new connection in memory: the end of it that is the fake's."""
        connection = self._stage.connect()
        self._stage.advance(clock.now)
        return End(connection, clock)

    def check(self) -> None:
        """Say that the peer should be through with the script by now.

        Raises:
            ScriptFailed: it did otherwise, or not all yet.
        """
        self._told = True
        if self._stage.failure is None and not self._stage.finished:
            self._stage.give_up("nothing more came")
        if self._stage.failure is not None:
            raise self._stage.failure

    def join(self) -> None:
        """Wait until the script is through.

        Raises:
            ScriptFailed: the peer did otherwise, or not all of it in time.
        """
        if self._player is not None:
            self._player.wait()
        self.check()

    def close(self) -> None:
        """Drop all connections, whatever has become of the script; may be called again."""
        self._told = True
        if self._player is not None:
            self._player.close()

    @property
    def checked(self) -> bool:
        """Whether somebody has asked what has become of the script."""
        return self._told

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        try:
            # A with statement that nothing else ends ends well only when the script does.
            if kind is None and not self._told:
                self.join()
        finally:
            self.close()


class FakeController(_Fake):
    """A controller that plays back a script.

    It answers in the wire version of the Hello, and plays on one connection at a time: whoever
    dials meanwhile waits.

        with FakeController([Expect(Hello), Say(Reject(reason="full"))]) as fake:
            ...  # have an agent dial fake.address
            fake.join()

    Args:
        script: the steps, in order.
        salt: the pre-shared salt; None: open admission.
        session: the session salt that `Admit` gives out under open admission.
        wires: the versions that are spoken; a Hello in another is hung up on, and the script goes
            on with the next dial, which is how an agent that tries several finds its way.
        timeout: seconds within which the script must be through on a socket.
    """

    def __init__(
        self,
        script: Sequence[Step],
        *,
        salt: Salt | None = None,
        session: Salt = SESSION,
        wires: Sequence[int] = tuple(WIRES),
        timeout: float = TIMEOUT,
    ) -> None:
        stage = Stage(script, dials=False, salt=salt, session=session, wires=frozenset(wires))
        super().__init__(stage, timeout)

    @classmethod
    def admitting(
        cls,
        *,
        ranks: Sequence[int] | None = None,
        envelope: str | None = None,
        relay: str | bool = False,
        codes: Mapping[int, int] | None = None,
        salt: Salt | None = None,
        wires: Sequence[int] = tuple(WIRES),
        timeout: float = TIMEOUT,
    ) -> Self:
        """One that runs a whole world of one host, up to the end of its ranks.

        Args:
            ranks: what it admits the host with; None: 0, 1, 2, … for as many devices as it has.
            envelope: hex of the envelope; None: one as published controllers write it.
            relay: hex of the relay spec, or whether there is one at all.
            codes: rank → code with which it must end; other ranks may end with any.
            salt: as for the class, as are `wires` and `timeout`.
        """

        def formed(stage: Stage) -> WorldFormed:
            written = _relay_spec(stage) if relay is True else None
            return WorldFormed(
                envelope_hex=_envelope(stage) if envelope is None else envelope,
                relay_spec_hex=relay if isinstance(relay, str) else written,
            )

        script = [
            Expect(Hello),
            Admit(ranks=None if ranks is None else tuple(ranks)),
            Say(formed),
            ExpectExits(dict(codes or {})),
            WaitEnd(),
        ]
        return cls(script, salt=salt, wires=wires, timeout=timeout)

    @property
    def address(self) -> str:
        """HOST:PORT where it listens."""
        return format_address(self.host, self.port)

    @property
    def host(self) -> str:
        """The numeric address where it listens."""
        return self._stage.address[0]

    @property
    def port(self) -> int:
        """The TCP port where it listens."""
        return self._stage.address[1]

    def listen(self, host: str = "127.0.0.1") -> Self:
        """Listen on a free port; the script's time begins."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, 0), family=family, backlog=128)
        listener.setblocking(False)
        self._stage.address = listener.getsockname()[:2]
        self._player = Player(self._stage, self._timeout, listener)
        return self

    def __enter__(self) -> Self:
        return self if self._player is not None else self.listen()


class FakeAgent(_Fake):
    """An agent that plays back a script; it dials when a step needs a connection.

        agent = FakeAgent([Say(Hello(host="a", local_devices=(0,))), Expect(Accept)])
        with agent.dial("127.0.0.1", port):
            agent.join()

    Args:
        script: the steps, in order.
        salt: the pre-shared salt; None: open admission.
        wire: the version that it speaks.
        channel: what each dial begins with.
        timeout: seconds within which the script must be through on a socket.
    """

    def __init__(
        self,
        script: Sequence[Step],
        *,
        salt: Salt | None = None,
        wire: int = max(WIRES),
        channel: bytes = JOIN_MAGIC,
        timeout: float = TIMEOUT,
    ) -> None:
        wires = frozenset((wire,))
        super().__init__(
            Stage(script, dials=True, salt=salt, wires=wires, channel=channel), timeout
        )

    @classmethod
    def joining(
        cls,
        *,
        host: str = "fake",
        devices: Sequence[int] = (0,),
        codes: Mapping[int, int] | None = None,
        salt: Salt | None = None,
        wire: int = max(WIRES),
        timeout: float = TIMEOUT,
    ) -> Self:
        """One that joins, and reports the end of each rank as soon as the world has formed.

        Args:
            host: the name that it joins under.
            devices: what it offers.
            codes: rank → code that it reports; other ranks end with 0.
            salt: as for the class, as are `wire` and `timeout`.
        """
        script = [
            Say(Hello(host=host, local_devices=tuple(devices))),
            Expect(Accept),
            Expect(WorldFormed),
            ReportExits(dict(codes or {})),
            Close(),
        ]
        return cls(script, salt=salt, wire=wire, timeout=timeout)

    def dial(self, host: str, port: int) -> Self:
        """Dial a controller there; the script's time begins."""
        self._stage.address = (host, port)
        self._player = Player(self._stage, self._timeout)
        return self


def _envelope(stage: Stage) -> str:
    host, port = stage.address
    hello = stage.hello
    return build_envelope(
        controller_host=host,
        controller_port=port,
        world_size=len(stage.ranks),
        num_workers=1,
        host="" if hello is None else hello.host,
        ranks=stage.ranks,
        local_devices=() if hello is None else hello.local_devices,
        salt=stage.session,
    )


def _relay_spec(stage: Stage) -> str:
    host, port = stage.address
    return build_relay_spec(
        controller_host=host,
        controller_port=port,
        world_size=len(stage.ranks),
        host="" if stage.hello is None else stage.hello.host,
        ranks=stage.ranks,
        salt=stage.session,
    )
