"""`joinproto agent`: join this host to a cluster, start its ranks and watch them."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from joinproto.errors import ConfigError
from joinproto.limits import GPU_PROBE, GRACE, MAX_DEVICES, SIGNATURE_BYTES, parse_scale
from joinproto.runtime.environment import AGENT_VARIABLE, NOTIFY_VARIABLES
from joinproto.runtime.signals import stoppable
from joinproto.runtime.spec import AgentSpec, role_conflict

if TYPE_CHECKING:
    from joinproto.agent import Reports, Say
    from joinproto.keys import Salt
    from joinproto.runtime.gpus import Detection
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
    add("--log-size", metavar="MIB", default="64", help="rotate a log at this size (default: 64)")
    add("--log-total", metavar="MIB", default="1024", help="of all logs (default: 1024)")


def _add_reports(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument_group("telling programs how the agent is").add_argument
    add("--events", choices=("json",), help="one JSON object a line, on stderr or --events-fd")
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
    options = _options(args)
    spec = _spec(args)
    if args.persist and not args.check:
        return _persist(args, spec, options)
    # NVML is asked while the rest is still being loaded.
    detection = _detection(options["scale"])
    try:
        return _run(args, spec, options, detection)
    finally:
        detection.close()


def _run(
    args: argparse.Namespace, spec: AgentSpec, options: dict[str, Any], detection: Detection
) -> int:
    from joinproto import agent

    if args.check:
        return _check(args, spec, options, detection)
    agent.run_agent(spec, args.command, detection=detection, reports=_reports(args, 0), **options)
    return 0


def _persist(args: argparse.Namespace, spec: AgentSpec, options: dict[str, Any]) -> int:
    from joinproto import agent

    # Every stint looks for GPUs anew.
    agent.run_persistently(
        lambda stints: agent.run_agent(
            spec, args.command, reports=_reports(args, stints), **options
        ),
        _sayer(args.verbose),
    )
    return 0


def _detection(scale: float) -> Detection:
    from joinproto.runtime.gpus import Detection

    return Detection(os.environ, timeout=GPU_PROBE * scale)


def _sayer(verbose: bool) -> Say:
    def say(severity: int, text: str) -> None:
        if verbose or severity > 10:
            print(f"joinproto agent: {text}", file=sys.stderr, flush=True)

    return say


# -- settings ---------------------------------------------------------------------------------


def add_wire(parser: argparse.ArgumentParser) -> None:
    """Declare `--wire`, whose choices are the versions that are spoken."""
    # Late, so that a complaint about usage does not wait for it.
    from joinproto.grammar import WIRES

    choices = ("auto", *map(str, sorted(WIRES)))
    parser.add_argument("--wire", choices=choices, default="auto", help="version of the protocol")


def read_wires(choice: str) -> tuple[int, ...]:
    """The wire versions that a choice of `--wire` stands for, newest first."""
    from joinproto.grammar import WIRES

    return tuple(sorted(WIRES, reverse=True)) if choice == "auto" else (int(choice),)


def _options(args: argparse.Namespace) -> dict[str, Any]:
    """What `run_agent` takes besides the spec and the command."""
    if not args.command:
        raise ConfigError("there is no command to run; write it behind --", fault="command")
    if args.cwd is not None and not os.path.isdir(args.cwd):
        raise ConfigError(f"--cwd {args.cwd}: no such directory")
    return {
        "relay_command": None if args.relay_command is None else _split(args.relay_command),
        "wires": read_wires(args.wire),
        "nccl_version": _nccl(args.nccl_version),
        "grace": _seconds("--grace", args.grace),
        "scale": read_scale("agent", args.net_timeout_scale),
        "extra_env": _assignments(args.env),
        "cwd": args.cwd,
        "verbose": args.verbose,
        "output": _output(args),
        "torch": _torch(args),
    }


def _output(args: argparse.Namespace) -> OutputSettings | None:
    """What becomes of children's output; None: what is usual, which needs no import."""
    names = ("prefix", "no_prefix", "only_ranks", "log_dir")
    if args.on_stalled_output == "block" and not any(getattr(args, name) for name in names):
        return None
    from joinproto.runtime.logs import check_directory
    from joinproto.runtime.prefix import Prefix
    from joinproto.runtime.streams import OutputSettings, parse_ranks

    if args.log_dir is not None:
        check_directory(args.log_dir)
    return OutputSettings(
        prefix=None if args.no_prefix else Prefix(args.prefix),
        only_ranks=None if args.only_ranks is None else parse_ranks(args.only_ranks),
        drop=args.on_stalled_output == "drop",
        log_dir=args.log_dir,
        log_bytes=_mebibytes("--log-size", args.log_size),
        log_total=_mebibytes("--log-total", args.log_total),
    )


def _torch(args: argparse.Namespace) -> TorchSettings | None:
    if not args.torch:
        if args.master_addr is not None or args.master_port is not None:
            raise ConfigError("--master-addr and --master-port go with --torch")
        return None
    from joinproto.runtime.torch import TorchSettings

    if args.master_port is not None and not 0 < args.master_port < 65536:
        raise ConfigError(f"--master-port {args.master_port}: a port is from 1 to 65535")
    return TorchSettings(master_addr=args.master_addr, master_port=args.master_port)


def _reports(args: argparse.Namespace, restarts: int) -> Reports | None:
    """Who else is told; None: nobody asks, which needs no import."""
    if args.events_fd is not None and args.events is None:
        raise ConfigError("--events-fd goes with --events json")
    asked = args.events is not None or args.status_file is not None
    if not asked and NOTIFY_VARIABLES[0] not in os.environ:
        return None
    from joinproto.agent import Reports

    fd = None if args.events is None else 2 if args.events_fd is None else args.events_fd
    return Reports(events_fd=fd, status_file=args.status_file, restarts=restarts)


