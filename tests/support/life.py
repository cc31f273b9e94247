"""An agent at some point of its life, with ranks of all sorts, and the ways to end it.

All that an agent starts, and all that this starts in turn, inherits a mark in its environment, by
which it is found wherever it has gone.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from interop.processes import Watched, clean_environment, marked, variables
from joinproto.messages import Abort, Hello, WorldFormed
from joinproto.testing.fakes import FakeController
from joinproto.testing.script import Admit, Drain, Expect, Say
from joinproto.testing.stage import Stage, Step, Waiting
from tests.support import gated
from tests.support.processes import children, helper_of, stat, survivors
from tests.support.python import PATIENCE, wait_until
from tests.support.roles import shell

WAIT = "while :; do sleep 600 & wait $!; done"
UP = "echo up $$"
RANKS = {
    "well-behaved": f"{UP}; {WAIT}",
    "ignoring SIGTERM": f"trap 'echo asked' TERM; {UP}; {WAIT}",
    "setsid": f"setsid sh -c 'echo up $0; exec sleep 600' $$ & {WAIT}",
    "double-forking": f"(setsid sh -c '(echo up $0; exec sleep 600) &' $$ &); {WAIT}",
    "pipe-holding": f"(trap '' TERM HUP; {UP}; exec sleep 600) & {WAIT}",
    "pipe-closing": f"{UP}; exec >&- 2>&-; (setsid sh -c 'trap \"\" TERM; {WAIT}' &); {WAIT}",
}
"""What ranks do, by their sort.  Each says `up` and its number once it has done so, ends well by
itself on SIGUSR1, and then leaves behind what it has started."""

RELAY = f"trap '' TERM; {UP}; {WAIT}"
RELAY_VARIABLE = "FLODL_INTERNAL_RELAY_JSON"


class _Run(Step):
    """Form a world when it is time to, and abort it when that is wanted.

    Attributes:
        formed: set when the world is to form.
        abort: set when it is to be aborted, formed or not.
        aborted: set once the Abort is with the system.
    """

    def __init__(self, world: WorldFormed) -> None:
        self.formed, self.abort, self.aborted = (threading.Event() for _ in range(3))
        self._world = world

    def play(self, stage: Stage) -> Waiting[None]:
        yield from stage.until(lambda: self.formed.is_set() or self.abort.is_set())
        if self.formed.is_set():
            yield from Say(self._world).play(stage)
        yield from stage.until(self.abort.is_set)
        connection = yield from stage.connection()
        yield from Say(Abort(reason="enough")).play(stage)
        while connection.unsent:
            yield
        self.aborted.set()


class Life:
    """A context manager: while it lasts, the agent and its controller run.

    Args:
        folder: an empty one.
        kinds: what the ranks are like, one for each device.
        relay: whether there is a relay too.
        gate: behind how many children that were asked for the agent stops and says `gate`.
        grace: the agent's, in seconds.
        control_group: whether the helper may make one.
        wrapper: a command that runs the one that is put behind it, which is the agent's.
        others: more of what makes the agent's world hard (see `gated`).

    Attributes:
        agent: the agent, or the wrapper around it.
        pid: the agent's number.
        helper: that of its helper.
    """

    def __init__(
        self,
        folder: Path,
        kinds: tuple[str, ...],
        *,
        relay: bool = False,
        gate: int | None = None,
        grace: float = 0.5,
        control_group: bool = False,
        wrapper: tuple[str, ...] = (),
        **others: object,
    ) -> None:
        self.kinds = kinds
        self.relay = relay
        self._folder = folder
        self._gate = gate
        self._grace = grace
        self._settings: dict[str, object] = {"control_group": control_group, **others}
        self._wrapper = (*wrapper, "sh") if wrapper else ()
        self._world = _Run(WorldFormed(envelope_hex="", relay_spec_hex="" if relay else None))
        self._forked: list[int] = []
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            script = [Expect(Hello), Admit(), self._world, Drain()]
            self.fake = stack.enter_context(FakeController(script, timeout=60.0))
            self.agent = stack.enter_context(Watched(self._argv(), environment=clean_environment()))
            # Whatever becomes of the script: what is of interest is what the agent leaves.
            stack.callback(self.fake.close)
            self.agent.wait_line("joined as rank")
            self.helper = helper_of(self.agent.pid)
            self.pid = int(stat(self.helper)[1])
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    # -- where it is --------------------------------------------------------------------------

    def form(self) -> None:
        """Have the world formed."""
        self._world.formed.set()

    def run(self) -> None:
        """Have the world formed, and wait until every child is up."""
        self.form()
        self.agent.wait_for(lambda: len(self.leaders) == self._count or None, "children that run")

    def stop(self) -> None:
        """Have the agent in the midst of stopping its children."""
        self.run()
        self.send(signal.SIGTERM)
        self.agent.wait_line("asked$")

    def reach_gate(self) -> None:
        """Have the agent between two children."""
        self.form()
        self.agent.wait_line("^gate$")

    def open_gate(self) -> None:
        """Let the agent go on, which still runs."""
        fds: list[int] = []

        def opened() -> bool:
            try:
                fds.append(os.open(self._fifo, os.O_WRONLY | os.O_NONBLOCK))
            except OSError:
                return False
            return True

        wait_until(opened, "the agent waits at its gate")
        os.close(fds[0])

    @property
    def leaders(self) -> dict[str, int]:
        """The numbers of the children that are up, by the prefix of their lines."""
        found = {}
        for line in self.agent.lines("stdout"):
            prefix, _, said = line.partition("] ")
            if said.startswith("up "):
                found[prefix] = int(said.split()[1])
        return found

    @property
    def spawned(self) -> list[int]:
        """The ranks that were started, in this order, as far as the agent told of it."""
        lines = [line for line in self.agent.lines("stderr") if line.startswith('{"event":')]
        events = [json.loads(line) for line in lines]
        spawned = [each for each in events if each["event"] == "spawned"]
        return [each["rank"] for each in spawned if each["rank"] is not None]

    # -- what ends it -------------------------------------------------------------------------

    def end_ranks(self) -> None:
        """Have every rank end by itself, and well."""
        for pid in self.leaders.values():
            os.kill(pid, signal.SIGUSR1)

    def abort(self) -> None:
        """Have the controller abort the run; returns when it has said so."""
        self._world.abort.set()
        assert self._world.aborted.wait(PATIENCE), "the fake controller did not get to it"

    def hang_up(self) -> None:
        """Have the controller close the connection; returns when it is closed."""
        self.fake.close()

    def first_child(self) -> int:
        """A child that is what it is to be, once there is one."""
        found: list[int] = []

        def look() -> bool:
            found[:] = sorted(set(children(self.helper)) & set(marked(self.agent.mark)))
            return bool(found)

        wait_until(look, "a child has started")
        return found[0]

    def waiting(self) -> list[int]:
        """The processes that were forked ahead, once there is one for each rank.

        They carry no mark; from here on they count among those that may be left.
        """

        def look() -> bool:
            self._forked = children(self.helper)
            return len(self._forked) == len(self.kinds)

        wait_until(look, "a process waits for each rank")
        return self._forked

    def kill_relay(self) -> None:
        """End the relay; returns when the helper has reaped it, and so tells of it next."""
        found: list[int] = []

        def look() -> bool:
            found[:] = [pid for pid in children(self.helper) if RELAY_VARIABLE in variables(pid)]
            return bool(found)

        wait_until(look, "the relay has started")
        (relay,) = found
        os.kill(relay, signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{relay}").exists(), "the relay is reaped")

    def fail(self) -> None:
        """Have the agent meet an exception that it knows nothing of."""
        self.send(signal.SIGUSR2)

    def send(self, number: signal.Signals) -> None:
        """Send the agent a signal."""
        os.kill(self.pid, number)

    def kill_helper(self) -> None:
        """End the process between the agent and its children."""
        os.kill(self.helper, signal.SIGKILL)

    # -- what is left of it -------------------------------------------------------------------

    def left(self, within: float = 0.0) -> list[int]:
        """Who is still there of the agent, its helper and all that they started."""
        until = time.monotonic() + within
        others = (self.agent.pid, self.helper, *self._forked)
        return sorted({*survivors(self.agent.mark, *others, until=until)})

    # -- inside -------------------------------------------------------------------------------

    @property
    def _count(self) -> int:
        return len(self.kinds) + self.relay

    @property
    def _fifo(self) -> Path:
        return self._folder / "gate"

    def _argv(self) -> list[str]:
        settings = dict(self._settings)
        if self._gate is not None:
            os.mkfifo(self._fifo)
            settings |= {"gate": self._gate, "fifo": str(self._fifo)}
        devices = ",".join(map(str, range(len(self.kinds))))
        # By path, so that what runs is this checkout, whatever the folder is.
        python = [sys.executable, "-W", "error", "-P", gated.__file__, json.dumps(settings)]
        where = ["--controller", self.fake.address, "--host", "a", "--devices", devices]
        how = ["--wire", "2", "--grace", str(self._grace), "--net-timeout-scale", "0.1"]
        relay = ["--relay-command", shlex.join(shell(RELAY))] if self.relay else []
        ranks = shell(_script_of(self.kinds))
        run = ["agent", *where, *how, *relay, "--events", "json", "--", *ranks]
        return [*self._wrapper, *python, *run]


def _script_of(kinds: tuple[str, ...]) -> str:
    """A shell script that is of one of these sorts, by the place of the rank on its host."""
    cases = "".join(f"{place}) {RANKS[kind]} ;;\n" for place, kind in enumerate(kinds))
    return f"trap 'exit 0' USR1\ncase $FLODL_INTERNAL_LOCAL_RANK in\n{cases}esac"
