"""What commands that run somebody else's program share: its command or address, and signals."""

from __future__ import annotations

import argparse
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from joinproto.errors import ConfigError
from joinproto.limits import parse_scale
from joinproto.runtime.addresses import parse_address
from joinproto.runtime.salts import read_salt_file

if TYPE_CHECKING:
    from joinproto.conformance.capabilities import Reach
    from joinproto.keys import Salt

USAGE_EXIT = 3

T = TypeVar("T")


class Misuse(Exception):
    """The command line asks for what cannot be; the text says what to do."""


def complain(program: str, message: str, code: int = USAGE_EXIT) -> int:
    """Tell what is wrong in one line; returns the exit code."""
    line = message.replace("\n", "\\n")
    print(f"{program}: {line}", file=sys.stderr, flush=True)
    return code


def positive(text: str) -> int:
    """A number from 1, as an option has it."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)


def scale(text: str) -> float:
    """A deadline scale, as an option has it."""
    try:
        return parse_scale(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def hear_signals() -> None:
    """Have targets find no signal ignored that is ignored here, as SIGINT is in the background.

    What is caught is reset in a new program; what is ignored stays ignored.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def reach_of(args: argparse.Namespace, *, needed: bool = True) -> Reach:
    """The target that a command line names, and what it can be told.

    Args:
        args: with `what` (agent or controller), `command`, `start`, `address`, `ourselves`,
            `capabilities` and `salt_file`, as far as the command has them.
        needed: whether there must be one.

    Raises:
        Misuse: there is none, or there are several, or it cannot be told what it must.
    """
    from joinproto.conformance import capabilities as caps
    from joinproto.conformance.capabilities import Capabilities, Reach
    from joinproto.conformance.target import check

    known = read_file(args.capabilities, caps.read) if args.capabilities else None
    address = getattr(args, "address", None)
    given = [bool(args.command), bool(getattr(args, "start", None)), bool(address), args.ourselves]
    if sum(given) > 1:
        raise Misuse("only one target at a time: a command, an address, or --self")
    if args.ourselves:
        known = caps.of_ourselves(args.what)
        command = known.command.replace("{python}", shlex.quote(sys.executable))
    else:
        command = getattr(args, "start", None) or (
            known.command if known and not any(given) else ""
        )
    try:
        words = args.command or caps.split(command)
        check(words)
    except ValueError as error:
        raise Misuse(f"the command of the target: {error}") from None
    if not words and not address and needed:
        raise Misuse(
            "no target: a command behind --, or --self"
            if args.what == "agent"
            else "no target: --start COMMAND, --address HOST:PORT, or --self"
        )
    reach = Reach(
        role=args.what,
        command=tuple(words),
        capabilities=known or Capabilities(),
        admission="pre-shared" if getattr(args, "salt_file", None) else "open",
    )
    if args.what == "controller" and words and not reach.can_tell("port"):
        raise Misuse("the command must hold {port}, where the controller is to listen")
    return reach


def running_at(args: argparse.Namespace) -> tuple[tuple[str, int] | None, Salt | None]:
    """Address and salt of a controller that is up already.

    Raises:
        Misuse: they are none.
    """
    if args.what == "agent" or not args.address:
        if getattr(args, "salt_file", None):
            raise Misuse("--salt-file goes with --address; a command is told by {salt_file}")
        return None, None
    try:
        address = parse_address(args.address)
        salt = read_salt_file(args.salt_file)[0] if args.salt_file else None
    except ConfigError as error:
        raise Misuse(str(error)) from None
    return address, salt


def read_file(path: Path, parse: Callable[[str], T]) -> T:
    """What a file holds.

    Args:
        path: of the file.
        parse: makes it out of the text; a ValueError says what is wrong there.

    Raises:
        Misuse: it cannot be read, or holds something else.
    """
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Misuse(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise Misuse(f"{path}: {error}") from None
