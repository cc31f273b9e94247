"""The join window, and what becomes of the world that it forms.

Ranks are handed out contiguously, in the order of admission.  A member that is lost before the
world forms leaves its block of ranks vacant for whoever brings as many devices, itself first; a
world never forms with a hole.
"""

from __future__ import annotations

from enum import Enum
from math import inf
from typing import Any, TypeAlias

from joinproto import effects as fx
from joinproto.effects import Severity
from joinproto.errors import ConfigError
from joinproto.inputs import Expired, MemberLost, Offered, RankReported, Start, StopRequested
from joinproto.limits import (
    JOIN_TIMEOUT,
    MAX_DEVICES,
    MAX_HOST_CHARACTERS,
    MAX_JOIN_TIMEOUT,
    Timer,
    whole_seconds,
)
from joinproto.messages import Hello
from joinproto.record import Record, replace
from joinproto.table import Rule, Table


class WindowState(Enum):
    """Where a run is."""

    WAITING = "Waiting"
    OVERTIME = "Overtime"
    FORMED = "Formed"
    ENDING = "Ending"
    DONE = "Done"
    FAILED = "Failed"


class WindowConfig(Record):
    """What a window waits for.

    Attributes:
        min_ranks: the quorum: the fewest ranks that make a world.
        target_ranks: as many form a world at once; None waits for the join timeout.
        join_timeout: seconds (unscaled) for which the window stays open even with quorum.
        max_join_timeout: seconds (unscaled) after which a window without quorum fails; None: the
            larger of 600 and `join_timeout`.
        dataset_sig: what every Hello must carry; None: what the first member carried.
        mixed_wires: members of different versions may share a world.
        local_hosts: hosts whose link may end while their ranks run; the caller tells their ends.
        scale: of both timeouts.

    Raises:
        ConfigError: the numbers contradict each other.
    """

    min_ranks: int = 1
    target_ranks: int | None = None
    join_timeout: float = JOIN_TIMEOUT
    max_join_timeout: float | None = None
    dataset_sig: bytes | None = None
    mixed_wires: bool = False
    local_hosts: frozenset[str] = frozenset()
    scale: float = 1.0

    def __post_init__(self) -> None:
        if self.min_ranks < 1:
            raise ConfigError(f"min ranks is {self.min_ranks}; a world has at least 1 rank")
        if self.target_ranks is not None and self.target_ranks < self.min_ranks:
            raise ConfigError(
                f"target ranks ({self.target_ranks}) is below min ranks ({self.min_ranks})"
            )
        for name, value in (
            ("join timeout", self.join_timeout),
            ("max join timeout", self.max_join_timeout),
        ):
            if value is not None and not 0 <= value < inf:
                raise ConfigError(f"{name} is {value:g}; it is a number of seconds")
        if self.max_join_timeout is not None and self.max_join_timeout < self.join_timeout:
            raise ConfigError(
                f"max join timeout ({self.max_join_timeout:g} s) is below the join timeout "
                f"({self.join_timeout:g} s)"
            )

    @property
    def window(self) -> float:
        """Seconds, scaled, until quorum is enough."""
        return whole_seconds(self.join_timeout, self.scale)

    @property
    def cap(self) -> float:
        """Seconds, scaled, until a window without quorum fails."""
        unset = max(MAX_JOIN_TIMEOUT, self.join_timeout)
        base = unset if self.max_join_timeout is None else self.max_join_timeout
        return whole_seconds(base, self.scale)


class Member(Record):
    """An admitted host.

    Attributes:
        connection: number of its link; None: lost, its ranks stand vacant.
        hello: what it said.
        wire: in which version.
        ranks: its global ranks.
        joined_at: seconds after the window opened.
    """

    connection: int | None
    hello: Hello
    wire: int
    ranks: tuple[int, ...]
    joined_at: float

    @property
    def host(self) -> str:
        """The name under which it joined."""
        return self.hello.host


