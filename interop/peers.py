"""The published peers, and our own programs beside them, as context managers.

`launcher()` runs flodl's own controller with the workers a test names, `published_agent()` flodl's
own agent; `our_agent()` and `our_controller()` run ours.  Everything they start ends with them.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interop.processes import PATIENCE, Watched, clean_environment

WIRES = {"0.7.0": 2, "0.8.0": 4}
"""The wire version that each published version of flodl speaks."""

OURS = (sys.executable, "-m", "joinproto")

PORT_TRIES = 5
"""How often a launcher is started anew because something took its port first."""

SSH = """\
#!/bin/bash
# The launcher reaches a worker's host with `ssh OPTION... HOST COMMAND`.  That host is this one.
command=${!#}
# Before and after a run it sends a pkill, which would match processes by name.
[[ $command == *pkill* ]] && exit
# A login shell has no role in the launcher's world, nor this file in the place of ssh.
unset "${!FLODL_INTERNAL_@}" FLODL_HOST_NAME
PATH=${PATH#*:} exec bash -c "$command"
"""


# -- where they are ---------------------------------------------------------------------------


def directory() -> Path:
    """Where build_peers.sh puts what it builds."""
    if given := os.environ.get("JOINPROTO_PEERS"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "joinproto/peers"


def binary(version: str) -> Path:
    """The published peer of that version.

    Raises:
        FileNotFoundError: it is not built; the text says how to.
    """
    path = directory() / f"flodl-peer-{version}"
    if not path.exists():
        raise FileNotFoundError(f"{path} is not built; run interop/build_peers.sh {version}")
    return path


# -- flodl's controller -----------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Worker:
    """A host of a launcher's world; `argv` is its agent, the published one where it is empty."""

    host: str
    devices: tuple[int, ...]
    argv: tuple[str, ...] = ()


class Launcher(Watched):
    """A running launcher, with its join window open on `port` of every address."""

    def __init__(
        self, argv: Sequence[str | Path], *, environment: Mapping[str, str], port: int
    ) -> None:
        super().__init__(argv, environment=environment)
        self.port = port

    def ranks(self, host: str, *, within: float = PATIENCE) -> list[int]:
        """The ranks with which the launcher says that it admitted `host`; waits until it has."""
        joined = rf'host "{host}" joined with ranks (\[[0-9, ]*\])'
        ranks: list[int] = json.loads(self.wait_line(joined, within=within)[1])
        return ranks

    def exit_codes(self) -> dict[int, int]:
        """Rank → code of every report of a failed rank so far."""
        codes = {}
        for line in self.lines("stderr"):
            if " reports rank " in line:
                words = line.split(" reports rank ")[1].split()  # 3 exited with code 7; feeding …
                codes[int(words[0])] = int(words[4].rstrip(";"))
        return codes


@contextmanager
def launcher(
    version: str,
    workers: Sequence[Worker],
    *,
    join: Mapping[str, object] | None = None,
    rank: str = ":",
    scale: float | None = None,
    extra: Mapping[str, str] | None = None,
) -> Iterator[Launcher]:
    """A launcher of that version, which starts `workers` and forms a world out of them.

    The launcher binds every address, so its workers are handed a salt that is made for the run;
    `join={"open_admission": True}` does without.  It ends when the agents it started have.

    Args:
        join: `controller.join` of its configuration: min_rank_start, target_ranks, join_timeout,
            max_join_timeout, open_admission, since 0.8 also token (the salt), discovery and start.
        rank: the shell command that a rank of a published agent runs; an agent of ours is told by
            its argv.
        scale: FLODL_NET_TIMEOUT_SCALE, which the launcher hands to its workers too.
        extra: environment for everything in this world.
    """
    with tempfile.TemporaryDirectory(prefix="joinproto-interop-") as name:
        home = Path(name)
        _write_scripts(home, workers, binary(version))
        environment = clean_environment(
            FLODL_HOST_NAME="the-launcher", PEER_RANK_CMD=rank, **(extra or {})
        )
        if scale is not None:
            environment["FLODL_NET_TIMEOUT_SCALE"] = str(scale)
        environment |= _launch_variables(home, workers)
        environment["PATH"] = f"{home / 'bin'}:{environment['PATH']}"
        for _ in range(PORT_TRIES):
            port = free_port()
            environment["FLODL_INTERNAL_FULL_CLUSTER_JSON"] = hex_json(
                _cluster(home, port, workers, join or {})
            )
            with Launcher([binary(version)], environment=environment, port=port) as running:
                if running.wait_line(r"port mux (bound)|launcher: bind \S+ failed")[1]:
                    yield running
                    return
    raise OSError(f"no launcher could bind its port in {PORT_TRIES} tries")


def _write_scripts(home: Path, workers: Iterable[Worker], peer: Path) -> None:
    (home / "bin").mkdir()
    _write_script(home / "bin" / "ssh", SSH)
    for worker in workers:
        command = shlex.join(worker.argv or (str(peer),))
        _write_script(home / worker.host, f"#!/bin/sh\nexec {command}\n")


def _write_script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o700)


def _launch_variables(home: Path, workers: Iterable[Worker]) -> dict[str, str]:
    """What flodl's command line tells a launcher besides the cluster.

    The program of each host counts as built and lies in the host's `path` under its name, so that
    the launcher starts it as it is instead of asking the host to build it.
    """
    built = {
        w.host: {"bin": w.host, "ld_library_path": str(home), "cwd_subpath": ""} for w in workers
    }
    return {
        "FLODL_INTERNAL_FDL_CMD": "train",
        "FLODL_INTERNAL_PREBUILD_PER_HOST": json.dumps(built),
    }


def _cluster(
    home: Path, port: int, workers: Iterable[Worker], join: Mapping[str, object]
) -> dict[str, object]:
    entries = []
    first = 0
    for worker in workers:
        ranks = range(first, first := first + len(worker.devices))
        entries.append(
            {
                "host": worker.host,
                "ranks": list(ranks),
                "local_devices": worker.devices,
                "nccl_socket_ifname": "lo",
                "path": str(home),
                "ssh": {"target": worker.host},
            }
        )
    controller = {"host": "127.0.0.1", "port": port, "path": str(home), "join": dict(join)}
    return {"controller": controller, "workers": entries}


def free_port() -> int:
    """A port that was free a moment ago on every address; another process may take it first."""
    with socket.create_server(("", 0)) as server:
        port: int = server.getsockname()[1]
        return port


# -- agents -----------------------------------------------------------------------------------


def agent_spec(host: str, port: int, devices: Sequence[int], **fields: object) -> dict[str, object]:
    """An AgentSpec that dials `port` on loopback; `fields` are its optional ones."""
    return {
        "host": host,
        "controller_host": "127.0.0.1",
        "controller_port": port,
        "local_devices": list(devices),
        **fields,
    }


def published_agent(
    version: str,
    spec: Mapping[str, object],
    *,
    rank: str = ":",
    relay: str = ":",
    extra: Mapping[str, str] | None = None,
) -> Watched:
    """A published agent with that spec, whose ranks and relay run shell commands."""
    return Watched(
        [binary(version)], environment=agent_environment(spec, rank=rank, relay=relay, extra=extra)
    )


def our_agent(
    spec: Mapping[str, object],
    *options: str,
    rank: str = ":",
    relay: str = ":",
    extra: Mapping[str, str] | None = None,
) -> Watched:
    """Our agent, with what the published one would have: spec, environment and commands."""
    environment = agent_environment(spec, rank=rank, relay=relay, extra=extra)
    relay_command = shlex.join(("/bin/sh", "-c", relay))
    argv = our_agent_argv("--relay-command", relay_command, *options, rank=rank)
    return Watched(argv, environment=environment)


def our_agent_argv(*options: str, rank: str) -> tuple[str, ...]:
    """The command line of an agent of ours whose ranks run a shell command."""
    return (*OURS, "agent", *options, "--", "/bin/sh", "-c", rank)


def agent_environment(
    spec: Mapping[str, object],
    *,
    rank: str = ":",
    relay: str = ":",
    extra: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment of an agent with that spec; the commands are for the published one."""
    return clean_environment(
        FLODL_INTERNAL_AGENT_JSON=hex_json(spec),
        FLODL_HOST_NAME=str(spec["host"]),
        PEER_RANK_CMD=rank,
        PEER_RELAY_CMD=relay,
        **(extra or {}),
    )


# -- our controller ---------------------------------------------------------------------------


class Controller(Watched):
    """A running controller of ours; its stdout is its events."""

    def events(self, name: str | None = None) -> list[dict[str, Any]]:
        """The events so far, in order; with `name`, those alone."""
        events = [json.loads(line) for line in self.lines("stdout")]
        return [event for event in events if name in (None, event["event"])]

    def wait_event(
        self, name: str, *, within: float = PATIENCE, **fields: object
    ) -> dict[str, Any]:
        """The first event of that name with those fields, among those past and those to come.

        Raises:
            interop.processes.Missed: none came in time, or before the controller ended.
        """

        def find() -> dict[str, Any] | None:
            found = (e for e in self.events(name) if fields.items() <= e.items())
            return next(found, None)

        return self.wait_for(find, f"event {name} with {fields}", within=within)

    @property
    def port(self) -> int:
        """The port that it listens on."""
        port: int = self.wait_event("listening")["port"]
        return port


def our_controller(*options: str, ranks: int, extra: Mapping[str, str] | None = None) -> Controller:
    """A controller of ours on a free port of loopback, whose world is formed at `ranks` ranks."""
    argv = (*OURS, "controller", "--bind", "127.0.0.1:0", "--events", "json")
    world = ("--min-ranks", str(ranks), "--target-ranks", str(ranks))
    return Controller((*argv, *world, *options), environment=clean_environment(**(extra or {})))


# -- artifacts --------------------------------------------------------------------------------


def hex_json(value: object) -> str:
    """`value` as artifacts and specs travel: the hex of its JSON."""
    return json.dumps(value).encode().hex()


def unhex_json(text: str) -> Any:
    """What `hex_json`, or a peer's equal, made `text` of."""
    return json.loads(bytes.fromhex(text))
