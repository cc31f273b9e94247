"""A controller's server on a thread, and dialers of all kinds."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from joinproto import codec
from joinproto.effects import Severity
from joinproto.grammar import JOIN_MAGIC
from joinproto.inputs import StopRequested
from joinproto.keys import OPEN, Salt
from joinproto.limits import HEADER_BYTES
from joinproto.machines.controller import Admission
from joinproto.machines.window import Member, WindowConfig, WindowContext
from joinproto.messages import Accept, Hello, WorldFormed
from joinproto.runtime.listener import listen
from joinproto.runtime.loop import Loop
from joinproto.runtime.makers import Maker, PublishedMaker
from joinproto.runtime.server import Server, Terms
from joinproto.runtime.timers import Timers
from joinproto.runtime.unadmitted import Limits
from joinproto.testing.fakes import FakeAgent
from joinproto.testing.script import (
    Expect,
    Say,
)
from tests.support.python import PATIENCE

SESSION = Salt(b"the session salt")
HELLO = Hello(host="a", local_devices=(0,))
ENDS_WELL = ["joined", "formed", "rank_exited"]
"""What is told of the world of one honest agent."""

RESET = struct.pack("ii", 1, 0)


class Recorder:
    """A watcher that remembers what it was told, and can do something about it."""

    def __init__(self) -> None:
        self.told_of: list[tuple[Any, ...]] = []
        self.reactions: dict[str, Callable[[], object]] = {}
        self.changes = 0
        self._news = threading.Condition()

    def joined(self, member: Member, context: WindowContext) -> None:
        self._note("joined", member.host)

    def rejected(self, peer: str, host: str | None, reason: str) -> None:
        self._note("rejected", host, reason)

    def formed(self, reason: str, context: WindowContext) -> None:
        self._note("formed")

    def rank_exited(self, rank: int, code: int, host: str) -> None:
        self._note("rank_exited", rank, code, host)

    def member_lost(self, member: Member, cause: str, context: WindowContext) -> None:
        self._note("member_lost", member.host, cause)

    def told(self, severity: Severity, text: str) -> None:
        self._note("told", severity, text)

    def changed(self) -> None:
        self.changes += 1

    def rejections(self) -> list[str]:
        return [each[2] for each in self.told_of if each[0] == "rejected"]

    def wait_for(self, *what: Any) -> None:
        with self._news:
            assert self._news.wait_for(lambda: what in self.told_of, PATIENCE), self.told_of

    def _note(self, *what: Any) -> None:
        with self._news:
            self.told_of.append(what)
            self._news.notify_all()
        self.reactions.get(what[0], lambda: None)()


class Running:
    """A server on a thread; a context manager that ends it."""

    def __init__(
        self,
        *,
        ranks: int = 1,
        scale: float = 1.0,
        listener: socket.socket | None = None,
        maker: Maker | None = None,
        limits: Limits | None = None,
        target: bool = True,
        **window: Any,
    ) -> None:
        self.watcher = Recorder()
        self.loop = Loop()
        listener = listen("127.0.0.1", 0) if listener is None else listener
        self.address: tuple[str, int] = listener.getsockname()
        terms = Terms(
            admission=Admission(salt=SESSION, open=True, scale=scale),
            window=WindowConfig(
                min_ranks=ranks, target_ranks=ranks if target else None, scale=scale, **window
            ),
            limits=limits or Limits(),
        )
        self.timers = Timers()
        self.server = Server(
            self.loop,
            self.timers,
            listener,
            terms,
            self.watcher,
            PublishedMaker(relay=False) if maker is None else maker,
        )
        self.thread = threading.Thread(target=self.server.run)

    def start(self) -> None:
        self.thread.start()

    def done(self) -> list[tuple[Any, ...]]:
        """What the watcher was told, once the run has ended."""
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        return self.watcher.told_of

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for _ in range(2):
            self.server.ask(StopRequested(reason="the test is over"))
        self.thread.join(PATIENCE)
        self.server.close()
        self.loop.close()


def joins(running: Running, **options: Any) -> None:
    """An honest agent joins, and its world runs to its end."""
    with FakeAgent.joining(**options).dial(*running.address):
        pass


def member(*script: Any) -> FakeAgent:
    """An agent that has joined a world of its own."""
    return FakeAgent([Say(HELLO), Expect(Accept), Expect(WorldFormed), *script])


def frame(payload: bytes, *, key: Salt = OPEN, wire: int = 4, kind: int = 7) -> bytes:
    return JOIN_MAGIC + codec.encode_frame(payload, key=key, wire=wire, kind=kind)


def claimed(length: int) -> bytes:
    """A dial whose header claims this many bytes of payload."""
    return frame(b"")[: len(JOIN_MAGIC) + HEADER_BYTES - 4] + length.to_bytes(4, "little")


def hello(**options: Any) -> bytes:
    return frame(codec.encode_payload(HELLO, wire=4), **options)
