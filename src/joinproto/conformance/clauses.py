"""The clauses of the protocol's specification, which cases name and failures quote.

`specs/protocol.md` is where they are written; `parse` reads them out of it, and `specs/draw.py`
keeps what it found beside this module, so that an installed package has them too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any, Final

ROLES: Final = ("agent", "controller")
LEVELS: Final = ("MUST NOT", "SHOULD NOT", "MUST", "SHOULD", "MAY")


@dataclass(frozen=True)
class Clause:
    """One requirement.

    Attributes:
        id: `JP-FRM-001`; never given anew.
        level: one of `LEVELS`.
        text: the requirement as one plain line.
        section: title of the section that it stands in, without its number.
        binds: the roles that must keep it.
        seen: those of them for which it can be checked from outside.
        unseen: why it cannot be for the others; "" where there are none.
        published: in what published peers deviate or differ; "" where they do not.
    """

    id: str
    level: str
    text: str
    section: str
    binds: tuple[str, ...]
    seen: tuple[str, ...]
    unseen: str = ""
    published: str = ""


_HEADING = re.compile(r"##+ (?:\d+\. )?(?P<title>.+)")
_START = re.compile(r"\*\*(?P<id>JP-[A-Z]{3}-[0-9]{3})\*\* (?P<text>.+)")
_LEVEL = re.compile(rf"\b({'|'.join(LEVELS)})\b")
_BINDS = re.compile(r"\*Binds: (?P<binds>[^.]+)\. Seen: (?P<seen>.+)\.\*")
_UNSEEN = re.compile(r"(?P<seen>no|[a-z, ]+; not [a-z, ]+?), (?P<reason>.+)")
_PUBLISHED = re.compile(r"\*Published: (?P<published>.+)\*")


def parse(text: str) -> tuple[Clause, ...]:
    """The clauses of a specification in Markdown, in their order.

    Raises:
        ValueError: a clause is not written as one is; the text begins with the line.
    """
    section = ""
    found: dict[str, Clause] = {}
    for number, lines in _paragraphs(text):
        heading = _HEADING.fullmatch(lines[0])
        if heading:
            section = heading["title"]
        elif lines[0].startswith("**JP-"):
            clause = _clause(number, lines, section)
            if clause.id in found:
                raise ValueError(f"line {number}: {clause.id} is there twice")
            found[clause.id] = clause
    return tuple(found.values())


def _paragraphs(text: str) -> Iterator[tuple[int, list[str]]]:
    """Lines that stand together, each time with the number of the first."""
    lines: list[str] = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        if line.strip():
            lines.append(line)
        elif lines:
            yield number - len(lines), lines
            lines = []


def _clause(number: int, lines: list[str], section: str) -> Clause:
    italics = next((at for at, line in enumerate(lines) if line.startswith("*Binds:")), len(lines))
    start = _START.fullmatch(" ".join(lines[:italics]))
    if start is None:
        raise ValueError(f"line {number}: a clause begins with **JP-ABC-123** and its sentence")
    levels = _LEVEL.findall(start["text"])
    if len(levels) != 1:
        raise ValueError(
            f"line {number}: {start['id']} has one of {', '.join(LEVELS)}, once; "
            f"it has {', '.join(levels) or 'none'}"
        )
    return Clause(
        id=start["id"],
        level=levels[0],
        text=_plain(start["text"]),
        section=section,
        **_notes(number + italics, lines[italics:]),
    )


def _notes(number: int, lines: list[str]) -> dict[str, Any]:
    """What the lines in italics say."""
    first = _BINDS.fullmatch(lines[0]) if lines else None
    if first is None:
        raise ValueError(f"line {number}: a clause ends with *Binds: ROLES. Seen: ROLES.*")
    binds = _roles(number, first["binds"])
    seen, unseen = _seen(number, binds, first["seen"])
    published = ""
    if len(lines) > 1:
        second = _PUBLISHED.fullmatch(" ".join(lines[1:]))
        if second is None:
            raise ValueError(f"line {number + 1}: behind *Binds…* comes *Published: ….* or nothing")
        published = _plain(second["published"])
    return {"binds": binds, "seen": seen, "unseen": unseen, "published": published}


def _seen(number: int, binds: tuple[str, ...], text: str) -> tuple[tuple[str, ...], str]:
    partly = _UNSEEN.fullmatch(text)
    if text == "no" or (partly is None and ("; not " in text or text.startswith("no,"))):
        raise ValueError(f"line {number}: Seen: no, or not, takes a reason")
    if partly is not None and partly["seen"] == "no":
        return (), _plain(partly["reason"])
    named = text if partly is None else partly["seen"]
    seen, *unseen = (_roles(number, names) for names in named.split("; not "))
    if sorted(sum(unseen, seen)) != sorted(binds):
        raise ValueError(f"line {number}: Seen names each role that Binds does, and no other")
    return seen, "" if partly is None else _plain(partly["reason"])


def _roles(number: int, text: str) -> tuple[str, ...]:
    names = tuple(text.split(", "))
    for name in names:
        if name not in ROLES:
            raise ValueError(f"line {number}: {name!r} is no role; roles are {', '.join(ROLES)}")
    if len(set(names)) < len(names):
        raise ValueError(f"line {number}: a role is named twice")
    return names


def _plain(text: str) -> str:
    return text.replace("`", "")


def dump(clauses: tuple[Clause, ...]) -> str:
    """The clauses as JSON, one a line."""
    lines = (f"  {json.dumps(asdict(clause), ensure_ascii=False)}" for clause in clauses)
    return "[\n" + ",\n".join(lines) + "\n]\n"


@cache
def load() -> Mapping[str, Clause]:
    """The clauses that came with this package, by id, in the order of the specification."""
    text = files("joinproto.conformance").joinpath("data", "clauses.json").read_text("utf-8")
    clauses = (Clause(**{**each, **_tuples(each)}) for each in json.loads(text))
    return MappingProxyType({clause.id: clause for clause in clauses})


def _tuples(values: dict[str, Any]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(values[name]) for name in ("binds", "seen")}


def sentence(id: str) -> str:
    """What the clause with this id demands.

    Raises:
        KeyError: there is none.
    """
    return load()[id].text
