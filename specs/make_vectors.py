"""Writes the test vectors in specs/vectors, or checks that they are as it would write them.

    python specs/make_vectors.py [--check]

What a case is to give is said in `making`, and its bytes are made there: nothing is asked of the
code that the vectors are to judge.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from making.agent_spec import agent_spec_book
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
    check: bool = parser.parse_args().check
    stale = []
    for make in BOOKS:
        book = make()
        path = FOLDER / f"{book.group}.json"
        text = book.text()
        if not path.exists() or path.read_text() != text:
            stale.append(path.name)
            if not check:
                path.write_text(text)
    if check and stale:
        print(f"not as specs/make_vectors.py makes them: {', '.join(stale)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
