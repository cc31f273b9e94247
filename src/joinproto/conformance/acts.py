"""What a case does, word by word: the acts of the suite in a world."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from joinproto import codec
from joinproto.conformance import aftermath, compose
from joinproto.conformance.awaiting import LONG, Awaiting, Deviation
from joinproto.conformance.case import Step
from joinproto.conformance.compose import Member
from joinproto.conformance.conversation import Said
from joinproto.conformance.match import differences, shown
from joinproto.conformance.telling import child_text, event_text, exit_text
from joinproto.conformance.verdicts import Verdict
from joinproto.conformance.world import Unreachable, World
from joinproto.errors import DecodeError
from joinproto.grammar import JOIN_KIND
from joinproto.keys import Salt
from joinproto.limits import whole_seconds
from joinproto.messages import Abort, Accept, Hello, Message
from joinproto.testing.record import short

OTHER_DIALS = 3
"""So many dials in another wire version say that the target does not speak this one."""

_WRONG = frozenset(("tag", "key", "wire", "kind", "magic", "length", "cut"))
"""Words of a step with which a frame is not what it is taken for."""

START = 20.0
"""Seconds in which a target that was just started must dial, or take a dial."""


class Unsupported(Exception):
    """The target does not have what the case needs; the text says what."""


class Through(Exception):
    """The case is over, whatever steps are left."""


class Acts:
    """Does the steps of one case.

    Args:
        world: with the target already started.
        wire: the version that the suite speaks.
        notes: where what else there is to say goes.

    Attributes:
        waiting: what waits for the target.
        signals: the signals that it was sent.
        given_up: a controller has said Abort.
    """

    def __init__(self, world: World, wire: int, notes: list[str]) -> None:
        self.world = world
        self.wire = wire
        self.waiting = Awaiting(world, notes, self._variables())
        self.signals: set[int] = set()
        self.given_up = False
        self._members: dict[str, Member] = {}
        self._opened: dict[str, float] = {}
        self._held: dict[str, bytes] = {}
        self._reason = ""
        self._tag = ""

    def do(self, steps: Sequence[Step]) -> None:
        """Do steps, one after the other.

        Raises:
            Deviation: the target did otherwise than they expect.
            Unsupported: it does not have what they need.
            Through: the case is over before its last step.
            Flood: the target sends or writes without end.
            Unreachable: it takes no connections.
        """
        for step in steps:
            name = next(verb for verb in _VERBS if verb in step)
            _VERBS[name](self, step)

    def _variables(self) -> Callable[[Any], Any]:
        """What fills in `$name` in the values of a case."""
        world = self.world
        keys = world.keys
        known: dict[str, Callable[[], Any]] = {
            "$host": lambda: world.host,
            "$session": self._session,
            "$SESSION": lambda: self._session().upper(),
            "$session_padded": lambda: f" {self._session()}\t\n",
            "$salt": keys.join.hex,
            "$other": keys.other.hex,
            "$address": lambda: world.address[0],
            "$port": lambda: world.address[1],
            "$wire": lambda: self.wire,
            "$reason": lambda: self._reason,
            "$tag": lambda: self._tag,
        }

        def filled(value: Any) -> Any:
            if isinstance(value, str):
                return known[value]() if value in known else value
            if isinstance(value, list):
                return [filled(each) for each in value]
            if isinstance(value, Mapping):
                if value.keys() == {"scaled"}:
                    return {"between": [each * world.scale for each in value["scaled"]]}
                return {name: filled(each) for name, each in value.items()}
            return value

        return filled

    def _session(self) -> str:
        """The session salt: under open admission the one that a controller has given out."""
        known = self.world.keys.session
        learned = (each.session_key for each in self.world.conversations.values())
        return next((key for key in learned if key != known), known).hex()

    def listen(self, step: Step) -> None:
        """Take dials from now on."""
        self.world.listen()

    def accept(self, step: Step) -> None:
        """Take the next dial of the target."""
        within = step.get("within", START)
        name = step["accept"]
        due = self.world.now() + within
        while not self.world.accept(name):
            if self.world.now() >= due or self.world.exit is not None:
                raise Deviation("the target to dial", self._why_no_dial(within))
            self.world.run(due)
        self._members.setdefault(name, Member(host=self.world.host))
        now = self._opened[name] = self.world.now()
        if "after" in step:
            other, least = step["after"]
            if (gap := now - self._opened[other]) < least:
                raise Deviation(
                    f"a dial no sooner than {least:g} s after {other}", f"one {gap:.2f} s after it"
                )

    def _why_no_dial(self, within: float) -> str:
        ended = self.world.exit
        return f"no dial within {within:g} s" if ended is None else exit_text(ended.code)

    def hello(self, step: Step) -> None:
        """Take dials until one says Hello in the wire version of this case."""
        name = step["hello"]
        others: list[int] = []
        while True:
            try:
                self.accept({"accept": name, "within": step.get("within", START)})
            except Deviation:
                if not others:
                    raise
                raise self._other_wire(others[0]) from None
            said = self.waiting.next_on(name, step.get("answer_within", 10.0))
            if not isinstance(said, Said) or not isinstance(said.message, Hello):
                # A case about what a Hello says has nothing to say where there is none.
                nothing = Verdict.INCONCLUSIVE if "fields" in step else None
                raise Deviation("Hello", event_text(said), verdict=nothing)
            if said.wire == self.wire:
                break
            others.append(said.wire)
            self.world.close(name)
            if len(others) == OTHER_DIALS:
                raise self._other_wire(others[0])
        self._heard(name, said.message)
        wanted = self.waiting.filled(step.get("fields", {}))
        if wrong := differences(wanted, lambda field: getattr(said.message, field)):
            raise Deviation(f"Hello with {shown(wanted)}", "; ".join(wrong))
        if step.get("canonical") and said.notes:
            raise Deviation("Hello as an encoder writes it", ", ".join(said.notes))

    def _other_wire(self, wire: int) -> Unsupported:
        return Unsupported(f"the target speaks wire {wire} and not wire {self.wire}")

    def _heard(self, name: str, message: Message) -> None:
        member = self._members.setdefault(name, Member(host=name))
        if isinstance(message, Hello):
            member.host, member.devices = message.host, message.local_devices
        elif isinstance(message, Accept):
            member.ranks = message.ranks

    def dial(self, step: Step) -> None:
        """Dial the target, and name the channel."""
        name = step["dial"]
        names = (
            [f"{name}{number}" for number in range(step["times"])] if "times" in step else [name]
        )
        magic = bytes.fromhex(step.get("channel", "e3170df1"))
        for each in names:
            try:
                self.world.dial(each, raw=step.get("raw", False))
            except Unreachable:
                if not step.get("refusable"):
                    raise
                self.waiting.exit_seen = True
                raise Through from None
            self._members[each] = Member(host=each)
            if magic:
                self.world.send(each, magic, "channel magic")

    def say(self, step: Step) -> None:
        """Send a message."""
        on = step.get("on", "c")
        member = self._members.setdefault(on, Member(host=on))
        given = self.waiting.filled(step.get("with", {}))
        message = compose.message_of(
            step["say"], given, member, self.world.keys, self.world.address
        )
        conversation = self.world.conversations[on]
        key = self._key(step["key"], on) if "key" in step else conversation.key_of(message)
        payload = compose.payload_of(message, self.wire)
        self._send_frame(on, payload, step, key, short(message))
        # What is deliberately wrong about a frame does not change what the target may believe.
        if not step.keys() & _WRONG:
            self._heard(on, message)

    def frame(self, step: Step) -> None:
        """Send a frame with any payload."""
        on = step.get("on", "c")
        key = self._key(step.get("key", "session"), on)
        payload = compose.bytes_of(step["frame"])
        self._send_frame(on, payload, step, key, f"a frame of {len(payload)} bytes")
        # Here the key is the choice of the case, and no mistake.
        if not step.keys() & (_WRONG - {"key"}):
            with suppress(DecodeError):
                self._heard(on, codec.decode_payload(payload, wire=self.wire).message)

    def _key(self, name: str, on: str) -> Salt:
        """The key that a case names; the session salt is that of the connection, or of another."""
        if name == "session":
            own = self.world.conversations[on].session_key
            return Salt.from_hex(self._session()) if own == self.world.keys.session else own
        return compose.key_named(name, self.world.keys)

    def _send_frame(self, on: str, payload: bytes, step: Step, key: Any, text: str) -> None:
        frame = compose.frame_of(payload, key, self.wire, step)
        self._tag = codec.tag_of(step.get("kind", JOIN_KIND), payload, key).hex()
        odd = sorted(
            step.keys() & {"tag", "key", "wire", "kind", "magic", "length", "cut", "behind"}
        )
        if odd:
            text += f" ({', '.join(f'{name}={step[name]}' for name in odd)})"
        self._send(on, frame, step, text)

    def send(self, step: Step) -> None:
        """Send bytes as they are."""
        data = compose.bytes_of(step["send"])
        self._send(step.get("on", "c"), data, step, "")

    def _send(self, on: str, data: bytes, step: Step, text: str) -> None:
        """Send in one piece, or in pieces of `chunk` bytes with `pause` seconds between."""
        data = self._held.pop(on, b"") + data
        if step.get("hold"):
            self._held[on] = data
            return
        chunk = step.get("chunk", len(data)) or 1
        pause = step.get("pause", 0.0) * (self.world.scale if step.get("scaled") else 1)
        with self.world.resting(pause * (len(data) // chunk) > LONG):
            for start in range(0, len(data), chunk):
                whole = start + chunk >= len(data)
                self.world.send(on, data[start : start + chunk], text if whole else "")
                if "chunk" in step and not whole:
                    self._pause(pause)
                conversation = self.world.conversations[on]
                if conversation.ended is not None and step.get("until_end"):
                    return

    def _pause(self, seconds: float) -> None:
        due = self.world.now() + seconds
        self.world.run(self.world.now())
        while self.world.now() < due:
            self.world.run(due)

    def half_close(self, step: Step) -> None:
        """Send no more."""
        self.world.half_close(step["half_close"])

    def close(self, step: Step) -> None:
        """Close a connection."""
        self.world.close(step["close"])

    def reset(self, step: Step) -> None:
        """Break a connection."""
        self.world.reset(step["reset"])

    def wait(self, step: Step) -> None:
        """Let time pass."""
        seconds = float(step["wait"])
        scaled = bool(step.get("scaled"))
        with self.world.resting(scaled):
            self._pause(whole_seconds(seconds, self.world.scale) if scaled else seconds)

    def signal(self, step: Step) -> None:
        """Send the target a signal."""
        number = signal.Signals[f"SIG{step['signal']}"]
        self.signals.add(number)
        self.world.signal(number)

    def rank(self, step: Step) -> None:
        """Have a process of the target do something."""
        name = str(step["rank"])
        children = self.world.children.get(name, [])
        if not children:
            raise Deviation(f"{child_text(name)} to run", "it never came up")
        self.world.order(children[-1], self.waiting.filled(step["do"]))

    def quiet(self, step: Step) -> None:
        """Nothing may happen on a connection for some seconds."""
        self.waiting.quiet(step)

    def await_(self, step: Step) -> None:
        """Wait for the next thing that happens, which must be one of some."""
        pattern, event = self.waiting.one_of(step)
        self._went(pattern, event)

    def all(self, step: Step) -> None:
        """Wait for several things in any order."""
        for pattern, event in self.waiting.all_of(step):
            self._went(pattern, event)

    def gone(self, step: Step) -> None:
        """Nothing that the target has started is left running."""
        aftermath.gone(self.world, step)

    def forwarded(self, step: Step) -> None:
        """What a process has written is in the output of the target."""
        prefix = self.waiting.filled(step["forwarded"])
        aftermath.forwarded(self.world, step, prefix, compose.bytes_of(step["bytes"]))

    def _went(self, pattern: Mapping[str, Any], event: Any) -> None:
        if isinstance(event, Said):
            self._reason = getattr(event.message, "reason", self._reason)
            self._heard(pattern.get("on", "c"), event.message)
            # A controller that has said Abort may end whenever it likes.
            self.given_up |= isinstance(event.message, Abort)
        if "dial" in pattern:
            self.accept({**pattern, "accept": pattern["dial"]})
        self.do(pattern.get("then", ()))
        if pattern.get("stop"):
            raise Through

    def restart(self, step: Step) -> None:
        """Start another run of the target."""
        self.world.restart()

    def repeat(self, step: Step) -> None:
        """Do steps several times."""
        for _ in range(step["repeat"]):
            self.do(step["do"])

    def honest(self, step: Step) -> None:
        """An honest agent joins, as if nothing had been."""
        name = step["honest"]
        self.dial({"dial": name})
        self.say({"say": "Hello", "on": name, "with": step.get("with", {})})
        self.await_({"await": [{"message": "Accept"}], "on": name, "within": step.get("within", 5)})


_VERBS: dict[str, Callable[[Acts, Step], None]] = {
    "accept": Acts.accept,
    "hello": Acts.hello,
    "listen": Acts.listen,
    "dial": Acts.dial,
    "say": Acts.say,
    "frame": Acts.frame,
    "send": Acts.send,
    "half_close": Acts.half_close,
    "close": Acts.close,
    "reset": Acts.reset,
    "await": Acts.await_,
    "all": Acts.all,
    "quiet": Acts.quiet,
    "wait": Acts.wait,
    "gone": Acts.gone,
    "forwarded": Acts.forwarded,
    "signal": Acts.signal,
    "rank": Acts.rank,
    "honest": Acts.honest,
    "repeat": Acts.repeat,
    "restart": Acts.restart,
}
