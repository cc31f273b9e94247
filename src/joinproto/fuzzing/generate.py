"""Makes cases: a few plain ones, and what mutations make of them, guided by the declared machine.

A case that reaches a row of the machine's table that none reached before is kept, and cases that
reach rare rows are changed further more often than others.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from joinproto.conformance import compose
from joinproto.conformance.compose import Member
from joinproto.conformance.world import Keys
from joinproto.fuzzing.sequence import ALONE, CROWD, Sequence, Step, connection, verb
from joinproto.fuzzing.shadow import Foreseen, Row, foresee, out_of_reach, rows_of
from joinproto.grammar import WIRES
from joinproto.limits import whole_seconds
from joinproto.messages import MESSAGES

MESSAGE_NAMES: Final = tuple(each.__name__ for each in MESSAGES)

BOUNDARIES: Final = (
    *(0, 1, 250, 251, 255, 256, 65535, 65536, 2**24, 2**24 + 1, 2**31 - 1, 2**31),
    *(2**32 - 1, 2**32, 2**40, 2**63, 2**64 - 1),
)
"""Numbers at which something changes: in varints, in caps, in the width of a type."""

TEXTS: Final = ("", " ", "a", "\0", "é", "𝄞", "a" * 251, "a" * 5000, "../x", "<b>", '"', "%s")

LOOK: Final = 0.5
SHORT: Final = 0.003

MAX_STEPS: Final = 14

OFTEN: Final = ("tag", "tag", "key", "length")
"""What is wrong about frames more often than anything else: what is to be refused for it."""

BEFORE_ADMISSION: Final = ("AwaitHello", "AwaitAccept")
"""States in which frames are tagged with the join key."""

CHEAP: Final = 0.005
"""Seconds that a step takes which waits for nothing."""

LONG: Final = 10.0
SLOW: Final = 1.0
"""Seconds."""

EVERY: Final = 10
"""Cases between two plain ones that are slow."""

USUAL_FRAME: Final = 300
"""Bytes."""

DEAR: Final = 0.5
PATIENT: Final = 0.005
"""Of the cases that wait longer than that, and reach nothing new, so many are played."""

AIMED: Final = 0.3
"""How many cases aim at a row that is missing, as long as there are some."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A case that is worth changing further, and the rows that it reaches."""

    sequence: Sequence
    rows: frozenset[Row]
    states: Mapping[str, str]