class WindowContext(Record):
    """What a window knows.

    Attributes:
        config: what it waits for.
        opened_at: when it opened.
        members: in the order of their ranks.
        exits: rank → code, of those that have ended.
        lost: hosts whose link ended while ranks of theirs ran, with the cause.
        failure: why the run was given up; None while it was not.
        formed: the world was formed.
    """

    config: WindowConfig
    opened_at: float = 0.0
    members: tuple[Member, ...] = ()
    exits: tuple[tuple[int, int], ...] = ()
    lost: tuple[tuple[str, str], ...] = ()
    failure: str | None = None
    formed: bool = False

    @property
    def present(self) -> tuple[Member, ...]:
        """Members whose link stands."""
        return tuple(member for member in self.members if member.connection is not None)

    @property
    def joined_ranks(self) -> int:
        """Ranks whose host is there."""
        return sum(len(member.ranks) for member in self.present)

    @property
    def whole(self) -> bool:
        """No block of ranks stands vacant."""
        return len(self.present) == len(self.members)

    def member(self, connection: int) -> Member | None:
        """The member on this connection."""
        found = (member for member in self.members if member.connection == connection)
        return next(found, None)


Outcome: TypeAlias = tuple[WindowContext, tuple[Any, ...]]

# -- admission --------------------------------------------------------------------------------


def refusal(ctx: WindowContext, hello: Hello) -> str | None:
    """Why this host may not join, in the order in which it is asked; None: it may."""
    devices = hello.local_devices
    if not hello.host.strip():
        return "the host name is blank"
    if len(hello.host) > MAX_HOST_CHARACTERS:
        return f"the host name has {len(hello.host)} characters, more than {MAX_HOST_CHARACTERS}"
    if not devices:
        return "no devices are offered; a host without ranks has no place in a world"
    if len(devices) > MAX_DEVICES:
        return f"{len(devices)} devices are offered, more than {MAX_DEVICES}"
    if len(set(devices)) < len(devices):
        twice = next(device for device in devices if devices.count(device) > 1)
        return f"device {twice} is offered twice"
    if any(member.host == hello.host for member in ctx.present):
        return (
            f"host {hello.host!r} has joined already; if that was an earlier start of this "
            "worker, its connection still stands"
        )
    expected = _reference_signature(ctx)
    if expected is not None and hello.dataset_sig != expected:
        return (
            f"dataset signature {hello.dataset_sig[:4].hex()}… differs from this run's "
            f"{expected[:4].hex()}…"
        )
    return None


def _reference_signature(ctx: WindowContext) -> bytes | None:
    # Taken from members alone: a Hello that was turned away or taken back sets nothing.
    first = ctx.members[0].hello.dataset_sig if ctx.members else None
    return first if ctx.config.dataset_sig is None else ctx.config.dataset_sig


def _wrong_wire(ctx: WindowContext, given: Offered, now: float) -> bool:
    return _wire_refusal(ctx, given.wire) is not None


def _wire_refusal(ctx: WindowContext, wire: int) -> str | None:
    if not ctx.config.mixed_wires and ctx.members and ctx.members[0].wire != wire:
        return f"wire {wire}; this world's first member fixed wire {ctx.members[0].wire}"
    return None


def _dismiss(ctx: WindowContext, given: Offered, now: float) -> Outcome:
    # As published controllers do, so that an agent that tries versions finds its way.
    reason = _wire_refusal(ctx, given.wire) or "wire version"
    return ctx, (fx.DismissHost(connection=given.connection, reason=reason),)


def _inadmissible(ctx: WindowContext, given: Offered, now: float) -> bool:
    return refusal(ctx, given.hello) is not None


def _refuse(ctx: WindowContext, given: Offered, now: float) -> Outcome:
    reason = refusal(ctx, given.hello) or "refused"
    return ctx, (fx.RefuseHost(connection=given.connection, reason=reason),)


def _with(ctx: WindowContext, given: Offered, now: float) -> tuple[WindowContext, Member]:
    """The context with this host in it."""
    place = _vacancy(ctx, given.hello)
    if place is None:
        first = sum(len(member.ranks) for member in ctx.members)
        ranks = tuple(range(first, first + len(given.hello.local_devices)))
        place = len(ctx.members)
    else:
        ranks = ctx.members[place].ranks
    member = Member(
        connection=given.connection,
        hello=given.hello,
        wire=given.wire,
        ranks=ranks,
        joined_at=now - ctx.opened_at,
    )
    members = (*ctx.members[:place], member, *ctx.members[place + 1 :])
    return replace(ctx, members=members), member


