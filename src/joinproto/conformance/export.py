"""Writes what the suite consists of into a directory, for those who use it without joinproto."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

SUFFIXES: Final = (".json", ".md", ".ksy", ".lua")
"""Of what is written: data and texts, no programs."""

README: Final = """\
# joinproto conformance data, exported by joinproto {version}

- `specs/protocol.md`: the specification; `clauses.json`: its clauses as data.
- `cases/`: the cases of the conformance suite; schema: `specs/conformance-cases.schema.json`.
- `specs/vectors/`: frames, payloads, specs and transcripts, with their schema and a README.
- `specs/joinproto.ksy`, `specs/joinproto.lua`: for Kaitai Struct and for Wireshark.
- `specs/conformance-results.schema.json`: of the results of a run.

A case is steps on connections, processes and time; its schema says what each word means. Whoever
plays them needs no joinproto: a loop over the steps, a decoder that passes the vectors, and a
program that stands in for a rank.
"""


def export(directory: Path, version: str) -> int:
    """Write all of it.

    Args:
        directory: is made; where it is there already it must be empty.
        version: of joinproto.

    Returns:
        How many files were written.

    Raises:
        OSError: it cannot be written to, or has something in it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    if any(directory.iterdir()):
        raise FileExistsError(17, "there is something in it; name a new directory")
    count = 1
    (directory / "README.md").write_text(README.format(version=version), encoding="utf-8")
    package = resources.files("joinproto.conformance")
    sources = [(specs(), "specs"), (package / "cases", "cases")]
    for source, name in sources:
        for path, file in _files(source, name):
            target = directory / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
            count += 1
    (directory / "clauses.json").write_bytes((package / "data" / "clauses.json").read_bytes())
    return count + 1


def specs() -> Traversable:
    """The folder of specifications: in an installed package, or in the project it is used from."""
    installed = resources.files("joinproto") / "specs"
    return installed if installed.is_dir() else Path(__file__).parents[3] / "specs"


def _files(folder: Traversable, path: str) -> Iterator[tuple[str, Traversable]]:
    """Everything in a folder that is exported, with its path there."""
    for entry in folder.iterdir():
        inside = f"{path}/{entry.name}"
        if entry.is_dir():
            yield from _files(entry, inside)
        elif entry.name.endswith(SUFFIXES):
            yield inside, entry
