#!/usr/bin/env python3
"""Fuzzes one target in process, guided by coverage: atheris finds new ways, the mutator gets there.

atheris (requirements/fuzz.lock; `make fuzz` installs it) picks cases that reached something new in
joinproto and has them changed by `joinproto.fuzzing.mutation.Mutator`, on its three layers: raw
bytes, a header under a stale tag, fields under a valid tag.  A share of the changes is libFuzzer's
own, which know the dictionary and what was compared with what; of frames, they too are put behind a
valid tag.

What reached something new is kept in build/fuzz/TARGET (`--keep` says where else) and is the start
of the next run, beside fuzz/corpus and fuzz/regressions.  A case that breaks the target's invariant
is written there as crash-HASH (timeout-HASH, oom-HASH), and the run ends.  Once the fault is
mended, the file belongs in fuzz/regressions/TARGET, under a name that says what it was.

usage: fuzz/run.py TARGET [--seconds N] [--keep FOLDER] [LIBFUZZER OPTION ...]
       fuzz/run.py TARGET FILE ...      gives the target these cases once, without atheris
       fuzz/run.py --list               the targets

Exit code: 0, or 1 and more when a case breaks the invariant, or 3 when it could not run.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

# Nothing of joinproto yet: what is to be instrumented must not be there when atheris begins.
from fuzz.table import CORPUS, LONGEST, REGRESSIONS, ROOT, TARGETS, Change, Target

KEPT: Final = ROOT.parent / "build" / "fuzz"

ASIDE: Final = ("joinproto.conformance", "joinproto.fuzzing", "joinproto.testing")
"""What is not under test does not guide."""

NATIVE: Final = 0.2
"""The share of changes that is libFuzzer's own, and again that of payloads."""

CASE_SECONDS, MEGABYTES = 10, 2048
"""What one case may take, and the whole process."""

MISSING: Final = """\
fuzz: there is no atheris for this Python; install it: \
pip install --require-hashes -r requirements/fuzz.lock"""


def mutation_of(target: Target, native: Change) -> Callable[[bytes, int, int], bytes]:
    """The custom mutator of a target, in the form that atheris calls.

    Args:
        target: whose cases are changed.
        native: libFuzzer's own change of data, to a size at most.
    """
    random = Random()
    mutator = target.mutator(random)
    change = target.change(mutator)
    framed = target.shape == "stream"

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        random.seed(seed)
        choice = random.random()
        if choice < NATIVE:
            return native(data, max_size)
        if framed and choice < 2 * NATIVE:
            return mutator.fields(data, lambda payload, _: native(payload, max_size))[:max_size]
        return change(data, max_size)

    return mutate


def instrumented(target: Target, atheris: Any) -> Callable[[bytes], object]:
    """The check of a target, its coverage being counted."""
    include = ["joinproto", *target.libraries]
    with atheris.instrument_imports(include=include, exclude=list(ASIDE)):
        return target.check


def options(target: Target, seconds: int, keep: Path, more: list[str]) -> list[str]:
    """The command line that libFuzzer is given; the first folder is where it keeps cases."""
    kept = keep / target.name
    kept.mkdir(parents=True, exist_ok=True)
    folders = [kept, CORPUS / target.name, REGRESSIONS / target.name]
    return [
        *("fuzz", f"-max_total_time={seconds}", f"-max_len={LONGEST}", f"-timeout={CASE_SECONDS}"),
        *(f"-rss_limit_mb={MEGABYTES}", f"-dict={target.dictionary}"),
        *(f"-artifact_prefix={kept}/", "-print_final_stats=1", *more),
        *(str(folder) for folder in folders if folder.is_dir()),
    ]


def fuzz(target: Target, seconds: int, keep: Path, more: list[str]) -> int:
    """Fuzz until time is over or a case breaks the invariant; libFuzzer ends the process."""
    try:
        # By name, for type checkers: it is seldom there, and types it has none.
        atheris: Any = import_module("atheris")
    except ImportError:
        print(MISSING, file=sys.stderr)
        return 3
    check = instrumented(target, atheris)
    # By name: Fuzz puts another one there.
    mutate = mutation_of(target, lambda data, size: atheris.Mutate(data, size))
    atheris.Setup(options(target, seconds, keep, more), check, custom_mutator=mutate)
    atheris.Fuzz()
    return 0


def main(argv: list[str] | None = None) -> int:
    """Fuzz, or give a target some cases; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="fuzz/run.py", description="Fuzzes a target in process, guided by coverage."
    )
    parser.add_argument("target", nargs="?", choices=[*TARGETS], metavar="TARGET")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="cases to try once")
    parser.add_argument("--seconds", type=int, default=60, help="how long (default: 60)")
    parser.add_argument("--keep", type=Path, default=KEPT, metavar="FOLDER", help="where cases go")
    parser.add_argument("--list", action="store_true", help="list the targets")
    args, more = parser.parse_known_args(argv)
    if args.list:
        print("\n".join(TARGETS))
        return 0
    if args.target is None:
        parser.error(f"name a target: {', '.join(TARGETS)}")
    target = TARGETS[args.target]
    for path in args.files:
        target.check(path.read_bytes())
    return 0 if args.files else fuzz(target, args.seconds, args.keep, more)


if __name__ == "__main__":
    sys.exit(main())
