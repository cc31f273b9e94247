#!/usr/bin/env python3
"""How long an agent takes from exec to its Hello on the wire, beside a bare interpreter.

Every host of a cluster starts an agent before anything else can happen there, so what it imports is
paid for everywhere.  The yardstick is `python -c pass` of the same interpreter in the same run,
exec to exit.  The runs of all rows alternate, so that whatever else the machine does meets all of
them alike; a row's figure is the median.

usage: python bench/startup.py [--runs N] [--json FILE]

Exit code: 0, or 1 when a row takes more times the yardstick than it may.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench._common import PEER, Link, compile_bytecode, listen, machine
from interop.peers import OURS, agent_spec, binary, hex_json
from joinproto.messages import Hello
from tests.support.nvml import FakeGpu, build_fake_nvml, fake_gpus

YARDSTICK = "python -c pass"
GIVEN_LIMIT, DETECTED_LIMIT = 9.0, 12.0
"""How many times the yardstick an agent may take: devices given, devices detected."""


@dataclass
class Row:
    """One thing measured; `measure` takes the environment and gives seconds."""

    name: str
    measure: Callable[[Mapping[str, str]], float]
    limit: float | None = None
    seconds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        """Median of the seconds so far."""
        return statistics.median(self.seconds)


# -- measuring --------------------------------------------------------------------------------


def time_to_exit(environment: Mapping[str, str]) -> float:
    """Seconds from exec of the yardstick to its exit."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], env=environment, check=True)
    return time.perf_counter() - start


def time_to_hello(
    argv: Sequence[str | Path], environment: Mapping[str, str], listener: socket.socket
) -> tuple[float, Hello]:
    """Seconds from exec of an agent that dials `listener` to the last byte of its Hello.

    Raises:
        RuntimeError: no Hello came; the text holds what the agent said.
    """
    with tempfile.TemporaryFile() as said, ExitStack() as stack:
        start = time.perf_counter()
        agent = subprocess.Popen(
            argv, env=environment, stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
        try:
            link = stack.enter_context(Link(listener))
            hello = link.receive()
        except (OSError, EOFError) as error:
            said.seek(0)
            words = said.read().decode(errors="replace")
            raise RuntimeError(f"no Hello from {argv}: {error}; it said:\n{words}") from error
        finally:
            # Before the connection closes: an agent that is hung up on dials again.
            agent.kill()
            agent.wait()
    assert isinstance(hello, Hello), hello
    return link.received_at - start, hello


# -- the rows ---------------------------------------------------------------------------------


def rows(listener: socket.socket, scratch: Path) -> list[Row]:
    """The yardstick first, then every agent that can be had on this machine."""
    port = listener.getsockname()[1]

    def ours(devices: str) -> list[str]:
        address = ["--host", "h", "--controller", f"127.0.0.1:{port}"]
        return [*OURS, "agent", "--wire", "2", "--devices", devices, *address, "--", "true"]

    def given(environment: Mapping[str, str]) -> float:
        seconds, hello = time_to_hello(ours("0"), environment, listener)
        assert hello.local_devices == (0,), hello
        return seconds

    found = [
        Row(YARDSTICK, time_to_exit),
        Row("joinproto agent --devices 0", given, limit=GIVEN_LIMIT),
    ]
    if shutil.which("cc"):
        gpus = fake_gpus(build_fake_nvml(scratch), [FakeGpu(), FakeGpu()])
        variables = {name.decode(): value.decode() for name, value in gpus.items()}

        def detected(environment: Mapping[str, str]) -> float:
            seconds, hello = time_to_hello(ours("all"), {**environment, **variables}, listener)
            assert hello.gpus == ("NVIDIA H100 80GB HBM3 (79GB, sm_90)",) * 2, hello
            return seconds

        found.append(Row("joinproto agent --devices all, NVML", detected, limit=DETECTED_LIMIT))
    else:
        print("startup: no C compiler (cc) to build the fake NVML with, so no row for detection")
    try:
        peer = binary(PEER)
    except FileNotFoundError as missing:
        print(f"startup: {missing}, so no row for the published agent")
        return found

    def published(environment: Mapping[str, str]) -> float:
        variables = {"FLODL_INTERNAL_AGENT_JSON": hex_json(agent_spec("h", port, [0]))}
        return time_to_hello([peer], {**environment, **variables}, listener)[0]

    return [*found, Row(f"published agent {PEER}, device 0 given", published)]


def run(table: Sequence[Row], runs: int) -> None:
    """Measure every row `runs` times, in turns; one more round before them warms the caches up."""
    unwanted = ("PYTHONDONTWRITEBYTECODE", "PYTHONPROFILEIMPORTTIME", "PYTHONVERBOSE")
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in unwanted and not name.startswith("FLODL_")
    }
    for turn in range(-1, runs):
        for row in table:
            seconds = row.measure(environment)
            if turn >= 0:
                row.seconds.append(seconds)


# -- telling ----------------------------------------------------------------------------------


def tell(table: Sequence[Row]) -> None:
    """Print the table."""
    base = table[0].median
    heads = ("median", "fastest", "slowest")
    print(f"{'exec to Hello':38} {' '.join(f'{head:>9}' for head in heads)}  ratio  limit")
    for row in table:
        figures = (row.median, min(row.seconds), max(row.seconds))
        milliseconds = " ".join(f"{1000 * figure:6.1f} ms" for figure in figures)
        limit = "" if row.limit is None else f"{row.limit:g}"
        print(f"{row.name:38} {milliseconds} {row.median / base:6.2f} {limit:>6}")


def as_json(table: Sequence[Row]) -> dict[str, object]:
    """The measurement for a program to read; times in seconds."""
    base = table[0].median
    measured = {
        row.name: {
            "median": row.median,
            "ratio": row.median / base,
            "limit": row.limit,
            "seconds": row.seconds,
        }
        for row in table
    }
    return {"yardstick": YARDSTICK, "rows": measured, **machine()}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=30, help="runs of each row (default 30)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    if options.runs < 1:
        parser.error("--runs must be at least 1")
    compile_bytecode()
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory(prefix="joinproto-bench-"))
        listener = stack.enter_context(listen())
        table = rows(listener, Path(scratch))
        run(table, options.runs)
    tell(table)
    if options.json:
        options.json.write_text(json.dumps(as_json(table), indent=2) + "\n")
    base = table[0].median
    over = [row.name for row in table if row.limit is not None and row.median > row.limit * base]
    sys.stdout.flush()
    for name in over:
        print(f"startup: {name} takes longer than it may", file=sys.stderr)
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
