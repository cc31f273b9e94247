"""The agent: dial, say Hello, be admitted, wait for the world, start and watch its ranks.

`AGENT` is the machine; what its rows do is in `joining` and `supervising`.
"""

from __future__ import annotations

from joinproto.inputs import (
    ChildDrained,
    ChildExited,
    ChildFailed,
    ChildStarted,
    ChildStuck,
    Connected,
    ConnectFailed,
    EndOfStream,
    Expired,
    Flushed,
    HelperDied,
    LinkBroken,
    Start,
    StopRequested,
    Undecodable,
)
from joinproto.machines.agent import joining, supervising
from joinproto.machines.agent.context import AgentContext, AgentState, Plan
from joinproto.messages import MESSAGES, Abort, Accept, Reject, WorldFormed
from joinproto.table import Rule, Table

__all__ = ["AGENT", "AgentContext", "AgentState", "Plan"]

S = AgentState

_LINK_ENDS = (EndOfStream, LinkBroken)
_CHILDREN = (ChildStarted, ChildFailed, ChildExited, ChildDrained, ChildStuck)
_DIAL = (Connected, ConnectFailed)
_INPUTS = (
    Start,
    *_DIAL,
    Flushed,
    *MESSAGES,
    Undecodable,
    *_LINK_ENDS,
    Expired,
    StopRequested,
    HelperDied,
    *_CHILDREN,
)


def _attempt_failed(source: AgentState, on: type) -> tuple[Rule[AgentContext], ...]:
    """What becomes of an attempt whose connection never came about or gave no answer."""
    rules = [
        Rule(
            source=source, on=on, when=joining.budget_spent, target=S.ABORTED, act=joining.give_up
        ),
        Rule(source=source, on=on, target=S.DIALING, act=joining.pause_and_redial),
    ]
    if on is not ConnectFailed:
        rules.insert(
            0,
            Rule(
                source=source,
                on=on,
                when=joining.more_wires,
                target=S.DIALING,
                act=joining.try_next_wire,
            ),
        )
    return tuple(rules)


def _unexpected_messages(source: AgentState, *expected: type) -> tuple[Rule[AgentContext], ...]:
    return tuple(
        Rule(source=source, on=message, target=S.ABORTED, act=joining.unexpected)
        for message in MESSAGES
        if message not in expected
    )


def _always(source: AgentState) -> tuple[Rule[AgentContext], ...]:
    """What ends an agent that has nothing running, wherever it is."""
    return (
        Rule(source=source, on=StopRequested, target=S.ABORTED, act=joining.stop_early),
        Rule(source=source, on=HelperDied, target=S.ABORTED, act=joining.helper_lost),
    )


def _while_linked(source: AgentState) -> tuple[Rule[AgentContext], ...]:
    return (
        Rule(source=source, on=Undecodable, target=S.ABORTED, act=joining.undecodable),
        Rule(source=source, on=Expired, target=S.ABORTED, act=joining.reply_overdue),
    )


def _ends(on: type) -> tuple[Rule[AgentContext], ...]:
    """Inputs after which nothing of a host that is torn down may be left."""
    return (
        Rule(
            source=S.SUPERVISING,
            on=on,
            when=supervising.last,
            target=S.ABORTED,
            act=supervising.finish_ill,
        ),
    )


