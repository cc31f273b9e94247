"""Waits for what a case expects, and says how what came differs from it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import h11

from joinproto.conformance.case import Step
from joinproto.conformance.conversation import Event, Garbled, Over, Raw, Said
from joinproto.conformance.http_reply import Reply, ReplyReader
from joinproto.conformance.match import at_path, differences, equals, shown
from joinproto.conformance.telling import event_text, pattern_text
from joinproto.conformance.verdicts import Verdict
from joinproto.conformance.world import Child, Exit, Line, World
from joinproto.errors import DecodeError, Stage
from joinproto.limits import whole_seconds

PATIENCE = 5.0
"""Seconds for what is to happen at once; far beyond what it takes, so that a miss is a failure."""

SLACK = 1.5
"""Seconds by which a deadline may be missed on a busy machine."""

EARLY = 0.3
"""Seconds by which a clock may be ahead of the suite's."""

AFTERLIFE = 2.0
"""Seconds in which something may still happen although the target has ended."""

LONG = 1.5
"""Seconds; who waits longer lets others run meanwhile."""

Pattern: TypeAlias = Mapping[str, Any]
Seen: TypeAlias = Event | Reply | Exit | Child | Line | str
Channel: TypeAlias = tuple[str, str]

_ON_CONNECTION = ("message", "end", "garbled", "http", "nothing")


class Deviation(Exception):
    """The target did otherwise than a case expects.

    Attributes:
        expected: what it should have done.
        got: what it did.
        verdict: what that comes to; None: what the level of the case says.
        clause: the one that it broke; "" for the first of the case.
    """

    def __init__(
        self, expected: str, got: str, *, verdict: Verdict | None = None, clause: str = ""
    ) -> None:
        super().__init__(f"expected {expected}, got {got}")
        self.expected = expected
        self.got = got
        self.verdict = verdict
        self.clause = clause