def _vacancy(ctx: WindowContext, hello: Hello) -> int | None:
    """Index of the vacant block that this host takes: its own, or the first of its size."""
    fitting = [
        (member.host != hello.host, index)
        for index, member in enumerate(ctx.members)
        if member.connection is None and len(member.ranks) == len(hello.local_devices)
    ]
    return min(fitting)[1] if fitting else None


def _admit(ctx: WindowContext, given: Offered, now: float) -> Outcome:
    left = ctx.opened_at + ctx.config.cap - now
    ctx, member = _with(ctx, given, now)
    return ctx, (
        fx.AdmitHost(
            connection=given.connection,
            ranks=member.ranks,
            formation_wait_secs=max(0, int(left)),
        ),
    )


def _refuse_late(ctx: WindowContext, given: Offered, now: float) -> Outcome:
    reason = "the world has formed already; a host that comes later cannot join this run"
    return ctx, (fx.RefuseHost(connection=given.connection, reason=reason),)


def _refuse_ended(ctx: WindowContext, given: Offered, now: float) -> Outcome:
    reason = f"the run is over: {ctx.failure}" if ctx.failure else "the run is over"
    return ctx, (fx.RefuseHost(connection=given.connection, reason=reason),)


# -- forming ----------------------------------------------------------------------------------


def _complete(ctx: WindowContext) -> bool:
    target = ctx.config.target_ranks
    return target is not None and ctx.joined_ranks >= target and ctx.whole


def _quorate(ctx: WindowContext) -> bool:
    return ctx.joined_ranks >= ctx.config.min_ranks and ctx.whole


def _completes(ctx: WindowContext, given: Offered, now: float) -> bool:
    return _complete(_with(ctx, given, now)[0])


def _makes_quorum(ctx: WindowContext, given: Offered, now: float) -> bool:
    return _quorate(_with(ctx, given, now)[0])


def _quorum(ctx: WindowContext, given: Any, now: float) -> bool:
    return _quorate(ctx)


def _admit_and_form(ctx: WindowContext, given: Offered, now: float) -> Outcome:
    ctx, admitted = _admit(ctx, given, now)
    ctx, formed = _form(ctx)
    return ctx, (*admitted, *formed)


def _form_at_timeout(ctx: WindowContext, given: Expired, now: float) -> Outcome:
    return _form(ctx)


def _form(ctx: WindowContext) -> Outcome:
    reason = "target reached" if _complete(ctx) else "quorum holds and the join timeout has passed"
    return replace(ctx, formed=True), (*_calm(), fx.FormWorld(reason=reason))


def _calm() -> tuple[Any, ...]:
    return fx.ClearTimer(timer=Timer.WINDOW), fx.ClearTimer(timer=Timer.CAP)


def _open(ctx: WindowContext, given: Start, now: float) -> Outcome:
    return replace(ctx, opened_at=now), (
        fx.SetTimer(timer=Timer.WINDOW, at=now + ctx.config.window),
        fx.SetTimer(timer=Timer.CAP, at=now + ctx.config.cap),
    )


def _wait_on(ctx: WindowContext, given: Expired, now: float) -> Outcome:
    text = f"join timeout passed and {_lacking(ctx)}; waiting on"
    return ctx, (fx.Tell(severity=Severity.WARNING, text=text),)


def _lacking(ctx: WindowContext) -> str:
    """Why this window cannot form a world."""
    need, have = ctx.config.min_ranks, ctx.joined_ranks
    if have < need:
        return f"{have} of at least {need} rank(s) have joined"
    return "ranks of a lost host stand vacant"


def _without(ctx: WindowContext, connection: int) -> WindowContext:
    """The context after this member's loss: its block vacant, vacant blocks at the end returned."""
    members = [
        replace(member, connection=None) if member.connection == connection else member
        for member in ctx.members
    ]
    while members and members[-1].connection is None:
        members.pop()
    return replace(ctx, members=tuple(members))