def _mebibytes(option: str, text: str) -> int:
    try:
        size = float(text)
    except ValueError:
        size = 0.0
    if not 0 < size < 2**30:
        raise ConfigError(f"{option} {text!r}: write a number of MiB")
    return int(size * 1024 * 1024)


def _spec(args: argparse.Namespace) -> AgentSpec:
    """The spec of the environment, or one made of options; options win field by field."""
    if AGENT_VARIABLE in os.environ:
        spec = AgentSpec.from_env(os.environ)
    elif args.controller is not None:
        spec = AgentSpec(host="", controller_host="", controller_port=0)
        spec = replace(spec, host=os.uname().nodename)
    else:
        raise ConfigError(
            f"no controller is named; give --controller HOST:PORT, or {AGENT_VARIABLE} as a "
            "launcher does"
        )
    return replace(spec, salt=_salt(args, spec), **_overrides(args))


def _overrides(args: argparse.Namespace) -> dict[str, Any]:
    """Fields of the spec that options set."""
    fields: dict[str, Any] = {
        "host": args.host,
        "libtorch": args.libtorch,
        "dataset_sig": read_signature("--dataset-sig", args.dataset_sig),
        "run_id": args.run_id,
        "model_sig": read_signature("--model-sig", args.model_sig),
        "data_path": args.data_path,
        "gpu_ram_share": args.gpu_ram_share,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    if args.controller is not None:
        from joinproto.runtime.addresses import parse_address

        given["controller_host"], given["controller_port"] = parse_address(args.controller)
    if args.devices is not None:
        given["local_devices"] = _devices(args.devices)
    return given


def _salt(args: argparse.Namespace, spec: AgentSpec) -> Salt | None:
    from joinproto.runtime import salts

    if args.salt_file is not None and args.salt_fd is not None:
        raise ConfigError("--salt-file and --salt-fd exclude each other", fault="salt")
    if args.salt_fd is not None:
        return salts.read_salt_fd(args.salt_fd)
    if args.salt_file is not None:
        return read_salt("agent", args.salt_file)
    return spec.salt or salts.salt_from_environ(os.environ)


def read_salt(program: str, path: str) -> Salt:
    """The salt in a file; that others can read it too is told.

    Raises:
        ConfigError: there is none.
    """
    from joinproto.runtime.salts import read_salt_file

    salt, warning = read_salt_file(path)
    if warning is not None:
        print(f"joinproto {program}: {warning}", file=sys.stderr, flush=True)
    return salt


def _devices(text: str) -> tuple[int, ...] | None:
    if text == "all":
        return None
    parts = text.split(",")
    if not all(_is_number(part) and int(part) < MAX_DEVICES for part in parts):
        raise ConfigError(f"--devices {text!r}: write 'all', or numbers from 0 to 255, as 0,1")
    return tuple(map(int, parts))


def read_signature(option: str, text: str | None) -> bytes | None:
    """A signature from 64 hex digits; None stays None.

    Raises:
        ConfigError: it is anything else.
    """
    if text is None:
        return None
    try:
        signature = bytes.fromhex(text)
    except ValueError:
        signature = b""
    if len(signature) != SIGNATURE_BYTES:
        raise ConfigError(f"{option}: a signature is 64 hex digits", fault="signature")
    return signature


def _split(relay_command: str) -> list[str]:
    import shlex

    try:
        words = shlex.split(relay_command)
    except ValueError as error:
        raise ConfigError(f"--relay-command: {error}", fault="command") from None
    if not words:
        raise ConfigError("--relay-command is empty", fault="command")
    return words


def _nccl(text: str | None) -> tuple[int, int, int] | None:
    if text is None:
        return None
    parts = text.split(".")
    if len(parts) != 3 or not all(map(_is_number, parts)):
        raise ConfigError(f"--nccl-version {text!r}: write it as 2.27.3")
    major, minor, patch = map(int, parts)
    return major, minor, patch


def _is_number(text: str) -> bool:
    # Python refuses to read a number of thousands of digits, and so do we, of more than ten.
    return text.isascii() and text.isdigit() and len(text) <= 10


def _seconds(option: str, text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < 86_400:
        raise ConfigError(f"{option} {text!r}: write a number of seconds, 0 or more")
    return seconds


def read_scale(program: str, text: str | None) -> float:
    """The deadline scale: of the option, else of the environment, where a bad one is told.

    Raises:
        ConfigError: the option's value is no scale.
    """
    if text is None:
        from joinproto.runtime.scale import timeout_scale

        scale, warning = timeout_scale(os.environ)
        if warning is not None:
            print(f"joinproto {program}: {warning}", file=sys.stderr, flush=True)
        return scale
    try:
        return parse_scale(text)
    except ValueError as error:
        raise ConfigError(f"--net-timeout-scale: {error}") from None


def _assignments(entries: list[str]) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for entry in entries:
        name, equals, value = entry.partition("=")
        if not equals or not name:
            raise ConfigError(f"--env {entry!r}: write NAME=VALUE")
        pairs[name] = value
    return pairs


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
    _reports(args, 0)
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
    }
    for name, value in lines.items():
        print(f"{name + ':':<20}{value}")
    return 0


def _located(command: str, directory: str | None) -> str:
    """A command that is a relative path is looked for where children run."""
    if directory is not None and os.sep in command:
        return os.path.join(directory, command)
    return command