class Generator:
    """Gives one case after the other.

    Args:
        role: what is under test.
        wires: the versions that cases are spoken in.
        admission: open or pre-shared.
        keys: the secrets, for what has to be told with them.
        scale: of every network deadline.
        chance: all that is random comes from it.
        share: which of the plain cases to begin with, (0, 2) being every second one from the first.

    Attributes:
        covered: the rows that cases have reached so far.
        corpus: the cases that were kept.
    """

    def __init__(
        self,
        role: str,
        *,
        wires: tuple[int, ...],
        admission: str,
        keys: Keys,
        scale: float,
        chance: random.Random,
        share: tuple[int, int] = (0, 1),
    ) -> None:
        self.role = role
        self.covered: set[Row] = set()
        self.corpus: list[Entry] = []
        self._counts: Counter[Row] = Counter()
        self._keys = keys
        self._scale = scale
        self._chance = chance
        self._mutator = Mutator(chance, keys)
        self._all = [row for row in rows_of(role) if not out_of_reach(role, row)]
        self._fresh = [
            replace(each, admission=admission)
            for wire in wires
            for each in seeds(role, wire)
            # What takes half a minute is worth it once.
            if wire == wires[-1] or waits(each, scale) < LONG
        ]
        # From the end.
        self._fresh.reverse()
        self._fresh = self._fresh[share[0] :: share[1]]
        self._slow = sorted(
            (each for each in self._fresh if waits(each, scale) > SLOW),
            key=lambda each: waits(each, scale),
        )
        self._fresh = [each for each in self._fresh if waits(each, scale) <= SLOW]
        self._since = 0

    def add(self, sequence: Sequence) -> None:
        """Have this case played before any other is made."""
        self._fresh.append(sequence)

    def next(self, *, own_target: bool | None = None, tries: int = 1) -> tuple[Sequence, Foreseen]:
        """A case, and what our own machines do in it.

        Args:
            own_target: whether it is to need a target of its own; None: that does not matter.
            tries: how many cases are made, at most, until one reaches a new row.
        """
        while True:
            tries -= 1
            sequence = self._plain() or self._changed(own_target)
            foreseen = foresee(sequence, self._keys, self._scale)
            if not foreseen.rows <= self.covered:
                break
            # A deadline that brings nothing new costs as much as hundreds of cases.
            dear = waits(sequence, self._scale) > DEAR and self._chance.random() > PATIENT
            if tries <= 0 and not dear:
                break
        self._counts.update(foreseen.rows)
        if not foreseen.rows <= self.covered:
            self.covered |= foreseen.rows
            self.keep(sequence, foreseen)
        return sequence, foreseen

    def _plain(self) -> Sequence | None:
        """A plain case, as long as there are some; those that take long come now and then."""
        self._since += 1
        if self._fresh:
            return self._fresh.pop()
        if self._slow and self._since > EVERY:
            self._since = 0
            return self._slow.pop()
        return None

    def keep(self, sequence: Sequence, foreseen: Foreseen) -> None:
        """Keep a case to be changed further: it reached a new row, or new code of the target."""
        entry = Entry(sequence=sequence, rows=foreseen.rows, states=foreseen.states)
        self.corpus.append(entry)

    def absorb(self, sequence: Sequence) -> None:
        """Take in a case that was kept elsewhere."""
        foreseen = foresee(sequence, self._keys, self._scale)
        self._counts.update(foreseen.rows)
        if not foreseen.rows <= self.covered:
            self.covered |= foreseen.rows
            self.keep(sequence, foreseen)

    @property
    def missing(self) -> list[Row]:
        """The rows that no case has reached."""
        return [row for row in self._all if row not in self.covered]

    @property
    def reachable(self) -> list[Row]:
        """The rows that a peer can have taken."""
        return self._all

    def _changed(self, own_target: bool | None) -> Sequence:
        entries = [
            entry
            for entry in self.corpus
            if own_target is None or entry.sequence.own_target == own_target
        ] or self.corpus
        if self._chance.random() < AIMED:
            aimed = self._aimed(entries)
            if aimed is not None and not (own_target is False and aimed.own_target):
                return aimed
        weights = [
            sum(1 / self._counts[row] for row in entry.rows)
            / (CHEAP * len(entry.sequence.steps) + waits(entry.sequence, self._scale))
            for entry in entries
        ]
        chosen = self._chance.choices(entries, weights)[0].sequence
        # Mostly one change at a time: what is new then has one reason.
        changed = chosen
        for _ in range(self._chance.choice((1, 1, 1, 2, 3))):
            changed = self._mutator.change(changed)
        # What was to be cheap stays so: another quorum, or a signal, takes a target of its own.
        return chosen if own_target is False and changed.own_target else changed

    def _aimed(self, entries: list[Entry]) -> Sequence | None:
        """A case that ends where a row is missing, with what that row is about behind it."""
        wanted = [(state, on) for state, on, _ in self.missing]
        known = [
            (entry, name, state, on)
            for state, on in wanted
            for entry in entries
            for name, there in entry.states.items()
            if there == state
        ]
        if not known:
            return None
        entry, name, state, on = self._chance.choice(known)
        # An agent has one connection at a time: the last.
        current = [step["accept"] for step in entry.sequence.steps if "accept" in step]
        steps = self._mutator.leading_to(on, name or (current or ["c"])[-1], state)
        return replace(entry.sequence, steps=entry.sequence.steps + steps)


def waits(sequence: Sequence, scale: float) -> float:
    """Seconds that a case waits by itself."""
    found = 0.0
    for step in sequence.steps:
        if "wait" in step:
            seconds = float(step["wait"])
            found += whole_seconds(seconds, scale) if step.get("scaled") else seconds
        found += USUAL_FRAME / step.get("chunk", USUAL_FRAME) * step.get("pause", 0.0)
    return found