def _retract(ctx: WindowContext, given: MemberLost, now: float) -> Outcome:
    return _without(ctx, given.connection), ()


# A loss can make a world whole: the blocks that stood vacant lie at the end, and go with this one.


def _loss_completes(ctx: WindowContext, given: MemberLost, now: float) -> bool:
    return _complete(_without(ctx, given.connection))


def _loss_leaves_quorum(ctx: WindowContext, given: MemberLost, now: float) -> bool:
    return _quorate(_without(ctx, given.connection))


def _retract_and_form(ctx: WindowContext, given: MemberLost, now: float) -> Outcome:
    return _form(_without(ctx, given.connection))


# -- ending -----------------------------------------------------------------------------------


def _give_up(ctx: WindowContext, reason: str) -> Outcome:
    return replace(ctx, failure=reason), (*_calm(), fx.AbortAll(reason=reason))


def _cap_reached(ctx: WindowContext, given: Expired, now: float) -> Outcome:
    return _give_up(ctx, f"quorum not met: {_lacking(ctx)} after {ctx.config.cap:g} s")


def _stop(ctx: WindowContext, given: StopRequested, now: float) -> Outcome:
    return _give_up(ctx, f"the controller was stopped ({given.reason})")


def _nobody_there(ctx: WindowContext, given: Any, now: float) -> bool:
    return not ctx.present


def _fail_alone(ctx: WindowContext, given: Any, now: float) -> Outcome:
    make = _stop if isinstance(given, StopRequested) else _cap_reached
    ctx, effects = make(ctx, given, now)
    return ctx, (*effects, fx.RunEnded())


def _exit_taken_down(ctx: WindowContext, given: RankReported, now: float) -> Outcome:
    ended = fx.RankEnded(rank=given.rank, code=given.code)
    return replace(ctx, exits=(*ctx.exits, (given.rank, given.code))), (ended,)


def _known(ctx: WindowContext, given: RankReported, now: float) -> bool:
    ranks = {rank for member in ctx.members for rank in member.ranks}
    return given.rank not in ranks or given.rank in dict(ctx.exits)


def _nothing(ctx: WindowContext, given: Any, now: float) -> Outcome:
    return ctx, ()


def _over(ctx: WindowContext) -> bool:
    """No link stands, and (unless the run was given up) no local host's rank is to be told."""
    ended = dict(ctx.exits)
    waiting = (
        rank
        for member in ctx.members
        if member.host in ctx.config.local_hosts
        for rank in member.ranks
        if rank not in ended
    )
    return not ctx.present and (ctx.failure is not None or next(waiting, None) is None)


def _link_ended(ctx: WindowContext, given: MemberLost, now: float) -> Outcome:
    """A member's link after formation: kept in the list, with what its end means."""
    member = ctx.member(given.connection)
    if member is None:
        return ctx, ()
    gone = replace(member, connection=None)
    members = tuple(gone if other is member else other for other in ctx.members)
    ctx = replace(ctx, members=members)
    ended = dict(ctx.exits)
    running = [rank for rank in member.ranks if rank not in ended]
    if ctx.formed and running and member.host not in ctx.config.local_hosts:
        ctx = replace(ctx, lost=(*ctx.lost, (member.host, given.cause)))
    return ctx, ()


def _last_link(ctx: WindowContext, given: MemberLost, now: float) -> bool:
    return _over(_link_ended(ctx, given, now)[0])


def _last_report(ctx: WindowContext, given: RankReported, now: float) -> bool:
    return not _known(ctx, given, now) and _over(_exit_taken_down(ctx, given, now)[0])


def _end_with_link(ctx: WindowContext, given: MemberLost, now: float) -> Outcome:
    ctx, _ = _link_ended(ctx, given, now)
    return ctx, (fx.RunEnded(),)


def _end_with_report(ctx: WindowContext, given: RankReported, now: float) -> Outcome:
    ctx, effects = _exit_taken_down(ctx, given, now)
    return ctx, (*effects, fx.RunEnded())


# -- the table --------------------------------------------------------------------------------

