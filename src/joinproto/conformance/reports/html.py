"""The record as one HTML file that needs no network and can be searched.

What a target wrote is escaped by the template, and first spelt out where it cannot be seen.  Should
that ever fail, the policy in the file still runs no script but the one that it was made with.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from joinproto.conformance.reports import pcaps
from joinproto.conformance.reports.facts import (
    SUITE,
    UNEXPECTED,
    Standing,
    by_group,
    conforms,
    counts,
    group,
    headline,
    name,
    peers,
    pieces,
    receiver,
    sentence,
    standing,
    what_matters_first,
)
from joinproto.conformance.reports.sequence import Diagram, diagram
from joinproto.conformance.reports.text import hexdump, visible
from joinproto.conformance.reports.wire import Direction
from joinproto.conformance.results import Happening, Record, Result

SHOWN_BYTES = 1024
"""Of what came in one piece; the record and the capture have more."""

MOST_PIECES = 100
"""Of one case."""


@dataclass(frozen=True, kw_only=True)
class Heard:
    """Bytes on the wire.

    Attributes:
        at: seconds since the case began.
        sender: who sent them.
        receiver: who got them.
        connection: on which.
        size: how many.
        count: in how many pieces.
        dump: the first of them.
        left_out: how many of them the dump lacks.
        text: what they mean, as the suite read it.
        decoded: what they hold.
    """

    at: float
    sender: str
    receiver: str
    connection: str
    size: int
    count: int
    dump: str
    left_out: int
    text: str
    decoded: str


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A result and what the page shows with it.

    Attributes:
        result: itself.
        stands: what it means for the run.
        name: what was run.
        group: of its case.
        clauses: ids and sentences.
        wire: what was on the wire.
        wire_left_out: pieces that are too many.
        diagram: who said what when; None: nothing happened.
        capture: where its capture is, "" for none.
    """

    result: Result
    stands: Standing
    name: str
    group: str
    clauses: tuple[tuple[str, str], ...]
    wire: tuple[Heard, ...]
    wire_left_out: int
    diagram: Diagram | None
    capture: str


def render(record: Record, *, non_strict: bool = False) -> str:
    """The file.

    Args:
        record: the run.
        non_strict: captures were written of cases that came to NON-STRICT as well.
    """
    style, script = part(__package__, "report.css"), part(__package__, "report.js")
    verdicts = [verdict for verdict, count in counts(record.results).items() if count]
    return template(__package__).render(
        run=record.run,
        summary=record.summary,
        headline=headline(record),
        well=conforms(record),
        verdicts=verdicts,
        total=counts(record.results),
        groups={each: counts(found) for each, found in by_group(record.results).items()},
        clauses=sorted({clause for result in record.results for clause in result.clauses}),
        cases=[_shown(result, non_strict) for result in what_matters_first(record)],
        unexpected=UNEXPECTED,
        style=Markup(style),
        script=Markup(script),
        style_hash=hash_of(style),
        script_hash=hash_of(script),
    )


@cache
def template(package: str) -> Template:
    """The template of a page, `page/report.html.jinja` of a package; what escapes is set here.

    Args:
        package: whose page it is; the parts that pages share are found from everywhere.
    """
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package, "page"), PackageLoader(__package__, "page")]),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.jinja")


def _finalized(value: object) -> object:
    """What a template puts out in the place of `value`."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def part(package: str, name: str) -> str:
    """A style or a script of a page, as it stands in the page."""
    return (resources.files(package) / "page" / name).read_text(encoding="utf-8")


def hash_of(text: str) -> str:
    """How a Content-Security-Policy names an element by what is in it."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def _shown(result: Result, non_strict: bool) -> Shown:
    shown = list(heard(result.happenings))
    has_capture = pcaps.has_one(result, non_strict=non_strict)
    return Shown(
        result=result,
        stands=standing(result),
        group=group(result),
        name=name(result),
        clauses=tuple((clause, sentence(clause)) for clause in result.clauses),
        wire=tuple(shown[:MOST_PIECES]),
        wire_left_out=max(0, len(shown) - MOST_PIECES),
        diagram=diagram(result.happenings) if result.happenings else None,
        capture=f"{pcaps.FOLDER}/{pcaps.file_name(result)}" if has_capture else "",
    )


def heard(happenings: Sequence[Happening]) -> Iterator[Heard]:
    """What was on the wire, piece by piece."""
    known = peers(happenings)
    directions: dict[tuple[str, bool], Direction] = {}
    for piece in pieces(happenings):
        happening = piece.first
        here = (happening.connection, happening.who == SUITE)
        if happening.what == "open":
            # The same name may be given again, to the connection after.
            directions[happening.connection, True] = Direction()
            directions[happening.connection, False] = Direction()
        if happening.what != "bytes":
            continue
        direction = directions.setdefault(here, Direction())
        shown = piece.data[:SHOWN_BYTES]
        yield Heard(
            at=happening.at,
            sender=happening.who,
            receiver=receiver(happening, known),
            connection=happening.connection,
            size=piece.size,
            count=piece.count,
            dump=hexdump(shown),
            left_out=max(0, piece.size - len(shown)),
            text=piece.text,
            decoded=direction.read(piece.data, whole=piece.size == len(piece.data)),
        )