class Awaiting:
    """Takes events from a world as a case asks for them.

    Args:
        world: where they happen.
        notes: where what is remarkable goes.
        filled: fills in the variables of a value.

    Attributes:
        verdicts: what patterns said that it comes to when they match.
        exit_seen: a step has waited for the end of the target.
    """

    def __init__(self, world: World, notes: list[str], filled: Callable[[Any], Any]) -> None:
        self.world = world
        self.filled = filled
        self.verdicts: list[Verdict] = []
        self.exit_seen = False
        self._notes = notes
        self._peeked: dict[str, Event | Reply] = {}
        self._replies: dict[str, ReplyReader] = {}
        self._ups: dict[str, int] = {}
        self._downs: dict[str, int] = {}

    # -- what steps ask for -------------------------------------------------------------------

    def one_of(self, step: Step) -> tuple[Pattern, Seen]:
        """Wait for the next event, which must match one of the patterns of an `await`.

        Raises:
            Deviation: it matches none, or nothing came in time.
        """
        patterns = self._patterns(step, "await")
        for pattern, event in self._matches(step, patterns):
            if not pattern.get("skip"):
                return pattern, event
        raise AssertionError("a wait ends with an event or a deviation")

    def all_of(self, step: Step) -> Iterator[tuple[Pattern, Seen]]:
        """Wait until each pattern of an `all` has matched once, in any order.

        Raises:
            Deviation: something came that matches none, or one did not come in time.
        """
        left = self._patterns(step, "all")
        matches = self._matches(step, left)
        while any(not pattern.keys() & {"skip", "unwanted"} for pattern in left):
            pattern, event = next(matches)
            if not pattern.get("skip"):
                left.remove(pattern)
                yield pattern, event

    def quiet(self, step: Step) -> None:
        """Nothing may happen on some connections for so many seconds.

        Raises:
            Deviation: something did.
        """
        names = step.get("on", "c")
        names = [names] if isinstance(names, str) else names
        patterns = [{"nothing": True, "on": name} for name in names]
        self.one_of({**step, "await": patterns, "within": step["quiet"]})

    def next_on(self, name: str, within: float) -> Event | Reply | None:
        """The next event on a connection; None: nothing came in time."""
        due = self.world.now() + within
        while (event := self._peek(name)) is None and self.world.now() < due:
            self.world.run(due)
        self._peeked.pop(name, None)
        return event

    # -- inside -------------------------------------------------------------------------------

    def _patterns(self, step: Step, verb: str) -> list[Pattern]:
        on = step.get("on", "c")
        return [
            {"on": on, **pattern} if _concerns_connection(pattern) else pattern
            for pattern in self.filled(step[verb])
        ]

    def _matches(self, step: Step, patterns: list[Pattern]) -> Iterator[tuple[Pattern, Seen]]:
        """Events and the patterns that they match, until the step is out of time."""
        began = self.world.now()
        due, earliest = self._times(step, began)
        with self.world.resting(due - began > LONG and "deadline" in step):
            while True:
                found = self._look(patterns, step)
                if found is not None and found[0].get("unwanted"):
                    got = event_text_of(found[1])
                    raise Deviation(_expected(patterns), got, clause=step.get("clause", ""))
                if found is not None:
                    self._not_before(found[1], earliest, step)
                    self._take_note(*found)
                    yield found
                elif self.world.now() >= self._last_moment(due):
                    yield self._out_of_time(patterns, step, self.world.now() - began)
                else:
                    self.world.run(self._last_moment(due))

    def _times(self, step: Step, began: float) -> tuple[float, float]:
        """Until when a step waits, and before when nothing may come."""
        if "deadline" not in step:
            return began + float(step.get("within", PATIENCE)), 0.0
        seconds = float(step.get("plus", 0)) + (
            whole_seconds(float(step["deadline"]), self.world.scale) if step["deadline"] else 0.0
        )
        earliest = began + seconds - EARLY if step.get("not_before") else 0.0
        return began + seconds + SLACK, earliest

    def _last_moment(self, due: float) -> float:
        ended = self.world.exit
        return due if ended is None else min(due, ended.at + AFTERLIFE)

    def _not_before(self, event: Seen, earliest: float, step: Step) -> None:
        at = self.world.now() if isinstance(event, str) else _when(event)
        if at < earliest:
            early = earliest + EARLY - at
            raise Deviation(
                "this not before its deadline",
                f"{event_text_of(event)} {early:.1f} s early",
                clause=step.get("clause", ""),
            )

    def _take_note(self, pattern: Pattern, event: Seen) -> None:
        if "verdict" in pattern:
            self.verdicts.append(Verdict(pattern["verdict"]))
        if "note" in pattern:
            self._notes.append(pattern["note"])

    def _out_of_time(
        self, patterns: Sequence[Pattern], step: Step, seconds: float
    ) -> tuple[Pattern, Seen]:
        for pattern in patterns:
            if "nothing" in pattern:
                self._take_note(pattern, "")
                return pattern, ""
        raise Deviation(
            _expected(patterns), f"nothing within {seconds:.1f} s", clause=step.get("clause", "")
        )

    def _look(self, patterns: Sequence[Pattern], step: Step) -> tuple[Pattern, Seen] | None:
        """An event that is there, and the pattern that it matches.

        Raises:
            Deviation: it matches none.
        """
        for channel in dict.fromkeys(map(_channel, patterns)):
            mine = [pattern for pattern in patterns if _channel(pattern) == channel]
            found = self._look_at(channel, mine)
            if found is None:
                continue
            event, pattern, wrong = found
            self.exit_seen |= isinstance(event, Exit)
            if pattern is None:
                text = event_text_of(event)
                got = f"{text} ({'; '.join(wrong)})" if wrong else text
                raise Deviation(_expected(patterns), got, clause=step.get("clause", ""))
            return pattern, event
        return None

    def _look_at(
        self, channel: Channel, patterns: Sequence[Pattern]
    ) -> tuple[Seen, Pattern | None, list[str]] | None:
        sort, name = channel
        match sort:
            case "connection":
                return self._on_connection(name, patterns)
            case "exit":
                ended = self.world.exit
                return None if ended is None else _first(ended, patterns)
            case "child":
                return self._on_child(name, patterns)
            case "line":
                return self._on_line(patterns)
            case _:
                return ("a dial", patterns[0], []) if self.world.dials_waiting else None

    def _on_connection(
        self, name: str, patterns: Sequence[Pattern]
    ) -> tuple[Seen, Pattern | None, list[str]] | None:
        event = self._peek(name)
        if event is None:
            return None
        del self._peeked[name]
        return _first(event, patterns)

    def _peek(self, name: str) -> Event | Reply | None:
        conversation = self.world.conversations.get(name)
        if name not in self._peeked and conversation is not None:
            event: Event | Reply | None = conversation.take()
            if conversation.raw and isinstance(event, Raw | Over):
                event = self._reply(name, event)
            if event is not None:
                self.world.trace.meaning(name, event_text(event))
                self._peeked[name] = event
        return self._peeked.get(name)

    def _reply(self, name: str, event: Raw | Over) -> Event | Reply | None:
        reader = self._replies.setdefault(name, ReplyReader())
        if isinstance(event, Over) and not reader.begun:
            return event
        try:
            reply = reader.feed(event.data if isinstance(event, Raw) else b"", event.at)
        except h11.ProtocolError as error:
            return Garbled(at=event.at, error=DecodeError(Stage.MAGIC, f"no HTTP reply: {error}"))
        if reply is not None:
            self._replies[name] = ReplyReader()
            return reply
        return event if isinstance(event, Over) else None

    def _on_child(
        self, name: str, patterns: Sequence[Pattern]
    ) -> tuple[Seen, Pattern | None, list[str]] | None:
        children = self.world.children.get(name, [])
        ups, downs = self._ups.get(name, 0), self._downs.get(name, 0)
        # A case that waits for the end alone has not asked when the process came up.
        if ups <= downs and len(children) > ups and not any("up" in each for each in patterns):
            ups += 1
        if ups <= downs and len(children) > ups:
            self._ups[name] = ups + 1
            child = children[ups]
            return _first(Child(name=name, up=child.up, facts=child.facts), patterns)
        self._ups[name] = ups
        if ups > downs and children[downs].down is not None:
            self._downs[name] = downs + 1
            return _first(children[downs], patterns)
        return None

    def _on_line(
        self, patterns: Sequence[Pattern]
    ) -> tuple[Seen, Pattern | None, list[str]] | None:
        for line in self.world.lines:
            for pattern in patterns:
                stream = pattern.get("stream", line.stream)
                if line.stream == stream and equals({"like": pattern["line"]}, line.text):
                    self.world.lines.remove(line)
                    return line, pattern, []
        return None


