"""`joinproto conform`: holds an agent or a controller against the specification, case by case."""

from __future__ import annotations

import argparse
import os
import random
import shlex
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, TypeVar

from joinproto.errors import ConfigError
from joinproto.grammar import WIRES
from joinproto.limits import parse_scale
from joinproto.runtime.addresses import parse_address
from joinproto.runtime.salts import read_salt_file

if TYPE_CHECKING:
    from joinproto.conformance.capabilities import Reach
    from joinproto.conformance.results import Result, Run
    from joinproto.conformance.runner import Plan, Runner
    from joinproto.keys import Salt

TAKES_COMMAND: Final = True
USAGE_EXIT: Final = 3
JOBS: Final = 2

T = TypeVar("T")


class Misuse(Exception):
    """The command line asks for what cannot be; the text says what to do."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.usage = (
        "joinproto conform agent [options] [PATTERN ...] -- COMMAND [ARG ...]\n"
        "       joinproto conform controller [options] [PATTERN ...]"
        " --start COMMAND | --address HOST:PORT\n"
        "       joinproto conform export DIR\n"
        "       joinproto conform report RESULTS --output DIR\n"
        "       joinproto conform coverage"
    )
    roles = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    agent = roles.add_parser(
        "agent",
        prog="joinproto conform agent",
        description="Play the controller for an agent, one case after the other.",
        usage_exit=USAGE_EXIT,
    )
    agent.usage = "joinproto conform agent [options] [PATTERN ...] -- COMMAND [ARG ...]"
    _add_common(agent)
    controller = roles.add_parser(
        "controller",
        prog="joinproto conform controller",
        description="Play agents for a controller, one case after the other.",
        usage_exit=USAGE_EXIT,
    )
    controller.usage = (
        "joinproto conform controller [options] [PATTERN ...] --start COMMAND | --address HOST:PORT"
    )
    which = controller.add_mutually_exclusive_group()
    which.add_argument(
        "--start", metavar="COMMAND", help="starts the controller, for each case anew"
    )
    which.add_argument("--address", metavar="HOST:PORT", help="of a controller that is up already")
    controller.add_argument(
        "--salt-file", metavar="FILE", help="with --address: its pre-shared salt (default: open)"
    )
    _add_common(controller)
    export = roles.add_parser(
        "export",
        prog="joinproto conform export",
        description="Write cases, vectors, schemas and the specification into a new directory.",
        usage_exit=USAGE_EXIT,
    )
    export.add_argument("directory", metavar="DIR", type=Path)
    report = roles.add_parser(
        "report",
        prog="joinproto conform report",
        description="Make the reports of a run anew from its results.jsonl.",
        usage_exit=USAGE_EXIT,
    )
    roles.add_parser(
        "coverage",
        prog="joinproto conform coverage",
        description="Print which clauses have cases, and why others have none (Markdown).",
        usage_exit=USAGE_EXIT,
    )
    report.add_argument("results", metavar="RESULTS", type=Path)
    report.add_argument("--output", metavar="DIR", type=Path, required=True)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "pattern",
        nargs="*",
        metavar="PATTERN",
        help="ids, groups or globs of cases (default: all), such as agent/framing or '*salt*'",
    )
    parser.add_argument(
        "--self", dest="ourselves", action="store_true", help="test joinproto's own"
    )
    parser.add_argument("--list", action="store_true", help="print the cases and run none")
    parser.add_argument(
        "--level",
        action="append",
        choices=("MUST", "SHOULD", "MAY"),
        help="only cases of this level (repeatable)",
    )
    parser.add_argument(
        "--wire",
        action="append",
        type=int,
        choices=sorted(WIRES),
        help="only this wire version (repeatable)",
    )
    parser.add_argument(
        "--capabilities", metavar="FILE", type=Path, help="what the target can be told and has"
    )
    expecting = parser.add_mutually_exclusive_group()
    expecting.add_argument(
        "--expect", metavar="FILE", type=Path, help="deviations that are known, with reasons"
    )
    expecting.add_argument(
        "--write-expect", metavar="FILE", type=Path, help="write such a file of what deviates"
    )
    parser.add_argument(
        "--output", metavar="DIR", type=Path, help="write results.jsonl and all reports there"
    )
    parser.add_argument("--jobs", metavar="N", type=_positive, help="cases at a time (default: 2)")
    parser.add_argument(
        "--time-scale",
        metavar="X",
        type=_scale,
        default=1.0,
        help="FLODL_NET_TIMEOUT_SCALE of the run (default: 1; 0.1 is quickest)",
    )
    parser.add_argument("--seed", metavar="N", type=int, help="of the salts and all other chance")
    parser.add_argument(
        "--fail-fast", action="store_true", help="begin nothing more after the first failure"
    )


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1")
    return int(text)


def _scale(text: str) -> float:
    try:
        return parse_scale(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(args: argparse.Namespace) -> int:
    """Do what the command line says.

    Returns:
        0: conforms; 1: a deviation that was not expected, or one that was expected and is not
        there; 2: inconclusive; 3: wrong usage, or no case matches; 4: no target.
    """
    if args.command and args.what != "agent":
        return _complain(
            args, "only an agent's command stands behind --; a controller's is --start"
        )
    act: Callable[[argparse.Namespace], int] = {
        "export": _export,
        "report": _report,
        "coverage": _coverage,
    }.get(args.what, _test)
    try:
        return act(args)
    except Misuse as misuse:
        return _complain(args, str(misuse))


def _complain(args: argparse.Namespace, message: str, code: int = USAGE_EXIT) -> int:
    line = message.replace("\n", "\\n")
    print(f"joinproto conform {args.what}: {line}", file=sys.stderr, flush=True)
    return code


# -- a run ------------------------------------------------------------------------------------


def _test(args: argparse.Namespace) -> int:
    from joinproto.conformance.case import load
    from joinproto.conformance.runner import Runner
    from joinproto.conformance.session import CannotStart
    from joinproto.conformance.verdicts import NO_TARGET

    plan = _plan(args)
    runner = Runner(plan, load(args.what))
    if not runner.count():
        raise Misuse("no case matches the selection; --list prints them all")
    if args.list:
        for name, title in runner.listed():
            print(f"{name}  {title}")
        return 0
    _hear_signals()
    try:
        return _run(args, plan, runner)
    except CannotStart as error:
        return _complain(args, str(error), NO_TARGET)


def _hear_signals() -> None:
    """Have targets find no signal ignored that is ignored here, as SIGINT is in the background.

    What is caught is reset in a new program; what is ignored stays ignored.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def _run(args: argparse.Namespace, plan: Plan, runner: Runner) -> int:
    from rich.console import Console

    from joinproto.conformance.reports import write_all
    from joinproto.conformance.reports.progress import Progress
    from joinproto.conformance.reports.terminal import print_record
    from joinproto.conformance.results import Record, write_line
    from joinproto.conformance.selection import written

    console = Console()
    opening = _opening(args, plan, runner)
    with ExitStack() as stack:
        lines = _lines(stack, args.output)
        write_line(lines, opening)
        progress = stack.enter_context(Progress(opening.selected, console))

        def tell(result: Result) -> None:
            write_line(lines, result)
            progress.add(result)

        runner.tell = tell
        runner.begun = progress.expect
        summary = runner.run()
        write_line(lines, summary)
    record = Record(run=opening, results=tuple(runner.results), summary=summary)
    print_record(console, record)
    if args.output:
        write_all(record, args.output)
    if args.write_expect:
        args.write_expect.write_text(written(runner.results), encoding="utf-8")
    return summary.exit_code


