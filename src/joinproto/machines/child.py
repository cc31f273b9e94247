"""One child process, from its start until nothing of it is left.

Whether the process is wanted, whether it is there, and whether its output is still being read are
three things (s6 keeps them apart too): a process that has ended may have output in its pipe, and a
pipe may stay open in a grandchild's hands long after the process.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeAlias

from joinproto import effects as fx
from joinproto.inputs import (
    ChildExited,
    ChildFailed,
    ChildStarted,
    Expired,
    KillChild,
    OutputEnded,
    StopChild,
)
from joinproto.limits import DRAIN, KILL_WAIT, Timer
from joinproto.record import Record, replace
from joinproto.table import Rule, Table


class ChildState(Enum):
    """Where a child is."""

    STARTING = "Starting"
    RUNNING = "Running"
    STOPPING = "Stopping"
    KILLING = "Killing"
    DRAINING = "Draining"
    GONE = "Gone"
    STUCK = "Stuck"


class ChildContext(Record):
    """What is known of the child.

    Attributes:
        slot: its place in the order of starting.
        scale: of the drain bound.
        reading: its output has not ended.
        stopping: somebody asked for its end while it was being started.
    """

    slot: int = 0
    scale: float = 1.0
    reading: bool = True
    stopping: bool = False


Outcome: TypeAlias = tuple[ChildContext, tuple[Any, ...]]


def _stop_wanted(ctx: ChildContext, given: Any, now: float) -> bool:
    return ctx.stopping


def _read_out(ctx: ChildContext, given: Any, now: float) -> bool:
    return not ctx.reading


def _nothing(ctx: ChildContext, given: Any, now: float) -> Outcome:
    return ctx, ()


def _stop_early(ctx: ChildContext, given: StopChild, now: float) -> Outcome:
    # What is not a program yet does not hear SIGTERM.  The start may hang (a directory on a server
    # that is gone), so the grace runs all the same.
    return replace(ctx, stopping=True), (fx.SetTimer(timer=Timer.GRACE, at=given.deadline),)


def _terminate(ctx: ChildContext, given: StopChild, now: float) -> Outcome:
    return ctx, (
        fx.Terminate(slot=ctx.slot),
        fx.SetTimer(timer=Timer.GRACE, at=given.deadline),
    )


def _terminate_late(ctx: ChildContext, given: ChildStarted, now: float) -> Outcome:
    return ctx, (fx.Terminate(slot=ctx.slot),)


def _kill(ctx: ChildContext, given: Any, now: float) -> Outcome:
    return ctx, (
        fx.ClearTimer(timer=Timer.GRACE),
        fx.Kill(slot=ctx.slot),
        fx.SetTimer(timer=Timer.KILL, at=now + KILL_WAIT),
    )


def _give_up(ctx: ChildContext, given: Expired, now: float) -> Outcome:
    return ctx, (fx.TellStuck(),)


def _output_ended(ctx: ChildContext, given: OutputEnded, now: float) -> Outcome:
    return replace(ctx, reading=False), ()


def _drain(ctx: ChildContext, given: ChildExited, now: float) -> Outcome:
    return ctx, (
        *_no_timers(),
        fx.TellExited(code=given.code),
        fx.SetTimer(timer=Timer.DRAIN, at=now + DRAIN * ctx.scale),
    )


def _end(ctx: ChildContext, given: ChildExited, now: float) -> Outcome:
    return ctx, (*_no_timers(), fx.TellExited(code=given.code), fx.TellDrained())


def _drained(ctx: ChildContext, given: Any, now: float) -> Outcome:
    return ctx, (fx.TellDrained(),)


def _cease(ctx: ChildContext, given: ChildFailed, now: float) -> Outcome:
    return ctx, _no_timers()


def _no_timers() -> tuple[Any, ...]:
    return fx.ClearTimer(timer=Timer.GRACE), fx.ClearTimer(timer=Timer.KILL)


S = ChildState


def _exit_rules(source: ChildState) -> tuple[Rule[ChildContext], ...]:
    """An exit, and an end of output, mean the same wherever the process was alive."""
    return (
        Rule(source=source, on=ChildExited, when=_read_out, target=S.GONE, act=_end),
        Rule(source=source, on=ChildExited, target=S.DRAINING, act=_drain),
        Rule(source=source, on=OutputEnded, target=source, act=_output_ended),
    )


_LIFE = (ChildStarted, ChildFailed, ChildExited)
_STOPS = (StopChild, KillChild)
_INPUTS = (*_LIFE, OutputEnded, *_STOPS, Expired)

CHILD = Table[ChildContext](
    "child",
    states=ChildState,
    initial=S.STARTING,
    final=(S.GONE, S.STUCK),
    inputs=_INPUTS,
    rules=(
        Rule(
            source=S.STARTING,
            on=ChildStarted,
            when=_stop_wanted,
            target=S.STOPPING,
            act=_terminate_late,
        ),
        Rule(source=S.STARTING, on=ChildStarted, target=S.RUNNING, act=_nothing),
        Rule(source=S.STARTING, on=ChildFailed, target=S.GONE, act=_cease),
        Rule(source=S.STARTING, on=StopChild, target=S.STARTING, act=_stop_early),
        Rule(source=S.STARTING, on=KillChild, target=S.KILLING, act=_kill),
        Rule(source=S.STARTING, on=Expired, target=S.KILLING, act=_kill),
        *_exit_rules(S.RUNNING),
        Rule(source=S.RUNNING, on=StopChild, target=S.STOPPING, act=_terminate),
        Rule(source=S.RUNNING, on=KillChild, target=S.KILLING, act=_kill),
        *_exit_rules(S.STOPPING),
        Rule(source=S.STOPPING, on=KillChild, target=S.KILLING, act=_kill),
        Rule(source=S.STOPPING, on=Expired, target=S.KILLING, act=_kill),
        *_exit_rules(S.KILLING),
        # The news may have been on their way when it was killed.
        Rule(source=S.KILLING, on=ChildStarted, target=S.KILLING, act=_nothing),
        Rule(source=S.KILLING, on=ChildFailed, target=S.GONE, act=_cease),
        Rule(source=S.KILLING, on=Expired, target=S.STUCK, act=_give_up),
        Rule(source=S.DRAINING, on=OutputEnded, target=S.GONE, act=_drained),
        # A grandchild holds the pipe, or our reader stalls: the end is told all the same.
        Rule(source=S.DRAINING, on=Expired, target=S.GONE, act=_drained),
    ),
    ignored={
        S.STOPPING: (StopChild,),
        S.KILLING: _STOPS,
        # Reaped: its number may belong to another process by now.
        S.DRAINING: _STOPS,
        S.GONE: (*_STOPS, OutputEnded),
        S.STUCK: (*_STOPS, OutputEnded, *_LIFE),
    },
    illegal={
        S.STARTING: (ChildExited, OutputEnded),
        S.RUNNING: (ChildStarted, ChildFailed, Expired),
        S.STOPPING: (ChildStarted, ChildFailed),
        S.DRAINING: _LIFE,
        S.GONE: (*_LIFE, Expired),
        S.STUCK: (Expired,),
    },
)
