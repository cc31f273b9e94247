"""A capture file for each case that failed, with every connection of it.

The bytes are those of the record.  Addresses, ports and the dates of packets are made up: the
server is 127.0.0.1:29500, and clocks start with the run.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path

from joinproto.conformance.pcap import Conversation, Endpoint, Event, Mark, Side, write_pcap
from joinproto.conformance.reports.facts import SUITE
from joinproto.conformance.results import Happening, Record, Result, Run
from joinproto.conformance.verdicts import Verdict

FOLDER = "pcap"
"""Beside the other reports."""

SERVER = Endpoint("127.0.0.1", 29500)
FIRST_CLIENT_PORT = 40001

WORTH_ONE = frozenset({Verdict.FAIL, Verdict.HARNESS_ERROR})
LONGEST_NAME = 120
LATEST = 2**31
"""Seconds since the epoch: some way before the last time that a capture can have."""

_MARKS: dict[str, Mark] = {"fin": "fin", "rst": "rst"}


def write(record: Record, directory: Path, *, non_strict: bool = False) -> list[Path]:
    """Write the captures into `directory`, which is made where there is none.

    Captures that are in it from an earlier run are removed first.

    Args:
        record: the run.
        directory: where to.
        non_strict: cases that came to NON-STRICT have one too.

    Raises:
        OSError: they cannot be written.
    """
    for old in directory.glob("*.pcap"):
        old.unlink()
    written = []
    for result in record.results:
        if has_one(result, non_strict=non_strict):
            directory.mkdir(parents=True, exist_ok=True)
            path = directory / file_name(result)
            write_pcap(path, conversations(record.run, result))
            written.append(path)
    return written


def has_one(result: Result, *, non_strict: bool = False) -> bool:
    """Whether a case gets a capture: it failed, and something was said in it."""
    wanted = result.verdict in WORTH_ONE or (non_strict and result.verdict == Verdict.NON_STRICT)
    return wanted and any(happening.connection for happening in result.happenings)


def file_name(result: Result) -> str:
    """A name for the capture that every file system takes, and that no other case has."""
    plain = re.fullmatch(r"[a-z0-9-]+(/[a-z0-9-]+)*", result.case)
    name = result.case.replace("/", ".")
    if not plain or len(name) > LONGEST_NAME:
        digest = hashlib.sha256(result.case.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        name = f"{re.sub(r'[^A-Za-z0-9-]+', '-', name)[:60]}_{digest}"
    return f"{name}_wire-{result.wire}_{result.admission}.pcap"


def conversations(run: Run, result: Result) -> list[Conversation]:
    """The connections of a case, in the order in which they were opened."""
    start = _start(run)
    return [
        Conversation(
            client=Endpoint(SERVER.host, FIRST_CLIENT_PORT + number),
            server=SERVER,
            events=_events(run.role, start, happenings),
        )
        for number, happenings in enumerate(_connections(result.happenings))
    ]


def _connections(happenings: Iterable[Happening]) -> list[list[Happening]]:
    """What happened on each; a name that is opened again is another connection."""
    found: list[list[Happening]] = []
    latest: dict[str, list[Happening]] = {}
    for happening in happenings:
        name = happening.connection
        if name and (happening.what == "open" or name not in latest):
            latest[name] = []
            found.append(latest[name])
        if name:
            latest[name].append(happening)
    return found


def _start(run: Run) -> float:
    """When the run began, in seconds since the epoch; the epoch where the record does not say."""
    try:
        start = datetime.fromisoformat(run.started).timestamp()
    except (ValueError, OverflowError):
        return 0.0
    return start if 0 <= start <= LATEST else 0.0


def _events(role: str, start: float, happenings: Sequence[Happening]) -> list[Event]:
    ordered = sorted(happenings, key=lambda each: each.at)
    opened = start + ordered[0].at
    events = [Event(opened, "client", "syn"), Event(opened, "server", "syn")]
    lost: set[Side] = set()
    for happening in ordered:
        side = _side(role, happening)
        what = _what(happening)
        if what is None or (side in lost and isinstance(what, bytes)):
            continue
        events.append(Event(start + happening.at, side, what))
        if isinstance(what, bytes) and happening.size > len(what):
            # The record has not all of them: nobody could tell where a later message begins.
            lost.add(side)
    return events


def _side(role: str, happening: Happening) -> Side:
    """Who dials is the client: an agent under test, or the suite that plays one."""
    return "client" if (happening.who == SUITE) == (role == "controller") else "server"


def _what(happening: Happening) -> bytes | Mark | None:
    if happening.what == "bytes":
        return bytes.fromhex(happening.hex)
    return _MARKS.get(happening.what)
