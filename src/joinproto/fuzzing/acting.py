"""Does the steps of a case in a world, and takes down what the target did."""

from __future__ import annotations

import signal
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from joinproto.conformance import compose
from joinproto.conformance.compose import Member
from joinproto.conformance.conversation import Event, Garbled, Over, Said
from joinproto.conformance.world import Unreachable, World
from joinproto.errors import InvalidMessage
from joinproto.fuzzing.sequence import Step, verb
from joinproto.grammar import JOIN_MAGIC
from joinproto.limits import whole_seconds
from joinproto.messages import Accept, Hello, Message, WorldFormed
from joinproto.testing.record import short

LOOK = 0.5
"""Seconds that a case waits for an answer where its step does not say."""

PAST = 0.3
"""Seconds after a deadline in which what it leads to has happened."""

GLANCE = 0.003
"""Seconds for an answer that should not come."""

REST = 0.001
"""Seconds in which a target notices what it does not answer."""

DIALS = 3
"""Dials of an agent, at most, until one is in the version of the case."""

PIECES = 100
"""Pieces, at most, in which something arrives slowly: all of it within any deadline."""

UP = 1.0
"""Seconds in which a rank that has to be there must have come up."""

DIAL = 8.0
"""Seconds in which an agent must dial."""


@dataclass(kw_only=True)
class Heard:
    """What the target did on one connection.

    Attributes:
        events: in order, as words: the name of a message, `garbled`, `fin` or `rst`.
        messages: those among them.
        authenticated: the harness had sent a whole frame with the right tag.
        closed: the harness has closed it, and hears nothing more.
        stays: neither side did anything to end it before the case was over.
        wire: the version that the target spoke in its last message; None: it said none.
        early: the target had ended it before the harness, at the end of the case, sent no more.
    """

    events: list[str] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    authenticated: bool = False
    closed: bool = False
    stays: bool = True
    wire: int | None = None
    early: bool = False

    @property
    def ended(self) -> bool:
        """The target has ended it."""
        return bool(self.events) and self.events[-1] in ("fin", "rst")