AGENT = Table[AgentContext](
    "agent",
    states=AgentState,
    initial=S.DIALING,
    final=(S.DONE, S.ABORTED),
    inputs=_INPUTS,
    rules=(
        Rule(source=S.DIALING, on=Start, target=S.DIALING, act=joining.begin),
        Rule(source=S.DIALING, on=Connected, target=S.HELLO, act=joining.greet),
        *_attempt_failed(S.DIALING, ConnectFailed),
        Rule(source=S.DIALING, on=Expired, target=S.DIALING, act=joining.redial),
        *_always(S.DIALING),
        # A controller may answer before all of the Hello is out, if only to refuse it.
        Rule(source=S.HELLO, on=Flushed, target=S.AWAIT_ACCEPT, act=joining.await_accept),
        Rule(source=S.HELLO, on=Reject, target=S.ABORTED, act=joining.rejected),
        Rule(source=S.HELLO, on=Accept, target=S.ABORTED, act=joining.accepted_early),
        *_unexpected_messages(S.HELLO, Accept, Reject),
        *_attempt_failed(S.HELLO, EndOfStream),
        *_attempt_failed(S.HELLO, LinkBroken),
        *_while_linked(S.HELLO),
        *_always(S.HELLO),
        Rule(
            source=S.AWAIT_ACCEPT,
            on=Accept,
            when=joining.unacceptable,
            target=S.ABORTED,
            act=joining.refuse_accept,
        ),
        Rule(source=S.AWAIT_ACCEPT, on=Accept, target=S.AWAIT_FORMED, act=joining.admitted),
        Rule(source=S.AWAIT_ACCEPT, on=Reject, target=S.ABORTED, act=joining.rejected),
        *_unexpected_messages(S.AWAIT_ACCEPT, Accept, Reject),
        *_attempt_failed(S.AWAIT_ACCEPT, EndOfStream),
        *_attempt_failed(S.AWAIT_ACCEPT, LinkBroken),
        *_while_linked(S.AWAIT_ACCEPT),
        *_always(S.AWAIT_ACCEPT),
        Rule(source=S.AWAIT_FORMED, on=WorldFormed, target=S.SUPERVISING, act=supervising.formed),
        Rule(source=S.AWAIT_FORMED, on=Abort, target=S.ABORTED, act=joining.aborted_early),
        *_unexpected_messages(S.AWAIT_FORMED, WorldFormed, Abort),
        Rule(source=S.AWAIT_FORMED, on=EndOfStream, target=S.ABORTED, act=joining.lost_early),
        Rule(source=S.AWAIT_FORMED, on=LinkBroken, target=S.ABORTED, act=joining.lost_early),
        *_while_linked(S.AWAIT_FORMED),
        *_always(S.AWAIT_FORMED),
        Rule(source=S.SUPERVISING, on=ChildStarted, target=S.SUPERVISING, act=supervising.nothing),
        Rule(
            source=S.SUPERVISING,
            on=ChildFailed,
            when=supervising.last,
            target=S.ABORTED,
            act=supervising.finish_ill,
        ),
        Rule(
            source=S.SUPERVISING,
            on=ChildFailed,
            target=S.SUPERVISING,
            act=supervising.spawn_refused,
        ),
        Rule(
            source=S.SUPERVISING,
            on=HelperDied,
            when=supervising.running,
            target=S.SUPERVISING,
            act=supervising.helper_died,
        ),
        Rule(source=S.SUPERVISING, on=HelperDied, target=S.SUPERVISING, act=supervising.nothing),
        Rule(
            source=S.SUPERVISING, on=ChildExited, target=S.SUPERVISING, act=supervising.child_exited
        ),
        Rule(
            source=S.SUPERVISING,
            on=ChildDrained,
            when=supervising.last_and_well,
            target=S.DONE,
            act=supervising.finish_well,
        ),
        *_ends(ChildDrained),
        Rule(
            source=S.SUPERVISING,
            on=ChildDrained,
            target=S.SUPERVISING,
            act=supervising.child_drained,
        ),
        *_ends(ChildStuck),
        Rule(
            source=S.SUPERVISING, on=ChildStuck, target=S.SUPERVISING, act=supervising.child_stuck
        ),
        Rule(
            source=S.SUPERVISING,
            on=StopRequested,
            when=supervising.asked_before,
            target=S.SUPERVISING,
            act=supervising.hurry,
        ),
        Rule(source=S.SUPERVISING, on=StopRequested, target=S.SUPERVISING, act=supervising.stop),
        Rule(
            source=S.SUPERVISING,
            on=Abort,
            when=supervising.running,
            target=S.SUPERVISING,
            act=supervising.aborted,
        ),
        Rule(source=S.SUPERVISING, on=Abort, target=S.SUPERVISING, act=supervising.nothing),
        *(
            rule
            for on in _LINK_ENDS
            for rule in (
                Rule(
                    source=S.SUPERVISING,
                    on=on,
                    when=supervising.running,
                    target=S.SUPERVISING,
                    act=supervising.lost,
                ),
                Rule(source=S.SUPERVISING, on=on, target=S.SUPERVISING, act=supervising.lost_late),
            )
        ),
        Rule(
            source=S.SUPERVISING,
            on=Undecodable,
            when=supervising.only_payload,
            target=S.SUPERVISING,
            act=supervising.tell_undecodable,
        ),
        Rule(
            source=S.SUPERVISING,
            on=Undecodable,
            when=supervising.running,
            target=S.SUPERVISING,
            act=supervising.broken_by_bytes,
        ),
        Rule(
            source=S.SUPERVISING, on=Undecodable, target=S.SUPERVISING, act=supervising.broken_late
        ),
        *(
            Rule(
                source=S.SUPERVISING, on=message, target=S.SUPERVISING, act=supervising.tell_strange
            )
            for message in MESSAGES
            if message is not Abort
        ),
    ),
    ignored={
        S.AWAIT_ACCEPT: (Flushed,),
        S.AWAIT_FORMED: (Flushed,),
        S.SUPERVISING: (Flushed,),
        S.DONE: _INPUTS,
        S.ABORTED: _INPUTS,
    },
    illegal={
        S.DIALING: (Flushed, *MESSAGES, Undecodable, *_LINK_ENDS, *_CHILDREN),
        S.HELLO: (Start, *_DIAL, *_CHILDREN),
        S.AWAIT_ACCEPT: (Start, *_DIAL, *_CHILDREN),
        S.AWAIT_FORMED: (Start, *_DIAL, *_CHILDREN),
        S.SUPERVISING: (Start, *_DIAL, Expired),
    },
)
