"""A published launcher as the controller of one conformance case.

    python -m interop.published_controller VERSION [--start-mode MODE]

JOINPROTO_CASE says what it is to be told.  Nothing that the launcher starts joins its world, and it
ends when the members of the world have.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import IO, Any

from interop.peers import WIRES, binary, hex_json

STUB = Path(__file__).parent / "adapters/stub"
"""Holds the `ssh` of a launcher that must start a worker."""

NO_TARGET = 1_000_000
"""Stands for no target where that cannot be said: nobody offers so many ranks."""

LIVE = {"01", "08"}
"""ESTABLISHED and CLOSE_WAIT, as /proc/net/tcp has them."""

LOOK = 0.05
"""Seconds between two looks at the connections of a launcher."""


def main() -> None:
    """Run the launcher that the command line and the case ask for."""
    parser = argparse.ArgumentParser(prog="published-controller")
    parser.add_argument("version", choices=sorted(WIRES))
    parser.add_argument("--start-mode", choices=("manual", "hybrid"), help="since 0.8.0")
    options = parser.parse_args()
    case = json.loads(os.environ["JOINPROTO_CASE"])
    program = str(binary(options.version))
    if options.version == "0.7.0":
        if options.start_mode or case["salt_file"]:
            parser.error("0.7.0 has no start modes, and makes its own salt")
        end_like(run_with_worker(program, case))
    environment = environment_for(case["port"], _discovery(case, options.start_mode), [])
    os.execve(program, [program], environment)


def knobs(case: Mapping[str, Any]) -> dict[str, object]:
    """What both versions can be told of a case."""
    return {
        "min_rank_start": case["min_ranks"],
        "target_ranks": case["target_ranks"],
        "join_timeout": case["join_timeout"],
        "max_join_timeout": case["max_join_timeout"],
    }


def environment_for(
    port: int, join: Mapping[str, object], workers: Sequence[Mapping[str, object]]
) -> dict[str, str]:
    """The environment of a launcher; the case's is part of it, and is how its end is made sure."""
    cluster = {
        "controller": {"host": "127.0.0.1", "port": port, "path": "/", "join": join},
        "workers": workers,
    }
    return {
        **os.environ,
        "FLODL_HOST_NAME": "the-launcher",
        "FLODL_INTERNAL_FDL_CMD": "train",
        "FLODL_INTERNAL_FULL_CLUSTER_JSON": hex_json(cluster),
    }


def _discovery(case: Mapping[str, Any], start_mode: str | None) -> dict[str, object]:
    """The window of a launcher that starts nobody (since 0.8.0)."""
    join = knobs(case) | {"discovery": True, "start": start_mode}
    if case["salt_file"]:
        return join | {"token": Path(case["salt_file"]).read_text().strip()}
    return join | {"open_admission": True}


# -- 0.7.0 ------------------------------------------------------------------------------------


def run_with_worker(program: str, case: Mapping[str, Any]) -> int:
    """Run a launcher that must start a worker, and returns how it ended.

    A launcher ends with the worker that it started, and takes one that ends before the world is
    formed for a failure.  The stub therefore stays until the world's last connection is gone.
    """
    join = knobs(case) | {"open_admission": True}
    join["target_ranks"] = join["target_ranks"] or NO_TARGET
    worker = {
        "host": "the-stub",
        "ranks": [0],
        "local_devices": [0],
        "nccl_socket_ifname": "lo",
        "path": "/",
        "ssh": {"target": "the-stub"},
    }
    held, hold = os.pipe()
    environment = environment_for(case["port"], join, [worker])
    environment["PATH"] = f"{STUB}:{environment['PATH']}"
    environment["STUB_HELD"] = str(held)
    launcher = subprocess.Popen([program], env=environment, pass_fds=[held], stderr=subprocess.PIPE)
    os.close(held)
    _forward_signals(launcher)
    formed = threading.Event()
    assert launcher.stderr is not None
    reader = threading.Thread(target=_pass_on, args=(launcher.stderr, formed), daemon=True)
    reader.start()
    _hold_while_members_stay(launcher, case["port"], formed)
    os.close(hold)
    code = launcher.wait()
    reader.join()
    return code


def _forward_signals(launcher: subprocess.Popen[bytes]) -> None:
    def forward(number: int, frame: FrameType | None) -> None:
        launcher.send_signal(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, forward)


def _pass_on(pipe: IO[bytes], formed: threading.Event) -> None:
    for line in pipe:
        sys.stderr.buffer.write(line)
        sys.stderr.buffer.flush()
        if b"world formed" in line:
            formed.set()


def _hold_while_members_stay(
    launcher: subprocess.Popen[bytes], port: int, formed: threading.Event
) -> None:
    """Return when the launcher has ended, or has lost all connections of a formed world."""
    looks_without = 0
    while looks_without < 2:
        try:
            launcher.wait(LOOK)
            return
        except subprocess.TimeoutExpired:
            gone = formed.is_set() and not connections(port)
            looks_without = looks_without + 1 if gone else 0


def connections(port: int) -> int:
    """How many live TCP connections of this machine have that port as their own."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(
        address.endswith(f":{port:04X}") and state in LIVE for _, address, _, state, *_ in rows
    )


def end_like(code: int) -> None:
    """End as the launcher did: with its code, or by its signal."""
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    sys.exit(code)


if __name__ == "__main__":
    main()
