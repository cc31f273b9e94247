"""Findings and outcomes for tests of the fuzz harness."""

from __future__ import annotations

from typing import Any

from joinproto.conformance.results import Happening
from joinproto.fuzzing.finding import Finding
from joinproto.fuzzing.oracles import Strike
from joinproto.fuzzing.outcome import Outcome
from joinproto.fuzzing.sequence import Sequence, Step

OF_FINDING = ("target", "found", "tried", "repeats")


def finding(role: str, oracle: str, *steps: Step, **values: Any) -> Finding:
    """A finding with that case."""
    strike = Strike(oracle=oracle, what="it was so", where="there")
    own = {name: values.pop(name) for name in OF_FINDING if name in values}
    sequence = Sequence(role=role, wire=values.pop("wire", 4), steps=steps, **values)
    return Finding(
        **{"target": "x", **own}, sequence=sequence, strike=strike, seed=1, number=1, scale=0.1
    )


HOSTILE = "<b>&]]>\x00\x1b[31m\u202e\ud800\ufffe\n%s\u00e9"
"""What a target may write, none of which may steer what it is shown in."""


def hostile(role: str = "controller") -> Finding:
    """A finding about a target that wrote whatever it could."""
    happenings = (
        Happening(at=0.0, who="suite", what="open", connection="c"),
        Happening(at=0.1, who="suite", what="bytes", connection="c", hex="e3170df1", size=4),
        Happening(at=0.2, who="target", what="bytes", connection="c", hex="00ff3c", size=3),
        Happening(at=0.3, who="target", what="line", text=HOSTILE),
        Happening(at=0.4, who="target", what="exit", text="ended by SIGSEGV"),
    )
    strike = Strike(oracle="died", what=f"it was {HOSTILE}", where=HOSTILE)
    return Finding(
        sequence=Sequence(role=role, wire=4, steps=({"dial": "c"}, {"send": "3c", "on": "c"})),
        strike=strike,
        seed=7,
        number=3,
        scale=0.1,
        found=2,
        tried=3,
        target=f"./mine {HOSTILE}",
        exit=-11,
        stderr=HOSTILE,
        happenings=happenings,
    )


def outcome(**values: Any) -> Outcome:
    """What a run came to."""
    usual: dict[str, Any] = {
        "role": "controller",
        "target": "./mine",
        "admission": "open",
        "wires": (2, 4),
        "seed": 1,
        "scale": 0.1,
        "started": "2026-01-01T00:00:00+00:00",
        "seconds": 2.0,
        "cases": 100,
        "sessions": 130,
        "targets": 3,
    }
    return Outcome(**{**usual, **values})
