"""What the options of `joinproto agent` come to; some of them are other commands' too."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from joinproto.errors import ConfigError, JoinprotoError
from joinproto.limits import MAX_DEVICES, SIGNATURE_BYTES, parse_scale
from joinproto.runtime.environment import AGENT_VARIABLE, NOTIFY_VARIABLES
from joinproto.runtime.spec import AgentSpec

if TYPE_CHECKING:
    from joinproto.keys import Salt
    from joinproto.runtime.reports import Reports
    from joinproto.runtime.streams import OutputSettings
    from joinproto.runtime.torch import TorchSettings


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


def read_options(args: argparse.Namespace) -> dict[str, Any]:
    """What `run_agent` takes besides the spec, the command and the reports.

    Raises:
        ConfigError: an option has a value that it cannot have.
    """
    if not args.command:
        raise ConfigError("there is no command to run; write it behind --", fault="command")
    if args.cwd is not None and not os.path.isdir(args.cwd):
        raise ConfigError(f"--cwd {args.cwd}: no such directory")
    return {
        "relay_command": _relay_command(args.relay_command),
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
    names = ("prefix", "only_ranks", "log_dir", "log_size", "log_total")
    usual = args.on_stalled_output == "block" and not args.no_prefix
    if usual and all(getattr(args, name) is None for name in names):
        return None
    from joinproto.runtime.logs import LOG_BYTES, TOTAL_BYTES, check_directory
    from joinproto.runtime.prefix import Prefix
    from joinproto.runtime.streams import OutputSettings, parse_ranks

    if args.prefix is not None and args.no_prefix:
        raise ConfigError("--prefix and --no-prefix exclude each other")
    if args.log_dir is not None:
        check_directory(args.log_dir)
    elif args.log_size is not None or args.log_total is not None:
        raise ConfigError("--log-size and --log-total go with --log-dir")
    return OutputSettings(
        prefix=None if args.no_prefix else Prefix(args.prefix),
        only_ranks=None if args.only_ranks is None else parse_ranks(args.only_ranks),
        drop=args.on_stalled_output == "drop",
        log_dir=args.log_dir,
        log_bytes=_mebibytes("--log-size", args.log_size, LOG_BYTES),
        log_total=_mebibytes("--log-total", args.log_total, TOTAL_BYTES),
    )


def _torch(args: argparse.Namespace) -> TorchSettings | None:
    if not args.torch:
        if args.master_addr is not None or args.master_port is not None:
            raise ConfigError("--master-addr and --master-port go with --torch")
        return None
    from joinproto.runtime.torch import TorchSettings

    if args.master_port is not None and not 0 < args.master_port < 65536:
        raise ConfigError(f"--master-port {args.master_port}: a port is from 1 to 65535")
    if args.master_addr == "":
        raise ConfigError("--master-addr is empty")
    return TorchSettings(master_addr=args.master_addr, master_port=args.master_port)


def read_reports(
    args: argparse.Namespace,
    restarts: int | None = None,
    ended: Callable[[JoinprotoError | None], None] | None = None,
) -> Reports | None:
    """Who else is told; None: nobody asks, which needs no import.

    Args:
        args: the options.
        restarts: see `Reports`.
        ended: likewise.

    Raises:
        ConfigError: an option has a value that it cannot have.
    """
    if args.events_fd is not None and args.events is None:
        raise ConfigError("--events-fd goes with --events json")
    asked = args.events is not None or args.status_file is not None
    if not asked and NOTIFY_VARIABLES[0] not in os.environ:
        return None
    from joinproto.runtime.reports import STDERR, Reports

    fd = args.events_fd
    if args.events is not None and fd is None:
        fd = STDERR
    return Reports(events_fd=fd, status_file=args.status_file, restarts=restarts, ended=ended)


def _mebibytes(option: str, text: str | None, usual: int) -> int:
    """A number of MiB, in bytes."""
    if text is None:
        return usual
    try:
        size = float(text)
    except ValueError:
        size = 0.0
    if not 0 < size < 2**30:
        raise ConfigError(f"{option} {text!r}: write a number of MiB")
    return int(size * 1024 * 1024)


def read_spec(args: argparse.Namespace) -> AgentSpec:
    """The spec of the environment, or one made of options; options win field by field.

    Raises:
        ConfigError: neither says where the controller is, or a value is unusable.
    """
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


def _relay_command(text: str | None) -> list[str] | None:
    if text is None:
        return None
    from joinproto.runtime.job import split_words

    return split_words("--relay-command", text)


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
