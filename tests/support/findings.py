"""Findings for tests of the fuzz harness."""

from __future__ import annotations

from typing import Any

from joinproto.fuzzing.finding import Finding
from joinproto.fuzzing.oracles import Strike
from joinproto.fuzzing.sequence import Sequence, Step


def finding(role: str, oracle: str, *steps: Step, **values: Any) -> Finding:
    """A finding with that case."""
    strike = Strike(oracle=oracle, what="it was so", where="there")
    wire = values.pop("wire", 4)
    sequence = Sequence(role=role, wire=wire, steps=steps, **values)
    return Finding(sequence=sequence, strike=strike, seed=1, number=1, scale=0.1, target="x")
