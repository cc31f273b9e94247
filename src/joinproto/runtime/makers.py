"""Artifacts: what each host's relay and ranks are handed when the world has formed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Protocol, TypeAlias

from joinproto.keys import Salt
from joinproto.record import Record
from joinproto.runtime import artifacts

Made: TypeAlias = Mapping[str, tuple[str, str | None]]
"""Host → its envelope and relay spec (None: it runs no relay), both as hex."""


class HostPart(Record):
    """One host of a world.

    Attributes:
        host: the name it joined under.
        ranks: its global ranks.
        local_devices: its device ids, one for each rank.
        gpus: their labels.
        libtorch: its label.
        wire: the version it speaks.
        group_rank: its number in the world.
        peer_host: the address it dialed from.
        controller_host: the controller's address as this host is to dial it.
        controller_port: the port likewise.
    """

    host: str
    ranks: tuple[int, ...]
    local_devices: tuple[int, ...]
    gpus: tuple[str, ...]
    libtorch: str
    wire: int
    group_rank: int
    peer_host: str
    controller_host: str
    controller_port: int


class World(Record):
    """A world that is complete.

    Attributes:
        world_size: its ranks.
        num_hosts: how many hosts it was formed of.
        hosts: those whose link stands, in the order of their ranks.
        salt: the session salt.
        master: where rank 0 can be reached by all others; None: not known.
    """

    hidden: ClassVar[frozenset[str]] = frozenset({"salt"})

    world_size: int
    num_hosts: int
    hosts: tuple[HostPart, ...]
    salt: Salt
    master: tuple[str, int] | None


class Maker(Protocol):
    """Makes the artifacts of a world."""

    def make(self, world: World, done: Callable[[Made | str], None]) -> None:
        """Make them and call `done`, now or later, with them or with why there are none."""

    def cancel(self) -> None:
        """They are not wanted any more; `done` is not called."""


class PublishedMaker:
    """Makes them as published controllers do.

    Args:
        relay: every host runs a relay too.
    """

    def __init__(self, *, relay: bool) -> None:
        self._relay = relay

    def make(self, world: World, done: Callable[[Made | str], None]) -> None:
        """Make them at once."""
        done({part.host: self._of(world, part) for part in world.hosts})

    def cancel(self) -> None:
        """Nothing is under way."""

    def _of(self, world: World, part: HostPart) -> tuple[str, str | None]:
        envelope = artifacts.build_envelope(
            controller_host=part.controller_host,
            controller_port=part.controller_port,
            world_size=world.world_size,
            num_workers=world.num_hosts,
            host=part.host,
            ranks=part.ranks,
            local_devices=part.local_devices,
            salt=world.salt,
            group_rank=part.group_rank,
            master=world.master,
        )
        if not self._relay:
            return envelope, None
        relay = artifacts.build_relay_spec(
            controller_host=part.controller_host,
            controller_port=part.controller_port,
            world_size=world.world_size,
            host=part.host,
            ranks=part.ranks,
            salt=world.salt,
        )
        return envelope, relay
