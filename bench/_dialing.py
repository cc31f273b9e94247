"""What there is to measure of a controller: each takes one and gives its samples."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from bench import _load
from bench._load import Plan, Result
from bench._procfs import memory_bytes
from bench._report import OURS
from bench._table import Figures
from interop.peers import WIRES, Worker, binary, launcher, our_controller

KILO, MEGA, MILLI = 1e3, 1e6, 1e3

WINDOW = 300
"""Seconds that a window stays open: longer than any measurement."""

PATIENCE = 20.0
"""Seconds for an agent to be answered; behind silent connections others wait for fifteen."""

LONG = 180.0
"""Seconds for the largest world to be there."""

QUEUE = 64
"""Agents without an answer at a time that fit every controller's accept queue."""

CROWD_AT_A_TIME = 1000
"""Agents without an answer at a time, of the largest world."""

SOURCES = 8
"""Addresses that many connections come from: one has not ports enough for a minute of them."""


class Running(Protocol):
    """A controller that listens."""

    pid: int

    @property
    def port(self) -> int:
        """The port that it listens on."""


@dataclass(frozen=True)
class Contender:
    """A controller to measure.

    Attributes:
        name: what it is called in figures.
        wire: the version that its agents speak.
        open: starts one whose world is formed at that many ranks.
    """

    name: str
    wire: int
    open: Callable[[int], AbstractContextManager[Running]]


def ours(version: str) -> Contender:
    """Ours, with agents of the wire that this published version speaks."""
    return Contender(OURS, WIRES[version], lambda ranks: our_controller(ranks=ranks))


def published(version: str) -> Contender:
    """The published launcher.

    Raises:
        FileNotFoundError: it is not built.
    """
    binary(version)
    # It wants a host that it starts itself; this one never dials.
    absent = Worker(host="absent", devices=(0,), argv=("sleep", "600"))

    def start(ranks: int) -> AbstractContextManager[Running]:
        join = {"open_admission": True, "min_rank_start": ranks, "target_ranks": ranks}
        return launcher(version, [absent], join={**join, "join_timeout": WINDOW})

    return Contender(f"flodl {version}", WIRES[version], start)


@dataclass(frozen=True)
class Sizes:
    """How much of everything.

    Attributes:
        turns: how often what is quick is measured.
        slow_turns: how often what waits is.
        single: agents that join one at a time.
        crowd: agents that come at once.
        silent: connections that say nothing, in the second of two cases.
        many: agents of the largest world.
        honest: agents that join beside garbage.
        garbage: connections a second.
        garbage_seconds: how long they come.
        garbage_before: seconds of it after which the controller's memory counts as its usual.
    """

    turns: int = 7
    slow_turns: int = 3
    single: int = 100
    crowd: int = 500
    silent: int = 1000
    many: int = 10_000
    honest: int = 100
    garbage: int = 1000
    garbage_seconds: float = 60.0
    garbage_before: float = 10.0


FULL = Sizes()
QUICK = Sizes(turns=2, slow_turns=1, single=20, many=1000, garbage_seconds=5.0, garbage_before=2.0)


class Dialers:
    """A running plan."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def result(self) -> Result:
        """What came of it.

        Raises:
            RuntimeError: it failed; why is on stderr.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the load tool failed")
        return Result(**json.loads(line))


