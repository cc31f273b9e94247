"""pair: a controller with its window, and agents that dial it, in memory on one clock.

Settings: bit 0 pre-shared salt, bit 1 a relay, bit 2 mixed wires, bits 3 and 4 the quorum less one,
bit 5 no target.  Acts have hosts come, end and be told to; links split, stall, break and end; time
pass.  Bytes arrive in the middle of a link, at the end that was chosen last (frames under the key
in force there), or from a stranger who says nothing else while there is no link.

Invariant: whatever arrives and whenever, nothing is raised; a world forms at most once and never
with a hole; the end of a rank is taken down once; the run ends once.  Once every link is gone and
every process has ended, all agents and connections are done and nothing is due.

Exceptions allowed: none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from joinproto.connection import AgentConnection, ControllerConnection
from joinproto.effects import Dial
from joinproto.fuzzing.pieces import FRAME, SESSION, Step, read_script, signed, stream_of
from joinproto.keys import OPEN, Salt
from joinproto.machines.agent import Plan
from joinproto.machines.controller import ControllerState
from joinproto.machines.window import WindowConfig, WindowState
from joinproto.messages import Hello
from joinproto.testing import Behaviour, End, Link, MemoryHost
from tests.support.world import World

MOST_HOSTS: Final = 4
MOST_STRANGERS: Final = 4
MOST_STEPS: Final = 40
"""Of a script; a world takes a hundred times as long as a frame."""

LONG: Final = 4_000.0
"""Seconds; past every deadline that there is."""

SECONDS: Final = (0.1, 0.6, 3.0, 31.0, 301.0)
CHUNKS: Final = (None, 1, 7, 30)
WIRES: Final = ((4, 2), (2,), (4,))
BEHAVIOURS: Final = (
    Behaviour(),
    Behaviour(exits=0),
    Behaviour(exits=-11),
    Behaviour(cannot_start="out of memory"),
    Behaviour(ignores_sigterm=True),
    Behaviour(unkillable=True),
    Behaviour(holds_output=True),
)


def check(data: bytes) -> None:
    """Raises `AssertionError`, or whatever the world raised, where the invariant is broken."""
    settings, steps = read_script(data)
    run = _Run(settings)
    for step in steps[:MOST_STEPS]:
        run.step(step)
        run.world.settle()
        run.never_twice()
    run.wind_up()


class _Run:
    def __init__(self, settings: int) -> None:
        self.open = not settings & 1
        quorum = 1 + (settings >> 3 & 3)
        config = WindowConfig(
            min_ranks=quorum,
            target_ranks=None if settings & 32 else quorum,
            mixed_wires=bool(settings & 4),
        )
        self.world = World(config, SESSION, open=self.open, relay=bool(settings & 2))
        self.chosen = 0

    def step(self, step: Step) -> None:
        if step.op > FRAME:
            ACTS[(step.op - 2) % len(ACTS)](self, step.argument)
            return
        end = self.end()
        if end is not None:
            data = _framed(end, step) if step.op == FRAME else step.data
            end.do(end.connection.receive_data(data, end.clock.now))
        elif len(self.world.strangers) < MOST_STRANGERS:
            self.world.stranger(step.data)

    def links(self) -> list[Link]:
        """Links whose two ends both stand."""
        links = [link for host in self.world.hosts for link in host.links]
        return [link for link in links if not (link.left.closed or link.right.closed)]

    def end(self) -> End | None:
        """The end that was chosen last; None: there are none."""
        ends = [end for link in self.links() for end in (link.left, link.right)]
        return ends[self.chosen % len(ends)] if ends else None

    # -- acts ---------------------------------------------------------------------------------

    def choose(self, argument: int) -> None:
        self.chosen = argument

    def comes(self, argument: int) -> None:
        if len(self.world.hosts) >= MOST_HOSTS:
            return
        devices = tuple(range(1 + argument % 3))
        hello = Hello(host="abcd"[argument // 3 % 4], local_devices=devices)
        plan = Plan(hello=hello, wires=WIRES[argument // 12 % 3], salt=self.salt)
        behaviour = BEHAVIOURS[argument // 36 % len(BEHAVIOURS)]
        host = MemoryHost(plan, self.world.clock, self.answer, others=behaviour)
        self.world.hosts.append(host)
        host.start()

    @property
    def salt(self) -> Salt | None:
        return None if self.open else SESSION

    def answer(self, dial: Dial) -> End:
        return self.world.controller.answer(dial)

    def pass_time(self, argument: int) -> None:
        self.world.advance(SECONDS[argument % len(SECONDS)])

    def split(self, argument: int) -> None:
        if end := self.end():
            end.chunk = CHUNKS[argument % len(CHUNKS)]

    def hold(self, argument: int) -> None:
        if end := self.end():
            end.held = bool(argument % 2)

    def ends(self, argument: int) -> None:
        links = self.links()
        if links:
            link = links[argument // 2 % len(links)]
            if argument % 2:
                link.reset()
            else:
                link.eof()

    def exits(self, argument: int) -> None:
        hosts = [host for host in self.world.hosts if host.processes.running]
        if hosts:
            host = hosts[argument % len(hosts)]
            running = host.processes.running
            host.do(running[argument // 4 % len(running)].exit(argument - 128))

    def stops(self, argument: int) -> None:
        hosts = [host for host in self.world.hosts if not host.finished]
        if hosts:
            hosts[argument % len(hosts)].stop()

    def gives_up(self, argument: int) -> None:
        self.world.controller.stop()

    # -- what holds ---------------------------------------------------------------------------

    def never_twice(self) -> None:
        controller = self.world.controller
        assert len(controller.forms) <= 1, "a world formed twice"
        assert len(dict(controller.exits)) == len(controller.exits), "a rank ended twice"
        assert controller.ends <= 1, "the run ended twice"

    def wind_up(self) -> None:
        world = self.world
        for host in world.hosts:
            for link in host.links:
                link.left.held = link.right.held = False
                link.reset()
        world.advance(LONG)
        for host in world.hosts:
            host.do(host.processes.all_exit())
        world.advance(LONG)
        self.never_twice()
        assert all(host.finished for host in world.hosts), "an agent never ends"
        assert world.controller.window.state in (WindowState.DONE, WindowState.FAILED)
        assert not world.controller.open_connections, "a connection never ends"
        assert world.controller.ends == 1, "the run never ends"
        assert world.next_timer is None, "something is due for ever"


def _framed(end: End, step: Step) -> bytes:
    connection = end.connection
    if isinstance(connection, AgentConnection):
        return stream_of([signed(step.data, connection.key.raw, connection.wire)])
    assert isinstance(connection, ControllerConnection)
    early = (ControllerState.ROUTING, ControllerState.AWAIT_HELLO, ControllerState.DECIDING)
    key = OPEN if connection.context.admission.open and connection.state in early else SESSION
    return stream_of([signed(step.data, key.raw, connection.wire)])


ACTS: Final[tuple[Callable[[_Run, int], None], ...]] = (
    _Run.comes,
    _Run.choose,
    _Run.pass_time,
    _Run.split,
    _Run.hold,
    _Run.ends,
    _Run.exits,
    _Run.stops,
    _Run.gives_up,
)
"""Steps 2, 3, … of a script, and over again."""
