"""Worlds of conformance cases without a process, a socket or a moment of waiting.

The target is our own agent or controller as machines: what mutants change shows here at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from joinproto import effects as fx
from joinproto.conformance.case import Case
from joinproto.conformance.conversation import Conversation
from joinproto.conformance.play import Outcome, play
from joinproto.conformance.session import Settings, make_keys
from joinproto.conformance.telling import exit_text
from joinproto.conformance.world import Child, Exit, Keys, Line, Trace, Unreachable
from joinproto.connection import ControllerConnection
from joinproto.machines.agent import Plan
from joinproto.machines.controller import Admission
from joinproto.machines.window import WindowConfig
from joinproto.messages import Hello
from joinproto.runtime.artifacts import build_envelope, build_relay_spec
from joinproto.runtime.board import EXIT_CODES, outcome
from joinproto.testing import DialFailed, End, FakeClock, FakeProcess, Link, MemoryHost
from joinproto.testing.controller import MemoryController
from joinproto.testing.link import ResetLink

ADDRESS = ("127.0.0.1", 29400)
HOST = "target"


class NotInMemory(Exception):
    """The case needs something that only real processes and sockets have."""


class SuiteEnd:
    """The suite's end of a link: what came in, for a conversation once there is one."""

    def __init__(self, world: MemoryWorld) -> None:
        self.end = End(self, world.clock)
        self.conversation: Conversation | None = None
        self._world = world
        self._out: deque[bytes] = deque()
        self._then: list[Any] = []
        self._early: list[Callable[[], None]] = []

    def give(self, conversation: Conversation) -> None:
        """Name it; what came before is told now."""
        self.conversation = conversation
        for tell in self._early:
            tell()

    def send(self, data: bytes) -> None:
        self._out.append(data)

    def then(self, effect: Any) -> None:
        """Do this once everything is sent."""
        self._then.append(effect)

    def receive_data(self, data: bytes, now: float) -> list[Any]:
        self._happened(lambda conversation: conversation.feed(data, self._world.now()))
        self._world.trace_bytes(self, data)
        return []

    def receive_eof(self, now: float) -> list[Any]:
        self._happened(lambda conversation: conversation.end("fin", self._world.now()))
        return []

    def link_broken(self, cause: str, now: float) -> list[Any]:
        self._happened(lambda conversation: conversation.end("rst", self._world.now()))
        return []

    def data_to_send(self) -> bytes:
        return self._out.popleft() if self._out else b""

    def flushed(self, now: float) -> list[Any]:
        return self._due()

    @property
    def next_timer(self) -> float | None:
        return self._world.clock.now if self._then and not self._out else None

    def handle_timer(self, now: float) -> list[Any]:
        return self._due()

    def _due(self) -> list[Any]:
        if self._out:
            return []
        then, self._then = self._then, []
        return then

    def _happened(self, tell: Callable[[Conversation], None]) -> None:
        self._world.happened += 1

        def later() -> None:
            assert self.conversation is not None
            tell(self.conversation)

        if self.conversation is None:
            self._early.append(later)
        else:
            later()


class MemoryWorld:
    """What both worlds have in common; see `joinproto.conformance.world.World`."""

    def __init__(self, keys: Keys, scale: float) -> None:
        self.keys = keys
        self.scale = scale
        self.host = HOST
        self.address = ADDRESS
        self.trace = Trace()
        self.conversations: dict[str, Conversation] = {}
        self.exit: Exit | None = None
        self.children: dict[str, list[Child]] = {}
        self.lines: list[Line] = []
        self.dials_waiting = 0
        self.clock = FakeClock()
        self.happened = 0
        self.ends: dict[str, SuiteEnd] = {}

    def now(self) -> float:
        return self.clock.now

    def run(self, until: float) -> None:
        before = self.happened
        self.settle()
        while self.happened == before and self.clock.now < until:
            due = self.next_timer
            self.clock.advance_to(until if due is None else min(until, due))
            self.settle()

    def resting(self, rests: bool) -> AbstractContextManager[None]:
        return nullcontext()

    def send(self, name: str, data: bytes, text: str) -> None:
        self.trace.add(self.now(), "suite", "bytes", connection=name, data=data, text=text)
        self.ends[name].send(data)
        self.settle()

    def restart(self) -> None:
        raise NotInMemory("another run")

    def half_close(self, name: str) -> None:
        self.conversations[name].half_closed = True
        self._then(name, fx.EndSending())

    def close(self, name: str) -> None:
        self.conversations[name].closed = True
        self._then(name, fx.CloseLink())

    def reset(self, name: str) -> None:
        self.conversations[name].closed = True
        self._then(name, ResetLink())

    def trace_bytes(self, end: SuiteEnd, data: bytes) -> None:
        name = end.conversation.name if end.conversation else "?"
        self.trace.add(self.now(), "target", "bytes", connection=name, data=data)

    @property
    def next_timer(self) -> float | None:
        raise NotImplementedError

    def settle(self) -> None:
        raise NotImplementedError

    def _then(self, name: str, effect: Any) -> None:
        self.trace.add(self.now(), "suite", "act", connection=name, text=type(effect).__name__)
        self.ends[name].then(effect)
        self.settle()

    def _named(self, name: str, end: SuiteEnd, *, dialed: bool, raw: bool = False) -> None:
        if raw:
            raise NotInMemory("HTTP")
        conversation = Conversation(
            name, join_key=self.keys.join, session_key=self.keys.session, dialed=dialed
        )
        self.conversations[name] = conversation
        self.ends[name] = end
        end.give(conversation)


