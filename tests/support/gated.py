"""An agent to be run by its path, in a world that is harder than usual.

    python gated.py SETTINGS agent [option ...] -- command

`SETTINGS` is a JSON object:

* gate: behind how many children that were asked for the agent stops; it says `gate` on stderr and
  goes on when somebody has opened and closed `fifo` for writing.  What comes meanwhile waits, as it
  would for a process that the system does not let run.
* control_group: whether the helper may make one; else it has to do without, as on most machines.
* fork_fails: how many children the system lets the helper fork before it has no room for one.
* unkillable: signals end nobody, as with processes that hang in a driver; all waits for their ends
  are short.

* signal_while_closing: a SIGTERM comes while all that is left is ended.

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
from joinproto.machines import child
from joinproto.runtime import children, host, loop

HELPER = "import os, sys; sys.path.insert(0, sys.argv[1]); from joinproto.runtime import reaper\n"
WITHOUT_CONTROL_GROUP = """
from joinproto.runtime.cgroup import Cgroup
reaper.make_cgroup = lambda name: Cgroup(None)
"""
FORK_FAILS = """
left, fork = [1] * {}, os.fork
def fork_or_fail():
    if not left:
        raise BlockingIOError(11, "Resource temporarily unavailable")
    left.pop()
    return fork()
os.fork = fork_or_fail
"""
UNKILLABLE = """
reaper.descendants.kill = lambda pid, root: None
reaper.Reaper._signal = lambda self, slot, number: None
"""


class Fault:
    """The exception that nobody expects, raised where the agent is when the signal comes.

    What is raised in a handler may hit code that swallows whatever comes its way, as transitions
    does at the end of every step; then it comes again at the loop's next turn.
    """

    def __init__(self) -> None:
        self._due = False
        run_once, clean_up = loop.Loop.run_once, host.HostRunner._clean_up

        def turn(of: loop.Loop, until: float | None) -> None:
            run_once(of, until)
            if self._due:
                self._raise()

        def end(runner: host.HostRunner) -> None:
            self._due = False
            clean_up(runner)

        mock.patch.object(loop.Loop, "run_once", turn).start()
        mock.patch.object(host.HostRunner, "_clean_up", end).start()

    def come(self, number: int, frame: object) -> None:
        """Be there, as a handler of a signal."""
        self._due = True
        self._raise()

    def _raise(self) -> None:
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


def signal_while_closing() -> None:
    """Have the agent get a signal when it has nothing to do any more but to end well."""

    class Closing(children.Children):
        def close(self, seconds: float) -> list[int]:
            os.kill(os.getpid(), signal.SIGTERM)
            return super().close(seconds)

    mock.patch.object(host, "Children", Closing).start()


def wait_no_longer_than(seconds: float) -> None:
    """Have nobody wait longer for processes to end."""
    for module, name in ((host, "KILL_WAIT"), (child, "KILL_WAIT"), (children, "END_WAIT")):
        mock.patch.object(module, name, seconds).start()


def prepare(settings: dict[str, Any]) -> None:
    """Make the world as it is to be."""
    signal.signal(signal.SIGUSR2, Fault().come)
    # A shell has them ignored in what it runs in the background, tests not excepted.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    helper = HELPER
    if "gate" in settings:
        stop_at_gate(settings["gate"], settings["fifo"])
    if settings.get("signal_while_closing"):
        signal_while_closing()
    if not settings.get("control_group", True):
        helper += WITHOUT_CONTROL_GROUP
    if "fork_fails" in settings:
        helper += FORK_FAILS.format(settings["fork_fails"])
    if settings.get("unkillable"):
        helper += UNKILLABLE
        wait_no_longer_than(0.2)
    mock.patch.object(children, "_PROGRAM", f"{helper}reaper.main()").start()


if __name__ == "__main__":
    prepare(json.loads(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
