"""Records of conformance runs: handmade ones, and any that a target could bring about."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from joinproto.conformance.results import Happening, Record, Result, Run, Summary
from joinproto.conformance.verdicts import Level, Verdict

HOSTILE = (
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"'><svg/onload=alert(1)>",
    "]]><!--&amp;&#0;",
    "{{ 7 * 7 }}{% raw %}",
    "| a | `b` ```\n# c\n- d [e](javascript:alert(1)) **f** ~g~ $h$ @i #1",
    "\x00\x07\x08\x1b[31m\x1b]0;x\x07\x7f\x85\x9b\r\n",
    "\u202egnp.exe\u2028\ufffe\uffff\ud800\U0001f600",
    "\\xff\\x00",
    "[red]not markup[/red] [/]",
)
"""Text that a target may write, each to break something."""


def run(**changes: Any) -> Run:
    """The first line of a record."""
    values: dict[str, Any] = {
        "role": "agent",
        "target": "./my-agent --quiet",
        "version": "0.1.0",
        "started": "2026-01-31T23:59:59+00:00",
        "seed": 7,
        "time_scale": 0.1,
        "wires": (2, 4),
        "selected": 1,
    }
    return Run(**(values | changes))


def result(**changes: Any) -> Result:
    """What a case came to: it passed, unless told otherwise."""
    values: dict[str, Any] = {
        "case": "agent/framing/length-over-cap",
        "wire": 4,
        "admission": "open",
        "title": "A frame that announces too much ends the connection.",
        "level": Level.MUST,
        "clauses": ("JP-FRM-012",),
        "verdict": Verdict.PASS,
        "behaviour": changes.get("verdict", Verdict.PASS),
        "ending": Verdict.PASS,
        "repeat": "joinproto conform agent --case agent/framing/length-over-cap -- ./my-agent",
    }
    return Result(**(values | changes))


def failed(**changes: Any) -> Result:
    """A case that failed."""
    values: dict[str, Any] = {
        "verdict": Verdict.FAIL,
        "broken": "JP-FRM-012: A length above the cap MUST end the connection.",
        "expected": "the connection ends within 3 s",
        "got": "nothing within 3 s",
    }
    return result(**(values | changes))


def record(*results: Result, summary: Summary | None = None, **changes: Any) -> Record:
    """A record of these results."""
    return Record(run=run(**changes), results=results, summary=summary)


# -- any record -------------------------------------------------------------------------------

text = st.sampled_from(HOSTILE) | st.text(
    st.characters(exclude_categories=()) | st.sampled_from("\0\r\n\x1b\x85\u2028\u202e<>&|`]")
)
"""What a target may write, surrogates and control characters included."""

seconds = st.floats(min_value=0, max_value=1e6)
whole = st.integers(min_value=0, max_value=2**64)
names = st.lists(text, max_size=3).map(tuple)
verdicts = st.sampled_from(Verdict)

happenings = st.binary(max_size=40).flatmap(
    lambda data: st.builds(
        Happening,
        at=seconds,
        who=st.sampled_from(("suite", "target", "relay", "rank 0", "rank 12")),
        what=st.sampled_from(
            ("open", "bytes", "fin", "rst", "exit", "up", "down", "line", "act"),
        ),
        connection=st.sampled_from(("", "c", "d")) | text,
        hex=st.just(data.hex()),
        size=st.just(len(data)) | whole,
        text=text,
    )
)

runs = st.builds(
    run,
    role=st.sampled_from(("agent", "controller")),
    target=text,
    version=text,
    seed=st.integers(),
    time_scale=st.floats(min_value=0.001, max_value=100),
    wires=st.lists(whole, max_size=3).map(tuple),
    jobs=st.integers(min_value=1, max_value=100),
    retries=whole,
    selected=whole,
    expectations=text,
)

results = st.builds(
    result,
    case=text.filter(bool) | st.sampled_from(("agent/framing/a", "agent/tag/b", "x")),
    wire=whole,
    admission=st.sampled_from(("open", "pre-shared")),
    title=text,
    level=st.sampled_from(Level),
    clauses=names,
    verdict=verdicts,
    behaviour=verdicts,
    ending=verdicts,
    broken=text,
    expected=text,
    got=text,
    notes=names,
    expected_failure=st.just("") | text,
    seconds=seconds,
    attempts=st.integers(min_value=0, max_value=9),
    repeat=text,
    stderr=text,
    happenings=st.lists(happenings, max_size=6).map(tuple),
)

summaries = st.builds(
    Summary,
    counts=st.dictionaries(verdicts.map(str), whole),
    unexpected=names,
    unexpectedly_passed=names,
    stale=names,
    exit_code=st.integers(min_value=0, max_value=4),
    seconds=seconds,
)

records = st.builds(
    Record,
    run=runs,
    results=st.lists(results, max_size=4).map(tuple),
    summary=st.none() | summaries,
)
