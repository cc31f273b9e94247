"""The record of a run: one JSON object a line, the truth that every report is made from.

The first line is a `Run`, then comes one `Result` for each case as soon as it is over, and last a
`Summary`; a run that was cut short lacks the last.  `specs/conformance-results.schema.json` has
them all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import IO, Any, TypeAlias, TypeVar

from joinproto.conformance.verdicts import Level, Verdict

FORMAT = 1
"""The version of the format; a reader refuses any other."""


@dataclass(frozen=True, kw_only=True)
class Happening:
    """Something that happened in a case.

    Attributes:
        at: seconds since the case began.
        who: `suite`, `target`, or `rank N` or `relay` for what the target started.
        what: `open`, `bytes`, `fin`, `rst` on a connection; `exit`, `up`, `down` of a process;
            `line` of output; `act` for anything else that the suite did.
        connection: its name, where it happened on one; else "".
        hex: the bytes, the first 65,536 of them.
        size: how many they were.
        text: for people: the message that the bytes complete, the line, the exit code.
    """

    at: float
    who: str
    what: str
    connection: str = ""
    hex: str = ""
    size: int = 0
    text: str = ""


@dataclass(frozen=True, kw_only=True)
class Run:
    """The first line.

    Attributes:
        role: `agent` or `controller`: what is under test.
        target: its command line or address, as it was given.
        version: of joinproto.
        started: when, ISO 8601 with its time zone.
        seed: of everything that is left to chance.
        time_scale: FLODL_NET_TIMEOUT_SCALE of the run.
        wires: the wire versions that the target was found to speak.
        jobs: how many cases ran at a time.
        retries: how often an inconclusive case is run again; a failed one never is.
        selected: how many cases are to come.
        expectations: the file of those, "" for none.
        format: of this record.
    """

    role: str
    target: str
    version: str
    started: str
    seed: int
    time_scale: float
    wires: tuple[int, ...] = ()
    jobs: int = 1
    retries: int = 1
    selected: int = 0
    expectations: str = ""
    format: int = FORMAT


@dataclass(frozen=True, kw_only=True)
class Result:
    """What one case came to.

    Attributes:
        case: its id, such as `agent/framing/length-over-cap`.
        wire: the wire version it was run in.
        admission: `open` or `pre-shared`.
        title: one sentence.
        level: how much it demands.
        clauses: ids of the specification.
        verdict: what it came to in all.
        behaviour: what the target did in it.
        ending: how the connection ended; PASS where the case demands nothing of that.
        broken: the clause that was broken, and its sentence; "" where none was.
        expected: what should have happened.
        got: what did.
        notes: what else there is to say.
        expected_failure: the reason of the expectation that covers it, "" for none.
        seconds: how long it took.
        attempts: how often it was run.
        repeat: the command that runs it again.
        stderr: the last of what the target said there.
        happenings: all that was seen, in order.
    """

    case: str
    wire: int
    admission: str
    title: str
    level: Level
    clauses: tuple[str, ...]
    verdict: Verdict
    behaviour: Verdict
    ending: Verdict
    broken: str = ""
    expected: str = ""
    got: str = ""
    notes: tuple[str, ...] = ()
    expected_failure: str = ""
    seconds: float = 0.0
    attempts: int = 1
    repeat: str = ""
    stderr: str = ""
    happenings: tuple[Happening, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The last line.

    Attributes:
        counts: how many results have each verdict.
        unexpected: cases that failed although they were not expected to.
        unexpectedly_passed: cases that passed although a failure was expected.
        stale: expectations that no case of the selection matches.
        exit_code: what the run ends with.
        seconds: how long it took.
    """

    counts: Mapping[str, int]
    unexpected: tuple[str, ...] = ()
    unexpectedly_passed: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    exit_code: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Record:
    """A whole record, read back.

    Attributes:
        run: its first line.
        results: those that were completed, in the order in which they were.
        summary: its last line; None: the run was cut short.
    """

    run: Run
    results: tuple[Result, ...] = field(default=())
    summary: Summary | None = None


Line: TypeAlias = Run | Result | Summary
T = TypeVar("T", Run, Result, Summary, Happening)

_NAMES: dict[type, str] = {Run: "run", Result: "result", Summary: "summary"}


def write_line(file: IO[str], line: Line) -> None:
    """Append one line, and flush it: a completed result is never lost."""
    values = {"type": _NAMES[type(line)], **asdict(line)}
    file.write(json.dumps(values, ensure_ascii=True) + "\n")
    file.flush()


def read(lines: Iterable[str]) -> Record:
    """Read a record back.

    Raises:
        ValueError: a line is none of a record; the text says which and why.
    """
    run: Run | None = None
    results: list[Result] = []
    summary: Summary | None = None
    for line in _parsed(lines):
        match line:
            case Run():
                run = line
            case Result():
                results.append(line)
            case Summary():
                summary = line
    if run is None:
        raise ValueError("not a record of a run: its first line is missing")
    return Record(run=run, results=tuple(results), summary=summary)


def _parsed(lines: Iterable[str]) -> Iterator[Line]:
    for number, text in enumerate(lines, 1):
        try:
            values = json.loads(text)
            kind = {name: cls for cls, name in _NAMES.items()}[values.pop("type")]
            yield _made(kind, values)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"line {number} is none of a record: {error!r}") from None


def _made(kind: type[T], values: dict[str, Any]) -> T:
    if kind is Run and values.get("format") != FORMAT:
        raise ValueError(f"format {values.get('format')}; this joinproto reads {FORMAT}")
    for each in fields(kind):
        value = values.get(each.name)
        if each.name == "happenings":
            values[each.name] = tuple(_made(Happening, entry) for entry in value or ())
        elif isinstance(value, list):
            values[each.name] = tuple(value)
        elif each.name in ("verdict", "behaviour", "ending"):
            values[each.name] = Verdict(str(value))
        elif each.name == "level":
            values[each.name] = Level(str(value))
    return kind(**values)
