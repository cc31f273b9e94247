"""The targets by name, and what the drivers need to know about each.

A target's module is imported when it is first asked for, so that a driver can have it instrumented.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from joinproto.fuzzing.mutation import Mutator

ROOT: Final = Path(__file__).resolve().parent
CORPUS: Final = ROOT / "corpus"
REGRESSIONS: Final = ROOT / "regressions"

Check = Callable[[bytes], object]
Change = Callable[[bytes, int], bytes]

LONGEST: Final = 4096
"""Bytes of a case."""


class Target(NamedTuple):
    """What is given cases.

    Attributes:
        name: what it is called, and its folder in corpus and regressions.
        module: its module in fuzz.targets.
        shape: what a case is: a stream of frames, a script, a script whose data are no frames, or
            a text.
        words: its dictionary.
        wire: the version of its frames; 0: any.
        libraries: what else guides it by coverage, beside joinproto.
    """

    name: str
    module: str
    shape: str
    words: str = "frames"
    wire: int = 0
    libraries: tuple[str, ...] = ()

    @property
    def check(self) -> Check:
        """The check of one case; it raises where the target's invariant is broken."""
        check = import_module(f"fuzz.targets.{self.module}").check
        return partial(check, wire=self.wire) if self.wire else check

    @property
    def dictionary(self) -> Path:
        """Words that its cases are made of, in libFuzzer's format."""
        return ROOT / "dictionaries" / f"{self.words}.dict"

    def cases(self, folder: Path) -> list[Path]:
        """Its files in CORPUS or in REGRESSIONS; there may be none."""
        return sorted((folder / self.name).glob("*"))

    def mutator(self, random: Random) -> Mutator:
        """What changes its cases."""
        from joinproto.fuzzing.mutation import Mutator
        from joinproto.grammar import WIRES

        wires = (self.wire,) if self.wire else tuple(WIRES)
        tokens = read_words(self.dictionary.read_text())
        return Mutator(random, tokens=tokens, wires=wires, plain=self.shape == "plain script")

    def change(self, mutator: Mutator) -> Change:
        """Which of a mutator's changes suits its cases."""
        changes = {"stream": mutator.stream, "text": mutator.text}
        return changes.get(self.shape, mutator.script)


def read_words(text: str) -> list[bytes]:
    """The words of a dictionary as fuzz/make_corpus.py writes it: `"word"`, a line each."""
    lines = [line for line in text.splitlines() if line.startswith('"')]
    return [line[1:-1].encode().decode("unicode_escape").encode("latin-1") for line in lines]


TARGETS: Final = {
    target.name: target
    for target in (
        Target("agent", "agent", "script"),
        Target("codec-2", "codec", "stream", wire=2, libraries=("construct",)),
        Target("codec-4", "codec", "stream", wire=4, libraries=("construct",)),
        Target("controller", "controller", "script"),
        Target("forwarder", "forwarder", "plain script", words="output"),
        Target("framing", "framing", "stream"),
        Target("http", "http", "plain script", words="http", libraries=("h11",)),
        Target("pair", "pair", "script"),
        Target("spec", "spec", "text", words="spec"),
    )
}
