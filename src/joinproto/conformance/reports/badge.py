"""The outcome of a run as a badge: a picture, and what shields.io draws one from.

The second is described at https://shields.io/badges/endpoint-badge.
"""

from __future__ import annotations

import json

from anybadge import Badge

from joinproto.conformance.reports.facts import Standing, counts, standing, tally
from joinproto.conformance.reports.text import one_line
from joinproto.conformance.results import Record
from joinproto.conformance.verdicts import DEVIATES, Verdict

COLOURS = {
    "brightgreen": "#3a7d0a",
    "yellowgreen": "#6b6f00",
    "orange": "#a85a00",
    "red": "#c0261c",
    "lightgrey": "#666666",
}
"""Of shields.io, and the picture's: dark enough for white words."""


def svg(record: Record) -> str:
    """The picture."""
    badge = Badge(label(record), message(record), default_color=COLOURS[colour(record)])
    return str(badge.badge_svg_text)


def endpoint(record: Record) -> str:
    """The JSON that shields.io reads."""
    told = {
        "schemaVersion": 1,
        "label": label(record),
        "message": message(record),
        "color": colour(record),
    }
    return json.dumps(told) + "\n"


def label(record: Record) -> str:
    """The left half."""
    return one_line(f"joinproto {record.run.role}")


def message(record: Record) -> str:
    """The right half: of the cases that the target could be asked for, how many passed."""
    passed, asked = tally(record)
    return f"{passed}/{asked} pass" if record.summary else f"{passed}/{asked} pass, cut short"


def colour(record: Record) -> str:
    """By the worst that is there, in the words of shields.io."""
    found = set(map(standing, record.results))
    deviates = record.summary is not None and record.summary.exit_code == DEVIATES
    if deviates or found & {Standing.FAILED, Standing.PASSED}:
        return "red"
    if Standing.UNDECIDED in found:
        return "orange"
    if record.summary is None or not tally(record)[1]:
        return "lightgrey"
    verdicts = counts(record.results)
    all_pass = verdicts[Verdict.PASS] + verdicts[Verdict.INFO] == tally(record)[1]
    return "brightgreen" if all_pass else "yellowgreen"
