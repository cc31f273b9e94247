"""announcer: what a controller says of what it does."""

from __future__ import annotations

from typing import Any

import pytest

from joinproto.effects import Severity
from joinproto.machines.window import Member, WindowConfig, WindowContext
from joinproto.messages import Hello
from joinproto.runtime.announcer import Announcer, told_hosts
from joinproto.runtime.journal import Journal, JournalError

MEMBER = Member(
    connection=1,
    hello=Hello(host="a", local_devices=(0,)),
    wire=4,
    ranks=(0,),
    joined_at=0.0,
    peer="127.0.0.1:9",
)
CONTEXT = WindowContext(config=WindowConfig())


class Told:
    """An announcer, and what it says to whom."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.texts: list[str] = []
        self.it = Announcer(
            lambda event: self.events.append(dict(event)),
            lambda severity, text: self.texts.append(text),
            lambda: None,
        )


class Broken(Journal):
    """A journal on a disk that is full."""

    def __init__(self) -> None:
        pass

    def write(self, record: Any, *, sync: bool) -> None:
        raise JournalError("journal: cannot be written: No space left on device")


def test_what_cannot_be_recorded_is_not_told_to_anybody() -> None:
    told = Told()
    told.it.journal = Broken()
    with pytest.raises(JournalError):
        told.it.joined(MEMBER, CONTEXT)
    with pytest.raises(JournalError):
        told.it.formed("target reached", CONTEXT)
    assert (told.events, told.texts) == ([], [])


class Sink:
    """A reader of events that stalls, or goes away."""

    held_bytes = 0
    gone = False

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def write(self, line: bytes) -> None:
        self.lines.append(line)


def test_a_reader_that_stalls_is_not_told_of_every_dial() -> None:
    told, sink = Told(), Sink()
    told.it.sink = sink  # type: ignore[assignment]
    told.it.rejected("127.0.0.1:9", "a", "no")
    sink.held_bytes = 9 * 1024 * 1024
    told.it.rejected("127.0.0.1:9", "b", "no")
    told.it.rejected("127.0.0.1:9", "c", "no")
    sink.held_bytes = 0
    told.it.rejected("127.0.0.1:9", "d", "no")
    assert [event["host"] for event in told.events] == ["a", "d"]
    assert len(sink.lines) == 2


def test_a_reader_that_is_gone_is_an_end() -> None:
    told, sink = Told(), Sink()
    told.it.sink = sink  # type: ignore[assignment]
    sink.gone = True
    with pytest.raises(BrokenPipeError):
        told.it.listening("127.0.0.1", 1)


def rank(**more: Any) -> dict[str, Any]:
    usual = {"rank": 0, "device": 3, "code": None, "signal": None}
    return {**usual, "started_at_secs": 1.0, "ended_at_secs": None, **more}


@pytest.mark.parametrize(
    ("host", "given", "line"),
    [
        ({}, {"ended_at_secs": 3.5, "code": 7}, "code 7 after 2.5 s"),
        ({}, {"ended_at_secs": 3.5, "code": -9, "signal": "SIGKILL"}, "SIGKILL after 2.5 s"),
        ({}, {"started_at_secs": None}, "never started"),
        ({"lost": "reset", "left_at_secs": 2.0}, {}, "lost after 1.0 s"),
        ({"left_at_secs": 2.0}, {}, "not told of after 1.0 s"),
        ({}, {}, "not told of"),
    ],
)
def test_what_became_of_a_rank(host: dict[str, Any], given: dict[str, Any], line: str) -> None:
    report = {"host": "a", "lost": None, "left_at_secs": None, **host, "ranks": [rank(**given)]}
    assert told_hosts([report]) == [f"host 'a': rank 0 (device 3) {line}"]


def test_what_is_told_keeps_its_severity() -> None:
    said: list[tuple[Severity, str]] = []
    it = Announcer(lambda event: None, lambda *told: said.append(told), lambda: None)
    it.told(Severity.DEBUG, "so")
    assert said == [(Severity.DEBUG, "so")]
