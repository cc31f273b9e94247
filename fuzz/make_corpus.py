#!/usr/bin/env python3
"""Makes what the fuzz targets begin with: fuzz/corpus and fuzz/dictionaries.

The corpus of a target are its seeds (`fuzz.seeds`: the test vectors, in its form), of those that
take the same steps from line to line of joinproto the shortest.  A dictionary are the words of the
grammar, or of what else a target reads.

usage: fuzz/make_corpus.py [--check]

With --check nothing is written.  The dictionaries have to be what would be written; of a corpus
each file has to be one of the seeds, and together they have to reach every line that the seeds
reach: which of several seeds reaches it, and how a version of Python steps, is not to matter.

Exit code: 0, or 1 when what is there is not current.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzz.seeds import seeds
from fuzz.table import CORPUS, ROOT, TARGETS, Target
from joinproto.fuzzing.cutting import NUMBERS
from joinproto.fuzzing.pieces import MAGIC
from joinproto.grammar import CHANNEL_MAGICS, HTTP_HEADS, KINDS, WIRES
from joinproto.limits import MAX_PAYLOAD_BYTES
from joinproto.runtime.prefix import FIELDS
from joinproto.runtime.spec import AgentSpec

SOURCE: Final = ROOT.parent / "src" / "joinproto"
ASIDE: Final = ("conformance", "fuzzing", "testing")
"""Packages that are not under test."""

Step = tuple[str, int, int]
"""File, line, and the line before it in the same call; 0: it is the first."""


# -- the corpus -------------------------------------------------------------------------------


class _StepTracer:
    """Takes down steps from line to line of joinproto."""

    def __init__(self) -> None:
        self.steps: set[Step] = set()

    def call(self, frame: FrameType, event: str, argument: object) -> Any:
        name = frame.f_code.co_filename
        if not _is_under_test(name):
            return None
        add, last = self.steps.add, 0

        def line(frame: FrameType, event: str, argument: object) -> Any:
            nonlocal last
            if event == "line":
                add((name, frame.f_lineno, last))
                last = frame.f_lineno
            return line

        return line


@cache
def _is_under_test(name: str) -> bool:
    path = Path(name)
    return path.is_relative_to(SOURCE) and path.relative_to(SOURCE).parts[0] not in ASIDE


def reached(target: Target, cases: list[bytes]) -> Iterator[set[Step]]:
    """The steps that each of some cases takes."""
    check = target.check
    # What is made once and kept, such as a table, is not to count for the case that comes first.
    for case in cases:
        check(case)
    for case in cases:
        tracer = _StepTracer()
        with _traced(tracer.call):
            check(case)
        yield tracer.steps


def chosen(target: Target) -> list[bytes]:
    """The corpus of a target: of seeds that take the same steps, the shortest."""
    cases = sorted(seeds(target.name), key=lambda case: (len(case), case))
    ways: dict[frozenset[Step], bytes] = {}
    for case, steps in zip(cases, reached(target, cases), strict=True):
        ways.setdefault(frozenset(steps), case)
    return list(ways.values())


def write_corpus(target: Target) -> None:
    """Put a target's corpus into its folder, in place of what is there."""
    folder = CORPUS / target.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for case in chosen(target):
        (folder / name_of(case)).write_bytes(case)


def name_of(case: bytes) -> str:
    """The name of a case's file, as libFuzzer gives it."""
    return hashlib.sha1(case, usedforsecurity=False).hexdigest()


def stale(target: Target) -> Iterator[str]:
    """What is wrong with the corpus of a target that is there."""
    there = [path.read_bytes() for path in target.cases(CORPUS)]
    cases = seeds(target.name)
    if not there or not set(there) <= set(cases):
        yield f"corpus/{target.name} holds what is no seed, or nothing"
        return
    tracer = _LineTracer()
    tracer.run(target, there)
    before = set(tracer.lines)
    tracer.run(target, [case for case in cases if case not in there])
    missing = sorted(tracer.lines - before)
    for name, line in missing[:1]:
        place = f"{Path(name).relative_to(SOURCE.parent)}:{line}"
        yield f"corpus/{target.name} does not reach {place}, and {len(missing) - 1} more lines"


