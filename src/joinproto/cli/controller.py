"""`joinproto controller`: run the reference controller."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from joinproto.cli.settings import add_wire, read_salt, read_scale, read_signature, read_wires
from joinproto.controller import Controller
from joinproto.effects import Severity
from joinproto.errors import ConfigError
from joinproto.limits import JOIN_TIMEOUT
from joinproto.machines.window import Check, StartMode
from joinproto.runtime.addresses import parse_address
from joinproto.runtime.torch import MASTER_PORT

if TYPE_CHECKING:
    from joinproto.cli.live import LiveTable
    from joinproto.runtime.board import Board
    from joinproto.runtime.loop import Loop
    from joinproto.runtime.makers import Maker
    from joinproto.runtime.timers import Timers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("--bind", metavar="HOST:PORT", help="where to listen; port 0: a free one")
    add_wire(parser)
    add("--mixed-wires", action="store_true", help="members may speak different versions")
    add("--net-timeout-scale", metavar="X", help="stretches or shrinks every network deadline")
    _add_window(parser.add_argument_group("when a world forms"))
    _add_admission(parser.add_argument_group("who is admitted"))
    _add_run(parser.add_argument_group("what ranks are told, and when a run is given up"))
    _add_telling(parser.add_argument_group("who is told"))


def _add_window(group: Any) -> None:
    add = group.add_argument
    add("--min-ranks", metavar="N", type=int, help="the fewest ranks of a world")
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
    add(
        "--start-mode",
        choices=[mode.value for mode in StartMode],
        default=StartMode.AUTO.value,
        help="who closes the window: the clock, the operator (joinproto start), or the first",
    )
    add(
        "--max-rejected",
        metavar="N",
        type=int,
        help="more dials turned away fail the window (default: they never do)",
    )


def _add_admission(group: Any) -> None:
    key = group.add_mutually_exclusive_group()
    key.add_argument("--salt-file", metavar="FILE", help="file with the pre-shared salt")
    key.add_argument(
        "--open-admission", action="store_true", help="admit anyone who reaches the port"
    )
    add = group.add_argument
    add("--dataset-sig", metavar="HEX", help="dataset signature that every host must carry")
    add(
        "--no-check",
        metavar="NAME",
        action="append",
        default=[],
        choices=[check.value for check in Check],
        help="members need not agree on this: vendor, run-id, nccl, model-sig (repeatable)",
    )


def _add_run(group: Any) -> None:
    add = group.add_argument
    add("--advertise", metavar="HOST[:PORT]", help="the address that ranks are told")
    add("--relay", action="store_true", help="have every host run a relay too")
    add(
        "--master-port",
        metavar="PORT",
        type=int,
        default=MASTER_PORT,
        help="on rank 0's host, told to ranks that run torch.distributed (default: 29500)",
    )
    add("--envelope-template", metavar="FILE", help="what ranks are handed, with $NAMES to fill in")
    add("--relay-template", metavar="FILE", help="the same for relays, which every host then runs")
    add("--artifacts-command", metavar="CMD", help="asked for both, with the world as JSON")
    add(
        "--on-rank-failure",
        choices=("continue", "abort"),
        default="continue",
        help="what the first rank that fails, or is lost with its host, means for the others",
    )
    add("--max-failures", metavar="N", type=int, help="abort when more ranks than this failed")


def _add_telling(group: Any) -> None:
    add = group.add_argument
    add("--events", choices=("json",), help="one JSON object a line on stdout, nothing else")
    add("--record", metavar="FILE", help="keep a journal of the run in this new file")
    add("--resume", metavar="FILE", help="tell and close the journal of a controller that crashed")
    add("--status-open", action="store_true", help="show the page to all who reach the port")
    add("--status-token-file", metavar="FILE", help="show it to whoever has the token in this file")


def run(args: argparse.Namespace) -> int:
    """Run until the world has ended; the exit code is that of `Report`.

    Raises:
        ConfigError: the settings are unusable.
        JournalError: the journal cannot be written.
    """
    if args.resume is not None:
        return _resume(args.resume)
    with ExitStack() as stack:
        teller = Teller(events=bool(args.events))
        stack.callback(teller.close)
        settings = _settings(args)
        on_change = teller.changed if teller.wants_table else None
        controller = stack.enter_context(
            Controller(**settings, on_text=teller.text, on_change=on_change)
        )
        teller.watch(controller.board)
        for number in (signal.SIGTERM, signal.SIGINT):
            stack.callback(signal.signal, number, signal.getsignal(number))
            signal.signal(number, stopper(controller))
        _collect_less()
        return controller.run().exit_code


def _collect_less() -> None:
    """Have the collector look less often at what lasts as long as the run: modules, members."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _resume(path: str) -> int:
    from joinproto.cli.live import clean
    from joinproto.runtime.journal import finish

    finished = finish(path)
    for line in finished.lines:
        print(clean(line))
    return finished.exit_code