S = WindowState
_INPUTS = (Start, Offered, MemberLost, RankReported, Expired, StopRequested)


def _offers(source: WindowState, forms: Any) -> tuple[Rule[WindowContext], ...]:
    return (
        Rule(source=source, on=Offered, when=_wrong_wire, target=source, act=_dismiss),
        Rule(source=source, on=Offered, when=_inadmissible, target=source, act=_refuse),
        Rule(source=source, on=Offered, when=forms, target=S.FORMED, act=_admit_and_form),
        Rule(source=source, on=Offered, target=source, act=_admit),
    )


def _stops(source: WindowState) -> tuple[Rule[WindowContext], ...]:
    return (
        Rule(
            source=source,
            on=StopRequested,
            when=_nobody_there,
            target=S.FAILED,
            act=_fail_alone,
        ),
        Rule(source=source, on=StopRequested, target=S.ENDING, act=_stop),
    )


def _reports(source: WindowState, end: WindowState) -> tuple[Rule[WindowContext], ...]:
    return (
        Rule(source=source, on=MemberLost, when=_last_link, target=end, act=_end_with_link),
        Rule(source=source, on=MemberLost, target=source, act=_link_ended),
        Rule(source=source, on=RankReported, when=_last_report, target=end, act=_end_with_report),
        Rule(source=source, on=RankReported, when=_known, target=source, act=_nothing),
        Rule(source=source, on=RankReported, target=source, act=_exit_taken_down),
    )


WINDOW = Table[WindowContext](
    "window",
    states=WindowState,
    initial=S.WAITING,
    final=(S.DONE, S.FAILED),
    inputs=_INPUTS,
    rules=(
        Rule(source=S.WAITING, on=Start, target=S.WAITING, act=_open),
        *_offers(S.WAITING, _completes),
        Rule(
            source=S.WAITING,
            on=MemberLost,
            when=_loss_completes,
            target=S.FORMED,
            act=_retract_and_form,
        ),
        Rule(source=S.WAITING, on=MemberLost, target=S.WAITING, act=_retract),
        # Quorum counts in the very tick of a deadline, whichever of the two it is.
        Rule(source=S.WAITING, on=Expired, when=_quorum, target=S.FORMED, act=_form_at_timeout),
        Rule(source=S.WAITING, on=Expired, target=S.OVERTIME, act=_wait_on),
        *_stops(S.WAITING),
        *_offers(S.OVERTIME, _makes_quorum),
        Rule(
            source=S.OVERTIME,
            on=MemberLost,
            when=_loss_leaves_quorum,
            target=S.FORMED,
            act=_retract_and_form,
        ),
        Rule(source=S.OVERTIME, on=MemberLost, target=S.OVERTIME, act=_retract),
        Rule(
            source=S.OVERTIME,
            on=Expired,
            when=_nobody_there,
            target=S.FAILED,
            act=_fail_alone,
        ),
        Rule(source=S.OVERTIME, on=Expired, target=S.ENDING, act=_cap_reached),
        *_stops(S.OVERTIME),
        Rule(source=S.FORMED, on=Offered, target=S.FORMED, act=_refuse_late),
        *_reports(S.FORMED, S.DONE),
        *_stops(S.FORMED),
        Rule(source=S.ENDING, on=Offered, target=S.ENDING, act=_refuse_ended),
        *_reports(S.ENDING, S.FAILED),
        Rule(source=S.DONE, on=Offered, target=S.DONE, act=_refuse_ended),
        Rule(source=S.FAILED, on=Offered, target=S.FAILED, act=_refuse_ended),
    ),
    ignored={
        S.WAITING: (RankReported,),
        S.OVERTIME: (RankReported,),
        S.ENDING: (StopRequested,),
        S.DONE: (MemberLost, RankReported, Expired, StopRequested),
        S.FAILED: (MemberLost, RankReported, Expired, StopRequested),
    },
    illegal={
        S.OVERTIME: (Start,),
        S.FORMED: (Start, Expired),
        S.ENDING: (Start, Expired),
        S.DONE: (Start,),
        S.FAILED: (Start,),
    },
)
