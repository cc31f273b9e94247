"""The command `joinproto`.

Each sub-command is a module here, imported only when it is asked for: what an agent needs from its
start to its Hello is measured.  Such a module has

* `add_arguments(parser)`, which declares its options;
* `run(args) -> int`, which does the work and gives the exit code;
* optionally `USAGE_EXIT`, the exit code of wrong usage where that is not 2;
* optionally `TAKES_COMMAND = True`: what stands behind the first `--` is then kept from argparse
  and handed over word for word as `args.command`, a tuple of str.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Final, NoReturn

from joinproto.errors import JoinprotoError

COMMANDS: Final = {
    "agent": "join this host to a cluster, start its ranks and watch them",
    "controller": "run the reference controller: admit hosts and form a world of them",
    "status": "show what a controller says of its run",
    "start": "give the start to a controller that waits for it",
    "conform": "hold an agent or a controller against the specification",
    "fuzz": "look for faults in an agent or a controller",
    "decode": "say what frames hold, from hex or from a captured stream",
    "machines": "draw the state machines, from the tables that drive them",
    "demo": "run a controller, agents and ranks on this machine",
}
"""Every sub-command (the name of its module), and what it does in one line."""

USAGE_EXIT: Final = 2
HELP_WIDTH: Final = 80
INTERRUPTED_EXIT: Final = 130
BROKEN_PIPE_EXIT: Final = 141
"""128 + SIGPIPE: what a shell reports of a program whose reader went away."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (without the program's name; None: that of this process).

    Returns:
        The exit code.  Whatever went wrong has been told on stderr, in one line.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    known = bool(arguments) and arguments[0] in COMMANDS
    program = f"joinproto {arguments[0]}" if known else "joinproto"
    _tolerate(sys.stdout)
    try:
        code = _dispatch(program, arguments)
        print(end="", flush=True)  # a reader that went away shows here, not after the end
    except JoinprotoError as error:
        return _complain(program, str(error), error.exit_code)
    except BrokenPipeError:
        _mute_stdout()
        return BROKEN_PIPE_EXIT
    except OSError as error:
        return _complain(program, str(error), 1)
    except KeyboardInterrupt:
        return INTERRUPTED_EXIT
    return code


def entry() -> NoReturn:
    """Run this process's command line and end with its exit code, at once.

    Nothing is left for an interpreter to take down in good order, and doing so would take an agent
    longer than ending its ranks.
    """
    _open_standard()
    code = main()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError, ValueError):  # a reader that went away
                stream.flush()
    os._exit(code)


def _open_standard() -> None:
    """Open what of the standard streams was closed, or a socket would get its number."""
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)
    os.close(fd)


def split_command(arguments: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """What stands before the first `--`, and what stands behind it.

    argparse would take the `--` of a command's own arguments out of them, and options out of its
    middle.
    """
    if "--" not in arguments:
        return list(arguments), ()
    place = arguments.index("--")
    return list(arguments[:place]), tuple(arguments[place + 1 :])


def _dispatch(program: str, arguments: list[str]) -> int:
    match arguments:
        case [name, *rest] if name in COMMANDS:
            return _run(program, name, rest)
        case ["-h" | "--help", *_]:
            print(_help())
        case ["--version", *_]:
            print(_version())
        case []:
            print(_help(), file=sys.stderr)
            return USAGE_EXIT
        case [word, *_]:
            sort = "option" if word.startswith("-") else "command"
            return _complain(
                program, f"there is no {sort} {word!r}; see joinproto --help", USAGE_EXIT
            )
    return 0


def _run(program: str, name: str, arguments: list[str]) -> int:
    module = import_module(f"joinproto.cli.{name}")
    takes_command = getattr(module, "TAKES_COMMAND", False)
    parser = _Parser(
        prog=program,
        description=f"{COMMANDS[name]}.".capitalize(),
        usage_exit=getattr(module, "USAGE_EXIT", USAGE_EXIT),
    )
    module.add_arguments(parser)
    command: tuple[str, ...] = ()
    if takes_command:
        parser.usage = parser.usage or f"{_usage(parser)} -- COMMAND [ARG ...]"
        arguments, command = split_command(arguments)
    try:
        args = parser.parse_args(arguments)
    except SystemExit as end:
        return int(end.code or 0)
    if takes_command:
        args.command = command
    code: int = module.run(args)
    return code


class _Parser(argparse.ArgumentParser):
    """An argparse parser that takes no abbreviations and complains in one line."""

    def __init__(self, *, prog: str, description: str, usage_exit: int = USAGE_EXIT) -> None:
        self.usage_exit = usage_exit
        # An abbreviation that works today names two options tomorrow.
        super().__init__(
            prog=prog,
            description=description,
            allow_abbrev=False,
            formatter_class=_formatter,
        )

    def error(self, message: str) -> NoReturn:
        self.exit(_complain(self.prog, f"{message}; see {self.prog} --help", self.usage_exit))


def _formatter(prog: str) -> argparse.HelpFormatter:
    # Left to find the terminal's width by itself, argparse imports shutil for every option, and
    # with it every compression library; help pages of one width read the same everywhere.
    return argparse.HelpFormatter(prog, width=HELP_WIDTH)


def _usage(parser: argparse.ArgumentParser) -> str:
    """The usage that argparse makes, in the form in which it takes one."""
    return parser.format_usage().removeprefix("usage: ").rstrip().replace("%", "%%")


def _help() -> str:
    width = max(map(len, COMMANDS))
    return "\n".join(
        (
            "usage: joinproto COMMAND [OPTION ...]",
            "       joinproto --help | --version",
            "",
            "The join protocol of multi-host GPU training.",
            "",
            "commands (joinproto COMMAND --help tells their options):",
            *(f"  {name:{width}}  {purpose}" for name, purpose in COMMANDS.items()),
        )
    )


def _version() -> str:
    from joinproto import __version__
    from joinproto.grammar import WIRES

    return f"joinproto {__version__} (wire {', '.join(map(str, sorted(WIRES)))})"


def _complain(program: str, message: str, code: int) -> int:
    line = message.replace("\r", "\\r").replace("\n", "\\n")
    print(f"{program}: {line}", file=sys.stderr, flush=True)
    return code


def _tolerate(stream: object) -> None:
    """Have characters that the terminal's encoding lacks escaped, as stderr has it already."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")


def _mute_stdout() -> None:
    """Send what is still buffered nowhere, or Python complains about it at its exit."""
    with suppress(OSError, ValueError):  # a stand-in for stdout that has no descriptor
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
