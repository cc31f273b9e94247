"""The record of a run: one JSON object a line, the truth that every report is made from.

The first line is a `Run`, then comes one `Result` for each case as soon as it is over, and last a
`Summary`; a run that was cut short lacks the last.  `specs/conformance-results.schema.json` has
them all.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import IO, Any, TypeAlias, TypeVar, cast

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
        broken: `ID: sentence` of the clause that was broken; "" where none was.
        expected: what should have happened.
        got: what did.
        notes: what else there is to say.
        expected_failure: the reason of the expectation that covers it, "" for none.
        seconds: how long it took.
        attempts: how often it was run; 0: the run ended before.
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
V = TypeVar("V")

_NAMES: dict[type, str] = {Run: "run", Result: "result", Summary: "summary"}


def write_line(file: IO[str], line: Line) -> None:
    """Append one line, and flush it: a completed result is never lost."""
    if isinstance(line, Summary):
        line = replace(line, counts=dict(line.counts))  # asdict counts what is in a Counter
    values = {"type": _NAMES[type(line)], **asdict(line)}
    file.write(json.dumps(values, ensure_ascii=True) + "\n")
    file.flush()


def read(lines: Iterable[str]) -> Record:
    """Read a record back.

    A last line that was cut off, as when the run was killed, is left out: what was completed
    before it counts.

    Args:
        lines: with their line ends, as a file gives them.

    Raises:
        ValueError: a line is none of a record, or stands where it may not; the text says which and
            why.
    """
    run: Run | None = None
    results: list[Result] = []
    summary: Summary | None = None
    for number, line in _parsed(lines):
        if run is None:
            if not isinstance(line, Run):
                raise ValueError(f"line {number}: the first line of a record is of type run")
            run = line
        elif summary is not None:
            raise ValueError(f"line {number}: nothing follows the summary of a record")
        elif isinstance(line, Run):
            raise ValueError(f"line {number}: a record has one run; this is a second")
        elif isinstance(line, Result):
            results.append(line)
        else:
            summary = line
    if run is None:
        raise ValueError("not a record of a run: it has no whole line")
    return Record(run=run, results=tuple(results), summary=summary)


def _parsed(lines: Iterable[str]) -> Iterator[tuple[int, Line]]:
    for number, text in enumerate(lines, 1):
        try:
            values = json.loads(text, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            if not text.endswith("\n"):
                return  # only the last line lacks its end
            raise ValueError(f"line {number} is not JSON: {error}") from None
        try:
            yield number, _line(values)
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is no number of JSON")


def _line(values: object) -> Line:
    if not isinstance(values, dict):
        raise ValueError("a line of a record is a JSON object")
    match values.pop("type", None):
        case "run":
            return _made(Run, values)
        case "result":
            return _made(Result, values)
        case "summary":
            return _made(Summary, values)
        case kind:
            raise ValueError(f"type {reprlib.repr(kind)}; there are run, result and summary")


def _made(kind: type[T], values: dict[str, Any]) -> T:
    if kind is Run and values.get("format") != FORMAT:
        raise ValueError(f"format {values.get('format')!r}; this joinproto reads {FORMAT}")
    known = {each.name: each for each in fields(kind)}
    for name in values.keys() - known.keys():
        raise ValueError(f"unknown member {name!r}")
    for name in known.keys() - values.keys():
        raise ValueError(f"member {name!r} is missing")
    made = {name: _member(name, str(known[name].type), value) for name, value in values.items()}
    return kind(**made)


def _member(name: str, kind: str, value: Any) -> Any:
    """The value of a member as the dataclass has it; `kind` is its annotation there."""
    try:
        return _READERS[kind](value)
    except (ValueError, TypeError, OverflowError, AttributeError):
        raise ValueError(f"member {name!r} cannot be {reprlib.repr(value)}") from None


def _exactly(kind: type[V], value: object) -> V:
    if type(value) is not kind:  # True is no number here
        raise TypeError
    return value


def _float(value: object) -> float:
    if type(value) not in (int, float) or not math.isfinite(number := float(cast(float, value))):
        raise ValueError
    return number


def _all(kind: type[V], values: object) -> tuple[V, ...]:
    return tuple(_exactly(kind, value) for value in _exactly(list, values))


def _counts(values: object) -> dict[str, int]:
    return {name: _exactly(int, count) for name, count in _exactly(dict, values).items()}


def happenings_of(values: object) -> tuple[Happening, ...]:
    """Happenings out of plain data.

    Raises:
        ValueError, TypeError: these are none.
    """
    made = tuple(_made(Happening, _exactly(dict, value)) for value in _exactly(list, values))
    for happening in made:
        bytes.fromhex(happening.hex)
    return made


_READERS: dict[str, Callable[[Any], Any]] = {
    "str": lambda value: _exactly(str, value),
    "int": lambda value: _exactly(int, value),
    "float": _float,
    "tuple[int, ...]": lambda value: _all(int, value),
    "tuple[str, ...]": lambda value: _all(str, value),
    "tuple[Happening, ...]": happenings_of,
    "Mapping[str, int]": _counts,
    "Verdict": lambda value: Verdict(_exactly(str, value)),
    "Level": lambda value: Level(_exactly(str, value)),
}
"""How each annotation of a member above is read from JSON."""