class AgentWorld(MemoryWorld):
    """Our agent, as machines."""

    def __init__(self, case: Case, keys: Keys, scale: float) -> None:
        super().__init__(keys, scale)
        self.host = str(case.setup.get("host", HOST))
        self._listens = case.setup.get("listen", True)
        self._dials: list[SuiteEnd] = []
        self._up: dict[int, Child] = {}
        self.target = MemoryHost(self._plan(case), self.clock, self._answer)
        self.begin()

    def begin(self) -> None:
        """Start the target."""
        self.target.start()
        self._notice()

    @property
    def next_timer(self) -> float | None:
        return self.target.next_timer

    def settle(self) -> None:
        self.target.settle()
        self._notice()

    def listen(self) -> None:
        self._listens = True

    def accept(self, name: str) -> bool:
        if not self._dials:
            return False
        self.dials_waiting -= 1
        self._named(name, self._dials.pop(0), dialed=True)
        return True

    def dial(self, name: str, *, raw: bool) -> None:
        raise NotInMemory("an agent is not dialed")

    def signal(self, number: int) -> None:
        names = {15: "SIGTERM", 2: "SIGINT", 1: "SIGHUP"}
        if number not in names:
            raise NotInMemory(f"signal {number}")
        self.target.stop(names[number], number)
        self._notice()

    def order(self, child: Child, command: Any) -> None:
        if child.down is not None:  # it does nothing any more
            return
        for each in command if isinstance(command, list) else [command]:
            self._order(self._process(child), each)
        self.settle()

    def _order(self, process: FakeProcess, command: Mapping[str, Any]) -> None:
        match command:
            case {"exit": code}:
                self.target.do(process.exit(int(code) & 0xFF))
            case {"signal": name}:
                numbers = {"KILL": 9, "SEGV": 11, "TERM": 15, "ABRT": 6, "INT": 2}
                self.target.do(process.exit(-numbers[name]))
            case {"fork": {"output": True}}:
                process.behaviour = replace(process.behaviour, holds_output=True)
            case {"ignore": "TERM"}:
                process.behaviour = replace(process.behaviour, ignores_sigterm=True)
            case _:
                raise NotInMemory(f"{command}")

    def _process(self, child: Child) -> FakeProcess:
        slot = next(slot for slot, each in self._up.items() if each is child)
        return self.target.processes.slots[slot]

    def _plan(self, case: Case) -> Plan:
        spec = {"libtorch": "", "local_devices": [0], **case.setup.get("spec", {})}
        strange = spec.keys() - {
            *("host", "libtorch", "local_devices", "dataset_sig_hex", "run_id", "model_sig_hex"),
        }
        if strange or case.setup.get("env"):
            raise NotInMemory(f"setup {sorted(strange)}")
        devices = tuple(spec["local_devices"])
        model_sig = spec.get("model_sig_hex")
        hello = Hello(
            host=self.host,
            local_devices=devices,
            gpus=tuple(f"cuda:{device}" for device in devices),
            libtorch=spec["libtorch"],
            dataset_sig=bytes.fromhex(spec.get("dataset_sig_hex", "00" * 32)),
            run_id=spec.get("run_id"),
            model_sig=None if model_sig is None else bytes.fromhex(model_sig),
        )
        salt = None if self.keys.open else self.keys.session
        return Plan(hello=hello, wires=(4, 2), salt=salt, scale=self.scale)

    def _answer(self, dial: fx.Dial) -> End:
        if not self._listens:
            raise DialFailed("connection refused")
        end = SuiteEnd(self)
        self._dials.append(end)
        self.dials_waiting += 1
        self.happened += 1
        return end.end

    def _notice(self) -> None:
        for slot, process in self.target.processes.slots.items():
            spawn = process.spawn
            if slot not in self._up and (process.running or process.code is not None):
                name = "relay" if spawn.rank is None else str(spawn.local_rank)
                child = self._up[slot] = Child(name=name, up=self.now())
                self.children.setdefault(name, []).append(child)
                self.happened += 1
            if slot in self._up and process.code is not None and self._up[slot].down is None:
                self._up[slot].down = self.now()
                self.happened += 1
        if self.target.finished and self.exit is None:
            error = self.target.error
            self.exit = Exit(at=self.now(), code=0 if error is None else error.exit_code)
            self.trace.add(self.now(), "target", "exit", text=exit_text(self.exit.code))
            self.happened += 1


