"""Many dialers of one controller, out of a process of their own.

It speaks the wire itself, with frames that are made before the first dial, on one epoll: what it
measures is the controller.  A plan comes on stdin as one line of JSON, and what came of it goes to
stdout; its connections stay open until stdin ends.
"""

from __future__ import annotations

import errno
import hashlib
import hmac
import json
import random
import resource
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field

JOIN_MAGIC = bytes.fromhex("e3170df1")
FRAME = struct.Struct("<II8sII")
"""Magic, version, tag, kind, length."""

FRAME_MAGIC = 0xF10D17C4
KIND = 7
ACCEPT, WORLD_FORMED = 1, 3
OPEN_KEY = bytes(16)

HUGE_STRING = b"\xfd" + (1 << 40).to_bytes(8, "little")
"""The length of a string that no frame can hold."""

SETTLE = 0.5
"""Seconds for silent connections to be taken before anybody dials behind them."""

SPARE_DESCRIPTORS = 64
GARBAGE_OPEN = 500
"""Garbage connections that are left open at a time; the controller sees the end of older ones."""

TICK = 0.01


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is dialed.

    Attributes:
        port: of the controller, on 127.0.0.1.
        wire: the version that the agents speak.
        agents: how many join, with one rank each.
        at_a_time: how many of them may be without an answer at a time.
        interval: seconds from the dial of one to that of the next.
        sources: how many addresses of loopback they dial from.
        silent: connections that are there before and never say anything whole; every other one
            has begun a frame.
        world: whether to wait for the world too.
        timeout: seconds that all of it may take.
        garbage: connections a second that say something wrong; nobody joins then.
        seconds: how long there is garbage.
    """

    port: int
    wire: int = 2
    agents: int = 0
    at_a_time: int = 1 << 30
    interval: float = 0.0
    sources: int = 1
    silent: int = 0
    world: bool = True
    timeout: float = 30.0
    garbage: int = 0
    seconds: float = 0.0


@dataclass(kw_only=True)
class Result:
    """What came of it; times are seconds.

    Attributes:
        accepts: from each agent's connect to its Accept; those without are not in it.
        accepted: from the first connect to the last Accept.
        formed: from the first connect to the last WorldFormed; None: an agent has none.
        ranks: all that were handed out.
        turned_away: agents that were told or got something else.
        garbage: connections that were opened.
    """

    accepts: list[float] = field(default_factory=list)
    accepted: float | None = None
    formed: float | None = None
    ranks: list[int] = field(default_factory=list)
    turned_away: int = 0
    garbage: int = 0


# -- frames -----------------------------------------------------------------------------------


def frame(payload: bytes, *, wire: int) -> bytes:
    """A frame under open admission."""
    covered = struct.pack("<II", KIND, len(payload)) + payload
    tag = hmac.digest(OPEN_KEY, covered, hashlib.sha256)[:8]
    return FRAME.pack(FRAME_MAGIC, wire, tag, KIND, len(payload)) + payload


def dial(host: str, *, wire: int) -> bytes:
    """All that an agent of one rank says until it is answered."""
    name = host.encode()
    optional = bytes(3) if wire >= 4 else b""
    hello = b"\0" + bytes((len(name),)) + name + b"\1\0" + b"\0" + b"\0" + bytes(32) + optional
    return JOIN_MAGIC + frame(hello, wire=wire)


def varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at that place, and the place behind it."""
    first = data[at]
    size = {251: 2, 252: 4, 253: 8}.get(first, 0)
    behind = at + 1 + size
    return (int.from_bytes(data[at + 1 : behind], "little") if size else first), behind


def accepted_ranks(payload: bytes) -> list[int]:
    """The ranks of an Accept."""
    count, at = varint(payload, 1)
    ranks = []
    for _ in range(count):
        rank, at = varint(payload, at)
        ranks.append(rank)
    return ranks


def garbage(wire: int) -> Iterator[bytes]:
    """What a dial can say that no controller wants to hear, for ever."""
    dice = random.Random(1)
    hello = dial("garbage", wire=wire)
    huge = JOIN_MAGIC + frame(b"\0" + HUGE_STRING, wire=wire)
    long = JOIN_MAGIC + FRAME.pack(FRAME_MAGIC, wire, bytes(8), KIND, 16 * 1024 * 1024)
    while True:
        yield b""
        yield dice.randbytes(dice.randrange(1, 2000))
        yield JOIN_MAGIC + dice.randbytes(200)
        yield hello[: dice.randrange(len(hello))]
        yield hello[:-1] + b"?"
        yield huge
        yield long + bytes(1000)
        yield b"GET /" + dice.randbytes(100) + b" HTTP/1.1\r\n\r\n"


# -- agents -----------------------------------------------------------------------------------


class Agent:
    """One that joins."""

    __slots__ = ("accepted_at", "began_at", "formed_at", "hello", "incoming", "ranks", "sock")

    def __init__(self, sock: socket.socket, hello: bytes) -> None:
        self.sock = sock
        self.hello = hello
        self.began_at = 0.0
        self.accepted_at: float | None = None
        self.formed_at: float | None = None
        self.ranks: list[int] = []
        self.incoming = b""

    def greet(self) -> bool:
        """Say Hello; whether that was possible."""
        try:
            self.sock.send(self.hello)
        except OSError:
            return False
        return True

    def receive(self) -> bool:
        """Take what has come; whether there may be more."""
        try:
            data = self.sock.recv(65536)
        except OSError:
            return False
        now = time.perf_counter()
        self.incoming += data
        while len(self.incoming) >= FRAME.size:
            length = FRAME.unpack_from(self.incoming)[4]
            end = FRAME.size + length
            if len(self.incoming) < end:
                break
            payload, self.incoming = self.incoming[FRAME.size : end], self.incoming[end:]
            if not self._obey(payload, now):
                return False
        return bool(data)

    def _obey(self, payload: bytes, now: float) -> bool:
        if payload[0] == ACCEPT and self.accepted_at is None:
            self.accepted_at = now
            self.ranks = accepted_ranks(payload)
            return True
        if payload[0] == WORLD_FORMED and self.accepted_at is not None:
            self.formed_at = now
            return True
        return False


