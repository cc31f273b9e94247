"""Cases, worlds and results for tests of the conformance suite itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from joinproto import codec
from joinproto.conformance.case import Case, Ending
from joinproto.conformance.conversation import Conversation
from joinproto.conformance.play import Outcome, play
from joinproto.conformance.results import Result
from joinproto.conformance.verdicts import Level, Verdict
from joinproto.conformance.world import Child, Exit, Keys, Line, Trace, Unreachable
from joinproto.grammar import JOIN_MAGIC
from joinproto.keys import OPEN, Salt
from joinproto.messages import Message

SESSION = Salt(bytes(range(16)))
OTHER = Salt(b"o" * 16)
KEYS = Keys(join=OPEN, session=SESSION, other=OTHER, open=True)


class StillWorld:
    """A world in which nothing happens but what a test writes into it, at once or at a time.

    Attributes:
        due: what happens at a time, in order.
        done: what the case did, in order.
    """

    def __init__(self, *names: str, dialed: bool = False, raw: bool = False) -> None:
        self.scale = 1.0
        self.host = "target"
        self.address = ("127.0.0.1", 29400)
        self.keys = KEYS
        self.trace = Trace()
        self.exit: Exit | None = None
        self.children: dict[str, list[Child]] = {}
        self.lines: list[Line] = []
        self.dials_waiting = 0
        self.due: list[tuple[float, Any]] = []
        self.done: list[tuple[Any, ...]] = []
        self.rests: list[bool] = []
        self.refuses = False
        self.conversations: dict[str, Conversation] = {}
        self._dialed = dialed
        self._raw = raw
        self._now = 0.0
        for name in names:
            self.connect(name)

    def connect(self, name: str) -> None:
        self.conversations[name] = Conversation(
            name,
            join_key=KEYS.join,
            session_key=KEYS.session,
            dialed=self._dialed,
            raw=self._raw,
        )

    def at(self, time: float, what: Any) -> None:
        """Have `what()` called then."""
        self.due.append((time, what))

    def said(
        self, message: Message, *, on: str = "c", key: Salt | None = None, wire: int = 4
    ) -> None:
        """Have the target say something at once."""
        conversation = self.conversations[on]
        used = conversation.key_of(message) if key is None else key
        conversation.feed(codec.encode(message, key=used, wire=wire), self._now)

    def now(self) -> float:
        return self._now

    def run(self, until: float) -> None:
        if self.due and self.due[0][0] <= until:
            time, what = self.due.pop(0)
            self._now = max(self._now, time)
            what()
        else:
            self._now = until

    def resting(self, rests: bool) -> AbstractContextManager[None]:
        self.rests.append(rests)
        return nullcontext()

    def listen(self) -> None:
        self.done.append(("listen",))

    def accept(self, name: str) -> bool:
        if not self.dials_waiting:
            return False
        self.dials_waiting -= 1
        self.connect(name)
        self.done.append(("accept", name))
        return True

    def dial(self, name: str, *, raw: bool) -> None:
        if self.refuses:
            raise Unreachable("connection refused")
        self.done.append(("dial", name))
        self.connect(name)

    def send(self, name: str, data: bytes, text: str) -> None:
        self.done.append(("send", name, data))

    def restart(self) -> None:
        self.done.append(("restart",))

    def half_close(self, name: str) -> None:
        self.done.append(("half_close", name))

    def close(self, name: str) -> None:
        self.done.append(("close", name))

    def reset(self, name: str) -> None:
        self.done.append(("reset", name))

    def signal(self, number: int) -> None:
        self.done.append(("signal", int(number)))

    def order(self, child: Child, command: Any) -> None:
        self.done.append(("order", child.name, command))


def case_of(
    *steps: Mapping[str, Any],
    given: Sequence[Mapping[str, Any]] = (),
    role: str = "agent",
    level: Level = Level.MUST,
    ending: Ending | None = None,
    **values: Any,
) -> Case:
    """A case with these steps."""
    return Case(
        id=values.pop("id", f"{role}/group/name"),
        title="It is done.",
        clauses=values.pop("clauses", ("JP-FRM-001",)),
        level=level,
        given=tuple(given),
        steps=steps,
        ending=ending,
        **values,
    )


def result_of(
    case: str = "agent/group/name", verdict: Verdict = Verdict.PASS, **values: Any
) -> Result:
    """A result of a case."""
    usual: dict[str, Any] = {
        "wire": 4,
        "admission": "open",
        "title": "It is done.",
        "level": Level.MUST,
        "clauses": ("JP-FRM-001",),
        "behaviour": verdict,
        "ending": Verdict.PASS,
    }
    return Result(case=case, verdict=verdict, **(usual | values))


def played(
    world: StillWorld, *steps: Mapping[str, Any], case: Case | None = None, **values: Any
) -> Outcome:
    """What steps come to in a world."""
    return play(case or case_of(*steps, **values), world, 4)


def dial(world: StillWorld, message: Any, *, wire: int = 4, on: str = "c") -> None:
    """Have the target dial, and say something as soon as it is let in."""
    world.dials_waiting += 1
    data = JOIN_MAGIC + codec.encode(message, key=OPEN, wire=wire)

    def feed() -> None:
        world.conversations[on].feed(data, world.now())

    world.at(world.now(), feed)


def sent(world: StillWorld) -> bytes:
    """All bytes that a case has sent."""
    return b"".join(entry[2] for entry in world.done if entry[0] == "send")
