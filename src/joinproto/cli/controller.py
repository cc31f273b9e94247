"""`joinproto controller`: run the reference controller."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from contextlib import ExitStack
from typing import Any

from joinproto.cli.settings import add_wire, read_salt, read_scale, read_signature, read_wires
from joinproto.controller import Controller, Event
from joinproto.effects import Severity
from joinproto.errors import ConfigError
from joinproto.limits import JOIN_TIMEOUT
from joinproto.runtime.addresses import parse_address
from joinproto.runtime.torch import MASTER_PORT


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("--bind", metavar="HOST:PORT", required=True, help="where to listen; port 0: a free one")
    add("--min-ranks", metavar="N", type=int, required=True, help="the fewest ranks of a world")
    add("--target-ranks", metavar="N", type=int, help="form the world at once with as many")
    add(
        "--join-timeout",
        metavar="S",
        type=float,
        default=JOIN_TIMEOUT,
        help="how long the window stays open even with enough ranks (default: 300)",
    )
    add(
        "--max-join-timeout",
        metavar="S",
        type=float,
        help="when it fails without (default: 600, or --join-timeout where that is more)",
    )
    admission = parser.add_mutually_exclusive_group()
    admission.add_argument("--salt-file", metavar="FILE", help="file with the pre-shared salt")
    admission.add_argument(
        "--open-admission", action="store_true", help="admit anyone who reaches the port"
    )
    add("--dataset-sig", metavar="HEX", help="dataset signature that every host must carry")
    add_wire(parser)
    add("--mixed-wires", action="store_true", help="members may speak different versions")
    add("--advertise", metavar="HOST[:PORT]", help="the address that ranks are told")
    add("--relay", action="store_true", help="have every host run a relay too")
    add(
        "--master-port",
        metavar="PORT",
        type=int,
        default=MASTER_PORT,
        help="on rank 0's host, told to ranks that run torch.distributed (default: 29500)",
    )
    add("--events", choices=("json",), help="one JSON object a line on stdout, nothing else")
    add("--net-timeout-scale", metavar="X", help="stretches or shrinks every network deadline")


def run(args: argparse.Namespace) -> int:
    """Run until the world has ended; the exit code is that of `Report`.

    Raises:
        ConfigError: the settings are unusable.
    """
    with ExitStack() as stack:
        controller = stack.enter_context(Controller(**_settings(args)))
        for number in (signal.SIGTERM, signal.SIGINT):
            stack.callback(signal.signal, number, signal.getsignal(number))
            signal.signal(number, stopper(controller))
        return controller.run().exit_code


def stopper(controller: Controller) -> Any:
    """A signal handler that gives the run up; a second signal ends the wait for the hosts."""

    def stop(number: int, frame: object) -> None:
        controller.stop(signal.Signals(number).name)

    return stop


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    for name in ("join_timeout", "max_join_timeout"):
        value = getattr(args, name)
        if value is not None and not 0 <= value < 10**9:
            raise ConfigError(f"--{name.replace('_', '-')} {value:g}: write seconds, 0 or more")
    return {
        "bind": parse_address(args.bind),
        "min_ranks": args.min_ranks,
        "target_ranks": args.target_ranks,
        "join_timeout": args.join_timeout,
        "max_join_timeout": args.max_join_timeout,
        "salt": _salt(args),
        "open_admission": args.open_admission,
        "dataset_sig": read_signature("--dataset-sig", args.dataset_sig),
        "wires": read_wires(args.wire),
        "mixed_wires": args.mixed_wires,
        "advertise": None if args.advertise is None else _advertised(args.advertise),
        "relay": args.relay,
        "master_port": _port(args.master_port),
        "scale": read_scale("controller", args.net_timeout_scale),
        "on_event": _write_event if args.events else _no_event,
        "on_text": _write_warning if args.events else write_text,
    }


def _salt(args: argparse.Namespace) -> Any:
    from joinproto.runtime.salts import salt_from_environ

    if args.open_admission:
        return None
    if args.salt_file is not None:
        return read_salt("controller", args.salt_file)
    return salt_from_environ(os.environ)


def _port(port: int) -> int:
    if not 0 < port < 65536:
        raise ConfigError(f"--master-port {port}: a port is from 1 to 65535")
    return port


def _advertised(text: str) -> tuple[str, int | None]:
    host, port = parse_address(text, default_port=0)
    return host, port or None


def _write_event(event: Event) -> None:
    # ASCII only: whatever a host called itself, every reader gets through the line.
    print(json.dumps(event), flush=True)


def _no_event(event: Event) -> None:
    """Events were not asked for."""


def write_text(severity: Severity, text: str) -> None:
    """Write a line for people to stderr."""
    if severity > Severity.DEBUG:
        print(f"joinproto controller: {text}", file=sys.stderr, flush=True)


def _write_warning(severity: Severity, text: str) -> None:
    """Write to stderr what people must not miss, though stdout is for programs."""
    if severity >= Severity.WARNING:
        write_text(severity, text)
