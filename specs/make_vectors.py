"""Writes the test vectors in specs/vectors, or checks that they are as it would write them.

    python specs/make_vectors.py [--check | --reassign]

What a case is to give is said in `making`, and its bytes are made there: nothing is asked of the
code that the vectors are to judge.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from making.agent_spec import agent_spec_book
from making.book import Book
from making.frames import frame_book, payload_book
from making.streams import dial_book, stream_book
from making.tags import tag_book
from making.transcripts import transcript_book

FOLDER = Path(__file__).parent / "vectors"
BOOKS = (
    dial_book,
    frame_book,
    tag_book,
    payload_book,
    stream_book,
    agent_spec_book,
    transcript_book,
)


def main() -> int:
    """Write every file that is not current; with --check, name it instead and fail."""
    parser = argparse.ArgumentParser(description="writes the test vectors in specs/vectors")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if it would")
    parser.add_argument("--reassign", action="store_true", help="let ids name other cases")
    options = parser.parse_args()
    books = [make() for make in BOOKS]
    stale = {FOLDER / f"{book.group}.json": book for book in books if stored(book) != book.text()}
    if options.check:
        return complain("not as specs/make_vectors.py makes them", [path.name for path in stale])
    moved = [name for book in stale.values() for name in book.reassigned(stored(book))]
    if moved and not options.reassign:
        return complain("put new cases last; these ids would name others (--reassign)", moved)
    for path, book in stale.items():
        path.write_text(book.text())
    return 0


def stored(book: Book) -> str:
    """The file as it is; one without cases where there is none."""
    path = FOLDER / f"{book.group}.json"
    return path.read_text() if path.exists() else '{"tests": []}'


def complain(what: str, names: list[str]) -> int:
    """Say what is wrong with those, if there are any; the exit code."""
    if not names:
        return 0
    print(f"make_vectors: {what}: {', '.join(names)}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