class _LineTracer:
    """Takes down lines of joinproto; what has been seen whole runs at its own pace again."""

    def __init__(self) -> None:
        self.lines: set[tuple[str, int]] = set()
        self._unseen: dict[CodeType, set[int]] = {}

    def run(self, target: Target, cases: list[bytes]) -> None:
        """Take down the lines that some cases reach."""
        check = target.check
        with _traced(self._call):
            for case in cases:
                check(case)

    def _call(self, frame: FrameType, event: str, argument: object) -> Any:
        code = frame.f_code
        unseen = self._unseen.get(code)
        if unseen is None:
            ours = _is_under_test(code.co_filename)
            # That of `def` itself is none that runs.
            lines = {line for _, _, line in code.co_lines() if line} - {code.co_firstlineno}
            unseen = lines if ours else set()
            self._unseen[code] = unseen
        if not unseen:
            return None

        def line(frame: FrameType, event: str, argument: object) -> Any:
            if event == "line":
                unseen.discard(frame.f_lineno)
                self.lines.add((code.co_filename, frame.f_lineno))
            return line if unseen else None

        return line


@contextmanager
def _traced(call: Callable[[FrameType, str, object], Any]) -> Iterator[None]:
    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(before)


# -- dictionaries -----------------------------------------------------------------------------


def _frame_words() -> list[bytes]:
    numbers = [*WIRES, *KINDS, MAX_PAYLOAD_BYTES, MAX_PAYLOAD_BYTES + 1]
    return [MAGIC, *CHANNEL_MAGICS, *(each.to_bytes(4, "little") for each in numbers), *NUMBERS]


def _http_words() -> list[bytes]:
    text = """HTTP/1.0 HTTP/1.1 / /state.json /events /metrics /healthz /start /page.css /page.js
    ?token= token-of-the-controller %41 Host: Connection: close keep-alive Content-Length:
    Transfer-Encoding: chunked gzip Authorization: Bearer Expect: 100-continue Accept: text/html
    Origin: Sec-Fetch-Site: cross-site localhost 127.0.0.1 Upgrade:"""
    return [*sorted(HTTP_HEADS), *text.encode().split(), b"\r\n", b"\r\n\r\n", b"0\r\n\r\n"]


def _output_words() -> list[bytes]:
    fields = [b"{%s}" % name.encode() for name in FIELDS]
    return [*fields, b"\n", b"\r", b"\r\n", b"{{", b":>3}", b"!r}", bytes(64)]


def _spec_words() -> list[bytes]:
    names = [b'"%s":' % name.encode() for name in sorted(AgentSpec.__annotations__)]
    values = (b"null", b"true", b"-1", b"1e999", b"[0,1]", b"[]", b"{}", b'"\\ud800"', b"0" * 32)
    return [b'"salt_hex":', b'"dataset_sig_hex":', b'"model_sig_hex":', *names, *values]


def dictionaries() -> dict[str, str]:
    """Name → text of each dictionary, in libFuzzer's format."""
    words = {
        "frames": _frame_words(),
        "http": _http_words(),
        "output": _output_words(),
        "spec": _spec_words(),
    }
    head = "# Made by fuzz/make_corpus.py.\n"
    return {name: head + "".join(map(_quoted, dict.fromkeys(all_))) for name, all_ in words.items()}


def _quoted(word: bytes) -> str:
    plain = {byte: chr(byte) for byte in range(32, 127)} | {34: '\\"', 92: "\\\\"}
    return '"' + "".join(plain.get(byte, f"\\x{byte:02x}") for byte in word) + '"\n'


# -- the script -------------------------------------------------------------------------------


def main() -> int:
    """Write, or check; returns the exit code."""
    parser = argparse.ArgumentParser(description="Makes the fuzz targets' corpus and dictionaries.")
    parser.add_argument("--check", action="store_true", help="write nothing; is it current?")
    check = parser.parse_args().check
    wrong: list[str] = []
    folder = ROOT / "dictionaries"
    for name, text in dictionaries().items():
        path = folder / f"{name}.dict"
        if not check:
            folder.mkdir(exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            wrong.append(f"dictionaries/{name}.dict is not as it is made")
    for target in TARGETS.values():
        if check:
            wrong += stale(target)
        else:
            write_corpus(target)
    for line in wrong:
        print(f"make_corpus: {line}; run fuzz/make_corpus.py", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
