"""Nothing survives an agent, however it ends, wherever it is, and whatever its ranks are like.

Every process that an agent starts, and every one that those start, inherits a mark in its
environment.  An agent is brought to some point of its life and ended by some means; then nobody may
carry the mark any more.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from joinproto.messages import Hello, WorldFormed
from joinproto.testing.fakes import FakeController
from joinproto.testing.script import Admit, Expect, Say, Until

KILLED_WITHIN = 2.0
"""Seconds from a SIGKILL of the agent, or of its helper, until nothing of it is left."""

GRACE = 0.5
SPARE = 2.0
"""Seconds beyond the grace that an agent may take to end; it takes a few hundredths, but machines
that run tests are busy."""

LONG_GRACE = 600.0
"""Where the end must not have come by itself."""

# -- ranks ------------------------------------------------------------------------------------

WAIT = "while :; do sleep 600 & wait $!; done"
RANKS: dict[str, str] = {
    "well-behaved": f"echo up $$; {WAIT}",
    "ignoring SIGTERM": f"trap 'echo asked' TERM; echo up $$; {WAIT}",
    "setsid": f"setsid sh -c 'echo up '$$'; exec sleep 600' & {WAIT}",
    "double-forking": f"(setsid sh -c '(echo up '$$'; exec sleep 600) &' &); {WAIT}",
    "pipe-holding": f"(trap '' TERM HUP; echo up $$; exec sleep 600) & {WAIT}",
    "pipe-closing": (
        f"(setsid sh -c 'trap \"\" TERM; exec sleep 600' >&- 2>&- &); "
        f"echo up $$; exec >&- 2>&-; trap '' TERM; {WAIT}"
    ),
}
"""What ranks do, by their sort; each says `up` and its number once it has done so, ends well by
itself on SIGUSR1, and leaves what it has started behind."""

RELAY = f"trap 'exit 3' USR1; echo up $$; {WAIT}"


def script(kinds: tuple[str, ...]) -> str:
    """A shell script that is of one of these sorts, by the place of the rank on its host."""
    cases = "".join(f"{place}) {RANKS[kind]} ;;\n" for place, kind in enumerate(kinds))
    return f"trap 'exit 0' USR1\ncase $FLODL_INTERNAL_LOCAL_RANK in\n{cases}esac"


# -- an agent that is brought somewhere -------------------------------------------------------


@dataclass
class Life:
    """An agent with its controller, and the ways to end it."""

    folder: Path
    kinds: tuple[str, ...]
    relay: bool = False
    gate: int | None = None
    grace: float = GRACE
    control_group: bool = False
    formed: threading.Event = field(default_factory=threading.Event)
    abort: threading.Event = field(default_factory=threading.Event)
    hang_up: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.fifo = self.folder / "gate"
        os.mkfifo(self.fifo)
        self.stack = ExitStack()
        relay_spec = "" if self.relay else None
        world = WorldFormed(envelope_hex="", relay_spec_hex=relay_spec)
        steps = [Expect(Hello), Admit(), Until(self.formed.is_set), Say(world)]
        steps += [Until(lambda: self.abort.is_set() or self.hang_up.is_set()), Call_or_close(self)]
        self.fake = FakeController(steps, wires=(2,), timeout=60.0)

    @contextmanager
    def started(self) -> Iterator[None]:
        """The agent, as long as this lasts."""
        settings = {"control_group": self.control_group, "fifo": str(self.fifo)}
        if self.gate is not None:
            settings["gate"] = self.gate
        devices = ",".join(map(str, range(len(self.kinds))))
        options = ["--controller", "", "--host", "a", "--devices", devices, "--wire", "2"]
        options += ["--grace", str(self.grace), "--net-timeout-scale", "0.1"]
        with self.fake:
            pass