@contextmanager
def dialers(plan: Plan) -> Iterator[Dialers]:
    """Dial, in a process of its own; what is open at the end of the context is closed then."""
    with subprocess.Popen(
        [sys.executable, str(Path(_load.__file__))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(asdict(plan)) + "\n")
            process.stdin.flush()
            yield Dialers(process)
        finally:
            process.kill()


# -- measurements -----------------------------------------------------------------------------


def single(contender: Contender, sizes: Sizes) -> Figures:
    """Milliseconds from connect to Accept, of agents that come one at a time."""
    result = _join(contender, sizes.single, at_a_time=1)
    return {"accept": [MILLI * seconds for seconds in result.accepts]}


def crowd(contender: Contender, sizes: Sizes) -> Figures:
    """Joins a second of agents that come at once, and milliseconds until the last has its world."""
    return _rates(contender, sizes.crowd, sizes.crowd)


def queue(contender: Contender, sizes: Sizes) -> Figures:
    """The same of agents that come as fast as those before them are answered."""
    return _rates(contender, sizes.crowd, QUEUE)


def _rates(contender: Contender, agents: int, at_a_time: int) -> Figures:
    result = _join(contender, agents, at_a_time=at_a_time)
    assert result.accepted is not None
    assert result.formed is not None
    return {"joins": [agents / result.accepted], "formed": [MILLI * result.formed]}


def _join(contender: Contender, agents: int, *, at_a_time: int) -> Result:
    with contender.open(agents) as controller:
        plan = Plan(port=controller.port, wire=contender.wire, agents=agents, at_a_time=at_a_time)
        with dialers(plan) as running:
            result = running.result()
    if result.formed is None:
        raise RuntimeError(f"{contender.name} accepted {len(result.accepts)} of {agents} agents")
    return result


def behind(contender: Contender, silent: int) -> Figures:
    """Milliseconds from connect to Accept behind so many connections, half of them mid-frame."""
    with contender.open(1) as controller:
        plan = Plan(
            port=controller.port,
            wire=contender.wire,
            agents=1,
            silent=silent,
            world=False,
            timeout=PATIENCE,
        )
        with dialers(plan) as running:
            result = running.result()
    # One that has waited in vain has waited for as long at least.
    return {"accept": [MILLI * seconds for seconds in result.accepts or [PATIENCE]]}


def behind_few(contender: Contender, sizes: Sizes) -> Figures:
    """Behind two."""
    return behind(contender, 2)


def behind_many(contender: Contender, sizes: Sizes) -> Figures:
    """Behind very many."""
    return behind(contender, sizes.silent)


def many(contender: Contender, sizes: Sizes) -> Figures:
    """A very large world: who has it, how its ranks are, how long it took, and memory for each."""
    with contender.open(sizes.many) as controller:
        plan = Plan(
            port=controller.port,
            wire=contender.wire,
            agents=sizes.many,
            at_a_time=CROWD_AT_A_TIME,
            sources=SOURCES,
            timeout=LONG,
        )
        with dialers(plan) as running:
            result = running.result()
            memory = memory_bytes([controller.pid], "Rss")
    return {
        "with_world": [sizes.many if result.formed is not None else 0],
        "wrong": [wrong_ranks(result.ranks, sizes.many)],
        "seconds": [LONG if result.formed is None else result.formed],
        "memory": [memory / KILO / sizes.many],
    }


def wrong_ranks(ranks: list[int], size: int) -> int:
    """Ranks of a world that nobody has, or that somebody else has too, or that are none of it."""
    held = set(ranks)
    return len(set(range(size)) ^ held) + len(ranks) - len(held)


def garbage(contender: Contender, sizes: Sizes) -> Figures:
    """Honest agents beside many connections that say something wrong; and the memory it takes."""
    honest_interval = 0.9 * sizes.garbage_seconds / sizes.honest
    with ExitStack() as stack:
        controller = stack.enter_context(contender.open(sizes.honest))
        noise = Plan(
            port=controller.port,
            wire=contender.wire,
            garbage=sizes.garbage,
            seconds=sizes.garbage_seconds,
            sources=SOURCES,
        )
        honest = Plan(
            port=controller.port,
            wire=contender.wire,
            agents=sizes.honest,
            interval=honest_interval,
            timeout=sizes.garbage_seconds + PATIENCE,
        )
        noisy = stack.enter_context(dialers(noise))
        joining = stack.enter_context(dialers(honest))
        time.sleep(sizes.garbage_before)
        before = memory_bytes([controller.pid], "Rss")
        thrown = noisy.result().garbage
        grown = memory_bytes([controller.pid], "Rss") - before
        result = joining.result()
    return {
        "with_world": [len(result.accepts) if result.formed is not None else 0],
        "wrong": [wrong_ranks(result.ranks, sizes.honest)],
        "accept": [MILLI * statistics.median(result.accepts or [PATIENCE])],
        "rate": [thrown / sizes.garbage_seconds],
        "growth": [grown / MEGA],
    }


def descriptors_needed(sizes: Sizes) -> int:
    """How many descriptors the largest world takes, of its controller and of its dialers."""
    return _load.descriptors_needed(Plan(port=0, agents=sizes.many))
