"""What a window knows.  Nothing here walks over all members where one of them is concerned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from joinproto.machines.window.config import Check, StartMode, WindowConfig
from joinproto.messages import Hello
from joinproto.record import Record, replace

EMPTY: MappingProxyType[Any, Any] = MappingProxyType({})


class Member(Record):
    """An admitted host.

    Attributes:
        connection: number of its link; None: lost, or before formation: its ranks stand vacant.
        hello: what it said.
        wire: in which version.
        ranks: its global ranks.
        joined_at: seconds after the window opened.
        peer: the address it dialed from, for people.
        left_at: when its link ended, in seconds after the window opened; None: it stands.
    """

    connection: int | None
    hello: Hello
    wire: int
    ranks: tuple[int, ...]
    joined_at: float
    peer: str = ""
    left_at: float | None = None

    @property
    def host(self) -> str:
        """The name under which it joined."""
        return self.hello.host


class End(Record):
    """How a rank ended (−N for signal N), and when, in seconds after the window opened."""

    code: int
    at: float


class Loss(Record):
    """How a host was lost whose ranks ran, and when, in seconds after the window opened."""

    cause: str
    at: float


class References(Record):
    """What members must agree on: of each, what the first member said that said anything.

    Attributes:
        wire: the version they speak.
        dataset_sig: the dataset signature.
        agreed: the rest, by check.
    """

    wire: int | None = None
    dataset_sig: bytes | None = None
    agreed: MappingProxyType[Check, Any] = EMPTY


def references_with(found: References, member: Member) -> References:
    """The references when this member counts too."""
    missing = {
        check: value
        for check, value in said(member.hello).items()
        if value is not None and check not in found.agreed
    }
    first = found.wire is None
    if not (first or missing):
        return found
    return References(
        wire=member.wire if first else found.wire,
        dataset_sig=member.hello.dataset_sig if first else found.dataset_sig,
        agreed=MappingProxyType(found.agreed | missing),
    )


def references_of(members: Iterable[Member]) -> References:
    """The references of these members.

    Only members set them: a Hello that was turned away or taken back never does.
    """
    found = References()
    for member in members:
        found = references_with(found, member)
    return found


def said(hello: Hello) -> Mapping[Check, Any]:
    """What a Hello says of each thing that is checked; None: nothing."""
    nccl = hello.nccl_version
    return {
        Check.VENDOR: vendor(hello.libtorch),
        Check.RUN_ID: hello.run_id,
        # Patch levels get along.
        Check.NCCL: None if nccl is None else nccl[:2],
        Check.MODEL_SIG: hello.model_sig,
    }


VENDORS = {"cu": "NVIDIA", "sm": "NVIDIA", "rocm": "AMD", "gfx": "AMD"}


def vendor(libtorch: str) -> str | None:
    """The GPU vendor that a libtorch label names (`builds/sm80`, `rocm6`); None: it names none."""
    label = libtorch.rstrip("/").rpartition("/")[2]
    for prefix, name in VENDORS.items():
        if label.startswith(prefix) and label[len(prefix) : len(prefix) + 1] in set("0123456789"):
            return name
    return None


class WindowContext(Record):
    """What a window knows.

    Attributes:
        config: what it waits for.
        opened_at: when it opened; None: not yet.
        members: in the order of their ranks.
        places: connection → index in `members`, of those whose link stands.
        hosts: names of those.
        joined_ranks: ranks of those.
        world_size: ranks of all members, of those that stand vacant too.
        references: what a host that wants in must agree with.
        armed: the operator has given the start.
        turned_away: dials that did not end in an admission.
        closed_at: when the window closed, in seconds after it opened; None: not yet.
        formed: the world has formed; then `closed_at` says when.
        ends: of ranks that have ended, in that order.
        lost: of hosts whose link ended while ranks of theirs ran.
        failed_ranks: how many ranks ended badly or were lost with their host.
        failure: why the run was given up; None while it was not.
    """

    config: WindowConfig
    opened_at: float | None = None
    members: tuple[Member, ...] = ()
    places: MappingProxyType[int, int] = EMPTY
    hosts: frozenset[str] = frozenset()
    joined_ranks: int = 0
    world_size: int = 0
    references: References = References()
    armed: bool = False
    turned_away: int = 0
    closed_at: float | None = None
    formed: bool = False
    ends: MappingProxyType[int, End] = EMPTY
    lost: MappingProxyType[str, Loss] = EMPTY
    failed_ranks: int = 0
    failure: str | None = None

    @property
    def formed_at(self) -> float | None:
        """When the world formed, in seconds after the window opened; None: not (yet)."""
        return self.closed_at if self.formed else None

    @property
    def present(self) -> tuple[Member, ...]:
        """Members whose link stands."""
        return tuple(self.members[place] for place in sorted(self.places.values()))

    @property
    def exits(self) -> dict[int, int]:
        """The code of each rank that has ended."""
        return {rank: end.code for rank, end in self.ends.items()}

    @property
    def whole(self) -> bool:
        """No block of ranks stands vacant."""
        return self.joined_ranks == self.world_size

    def member(self, connection: int) -> Member | None:
        """The member on this connection."""
        place = self.places.get(connection)
        return None if place is None else self.members[place]

    def since_opened(self, now: float) -> float:
        """Seconds after the window opened."""
        return 0.0 if self.opened_at is None else now - self.opened_at

    @property
    def complete(self) -> bool:
        """The target is there, without a hole."""
        target = self.config.target_ranks
        return target is not None and self.joined_ranks >= target and self.whole

    @property
    def quorate(self) -> bool:
        """The quorum is there, without a hole."""
        return self.joined_ranks >= self.config.min_ranks and self.whole

    @property
    def startable(self) -> bool:
        """The operator may give the start."""
        return self.config.start_mode is not StartMode.AUTO and self.quorate


Outcome: TypeAlias = tuple[WindowContext, tuple[Any, ...]]


def with_member(ctx: WindowContext, member: Member, place: int) -> WindowContext:
    """The context with this member at this place, which is vacant or the next one."""
    assert member.connection is not None
    count = len(member.ranks)
    new = place == len(ctx.members)
    members = (*ctx.members[:place], member, *ctx.members[place + 1 :])
    return replace(
        ctx,
        members=members,
        places=MappingProxyType(ctx.places | {member.connection: place}),
        hosts=ctx.hosts | {member.host},
        joined_ranks=ctx.joined_ranks + count,
        world_size=ctx.world_size + count if new else ctx.world_size,
        references=references_with(ctx.references, member),
    )


def without_link(ctx: WindowContext, connection: int, now: float) -> WindowContext:
    """The context when the link of this member has ended; the member stays in the list."""
    # A copy and a removal: to build it anew, member by member, takes ten times as long.
    places = ctx.places | {}
    place = places.pop(connection)
    member = ctx.members[place]
    gone = replace(member, connection=None, left_at=ctx.since_opened(now))
    return replace(
        ctx,
        members=(*ctx.members[:place], gone, *ctx.members[place + 1 :]),
        places=MappingProxyType(places),
        hosts=ctx.hosts - {member.host},
        joined_ranks=ctx.joined_ranks - len(member.ranks),
    )


def without_member(ctx: WindowContext, connection: int, now: float) -> WindowContext:
    """The context after a loss before formation: blocks of ranks at the end are returned."""
    ctx = without_link(ctx, connection, now)
    members = list(ctx.members)
    while members and members[-1].connection is None:
        members.pop()
    size = members[-1].ranks[-1] + 1 if members else 0
    ctx = replace(ctx, members=tuple(members), world_size=size)
    return replace(ctx, references=references_of(ctx.present))
