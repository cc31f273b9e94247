"""`joinproto demo`: a controller, agents and ranks on this machine, with what they print."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import subprocess
import sys
from contextlib import ExitStack

from joinproto.cli.controller import stopper, write_text
from joinproto.cli.settings import add_wire
from joinproto.controller import Controller
from joinproto.errors import ConfigError
from joinproto.runtime.addresses import format_address
from joinproto.runtime.environment import SALT_VARIABLE

STEPS = """\
for step in 1 2 3; do
    echo "step $step of 3 on device $CUDA_VISIBLE_DEVICES"
    sleep {pause}
done
{last}
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("--hosts", metavar="N", type=int, default=3, help="how many agents (default: 3)")
    add("--ranks", metavar="N", type=int, default=2, help="ranks of each (default: 2)")
    add("--pause", metavar="S", type=float, default=0.2, help="of a rank between two steps")
    add("--fail", metavar="RANK", type=int, help="let this rank end with code 7")
    add_wire(parser)


def run(args: argparse.Namespace) -> int:
    """Run the demonstration; the exit code is the controller's.

    Raises:
        ConfigError: the numbers make no world.
    """
    if not (1 <= args.hosts <= 64 and 1 <= args.ranks <= 64 and 0 <= args.pause <= 60):
        raise ConfigError("--hosts and --ranks are from 1 to 64, --pause is from 0 to 60")
    world = args.hosts * args.ranks
    if args.fail is not None and not 0 <= args.fail < world:
        raise ConfigError(f"--fail {args.fail}: the ranks are 0 to {world - 1}")
    with ExitStack() as stack:
        controller = stack.enter_context(
            Controller(
                min_ranks=world,
                target_ranks=world,
                on_text=write_text,
            )
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            stack.callback(signal.signal, number, signal.getsignal(number))
            signal.signal(number, stopper(controller))
        for index in range(args.hosts):
            agent = subprocess.Popen(_agent(args, index, controller.address), env=_environment())
            stack.callback(_end, agent)
        return controller.run().exit_code


def _agent(args: argparse.Namespace, index: int, address: tuple[str, int]) -> list[str]:
    devices = ",".join(map(str, range(args.ranks)))
    # Which host gets which ranks is decided by who comes first, so every rank asks who it is.
    last = "" if args.fail is None else f'[ "$({_WHO})" = {args.fail} ] && exit 7 || exit 0'
    steps = STEPS.format(pause=args.pause, last=last)
    return [
        *(sys.executable, "-m", "joinproto", "agent"),
        *("--controller", format_address(*address), "--host", f"host-{index}"),
        *("--devices", devices, "--wire", args.wire),
        *("--", "sh", "-c", steps),
    ]


def _environment() -> dict[str, str]:
    """What agents are given: nothing that would have them join another world than this."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("FLODL_") and name != SALT_VARIABLE
    }


_WHO = shlex.join(
    [
        sys.executable,
        "-c",
        "import json, os; e = json.loads(bytes.fromhex(os.environ['FLODL_INTERNAL_CLUSTER_JSON']));"
        " print(e['worker']['ranks'][int(os.environ['FLODL_INTERNAL_LOCAL_RANK'])])",
    ]
)
"""Prints the global rank of the rank that runs it, from its envelope."""


def _end(agent: subprocess.Popen[bytes]) -> None:
    """Wait for an agent, which ends when its ranks have or its controller is gone."""
    try:
        agent.wait(10)
    except subprocess.TimeoutExpired:
        agent.kill()
        agent.wait()
