"""Verdicts: their order, and what a level makes of a deviation."""

from __future__ import annotations

import pytest

from joinproto.conformance import verdicts
from joinproto.conformance.verdicts import Level, Verdict, worst


@pytest.mark.parametrize(
    ("several", "one"),
    [
        ((), Verdict.PASS),
        ((Verdict.PASS, Verdict.PASS), Verdict.PASS),
        ((Verdict.NON_STRICT, Verdict.PASS), Verdict.NON_STRICT),
        ((Verdict.PASS, Verdict.INFO), Verdict.INFO),
        ((Verdict.FAIL, Verdict.NON_STRICT), Verdict.FAIL),
        ((Verdict.INCONCLUSIVE, Verdict.FAIL), Verdict.FAIL),
        ((Verdict.INCONCLUSIVE, Verdict.NON_STRICT), Verdict.INCONCLUSIVE),
        ((Verdict.HARNESS_ERROR, Verdict.FAIL), Verdict.HARNESS_ERROR),
    ],
)
def test_the_worst_counts(several: tuple[Verdict, ...], one: Verdict) -> None:
    assert worst(several) is one
    assert worst(reversed(several)) is one


def test_a_must_that_is_broken_is_the_only_failure() -> None:
    assert {level: level.on_failure for level in Level} == {
        Level.MUST: Verdict.FAIL,
        Level.SHOULD: Verdict.NON_STRICT,
        Level.MAY: Verdict.INFO,
    }


def test_the_exit_codes_are_the_documented_ones() -> None:
    assert (
        verdicts.CONFORMS,
        verdicts.DEVIATES,
        verdicts.UNDECIDED,
        verdicts.MISUSED,
        verdicts.NO_TARGET,
    ) == (0, 1, 2, 3, 4)