# -- plain cases ------------------------------------------------------------------------------


def seeds(role: str, wire: int) -> list[Sequence]:
    """Where the harness begins: what an honest peer does, and what takes long to come upon."""
    return _agent_seeds(wire) if role == "agent" else _controller_seeds(wire)


def _look(name: str = "c", within: float = LOOK) -> Step:
    return {"look": name, "within": within}


def _controller_seeds(wire: int) -> list[Sequence]:
    other = next((each for each in WIRES if each != wire), wire)
    hello: list[Step] = [{"dial": "c"}, {"say": "Hello"}, _look()]
    formed: list[Step] = [*hello, _look()]
    made = [
        (CROWD, [{"dial": "c"}]),
        (CROWD, hello),
        (CROWD, [*hello, {"close": "c"}]),
        (CROWD, [*hello, {"dial": "d"}, {"say": "Hello", "on": "d", "speak": other}, _look("d")]),
        (ALONE, [*formed, {"say": "RankExited"}, {"half_close": "c"}]),
        (ALONE, [*formed, {"signal": "TERM"}, _look(), {"say": "RankExited"}]),
    ]
    return [
        Sequence(role="controller", wire=wire, quorum=quorum, steps=tuple(steps))
        for quorum, steps in made
    ]


def _agent_seeds(wire: int) -> list[Sequence]:
    begin: list[Step] = [{"accept": "c"}]
    formed: list[Step] = [*begin, {"say": "Accept"}, {"say": "WorldFormed"}, {"wait": 0.2}]
    made: list[list[Step]] = [
        begin,
        [*begin, {"say": "Reject"}],
        [*begin, {"say": "Accept"}, {"say": "Abort"}],
        [*begin, {"say": "Accept", "with": {"formation_wait_secs": 0}}, {"wait": 30.5}],
        [*formed, {"rank": 0, "do": {"exit": 0}}, _look()],
        [*formed, {"say": "Abort"}, _look()],
        [*formed, {"signal": "TERM"}, _look()],
        [*formed, {"rank": 0, "do": {"ignore": "TERM"}}, {"signal": "TERM"}],
        [*formed, {"rank": 0, "do": [{"fork": {"output": True}}, {"exit": 0}]}],
    ]
    late: list[Step] = [{"wait": 0.6}, {"listen": True}, *begin]
    # The agent has been dialing for as long as it may when this connection ends.
    later: list[Step] = [{"wait": 10, "scaled": True}, {"listen": True}, *begin]
    too_late: list[list[Step]] = [
        [*later, {"wait": 20, "scaled": True}, {end: "c"}] for end in ("half_close", "reset")
    ]
    never: list[Step] = [{"wait": 30, "scaled": True}]
    return [
        *(Sequence(role="agent", wire=wire, steps=tuple(steps)) for steps in made),
        *(
            Sequence(role="agent", wire=wire, listening=False, steps=tuple(steps))
            for steps in (late, *too_late, never)
        ),
    ]


# -- mutations --------------------------------------------------------------------------------


