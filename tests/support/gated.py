"""An agent to be run by its path, that stops at a gate and fails when it is told to.

    python gated.py SETTINGS agent [option ...] -- command

`SETTINGS` is a JSON object:

* gate: behind how many children that were asked for the agent stops; it says `gate` on stderr and
  goes on when somebody has opened and closed `fifo` for writing.  What comes meanwhile waits, as it
  would for a process that the system does not let run.
* control_group: whether the helper may make one; else it has to do without, as on most machines.

SIGUSR2 raises an exception that nobody expects, wherever the agent is.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any
from unittest import mock

from joinproto.cli import main
from joinproto.runtime import children, host

WITHOUT_CONTROL_GROUP = (
    "import sys; sys.path.insert(0, sys.argv[1]); from joinproto.runtime import cgroup, reaper; "
    "reaper.make_cgroup = lambda name: cgroup.Cgroup(None); reaper.main()"
)


def fail(number: int, frame: object) -> None:
    """Be the exception that nobody expects."""
    raise RuntimeError("a fault of our own")


def stop_at_gate(gate: int, fifo: str) -> None:
    """Have the agent stop when it has asked for so many children."""

    class Gated(children.Children):
        def spawn(self, slot: int, *request: Any) -> tuple[int, int]:
            pipes = super().spawn(slot, *request)
            if slot + 1 == gate:
                os.write(2, b"gate\n")
                with open(fifo, "rb") as file:
                    file.read()
            return pipes

    mock.patch.object(host, "Children", Gated).start()


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    signal.signal(signal.SIGUSR2, fail)
    # A shell has them ignored in what it runs in the background, tests not excepted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if "gate" in settings:
        stop_at_gate(settings["gate"], settings["fifo"])
    if not settings.get("control_group", True):
        children._PROGRAM = WITHOUT_CONTROL_GROUP
    sys.exit(main(sys.argv[2:]))