class Actor:
    """Does steps.

    Args:
        world: where.
        wire: the version that is spoken.
        foreseen: for each `look` in turn, whether something will come; one for which nothing will
            is not worth waiting for.
        number: of the case; hosts carry it in their names, so that no case is in another's way.
        children: what the target will start, which is worth waiting for.

    Attributes:
        looks: for each `look` in turn, whether something came.
        heard: connection → what the target did on it.
        unreachable: a dial was refused: why; "" where none was.
        sent: bytes that were sent so far.
        elsewhere: connections that do not ask for the join channel.
    """

    def __init__(
        self,
        world: World,
        wire: int,
        foreseen: Iterable[bool] = (),
        number: int = 0,
        children: Container[str] = (),
    ) -> None:
        self._number = number
        self._children = children
        self.looks: list[bool] = []
        self._foreseen = iter(foreseen)
        self.world = world
        self.wire = wire
        self.heard: dict[str, Heard] = {}
        self.unreachable = ""
        self.sent = 0
        self._members: dict[str, Member] = {}
        self._looked: dict[str, int] = {}
        self.patience = float("inf")
        """Seconds for which an answer is waited for, whatever a step says."""
        self._behind: set[str] = set()
        self._accepted = False
        self._formed = False
        self.elsewhere: set[str] = set()

    def rest(self) -> None:
        """Wait a moment: what was done is not answered, and is to be noticed before what comes."""
        self._pause(REST)

    def do(self, step: Step) -> None:
        """Do one step; what can no longer be done is left out, as it would be on a real network."""
        if not self.unreachable:
            _ACTS[verb(step)](self, step)

    def listen(self) -> None:
        """Take down whatever has come so far."""
        for name, conversation in self.world.conversations.items():
            while (event := conversation.take()) is not None:
                self._take(name, event)

    def so_far(self) -> dict[str, int]:
        """How much has come on each connection."""
        self.world.run(self.world.now())
        self.listen()
        return {name: len(heard.events) for name, heard in self.heard.items()}

    def catch_up(self, expected: Mapping[str, int], patience: float = LOOK) -> None:
        """Wait, not for long, until as much has come on each connection as is to come.

        Order across connections is nothing that a network keeps: what is done on one must not
        overtake what was said on another.
        """
        due = self.world.now() + min(patience, LOOK)
        while True:
            there = self.so_far()
            behind = {
                name
                for name, count in expected.items()
                if self._hears(name) and there[name] < count and name not in self._behind
            }
            if not behind:
                return
            if self.world.now() >= due:
                # What does not come now will not come later either.
                self._behind |= behind
                return
            self.world.run(due)

    def finish(self, patience: float, mute: frozenset[str] = frozenset()) -> None:
        """Send no more on what is still open, and wait until the target has ended all of it.

        What the target had to say before it took the end of the stream has come by then.

        Args:
            patience: seconds after which it is not waited for any more.
            mute: connections of which it is known that the target will not end them.
        """
        due = self.world.now() + patience
        for name, heard in self.heard.items():
            heard.early = heard.ended
            heard.stays = self._open(name) and not heard.ended
            self._act(name, self.world.half_close)
        self.world.run(self.world.now())
        self.listen()
        waited_for = self.heard.keys() - mute
        while self.world.now() < due and not all(map(self._over, waited_for)):
            self.world.run(due)
            self.listen()
        if any(heard.closed for heard in self.heard.values()):
            # It has no way to say that it has noticed, and must have before the next case.
            self.rest()

    def _hears(self, name: str) -> bool:
        """Whether something of this protocol can still come on a connection."""
        heard = self.heard.get(name)
        return heard is not None and not (heard.closed or heard.ended or name in self.elsewhere)

    def _over(self, name: str) -> bool:
        return self.world.conversations[name].closed or self.heard[name].ended

    # -- acts ---------------------------------------------------------------------------------

    def _dial(self, step: Step) -> None:
        name = step["dial"]
        self._again(name)
        try:
            self.world.dial(name, raw=False)
        except Unreachable as error:
            self.unreachable = str(error)
            return
        self._begin(name)
        magic = bytes.fromhex(step.get("channel", "e3170df1"))
        if magic != JOIN_MAGIC:
            # Not of this protocol: what is answered there, and when, is nobody's business here.
            self.elsewhere.add(name)
        if magic:
            self._out(name, magic, "channel magic")

    def _accept(self, step: Step) -> None:
        """Take a dial in the version of this case; one in another is hung up on.

        So a published controller does, and an agent that tries several versions finds its way.
        """
        name = step["accept"]
        self._again(name)
        self._accepted = True
        for _ in range(DIALS):
            if not self._next_dial(name, float(step.get("within", DIAL))):
                return
            self._begin(name)
            # What is said to an agent depends on what it offers.
            self._hear(name, float(step.get("answer_within", DIAL)))
            if self.world.conversations[name].wire in (None, self.wire):
                return
            self.world.close(name)

    def _next_dial(self, name: str, within: float) -> bool:
        due = self.world.now() + within
        while not self.world.accept(name):
            if self.world.now() >= due or self.world.exit is not None:
                return False
            self.world.run(due)
        return True

    def _again(self, name: str) -> None:
        """A name is used again: of the connection that had it nobody would know any more."""
        if self._open(name) or (name in self.heard and not self.heard[name].ended):
            self.world.close(name)
            self.heard[name].closed = True
            self.rest()

    def _begin(self, name: str) -> None:
        self.heard[name] = Heard()
        self._looked[name] = 0
        self._members[name] = Member(host=f"{name}-{self._number}")

    def _listen(self, step: Step) -> None:
        self.world.listen()

    def _say(self, step: Step) -> None:
        name = step.get("on", "c")
        if not self._open(name):
            return
        member = self._members[name]
        keys = self.world.keys
        try:
            message = compose.message_of(
                step["say"], self._filled(step.get("with", {})), member, keys, self.world.address
            )
            payload = compose.payload_of(message, step.get("speak", self.wire))
        except InvalidMessage:
            return
        key = self.world.conversations[name].key_of(message)
        self._frame_out(name, payload, step, key, short(message))
        self._said(name, message)

    def _frame(self, step: Step) -> None:
        name = step.get("on", "c")
        if self._open(name):
            key = self.world.conversations[name].session_key
            payload = compose.bytes_of(step["frame"])
            self._frame_out(name, payload, step, key, f"a frame of {len(payload)} bytes")

    def _frame_out(self, name: str, payload: bytes, step: Step, key: Any, text: str) -> None:
        if "key" in step:
            given = compose.key_named(step["key"], self.world.keys)
            key = self.world.conversations[name].session_key if step["key"] == "session" else given
        frame = compose.frame_of(payload, key, step.get("speak", self.wire), step)
        right = not step.keys() & {"tag", "magic", "length", "cut", "wire"}
        if right and step.get("key") not in ("other",):
            self.heard[name].authenticated = True
        self._pieces(name, frame, step, text)

    def _send(self, step: Step) -> None:
        name = step.get("on", "c")
        if self._open(name):
            self._pieces(name, compose.bytes_of(step["send"]), step, "")

    def _pieces(self, name: str, data: bytes, step: Step, text: str) -> None:
        chunk = step.get("chunk", 0) or len(data) or 1
        if step.get("pause"):
            chunk = max(chunk, -(-len(data) // PIECES))
        for start in range(0, len(data), chunk):
            if not self._open(name):
                return
            self._out(name, data[start : start + chunk], text)
            text = ""
            if start + chunk < len(data):
                self._pause(float(step.get("pause", 0.0)))

    def _half_close(self, step: Step) -> None:
        self._act(step["half_close"], self.world.half_close)

    def _close(self, step: Step) -> None:
        self._leave(step["close"], self.world.close)

    def _reset(self, step: Step) -> None:
        self._leave(step["reset"], self.world.reset)

    def _wait(self, step: Step) -> None:
        seconds = float(step["wait"])
        scaled = whole_seconds(seconds, self.world.scale) + PAST
        self._pause(scaled if step.get("scaled") else seconds)

    def _look(self, step: Step) -> None:
        within = float(step.get("within", LOOK))
        comes = next(self._foreseen, True)
        self.looks.append(
            self._hear(step["look"], min(within, self.patience) if comes else min(within, GLANCE))
        )

    def _hear(self, name: str, within: float) -> bool:
        """Wait until the target does something more on a connection than when this was last asked.

        Returns whether it did.
        """
        heard = self.heard.get(name)
        if heard is None or self.world.conversations[name].closed:
            return False
        if name in self.elsewhere:
            within = min(within, GLANCE)
        before = self._looked[name]
        due = self.world.now() + within
        self.listen()
        while len(heard.events) == before and self.world.now() < due and not heard.ended:
            self.world.run(due)
            self.listen()
        self._looked[name] = len(heard.events)
        return len(heard.events) > before

    def _signal(self, step: Step) -> None:
        if self.world.exit is None:
            self.world.signal(signal.Signals[f"SIG{step['signal']}"])

    def _rank(self, step: Step) -> None:
        name = str(step["rank"])
        due = self.world.now() + (UP if self._formed and name in self._children else 0.0)
        while name not in self.world.children and self.world.now() < due:
            self.world.run(due)
        children = self.world.children.get(name, [])
        if children and children[-1].down is None:
            self.world.order(children[-1], step["do"])

    # -- inside -------------------------------------------------------------------------------

    def _act(self, name: str, act: Callable[[str], None]) -> None:
        if self._open(name):
            act(name)

    def _leave(self, name: str, act: Callable[[str], None]) -> None:
        if self._open(name):
            self.heard[name].closed = True
            act(name)

    def _open(self, name: str) -> bool:
        conversation = self.world.conversations.get(name)
        return (
            name in self.heard
            and conversation is not None
            and not (conversation.closed or conversation.half_closed)
        )

    def _out(self, name: str, data: bytes, text: str) -> None:
        self.sent += len(data)
        self.world.send(name, data, text)

    def _pause(self, seconds: float) -> None:
        due = self.world.now() + seconds
        self.world.run(self.world.now())
        self.listen()
        while self.world.now() < due:
            self.world.run(due)
            self.listen()

    def _filled(self, given: dict[str, Any]) -> dict[str, Any]:
        known = {"$session": self.world.keys.session.hex(), "$other": self.world.keys.other.hex()}
        return {
            name: known.get(value, value) if isinstance(value, str) else value
            for name, value in given.items()
        }

    def _take(self, name: str, event: Event) -> None:
        heard = self.heard.setdefault(name, Heard())
        match event:
            case Said(message=message, wire=wire):
                heard.wire = wire
                heard.events.append(type(message).__name__)
                heard.messages.append(message)
                self._said(name, message)
            case Garbled(error=error):
                heard.events.append("garbled")
                self.world.trace.meaning(name, str(error))
            case Over(how=how):
                heard.events.append(how)

    def _said(self, name: str, message: Message) -> None:
        member = self._members[name]
        self._formed |= self._accepted and isinstance(message, WorldFormed)
        if isinstance(message, Hello):
            member.host, member.devices = message.host, message.local_devices
        elif isinstance(message, Accept):
            member.ranks = message.ranks


_ACTS: dict[str, Callable[[Actor, Step], None]] = {
    "dial": Actor._dial,
    "accept": Actor._accept,
    "say": Actor._say,
    "frame": Actor._frame,
    "send": Actor._send,
    "half_close": Actor._half_close,
    "close": Actor._close,
    "reset": Actor._reset,
    "wait": Actor._wait,
    "look": Actor._look,
    "signal": Actor._signal,
    "rank": Actor._rank,
    "listen": Actor._listen,
}