class Teller:
    """Tells people on stderr: lines, or on a terminal lines above a table that is kept current.

    Args:
        events: programs are told on stdout, and people only what they must not miss.

    Attributes:
        wants_table: there is a terminal to show a table on.
    """

    def __init__(self, *, events: bool) -> None:
        self._least = Severity.WARNING if events else Severity.INFO
        self.wants_table = not events and sys.stderr is not None and sys.stderr.isatty()
        self._table: LiveTable | None = None

    def watch(self, board: Board) -> None:
        """Show this board, where there is a terminal to show it on."""
        if self.wants_table:
            from joinproto.cli.live import LiveTable

            self._table = LiveTable(board)

    def text(self, severity: Severity, text: str) -> None:
        """Tell a line."""
        if severity < self._least:
            return
        if self._table is not None:
            self._table.on_text(severity, text)
        else:
            write_text(severity, text)

    def changed(self) -> None:
        """Show what has changed."""
        if self._table is not None:
            self._table.refresh()

    def close(self) -> None:
        """Give the terminal back as it was."""
        if self._table is not None:
            self._table.close()


def stopper(controller: Controller) -> Any:
    """A signal handler that gives the run up; a second signal ends the wait for the hosts."""

    def stop(number: int, frame: object) -> None:
        controller.stop(signal.Signals(number).name)

    return stop


def _settings(args: argparse.Namespace) -> dict[str, Any]:
    for name in ("bind", "min_ranks"):
        if getattr(args, name) is None:
            raise ConfigError(f"--{name.replace('_', '-')} is needed")
    for name in ("join_timeout", "max_join_timeout"):
        value = getattr(args, name)
        if value is not None and not 0 <= value < 10**9:
            raise ConfigError(f"--{name.replace('_', '-')} {value:g}: write seconds, 0 or more")
    scale = read_scale("controller", args.net_timeout_scale)
    wires = read_wires(args.wire)
    return {
        "bind": parse_address(args.bind),
        "min_ranks": args.min_ranks,
        "target_ranks": args.target_ranks,
        "join_timeout": args.join_timeout,
        "max_join_timeout": args.max_join_timeout,
        "start_mode": args.start_mode,
        "checks": frozenset(Check) - set(map(Check, args.no_check)),
        "max_rejected": args.max_rejected,
        "max_failures": _max_failures(args),
        "salt": _salt(args),
        "open_admission": args.open_admission,
        "dataset_sig": read_signature("--dataset-sig", args.dataset_sig),
        "wires": wires,
        "mixed_wires": args.mixed_wires,
        "advertise": None if args.advertise is None else _advertised(args.advertise),
        "relay": args.relay,
        "master_port": _port(args.master_port),
        "maker": _maker(args, wires, scale),
        "record": args.record,
        "status_open": args.status_open,
        "status_token": _token(args.status_token_file),
        "scale": scale,
        "events_fd": sys.stdout.fileno() if args.events else None,
    }


def _max_failures(args: argparse.Namespace) -> int | None:
    most: int | None = args.max_failures
    if args.on_rank_failure == "continue":
        return most
    if most:
        raise ConfigError(
            f"--max-failures {most} and --on-rank-failure abort contradict each other"
        )
    return 0


def _maker(
    args: argparse.Namespace, wires: tuple[int, ...], scale: float
) -> Callable[[Loop, Timers], Maker] | None:
    """Who makes the artifacts, where flodl's are not wanted."""
    if args.relay_template is not None and args.envelope_template is None:
        raise ConfigError("--relay-template goes with --envelope-template")
    if args.envelope_template is None and args.artifacts_command is None:
        return None
    if args.relay:
        raise ConfigError("--relay is for flodl's artifacts; --relay-template asks for relays too")
    if args.artifacts_command is None:
        from joinproto.runtime.custom_artifacts import TemplateMaker, read_template

        text = read_template("--envelope-template", args.envelope_template)
        relay = None
        if args.relay_template is not None:
            relay = read_template("--relay-template", args.relay_template)
        templates = TemplateMaker(text, relay, wires=wires)
        return lambda loop, timers: templates
    if args.envelope_template is not None:
        raise ConfigError("--envelope-template and --artifacts-command exclude each other")
    from joinproto.runtime.artifacts_command import CommandMaker, split_command

    argv = split_command(args.artifacts_command)
    return lambda loop, timers: CommandMaker(argv, loop, timers, scale)


def _token(path: str | None) -> str | None:
    if path is None:
        return None
    from joinproto.cli.client import read_token

    return read_token("controller", path, "--status-token-file")


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


def write_text(severity: Severity, text: str) -> None:
    """Write a line for people to stderr."""
    if severity > Severity.DEBUG:
        print(f"joinproto controller: {text}", file=sys.stderr, flush=True)
