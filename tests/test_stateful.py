"""Agents, connections and window joined in memory, under loss, resets and time, step by step.

Whatever happens: a world never forms with a hole or twice, each end of a rank is told once and as
it was, no rank outlives its host's agent, and nobody waits for ever.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from joinproto.effects import Dial
from joinproto.grammar import JOIN_MAGIC
from joinproto.keys import Salt
from joinproto.machines.agent import AgentState, Plan
from joinproto.machines.controller import ControllerState
from joinproto.machines.window import WindowConfig, WindowState
from joinproto.messages import Hello
from joinproto.testing import Behaviour, End, Link, MemoryHost
from tests.support.frames import frame_of
from tests.support.world import World

SALT = Salt(bytes(range(16)))
OTHER_SALT = Salt(bytes(range(16, 32)))

BEHAVIOURS = (
    *[Behaviour()] * 4,
    Behaviour(exits=0),
    Behaviour(exits=-11),
    Behaviour(cannot_start="out of memory"),
    Behaviour(ignores_sigterm=True),
    Behaviour(unkillable=True),
    Behaviour(holds_output=True),
)
HELLO = JOIN_MAGIC + frame_of(Hello(host="a", local_devices=(0,)))
STRANGE = (b"", JOIN_MAGIC[:2], JOIN_MAGIC, HELLO[:20], HELLO[:-1], b"GET / HTTP/1.1\r\n\r\n")
"""What comes from port scans, health checks and dialers that stop in the middle."""

DEVICES = st.integers(1, 3)

LONG = 4_000.0
"""Seconds; past every deadline that there is."""


class Machine(RuleBasedStateMachine):
    """One controller, and hosts that come and go."""

    @initialize(
        min_ranks=st.integers(1, 3),
        extra=st.none() | st.integers(0, 3),
        join_timeout=st.sampled_from([0.5, 20.0, 300.0]),
        open_admission=st.booleans(),
        mixed=st.booleans(),
        relay=st.booleans(),
        first=st.lists(st.tuples(DEVICES, st.sampled_from(BEHAVIOURS)), max_size=3),
    )
    def begin(
        self,
        min_ranks: int,
        extra: int | None,
        join_timeout: float,
        open_admission: bool,
        mixed: bool,
        relay: bool,
        first: list[tuple[int, Behaviour]],
    ) -> None:
        config = WindowConfig(
            min_ranks=min_ranks,
            target_ranks=None if extra is None else min_ranks + extra,
            join_timeout=join_timeout,
            mixed_wires=mixed,
        )
        self.open = open_admission
        self.world = World(config, SALT, open=open_admission, relay=relay)
        self.disturbed: list[Link] = []
        self.lost: list[Link] = []
        # Left to chance alone, few worlds would form.
        for name, (devices, behaviour) in zip("abc", first, strict=False):
            self.a_host_comes(name, devices, (4, 2), True, behaviour, True)

    # -- what happens -------------------------------------------------------------------------

    @precondition(lambda self: len(self.world.hosts) < 6)
    @rule(
        name=st.sampled_from("abcd"),
        devices=DEVICES,
        wires=st.sampled_from([(4, 2), (2,), (4,)]),
        knows=st.integers(0, 7).map(bool),
        behaviour=st.sampled_from(BEHAVIOURS),
        heard=st.integers(0, 7).map(bool),
    )
    def a_host_comes(
        self,
        name: str,
        devices: int,
        wires: tuple[int, ...],
        knows: bool,
        behaviour: Behaviour,
        heard: bool,
    ) -> None:
        salt = (None if self.open else SALT) if knows else OTHER_SALT
        hello = Hello(host=name, local_devices=tuple(range(devices)))
        plan = Plan(hello=hello, wires=wires, salt=salt)

        def answer(dial: Dial) -> End:
            end = self.world.controller.answer(dial)
            end.held = not heard
            return end

        host = MemoryHost(plan, self.world.clock, answer, others=behaviour)
        self.world.hosts.append(host)
        host.start()
        self.world.settle()

    @precondition(lambda self: len(self.world.strangers) < 4)
    @rule(data=st.sampled_from(STRANGE))
    def a_stranger_dials(self, data: bytes) -> None:
        self.world.stranger(data)
        self.world.settle()

    @rule(seconds=st.sampled_from([0.1, 0.6, 3.0, 31.0, 301.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.advance(seconds)

    @precondition(lambda self: self.links())
    @rule(
        data=st.data(), near=st.booleans(), held=st.booleans(), chunk=st.sampled_from([None, 1, 30])
    )
    def a_link_changes(
        self, data: st.DataObject, near: bool, held: bool, chunk: int | None
    ) -> None:
        link = data.draw(st.sampled_from(self.links()))
        end = link.left if near else link.right
        end.held, end.chunk = held, chunk
        if held:
            self.disturbed.append(link)
        self.world.settle()

    @precondition(lambda self: self.links())
    @rule(data=st.data(), how=st.sampled_from(["reset", "eof", "lose"]))
    def a_link_ends(self, data: st.DataObject, how: str) -> None:
        link = data.draw(st.sampled_from(self.links()))
        getattr(link, how)()
        self.disturbed.append(link)
        if how == "lose":
            self.lost.append(link)
        self.world.settle()

    @precondition(lambda self: self.running_hosts())
    @rule(data=st.data(), code=st.sampled_from([0, 0, 7, -9]))
    def a_process_ends(self, data: st.DataObject, code: int) -> None:
        host = data.draw(st.sampled_from(self.running_hosts()))
        process = data.draw(st.sampled_from(host.processes.running))
        host.do(process.exit(code))
        self.world.settle()

    @precondition(lambda self: self.world.hosts)
    @rule(data=st.data())
    def a_host_is_stopped(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.world.hosts)).stop()
        self.world.settle()

    @precondition(lambda self: len(self.world.hosts) > 2)
    @rule(whim=st.integers(0, 9))
    def the_controller_is_stopped(self, whim: int) -> None:
        if whim == 7:
            self.world.controller.stop()
            self.world.settle()

    # -- what holds ---------------------------------------------------------------------------

    @invariant()
    def ranks_are_contiguous(self) -> None:
        members = self.world.controller.context.members
        given_out = [rank for member in members for rank in member.ranks]
        assert given_out == list(range(len(given_out)))

    @invariant()
    def a_world_forms_at_most_once_and_whole(self) -> None:
        controller = self.world.controller
        assert len(controller.forms) <= 1
        assert controller.context.formed == bool(controller.forms)
        assert controller.ends <= 1

    @invariant()
    def a_rank_belongs_to_one_host(self) -> None:
        # A host that has lost its link is on its way out, so it counts here as well.
        hosts = [host for host in self.world.hosts if len(host.processes)]
        ranks = [rank for host in hosts for rank in host.processes if rank is not None]
        assert len(ranks) == len(set(ranks))
        assert not hosts or self.world.controller.forms
        known = {rank for member in self.world.controller.context.members for rank in member.ranks}
        assert known.issuperset(ranks)

    @invariant()
    def an_end_is_told_once_and_as_it_was(self) -> None:
        told = dict(self.world.controller.exits)
        assert len(told) == len(self.world.controller.exits)
        ended = {
            rank: process.code
            for host in self.world.hosts
            for rank, process in host.processes.items()
        }
        assert all(ended[rank] == code for rank, code in told.items())

    @invariant()
    def nothing_outlives_an_agent(self) -> None:
        for host in self.world.hosts:
            if host.finished:
                left = [each for each in host.processes.running if not each.behaviour.unkillable]
                assert not left

    # -- the end ------------------------------------------------------------------------------

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return  # the settings to begin with were refused
        self.world.advance(LONG)
        self.only_runs_are_left()
        for link in self.lost:
            # What the system does about a peer that has gone silent, sooner than this.
            link.reset("connection timed out")
        for host in self.world.hosts:
            for link in host.links:
                link.left.held = link.right.held = False
        self.world.settle()
        for host in self.world.hosts:
            host.do(host.processes.all_exit())
        self.world.advance(LONG)
        self.everybody_is_done()

    def only_runs_are_left(self) -> None:
        """Every phase but a run that nothing disturbs has its deadline, whatever a link does."""
        for host in self.world.hosts:
            if not host.finished:
                assert host.state is AgentState.SUPERVISING
                assert host.agent.context.failure is None
                assert host.processes.running
        for connection in self.world.controller.open_connections:
            assert connection.state is ControllerState.FORMED

    def everybody_is_done(self) -> None:
        world = self.world
        assert [host.state for host in world.hosts if not host.finished] == []
        for host in world.hosts:
            assert (host.state is AgentState.DONE) == (host.error is None)
        assert world.controller.window.state in (WindowState.DONE, WindowState.FAILED)
        assert [each.state for each in world.controller.open_connections] == []
        assert world.controller.ends == 1
        assert all(link.right.closed for link in world.strangers)
        assert world.next_timer is None
        self.every_end_was_told_where_nothing_was_in_the_way()

    def every_end_was_told_where_nothing_was_in_the_way(self) -> None:
        told = dict(self.world.controller.exits)
        for host in self.world.hosts:
            if host.error is None and not any(link in self.disturbed for link in host.links):
                assert told.keys() >= {rank for rank in host.processes if rank is not None}

    # -- helpers ------------------------------------------------------------------------------

    def links(self) -> list[Link]:
        """Links whose two ends both stand."""
        links = [host.link for host in self.world.hosts if host.links]
        return [link for link in links if not (link.left.closed or link.right.closed)]

    def running_hosts(self) -> list[MemoryHost]:
        return [host for host in self.world.hosts if host.processes.running]


@pytest.mark.slow
def test_whatever_happens() -> None:
    run_state_machine_as_test(Machine, settings=settings(stateful_step_count=40))
