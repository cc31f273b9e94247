"""The join window, and what becomes of the world that it forms.

Ranks are handed out contiguously, in the order of admission.  A member that is lost before the
world forms leaves its block of ranks vacant for whoever brings as many devices, itself first; a
world never forms with a hole.
"""

from __future__ import annotations

from enum import Enum

from joinproto.inputs import (
    DialTurnedAway,
    Expired,
    GiveUp,
    MemberLost,
    Offered,
    RankReported,
    Settled,
    Start,
    StartGiven,
    StopRequested,
)
from joinproto.machines.window import admission, ending, forming
from joinproto.machines.window.admission import refusal
from joinproto.machines.window.config import Check, StartMode, WindowConfig
from joinproto.machines.window.context import End, Loss, Member, WindowContext, vendor
from joinproto.machines.window.forming import why_no_start
from joinproto.table import Rule, Table

__all__ = [
    "WINDOW",
    "Check",
    "End",
    "Loss",
    "Member",
    "StartMode",
    "WindowConfig",
    "WindowContext",
    "WindowState",
    "refusal",
    "vendor",
    "why_no_start",
]


class WindowState(Enum):
    """Where a run is."""

    WAITING = "Waiting"
    OVERTIME = "Overtime"
    FORMED = "Formed"
    ENDING = "Ending"
    DONE = "Done"
    FAILED = "Failed"


S = WindowState
_STOPS = (StopRequested, GiveUp)
_INPUTS = (
    Start,
    Offered,
    Settled,
    StartGiven,
    DialTurnedAway,
    MemberLost,
    RankReported,
    Expired,
    *_STOPS,
)


def _open(source: WindowState) -> tuple[Rule[WindowContext], ...]:
    """What an open window does, before its join timeout and after."""
    return (
        Rule(
            source=source,
            on=Offered,
            when=admission.wrong_wire,
            target=source,
            act=admission.dismiss,
        ),
        Rule(
            source=source,
            on=Offered,
            when=admission.inadmissible,
            target=source,
            act=admission.refuse,
        ),
        Rule(source=source, on=Offered, target=source, act=admission.admit),
        Rule(source=source, on=MemberLost, target=source, act=forming.retract),
        Rule(source=source, on=StartGiven, when=forming.startable, target=source, act=forming.arm),
        Rule(source=source, on=StartGiven, target=source, act=ending.nothing),
        Rule(
            source=source,
            on=DialTurnedAway,
            when=forming.crowded_alone,
            target=S.FAILED,
            act=forming.fail_alone,
        ),
        Rule(
            source=source,
            on=DialTurnedAway,
            when=forming.too_many,
            target=S.ENDING,
            act=forming.give_up_on_dials,
        ),
        Rule(source=source, on=DialTurnedAway, target=source, act=forming.count_dial),
        *_stops(source),
        Rule(source=source, on=Settled, when=forming.complete, target=S.FORMED, act=forming.form),
        Rule(source=source, on=Settled, when=forming.started, target=S.FORMED, act=forming.form),
    )


def _stops(source: WindowState) -> tuple[Rule[WindowContext], ...]:
    return tuple(
        rule
        for on in _STOPS
        for rule in (
            Rule(
                source=source,
                on=on,
                when=forming.nobody_there,
                target=S.FAILED,
                act=forming.fail_alone,
            ),
            Rule(source=source, on=on, target=S.ENDING, act=forming.stop),
        )
    )


def _reports(source: WindowState, end: WindowState) -> tuple[Rule[WindowContext], ...]:
    """Ends of links and ranks, in a run that goes on or in one that has been given up."""
    return (
        Rule(
            source=source,
            on=MemberLost,
            when=ending.link_ends_run,
            target=end,
            act=ending.end_with_link,
        ),
        *(_too_bad() if source is S.FORMED else ()),
        Rule(source=source, on=MemberLost, target=source, act=ending.link_ended),
        Rule(
            source=source,
            on=RankReported,
            when=ending.report_ends_run,
            target=end,
            act=ending.end_with_report,
        ),
        Rule(source=source, on=RankReported, when=ending.known, target=source, act=ending.nothing),
        Rule(source=source, on=RankReported, target=source, act=ending.take_down),
    )


def _too_bad() -> tuple[Rule[WindowContext], ...]:
    """A run that more ranks have failed than it may lose."""
    return (
        Rule(
            source=S.FORMED,
            on=MemberLost,
            when=ending.link_too_bad_alone,
            target=S.FAILED,
            act=ending.fail_on_link,
        ),
        Rule(
            source=S.FORMED,
            on=MemberLost,
            when=ending.link_too_bad,
            target=S.ENDING,
            act=ending.give_up_on_link,
        ),
        Rule(
            source=S.FORMED,
            on=RankReported,
            when=ending.report_too_bad_alone,
            target=S.FAILED,
            act=ending.fail_on_report,
        ),
        Rule(
            source=S.FORMED,
            on=RankReported,
            when=ending.report_too_bad,
            target=S.ENDING,
            act=ending.give_up_on_report,
        ),
    )


_LATE = (Settled, StartGiven, DialTurnedAway)
_AFTERWARDS = (*_LATE, MemberLost, RankReported, Expired, *_STOPS)

WINDOW = Table[WindowContext](
    "window",
    states=WindowState,
    initial=S.WAITING,
    final=(S.DONE, S.FAILED),
    inputs=_INPUTS,
    rules=(
        Rule(source=S.WAITING, on=Start, target=S.WAITING, act=forming.open_window),
        *_open(S.WAITING),
        Rule(source=S.WAITING, on=Settled, target=S.WAITING, act=ending.nothing),
        # Quorum counts in the very tick of a deadline, whichever of the two it is.
        Rule(
            source=S.WAITING,
            on=Expired,
            when=forming.quorum_by_clock,
            target=S.FORMED,
            act=forming.form,
        ),
        Rule(source=S.WAITING, on=Expired, target=S.OVERTIME, act=forming.wait_on),
        *_open(S.OVERTIME),
        Rule(
            source=S.OVERTIME,
            on=Settled,
            when=forming.quorum_by_clock,
            target=S.FORMED,
            act=forming.form,
        ),
        Rule(source=S.OVERTIME, on=Settled, target=S.OVERTIME, act=ending.nothing),
        Rule(
            source=S.OVERTIME,
            on=Expired,
            when=forming.nobody_there,
            target=S.FAILED,
            act=forming.fail_alone,
        ),
        Rule(source=S.OVERTIME, on=Expired, target=S.ENDING, act=forming.cap_reached),
        Rule(source=S.FORMED, on=Offered, target=S.FORMED, act=admission.refuse_late),
        *_reports(S.FORMED, S.DONE),
        *_stops(S.FORMED),
        Rule(source=S.ENDING, on=Offered, target=S.ENDING, act=admission.refuse_ended),
        *_reports(S.ENDING, S.FAILED),
        Rule(source=S.DONE, on=Offered, target=S.DONE, act=admission.refuse_ended),
        Rule(source=S.FAILED, on=Offered, target=S.FAILED, act=admission.refuse_ended),
    ),
    ignored={
        S.WAITING: (RankReported,),
        S.OVERTIME: (RankReported,),
        S.FORMED: _LATE,
        S.ENDING: (*_LATE, *_STOPS),
        S.DONE: _AFTERWARDS,
        S.FAILED: _AFTERWARDS,
    },
    illegal={
        S.OVERTIME: (Start,),
        S.FORMED: (Start, Expired),
        S.ENDING: (Start, Expired),
        S.DONE: (Start,),
        S.FAILED: (Start,),
    },
)