class ControllerTarget(MemoryController):
    """Our controller, as machines, with artifacts as it makes them."""

    def _form(self) -> None:
        members = self.context.members
        for member in self.context.present:
            assert member.connection is not None
            envelope = build_envelope(
                controller_host=ADDRESS[0],
                controller_port=ADDRESS[1],
                world_size=self.context.world_size,
                num_workers=len(members),
                host=member.host,
                ranks=member.ranks,
                local_devices=member.hello.local_devices,
                salt=self.admission.salt,
            )
            relay = build_relay_spec(
                controller_host=ADDRESS[0],
                controller_port=ADDRESS[1],
                world_size=self.context.world_size,
                host=member.host,
                ranks=member.ranks,
                salt=self.admission.salt,
            )
            connection: ControllerConnection = self.connections[member.connection]
            effects = connection.form(envelope, relay if self.relay else None, self.clock.now)
            self._do(member.connection, effects)


class ControllerWorld(MemoryWorld):
    """Our controller, as machines."""

    def __init__(self, case: Case, keys: Keys, scale: float) -> None:
        super().__init__(keys, scale)
        setup = case.setup
        if set(case.needs) - {"relay"} or setup.get("env"):
            raise NotInMemory(f"needs {case.needs}")
        quorum = setup.get("min_ranks", 1)
        signature = setup.get("dataset_sig")
        config = WindowConfig(
            min_ranks=quorum,
            target_ranks=setup.get("target_ranks", quorum),
            join_timeout=setup.get("join_timeout", 300),
            max_join_timeout=setup.get("max_join_timeout", 600),
            dataset_sig=None if signature is None else bytes.fromhex(signature),
            scale=scale,
        )
        admission = Admission(salt=keys.session, open=keys.open, scale=scale)
        self.target = ControllerTarget(self.clock, config, admission, relay="relay" in case.needs)
        self._links: list[Link] = []
        self._stopped = False

    @property
    def next_timer(self) -> float | None:
        times = [self.target.window.next_timer, *(link.next_timer for link in self._links)]
        return min((time for time in times if time is not None), default=None)

    def settle(self) -> None:
        moved = True
        while moved:
            moved = self.target.expire()
            for link in self._links:
                moved |= link.settle()
        over = self.target.ends and not self.target.open_connections
        if over and self.exit is None:
            told = outcome(self.target.context, stopped=self._stopped)
            self.exit = Exit(at=self.now(), code=EXIT_CODES[told])
            self.trace.add(self.now(), "target", "exit", text=exit_text(self.exit.code))
            self.happened += 1

    def listen(self) -> None:
        raise NotInMemory("a controller listens by itself")

    def accept(self, name: str) -> bool:
        raise NotInMemory("a controller does not dial")

    def dial(self, name: str, *, raw: bool) -> None:
        if self.target.ends:
            raise Unreachable("connection refused")
        end = SuiteEnd(self)
        far = self.target.answer(fx.Dial(timeout=3.0, wire=4))
        self._links.append(Link(end.end, far))
        self._named(name, end, dialed=False, raw=raw)
        self.settle()

    def signal(self, number: int) -> None:
        if number not in (15, 2):
            raise NotInMemory(f"signal {number}")
        self._stopped = True
        self.target.stop()
        self.settle()

    def order(self, child: Child, command: Any) -> None:
        raise NotInMemory("a controller starts nothing")


def play_in_memory(
    case: Case, *, wire: int, admission: str, scale: float = 0.1
) -> tuple[Outcome, Trace]:
    """Play a case against our own machines.

    Raises:
        NotInMemory: it needs more than machines.
    """
    if not case.memory:
        raise NotInMemory(case.id)
    keys = make_keys(Settings(role=case.role, seed=1), case, admission)
    kind = AgentWorld if case.role == "agent" else ControllerWorld
    world = kind(case, keys, scale)
    return play(case, world, wire), world.trace