def _lines(stack: ExitStack, directory: Path | None) -> IO[str]:
    """Where the record goes; nowhere, where no directory is given."""
    if directory is None:
        return stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
    try:
        directory.mkdir(parents=True, exist_ok=True)
        return stack.enter_context((directory / "results.jsonl").open("w", encoding="utf-8"))
    except OSError as error:
        raise Misuse(f"--output {directory}: {error.strerror}") from None


def _opening(args: argparse.Namespace, plan: Plan, runner: Runner) -> Run:
    from joinproto import __version__
    from joinproto.conformance.results import Run
    from joinproto.conformance.runner import RETRIES

    target = args.address if getattr(args, "address", None) else shlex.join(plan.settings.command)
    return Run(
        role=args.what,
        target=target,
        version=__version__,
        started=datetime.now(UTC).isoformat(timespec="seconds"),
        seed=plan.settings.seed,
        time_scale=plan.settings.scale,
        wires=plan.selection.wires,
        jobs=plan.jobs,
        retries=RETRIES,
        selected=runner.count(),
        expectations=str(args.expect or ""),
    )


def _plan(args: argparse.Namespace) -> Plan:
    from joinproto.conformance.runner import Plan
    from joinproto.conformance.selection import Expectations, Selection
    from joinproto.conformance.session import Settings
    from joinproto.conformance.verdicts import Level

    reach = _reach(args)
    address, salt = _running(args)
    settings = Settings(
        role=args.what,
        command=tuple(reach.command),
        address=address,
        scale=args.time_scale,
        seed=random.SystemRandom().randrange(2**32) if args.seed is None else args.seed,
        salt=salt,
    )
    return Plan(
        settings=settings,
        reach=reach,
        selection=Selection(
            patterns=tuple(args.pattern),
            levels=frozenset(map(Level, args.level or Level)),
            wires=tuple(args.wire or sorted(WIRES)),
        ),
        expectations=_read(args.expect, Expectations.read) if args.expect else Expectations({}),
        jobs=args.jobs or JOBS,
        fail_fast=args.fail_fast,
    )


def _reach(args: argparse.Namespace) -> Reach:
    from joinproto.conformance import capabilities as caps
    from joinproto.conformance.capabilities import Capabilities, Reach
    from joinproto.conformance.target import check

    known = _read(args.capabilities, caps.read) if args.capabilities else None
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
    if not words and not address and not args.list:
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


def _running(args: argparse.Namespace) -> tuple[tuple[str, int] | None, Salt | None]:
    """Address and salt of a controller that is up already."""
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


def _read(path: Path, parse: Callable[[str], T]) -> T:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Misuse(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise Misuse(f"{path}: {error}") from None


# -- what needs no target ---------------------------------------------------------------------


def _export(args: argparse.Namespace) -> int:
    from joinproto import __version__
    from joinproto.conformance.export import export

    try:
        count = export(args.directory, __version__)
    except OSError as error:
        raise Misuse(f"{args.directory}: {error.strerror}") from None
    print(f"{count} files in {args.directory}")
    return 0


def _coverage(args: argparse.Namespace) -> int:
    from joinproto.conformance.case import load
    from joinproto.conformance.clauses import load as load_clauses
    from joinproto.conformance.coverage import markdown

    print(markdown(load_clauses().values(), [*load("agent"), *load("controller")]), end="")
    return 0


def _report(args: argparse.Namespace) -> int:
    from rich.console import Console

    from joinproto.conformance.reports import write_all
    from joinproto.conformance.reports.terminal import print_record
    from joinproto.conformance.results import read
    from joinproto.conformance.verdicts import UNDECIDED

    record = _read(args.results, lambda text: read(text.splitlines()))
    write_all(record, args.output)
    print_record(Console(), record)
    # What was cut short says nothing in all.
    return UNDECIDED if record.summary is None else record.summary.exit_code
