"""What there is to measure of an agent that supervises: each takes one and gives its samples."""

from __future__ import annotations

import os
import random
import select
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench._common import DEADLINE
from bench._flood import JOB, Reader, prefixes, write_lines
from bench._procfs import cpu_seconds, memory_bytes, switches
from bench._table import Figures
from bench._worlds import Contender, World
from joinproto.messages import RankExited

RANKS = 8
FLOODING_RANKS = 4

IDLE = 'echo $$ >"$SAID"; exec sleep 600'
"""What a rank runs that is to do nothing."""

PHASE = 0.1
"""Seconds; deaths come at a random time within, lest they fall in step with an agent that polls."""

SURVIVAL = 2.0
"""Seconds after which whatever outlived its agent counts."""

CALM = 1.0
"""Seconds for a world that has just formed to come to rest."""

MILLI, MEGA, GIGA = 1e3, 1e6, 1e9


@dataclass(frozen=True)
class Sizes:
    """How much of everything.

    Attributes:
        turns: how often each measurement is taken, by its name.
        flood_turns: how often those are that are not named.
        deaths: ranks killed in each world.
        flood_bytes: that each rank writes.
        idle_seconds: that an idle agent is watched.
    """

    turns: Mapping[str, int]
    flood_turns: int
    deaths: int
    flood_bytes: int
    idle_seconds: float


FULL = Sizes(
    turns={"death": 4, "abort": 10, "start": 10, "idle": 3, "sigkill": 3, "sigterm": 3},
    flood_turns=5,
    deaths=5,
    flood_bytes=50_000_000,
    idle_seconds=10.0,
)
QUICK = Sizes(
    turns={"death": 1, "abort": 3, "start": 3, "idle": 1, "sigkill": 1, "sigterm": 1},
    flood_turns=1,
    deaths=5,
    flood_bytes=5_000_000,
    idle_seconds=2.0,
)


def death(contender: Contender, sizes: Sizes) -> Figures:
    """Milliseconds from a rank's death to its RankExited, ranks dying one by one."""
    samples = []
    with World(contender, IDLE, ranks=RANKS) as world:
        world.form()
        for pid in world.hear()[: sizes.deaths]:
            time.sleep(random.uniform(0.0, PHASE))
            died = time.perf_counter()
            os.kill(int(pid), signal.SIGKILL)
            message = world.link.receive()
            assert isinstance(message, RankExited), message
            samples.append(MILLI * (world.link.received_at - died))
    return {"death": samples}


def abort(contender: Contender, sizes: Sizes) -> Figures:
    """Milliseconds from Abort to the end of the last rank, and to the end of the agent."""
    with World(contender, IDLE, ranks=RANKS) as world, ExitStack() as stack:
        world.form()
        fds = [os.pidfd_open(int(pid)) for pid in world.hear()]
        for fd in fds:
            stack.callback(os.close, fd)
        began = world.abort()
        ends = _times_of_ends([*fds, world.agent_fd])
    dead = max(ends[fd] for fd in fds)
    return {"dead": [MILLI * (dead - began)], "gone": [MILLI * (ends[world.agent_fd] - began)]}


def _times_of_ends(pidfds: list[int]) -> dict[int, float]:
    """When each of these processes ended, by its pidfd."""
    waiting = select.poll()
    for fd in pidfds:
        waiting.register(fd, select.POLLIN)
    ends: dict[int, float] = {}
    while len(ends) < len(pidfds):
        ready = waiting.poll(DEADLINE * 1000)
        now = time.perf_counter()
        if not ready:
            raise TimeoutError("ranks or their agent outlive an Abort")
        for fd, _ in ready:
            waiting.unregister(fd)
            ends[fd] = now
    return ends


def start(contender: Contender, sizes: Sizes) -> Figures:
    """Milliseconds from WorldFormed to the first word of the last rank's command."""
    with World(contender, IDLE, ranks=RANKS) as world:
        began = world.form()
        world.hear()
        return {"started": [MILLI * (time.perf_counter() - began)]}


def flood(scratch: Path, length: int) -> Callable[[Contender, Sizes], Figures]:
    """How lines of that length come through; they are kept in a file in `scratch`."""
    path = scratch / f"lines-{length}"

    def measure(contender: Contender, sizes: Sizes) -> Figures:
        count = sizes.flood_bytes // length
        if not path.exists():
            write_lines(path, length=length, count=count)
        given = FLOODING_RANKS * count * length
        expected = given + count * sum(map(len, prefixes(FLOODING_RANKS)))
        read, write = os.pipe()
        with Reader(read, expected) as reader:
            with open(write, "wb", buffering=0) as out:
                world = World(
                    contender, JOB, ranks=FLOODING_RANKS, out=out.fileno(), LINES=str(path)
                )
            with world:
                seconds, cpu = _open_gate(world, reader)
        wrong = reader.wrong_lines(FLOODING_RANKS, count)
        return {"speed": [given / MEGA / seconds], "cpu": [cpu / given * GIGA], "lost": [wrong]}

    return measure


def _open_gate(world: World, reader: Reader) -> tuple[float, float]:
    """Have the ranks write and end; seconds until all was read, and the agent's CPU seconds."""
    world.form()
    world.hear()
    agent = world.processes()
    cpu, began = cpu_seconds(agent), time.perf_counter()
    world.let_go()
    world.hear()
    seconds = reader.await_all() - began
    cpu = cpu_seconds(agent) - cpu
    world.let_go()
    world.await_end()
    reader.await_end()
    return seconds, cpu


def idle(contender: Contender, sizes: Sizes) -> Figures:
    """Wake-ups per second of an agent whose ranks do nothing, and its memory."""
    with World(contender, IDLE, ranks=RANKS) as world:
        world.form()
        world.hear()
        time.sleep(CALM)
        ours = world.processes()
        if contender.library is not None:
            maps = Path(f"/proc/{world.agent}/maps").read_text()
            assert contender.library in maps, "the library is not loaded"
        before, began = switches(ours), time.perf_counter()
        time.sleep(sizes.idle_seconds)
        rate = (switches(ours) - before) / (time.perf_counter() - began)
        pss, rss = (memory_bytes(ours, what) / MEGA for what in ("Pss", "Rss"))
    return {"wakeups": [rate], "pss": [pss], "rss": [rss]}


def sigkill(contender: Contender, sizes: Sizes) -> Figures:
    """Ranks alive some time after their agent was killed."""
    with World(contender, IDLE, ranks=RANKS) as world:
        world.form()
        world.hear()
        os.kill(world.agent, signal.SIGKILL)
        time.sleep(SURVIVAL)
        return {"alive": [world.ranks_alive()]}


def sigterm(contender: Contender, sizes: Sizes) -> Figures:
    """Ranks alive when their agent has ended by SIGTERM."""
    with World(contender, IDLE, ranks=RANKS) as world:
        world.form()
        world.hear()
        os.kill(world.agent, signal.SIGTERM)
        world.await_end()
        return {"alive": [world.ranks_alive()]}
