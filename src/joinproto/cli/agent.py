"""`joinproto agent`: join this host to a cluster, start its ranks and watch them."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from joinproto.cli.settings import add_wire, read_options, read_reports, read_spec
from joinproto.errors import JoinprotoError
from joinproto.limits import GPU_PROBE, GRACE
from joinproto.runtime.environment import AGENT_VARIABLE, NOTIFY_VARIABLES
from joinproto.runtime.signals import stoppable
from joinproto.runtime.spec import AgentSpec, role_conflict

if TYPE_CHECKING:
    from joinproto.agent import Say
    from joinproto.effects import Severity
    from joinproto.runtime.gpus import Detection
    from joinproto.runtime.reports import Reports
    from joinproto.runtime.streams import OutputSettings
    from joinproto.runtime.torch import TorchSettings

TAKES_COMMAND = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.usage = "joinproto agent [options] -- COMMAND [ARG ...]"
    parser.epilog = (
        f"Without options the settings come from {AGENT_VARIABLE}, as a launcher hands them out; "
        "an option wins over it.  COMMAND is what each rank runs."
    )
    add = parser.add_argument
    add("--controller", metavar="HOST:PORT", help="where the controller listens")
    add("--host", metavar="NAME", help="the name this host joins under (default: its hostname)")
    add("--devices", metavar="0,1|all", help="devices to offer, one rank each (default: all)")
    add("--salt-file", metavar="FILE", help="file that holds the pre-shared salt, 32 hex digits")
    add("--salt-fd", metavar="N", type=int, help="open descriptor to read the salt from")
    add("--dataset-sig", metavar="HEX", help="dataset signature, 64 hex digits")
    add("--libtorch", metavar="LABEL", help="label of the library build the ranks use")
    add("--run-id", metavar="ID", help="the run this host is started for (since wire 4)")
    add("--model-sig", metavar="HEX", help="model signature, 64 hex digits (since wire 4)")
    add("--nccl-version", metavar="X.Y.Z", help="told to the controller (since wire 4)")
    add("--data-path", metavar="DIR", help="goes into the ranks' envelope (since wire 4)")
    add("--gpu-ram-share", metavar="N", type=float, help="likewise, a number (since wire 4)")
    add_wire(parser)
    add("--relay-command", metavar="CMD", help="what the relay runs (default: COMMAND)")
    add("--grace", metavar="S", default=f"{GRACE:g}", help="from SIGTERM to SIGKILL (default: 5)")
    add("--net-timeout-scale", metavar="X", help="stretches or shrinks every network deadline")
    add("--env", metavar="K=V", action="append", default=[], help="set for relay and ranks")
    add("--cwd", metavar="DIR", help="where relay and ranks run")
    add("--persist", action="store_true", help="dial again after a run, and after failures")
    add("--check", action="store_true", help="print what all this comes to and dial nothing")
    _add_output(parser)
    _add_reports(parser)
    _add_torch(parser)
    add("-v", "--verbose", action="store_true", help="tell more")


def _add_output(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("output of relay and ranks").add_argument
    add("--prefix", metavar="TEMPLATE", help="of every line; default: [{host}:{device}:r{rank}] ")
    add("--no-prefix", action="store_true", help="lines as they are")
    add("--only-ranks", metavar="0,3-5", help="give on the output of these global ranks only")
    add(
        "--on-stalled-output",
        choices=("block", "drop"),
        default="block",
        help="when nobody reads: let ranks wait (default), or drop lines and say how many",
    )
    add("--log-dir", metavar="DIR", help="also write one file per rank, and one for the relay")
    add("--log-size", metavar="MIB", help="rotate a log at this size (default: 64)")
    add("--log-total", metavar="MIB", help="of all logs, with what was rotated (default: 1024)")


def _add_reports(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("telling programs how the agent is").add_argument
    add(
        "--events",
        choices=("json",),
        help="one JSON object a line, on --events-fd, or on stderr, where they then stand in the "
        "place of the agent's own lines (in events named told) and between the lines of ranks",
    )
    add("--events-fd", metavar="N", type=int, help="descriptor that events are written to")
    add("--status-file", metavar="FILE", help="kept up to date: state, ranks, pids, restarts")


def _add_torch(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("torch.distributed").add_argument
    add("--torch", action="store_true", help="also give ranks RANK, WORLD_SIZE, MASTER_ADDR, ...")
    add("--master-addr", metavar="HOST", help="of rank 0 (default: as the controller says)")
    add("--master-port", metavar="PORT", type=int, help="likewise")


def run(args: argparse.Namespace) -> int:
    """Run the agent, or check its settings.

    Raises:
        JoinprotoError: what ended it; its `exit_code` is the agent's.
    """
    with stoppable():
        return _start(args)


def _start(args: argparse.Namespace) -> int:
    role_conflict(os.environ)
    options = read_options(args)
    spec = read_spec(args)
    if args.persist and not args.check:
        # Every stint looks for GPUs anew.
        return _run(args, spec, options, None)
    # NVML is asked while the rest is still being loaded.
    detection = _detection(options["scale"])
    try:
        return (_check if args.check else _run)(args, spec, options, detection)
    finally:
        detection.close()


def _run(
    args: argparse.Namespace, spec: AgentSpec, options: dict[str, Any], detection: Detection | None
) -> int:
    """Run one stint, or as many as it takes."""
    from joinproto import agent
    from joinproto.effects import Severity

    ends: list[JoinprotoError | None] = []

    def stint(restarts: int | None) -> None:
        ends.clear()
        reports = read_reports(args, restarts, ends.append)
        agent.run_agent(spec, args.command, detection=detection, reports=reports, **options)

    reports = read_reports(args)
    mute = reports is not None and reports.mute
    say = _say_in_json if mute else _sayer(args.verbose)
    try:
        if args.persist:
            _stints(stint, say)
        else:
            stint(None)
    except JoinprotoError as error:
        if not mute:
            raise
        if error not in ends:
            say(Severity.ERROR, str(error))
        return error.exit_code
    return 0


def _stints(stint: Callable[[int], None], say: Say) -> None:
    from joinproto import agent

    with ExitStack() as stack:
        notifier = None
        if NOTIFY_VARIABLES[0] in os.environ:
            from joinproto.runtime.notify import Notifier

            notifier = Notifier(os.environ)
            stack.callback(notifier.close)
        agent.run_persistently(stint, say, notifier)


def _detection(scale: float) -> Detection:
    from joinproto.runtime.gpus import Detection

    return Detection(os.environ, timeout=GPU_PROBE * scale)


def _sayer(verbose: bool) -> Say:
    from joinproto.effects import Severity

    def say(severity: Severity, text: str) -> None:
        if verbose or severity > Severity.DEBUG:
            print(f"joinproto agent: {text}", file=sys.stderr, flush=True)

    return say


def _say_in_json(severity: Severity, text: str) -> None:
    from joinproto.runtime.observe import told_line

    print(told_line(severity, text).decode(), end="", file=sys.stderr, flush=True)


# -- checking ---------------------------------------------------------------------------------


def _check(
    args: argparse.Namespace, spec: AgentSpec, options: dict[str, Any], detection: Detection
) -> int:
    """Resolve everything, print it, dial nothing."""
    import shlex
    import shutil

    from joinproto import agent
    from joinproto.errors import CommandNotFound
    from joinproto.runtime.addresses import format_address

    devices = agent.find_devices(
        spec, scale=options["scale"], say=_sayer(args.verbose), detection=detection
    )
    agent.plan_for(spec, devices, nccl_version=options["nccl_version"])
    reports = read_reports(args)
    path = options["extra_env"].get("PATH")
    commands = {"command": args.command, "relay command": options["relay_command"]}
    for name, command in commands.items():
        if command and shutil.which(_located(command[0], args.cwd), path=path) is None:
            raise CommandNotFound(f"{name} {command[0]!r} is not there or may not be executed")
    lines = {
        "host": spec.host,
        "controller": format_address(spec.controller_host, spec.controller_port),
        "admission": "open" if spec.salt is None else "pre-shared salt (hidden)",
        "wire": ", then ".join(map(str, options["wires"])),
        **{
            f"device {number}": label
            for number, label in zip(devices.ids, devices.labels, strict=True)
        },
        "libtorch": spec.libtorch or "(none)",
        "dataset signature": "(none)" if spec.dataset_sig is None else spec.dataset_sig.hex(),
        "run id": spec.run_id or "(none)",
        "model signature": "(none)" if spec.model_sig is None else spec.model_sig.hex(),
        "data path": spec.data_path or "(none)",
        "GPU RAM share": "(none)" if spec.gpu_ram_share is None else f"{spec.gpu_ram_share:g}",
        "timeout scale": f"{options['scale']:g}",
        "grace": f"{options['grace']:g} s",
        "directory": args.cwd or os.getcwd(),
        "environment": ", ".join(options["extra_env"]) or "(nothing added)",
        "command": shlex.join(args.command),
        "relay command": shlex.join(options["relay_command"] or args.command),
        **_shown_output(args, options["output"]),
        "torch": _shown_torch(options["torch"]),
        **_shown_reports(reports),
    }
    for name, value in lines.items():
        print(f"{name + ':':<20}{value}")
    return 0


def _shown_output(args: argparse.Namespace, output: OutputSettings | None) -> dict[str, str]:
    from joinproto.runtime.prefix import STANDARD
    from joinproto.runtime.streams import OutputSettings

    output = output or OutputSettings()
    prefix = output.prefix
    shown = {
        "prefix": "(none)"
        if prefix is None
        else repr(STANDARD if prefix.template is None else prefix.template),
        "only ranks": args.only_ranks or "(all)",
        "stalled output": args.on_stalled_output,
        "log directory": output.log_dir or "(none)",
    }
    if output.log_dir is not None:
        sizes = (f"{size / 2**20:g} MiB" for size in (output.log_bytes, output.log_total))
        shown["log size, total"] = ", ".join(sizes)
    return shown


def _shown_torch(torch: TorchSettings | None) -> str:
    if torch is None:
        return "(none)"
    names = {"MASTER_ADDR": torch.master_addr, "MASTER_PORT": torch.master_port}
    return ", ".join(f"{name} {value or 'of the controller'}" for name, value in names.items())


def _shown_reports(reports: Reports | None) -> dict[str, str]:
    events = status = "(none)"
    if reports is not None and reports.events_fd is not None:
        events = "on stderr" if reports.mute else f"on descriptor {reports.events_fd}"
    if reports is not None and reports.status_file is not None:
        status = reports.status_file
    return {
        "events": events,
        "status file": status,
        "service manager": "is told" if NOTIFY_VARIABLES[0] in os.environ else "(none)",
    }


def _located(command: str, directory: str | None) -> str:
    """A command that is a relative path is looked for where children run."""
    if directory is not None and os.sep in command:
        return os.path.join(directory, command)
    return command