class Mutator:
    """Changes cases, one thing at a time.

    Args:
        chance: all that is random comes from it.
        keys: the secrets, for payloads that hold one.
    """

    def __init__(self, chance: random.Random, keys: Keys) -> None:
        self._chance = chance
        self._keys = keys
        self._ways: tuple[Callable[[Sequence], Sequence], ...] = (
            *[self._insert] * 4,
            *[self._garble] * 4,
            *[self._option] * 3,
            self._drop,
            self._repeat,
            self._swap,
            self._fields,
            self._stream,
            self._pieces,
            self._terms,
            self._channel,
        )

    def change(self, sequence: Sequence) -> Sequence:
        """The case with one thing changed."""
        changed = self._chance.choice(self._ways)(sequence)
        return replace(changed, steps=changed.steps[:MAX_STEPS])

    def leading_to(self, on: str, name: str, state: str) -> tuple[Step, ...]:
        """Steps that give the machine an input of that name on a connection in that state."""
        # Whatever the message is: a frame with another key than the one in force is no message.
        key = "join" if state in BEFORE_ADMISSION else "session"
        chance = self._chance
        acts: dict[str, tuple[Step, ...]] = {
            "EndOfStream": ({"half_close": name},),
            "LinkBroken": ({"reset": name},),
            "Expired": ({"wait": chance.choice((5, 10, 30)), "scaled": True},),
            "AbortRun": ({"signal": "TERM"},),
            "StopRequested": ({"signal": "TERM"}, {"signal": "INT"}),
            "Undecodable": ({"frame": "09", "on": name, "key": key},),
        }
        if on in MESSAGE_NAMES:
            return ({"say": on, "on": name, "key": key},)
        return acts.get(on, ({"wait": SHORT},))

    # -- the sequence -------------------------------------------------------------------------

    def _insert(self, sequence: Sequence) -> Sequence:
        """Something more is said, from any state, role or version."""
        place = self._place(sequence)
        name = self._name(sequence)
        make = self._chance.choice((self._any_message, self._any_bytes, self._any_act))
        step = make(name)
        if "rank" in step and sequence.role == "controller":
            return self._stream(sequence)
        return self._with(sequence, place, [step])

    def _drop(self, sequence: Sequence) -> Sequence:
        if len(sequence.steps) < 2:
            return self._insert(sequence)
        gone = self._chance.randrange(1, len(sequence.steps))
        return replace(sequence, steps=sequence.steps[:gone] + sequence.steps[gone + 1 :])

    def _repeat(self, sequence: Sequence) -> Sequence:
        step = self._chance.choice(sequence.steps)
        if verb(step) in ("dial", "accept"):
            return self._second(sequence)
        return self._with(sequence, self._place(sequence), [dict(step)])

    def _second(self, sequence: Sequence) -> Sequence:
        """Another connection beside the first."""
        if sequence.role == "agent":
            return self._with(sequence, len(sequence.steps), [{"accept": "d", "within": 2.0}])
        steps: list[Step] = [{"dial": "d"}, {"say": "Hello", "on": "d"}, _look("d")]
        if self._chance.random() < 0.3:
            steps[1]["with"] = {"host": "c"}
        return self._with(sequence, self._place(sequence), steps)

    def _swap(self, sequence: Sequence) -> Sequence:
        if len(sequence.steps) < 3:
            return self._insert(sequence)
        steps = list(sequence.steps)
        first = self._chance.randrange(1, len(steps) - 1)
        steps[first], steps[first + 1] = steps[first + 1], steps[first]
        return replace(sequence, steps=tuple(steps))

    def _terms(self, sequence: Sequence) -> Sequence:
        """On other terms: another quorum, more devices, a deadline that passes, a signal."""
        if self._chance.random() < 0.5:
            base = self._chance.choice((5, 10, 30))
            return self._with(sequence, self._place(sequence), [{"wait": base, "scaled": True}])
        if sequence.role == "agent":
            return replace(sequence, devices=self._chance.choice((1, 2, 3)))
        return replace(sequence, quorum=ALONE if sequence.quorum == CROWD else CROWD)

    def _channel(self, sequence: Sequence) -> Sequence:
        """A dial asks for something else, or says nothing at all."""
        channel = self._chance.choice(("", "e3", "e0170df1", "47455420", "00000000"))
        return self._on_step(sequence, ("dial",), lambda step: {**step, "channel": channel})

    # -- what is said -------------------------------------------------------------------------

    def _any_message(self, name: str) -> Step:
        step: Step = {"say": self._chance.choice(MESSAGE_NAMES), "on": name}
        if self._chance.random() < 0.3:
            self._bend(step)
        return step

    def _any_bytes(self, name: str) -> Step:
        heads = (
            "e3170df1",
            "e0170df1",
            "474554202f20485454502f312e310d0a0d0a",
            "c4170df1",
            "16030100",
        )
        if self._chance.random() < 0.5:
            return {"send": self._chance.choice(heads), "on": name}
        return {
            "send": self._chance.randbytes(self._chance.choice((1, 4, 23, 24, 40))).hex(),
            "on": name,
        }

    def _any_act(self, name: str) -> Step:
        acts: tuple[Step, ...] = (
            {"half_close": name},
            {"close": name},
            {"reset": name},
            {"look": name, "within": SHORT},
            {"wait": SHORT},
            {"signal": self._chance.choice(("TERM", "INT"))},
            {"rank": self._chance.choice((0, 1, "relay")), "do": self._end()},
        )
        return dict(self._chance.choice(acts))

    def _end(self) -> dict[str, Any]:
        ends: tuple[dict[str, Any], ...] = ({"exit": 0}, {"exit": 3}, {"signal": "KILL"})
        return self._chance.choice(ends)

    def _fields(self, sequence: Sequence) -> Sequence:
        """A message of the case says something else."""
        return self._on_step(sequence, ("say",), self._other_fields)

    def _other_fields(self, step: Step) -> Step:
        chance = self._chance
        number = chance.choice(BOUNDARIES)
        text = chance.choice(TEXTS)
        fields: dict[str, dict[str, Callable[[], Any]]] = {
            "Hello": {
                "host": lambda: text,
                "local_devices": lambda: [number % 256] * chance.choice((0, 1, 2, 257)),
                "gpus": lambda: [text] * chance.choice((0, 1, 3)),
                "libtorch": lambda: chance.choice(("cu121", "rocm6", text)),
                "dataset_sig": lambda: {"bytes": chance.randbytes(32).hex()},
                "run_id": lambda: text,
                "model_sig": lambda: {"bytes": "11" * 32},
                "nccl_version": lambda: [2, number % 2**32, 0],
            },
            "Accept": {
                "ranks": lambda: [number % 2**32] * chance.choice((0, 1, 2)),
                "salt_hex": lambda: chance.choice((None, "$session", "$other", "00", text)),
                "formation_wait_secs": lambda: number % 2**64,
            },
            "Reject": {"reason": lambda: text},
            "WorldFormed": {
                "envelope_hex": lambda: chance.choice(("", "zz", "7b7d", text)),
                "relay_spec_hex": lambda: chance.choice((None, True, "", "zz")),
            },
            "RankExited": {
                "rank": lambda: number % 2**32,
                "code": lambda: (number % 2**32) - 2**31,
            },
            "Abort": {"reason": lambda: text},
        }
        of_message = fields[step["say"]]
        name = chance.choice(sorted(of_message))
        return {**step, "with": {**step.get("with", {}), name: of_message[name]()}}

    # -- frames -------------------------------------------------------------------------------

    def _option(self, sequence: Sequence) -> Sequence:
        """Something about a frame of the case is wrong."""
        return self._on_step(sequence, ("say", "frame"), self._bend)

    def _bend(self, step: Step) -> Step:
        chance = self._chance
        options: Mapping[str, Callable[[], Any]] = {
            "speak": lambda: chance.choice(tuple(WIRES)),
            "tag": lambda: chance.choice(("flipped", "0000000000000000")),
            "key": lambda: chance.choice(("join", "session", "zero", "other")),
            "wire": lambda: chance.choice((*WIRES, 0, 3, 5, 6, 2**32 - 1)),
            "kind": lambda: chance.choice((0, 1, 2, 3, 6, 7, 8, 255)),
            "magic": lambda: chance.choice((0, 0xF10D17E3, 0xC4170DF1)),
            "length": lambda: min(chance.choice(BOUNDARIES), 2**32 - 1),
            "behind": lambda: chance.choice(("00", "ff", "00" * 300)),
            "cut": lambda: chance.choice((1, 4, 8, 23, 24, 25, 30)),
        }
        name = chance.choice((*sorted(options), *OFTEN))
        step[name] = options[name]()
        return step

    def _garble(self, sequence: Sequence) -> Sequence:
        """A message becomes bytes that are almost it, in a frame that is tagged rightly."""
        return self._on_step(sequence, ("say", "frame"), self._other_payload, sequence.wire)

    def _other_payload(self, step: Step, wire: int) -> Step:
        if verb(step) == "frame":
            payload = compose.bytes_of(step["frame"])
            key = step.get("key", "session")
            rest = {name: value for name, value in step.items() if name != "frame"}
        else:
            member = Member(host="c", devices=(0,), ranks=(0,))
            message = compose.message_of(step["say"], {}, member, self._keys, ("127.0.0.1", 1))
            payload = compose.payload_of(message, wire)
            key = "join" if step["say"] in ("Hello", "Accept", "Reject") else "session"
            rest = {n: value for n, value in step.items() if n not in ("say", "with")}
        return {"key": key, **rest, "frame": self.payload(payload).hex()}

    def payload(self, payload: bytes) -> bytes:
        """Bytes that are almost a payload: a number, a marker, a length or an end is wrong."""
        chance = self._chance
        # Numbers and lengths come first in most messages, and texts behind them.
        most = chance.choice((3, len(payload)))
        place = chance.randrange(min(most, len(payload)) + 1)
        head, tail = payload[:place], payload[place:]
        number = chance.choice(BOUNDARIES)
        wide = {251: 2, 252: 4, 253: 8}
        marker = chance.choice(sorted(wide))
        size = wide[marker]
        written = bytes((marker,)) + (number % 2 ** (8 * size)).to_bytes(size, "little")
        huge = b"\xfd" + chance.choice((2**31, 2**40, 2**63, 2**64 - 1)).to_bytes(8, "little")
        ways: tuple[Callable[[], bytes], ...] = (
            lambda: head + huge + tail[1:],
            lambda: head + huge,
            lambda: head + written + tail[1:],
            lambda: head + written + tail[1:],
            lambda: head + written + tail,
            lambda: head,
            lambda: b"",
            lambda: head + chance.randbytes(1) + tail[1:],
            lambda: head + bytes((chance.choice((0, 1, 2, 250, 251, 254, 255)),)) + tail[1:],
            lambda: head + tail[1:],
            lambda: payload + chance.randbytes(chance.choice((1, 8))),
        )
        return chance.choice(ways)()

    # -- the stream ---------------------------------------------------------------------------

    def _stream(self, sequence: Sequence) -> Sequence:
        """The connection ends, one way or another, somewhere in the case."""
        name = self._name(sequence)
        act = self._chance.choice(("half_close", "close", "reset"))
        return self._with(sequence, self._place(sequence), [{act: name}])

    def _pieces(self, sequence: Sequence) -> Sequence:
        """A frame arrives in pieces, at once or slowly."""
        # A byte at a time, each after a pause, takes as long as fifty other cases.
        chunk, pause = self._chance.choice(
            (*[(1, 0.0), (3, 0.0), (24, 0.0), (24, 0.001)] * 4, (1, 0.001))
        )
        return self._on_step(
            sequence,
            ("say", "frame", "send"),
            lambda step: {**step, "chunk": chunk, "pause": pause},
        )

    # -- inside -------------------------------------------------------------------------------

    def _on_step(
        self,
        sequence: Sequence,
        verbs: tuple[str, ...],
        change: Callable[..., Step],
        *arguments: Any,
    ) -> Sequence:
        places = [n for n, step in enumerate(sequence.steps) if verb(step) in verbs]
        if not places:
            return self._insert(sequence)
        steps = list(sequence.steps)
        place = self._chance.choice(places)
        steps[place] = change(dict(steps[place]), *arguments)
        return replace(sequence, steps=tuple(steps))

    def _with(self, sequence: Sequence, place: int, steps: list[Step]) -> Sequence:
        return replace(
            sequence, steps=sequence.steps[:place] + tuple(steps) + sequence.steps[place:]
        )

    def _place(self, sequence: Sequence) -> int:
        """Anywhere behind the first step, which opens a connection; mostly at the end."""
        if self._chance.random() < 0.5:
            return len(sequence.steps)
        return self._chance.randrange(1, len(sequence.steps) + 1)

    def _name(self, sequence: Sequence) -> str:
        names = sorted({connection(step) for step in sequence.steps} - {""})
        return self._chance.choice(names or ["c"])