class Load:
    """Carries out a plan in which agents join."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._epoll = select.epoll()
        self._agents: dict[int, Agent] = {}
        self._silent: list[socket.socket] = []
        self._waiting = 0
        self._unfinished = 0
        self._turned_away = 0

    def run(self) -> Result:
        """Dial until everybody has what it waits for, or time is over."""
        plan = self._plan
        # Made beforehand, so that only dialing is left to do.
        hellos = deque(dial(f"n{number}", wire=plan.wire) for number in range(plan.agents))
        for number in range(plan.silent):
            self._silent.append(self._stay_silent(number))
        time.sleep(SETTLE if plan.silent else 0.0)
        began = time.perf_counter()
        until, due = began + plan.timeout, began
        while (hellos or self._unfinished) and (now := time.perf_counter()) < until:
            while hellos and self._waiting < plan.at_a_time and due <= now:
                self._dial(hellos.popleft())
                due += plan.interval
            soon = due if hellos and self._waiting < plan.at_a_time else until
            self._poll(max(0.0, min(soon, until) - time.perf_counter()))
        return self._result(began)

    def _stay_silent(self, number: int) -> socket.socket:
        sock = socket.create_connection(("127.0.0.1", self._plan.port))
        if number % 2:
            sock.sendall(dial("silent", wire=self._plan.wire)[:-1])
        return sock

    def _dial(self, hello: bytes) -> None:
        agent = Agent(socket.socket(), hello)
        agent.sock.setblocking(False)
        agent.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._plan.sources > 1:
            _bind_source(agent.sock, len(self._agents) % self._plan.sources)
        agent.began_at = time.perf_counter()
        code = agent.sock.connect_ex(("127.0.0.1", self._plan.port))
        if code not in (0, errno.EINPROGRESS):
            raise OSError(code, "cannot dial")
        self._agents[agent.sock.fileno()] = agent
        # On loopback a connection is there at once, unless the controller's queue is full.
        said = agent.greet()
        self._epoll.register(agent.sock.fileno(), select.EPOLLIN if said else select.EPOLLOUT)
        self._waiting += 1
        self._unfinished += 1

    def _poll(self, timeout: float) -> None:
        for fd, events in self._epoll.poll(timeout, maxevents=256):
            agent = self._agents[fd]
            if events & select.EPOLLOUT and agent.greet():
                self._epoll.modify(fd, select.EPOLLIN)
                continue
            waited = agent.accepted_at is None
            alive = agent.receive()
            if waited and (agent.accepted_at is not None or not alive):
                self._waiting -= 1
            self._settle(fd, agent, alive)

    def _settle(self, fd: int, agent: Agent, alive: bool) -> None:
        done = agent.formed_at if self._plan.world else agent.accepted_at
        if done is None and alive:
            return
        self._turned_away += done is None
        # Its link stays open: a host that leaves ends the world.
        self._epoll.unregister(fd)
        self._unfinished -= 1

    def _result(self, began: float) -> Result:
        agents = self._agents.values()
        accepted = [a for a in agents if a.accepted_at is not None]
        formed = [a.formed_at for a in agents if a.formed_at is not None]
        return Result(
            accepts=[(a.accepted_at or 0.0) - a.began_at for a in accepted],
            accepted=max((a.accepted_at or 0.0 for a in accepted), default=began) - began,
            formed=max(formed) - began if len(formed) == self._plan.agents else None,
            ranks=[rank for agent in accepted for rank in agent.ranks],
            turned_away=self._turned_away,
        )


def _bind_source(sock: socket.socket, number: int) -> None:
    # The port is chosen at connect, when the system knows both ends: there are more that way.
    sock.setsockopt(socket.SOL_IP, getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24), 1)
    sock.bind((f"127.0.0.{1 + number}", 0))


def throw_garbage(plan: Plan) -> Result:
    """Open so many connections a second, each with something wrong to say.

    Raises:
        OSError: the controller does not take connections any more.
    """
    words = garbage(plan.wire)
    links: deque[socket.socket] = deque()
    began = time.perf_counter()
    count = 0
    while (passed := time.perf_counter() - began) < plan.seconds:
        while count < passed * plan.garbage:
            links.append(_throw(plan, next(words), count % plan.sources))
            count += 1
            if len(links) > GARBAGE_OPEN:
                links.popleft().close()
        time.sleep(TICK)
    return Result(garbage=count)


def _throw(plan: Plan, word: bytes, source: int) -> socket.socket:
    sock = socket.socket()
    sock.settimeout(plan.timeout)
    _bind_source(sock, source)
    sock.connect(("127.0.0.1", plan.port))
    try:
        sock.sendall(word)
    except ConnectionError:
        # The first bytes were enough for the controller.
        return sock
    return sock


# -- the process ------------------------------------------------------------------------------


def descriptors_needed(plan: Plan) -> int:
    """How many descriptors the process that carries out a plan needs."""
    return plan.agents + plan.silent + GARBAGE_OPEN + SPARE_DESCRIPTORS


def main() -> int:
    plan = Plan(**json.loads(sys.stdin.readline()))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    load = Load(plan)
    result = throw_garbage(plan) if plan.garbage else load.run()
    print(json.dumps(asdict(result)), flush=True)
    sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