def _concerns_connection(pattern: Pattern) -> bool:
    return any(word in pattern for word in _ON_CONNECTION)


def _channel(pattern: Pattern) -> Channel:
    """Where what a pattern waits for happens."""
    if _concerns_connection(pattern):
        return "connection", pattern["on"]
    if "up" in pattern or "down" in pattern:
        return "child", str(pattern.get("up", pattern.get("down")))
    return next((word, "") for word in ("exit", "line", "dial") if word in pattern)


def _first(event: Seen, patterns: Sequence[Pattern]) -> tuple[Seen, Pattern | None, list[str]]:
    """The first pattern that an event matches, or what stood in the way."""
    wrong: list[str] = []
    for pattern in patterns:
        differs = _differs(event, pattern)
        if differs == []:
            return event, pattern, []
        wrong += differs or []
    return event, None, wrong


def _differs(event: Seen, pattern: Pattern) -> list[str] | None:
    """How an event differs from a pattern; None: it is of another sort altogether."""
    match event, pattern:
        case Said(message=message), {"message": name} if type(message).__name__ == name:
            wrong = differences(pattern.get("fields", {}), lambda field: getattr(message, field))
            if "wire" in pattern and not equals(pattern["wire"], event.wire):
                wrong.append(f"expected wire {shown(pattern['wire'])}, got wire {event.wire}")
            if pattern.get("canonical") and event.notes:
                wrong.append(f"bytes that no encoder should write: {', '.join(event.notes)}")
            return wrong
        case Over(how=how), {"end": hows}:
            return [] if how in hows else [f"it should be {' or '.join(hows)}"]
        case Garbled(), {"garbled": _}:
            return []
        case Reply(), {"http": wanted}:
            return _reply_differs(event, wanted)
        case Exit(code=code), {"exit": wanted}:
            return [] if _code_matches(wanted, code) else [f"expected {shown(wanted)}"]
        case Child(down=None, facts=facts), {"up": _}:
            return differences(pattern.get("facts", {}), lambda name: _fact(facts, name))
        case Child(down=float()), {"down": _}:
            return []
        case _:
            return None


def _reply_differs(reply: Reply, wanted: Mapping[str, Any]) -> list[str]:
    got = {"status": reply.status, "body": reply.body.decode(errors="replace")}
    simple = {name: value for name, value in wanted.items() if name != "json"}
    wrong = differences(simple, got.__getitem__)
    for path, value in wanted.get("json", {}).items():
        wrong += differences({path: value}, lambda path: at_path(reply.json, path))
    return wrong


def _code_matches(wanted: Any, code: int) -> bool:
    if wanted == "nonzero":
        return code != 0
    return code in wanted if isinstance(wanted, list) else equals(wanted, code)


def _fact(facts: Mapping[str, Any], name: str) -> Any:
    """A fact that a process told: `env.NAME`, or one of its own."""
    if name.startswith("env."):
        return facts.get("env", {}).get(name.removeprefix("env."))
    return facts.get(name)


def _expected(patterns: Sequence[Pattern]) -> str:
    wanted = [pattern for pattern in patterns if not pattern.keys() & {"skip", "unwanted"}]
    return " or ".join(map(pattern_text, wanted))


def event_text_of(event: Seen) -> str:
    """Something that happened, in words."""
    return event if isinstance(event, str) else event_text(event)


def _when(event: Event | Reply | Exit | Child | Line) -> float:
    if isinstance(event, Child):
        return event.up if event.down is None else event.down
    return event.at
