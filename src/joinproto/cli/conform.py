"""`joinproto conform`: holds an agent or a controller against the specification, case by case."""

from __future__ import annotations

import argparse
import os
import random
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final, TypeVar

from joinproto.cli.targets import (
    USAGE_EXIT,
    Misuse,
    complain,
    hear_signals,
    positive,
    reach_of,
    read_file,
    running_at,
    scale,
)
from joinproto.grammar import WIRES

if TYPE_CHECKING:
    from joinproto.conformance.results import Result, Run
    from joinproto.conformance.runner import Plan, Runner

TAKES_COMMAND: Final = True
JOBS: Final = 2

T = TypeVar("T")


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
    parser.add_argument("--jobs", metavar="N", type=positive, help="cases at a time (default: 2)")
    parser.add_argument(
        "--time-scale",
        metavar="X",
        type=scale,
        default=1.0,
        help="FLODL_NET_TIMEOUT_SCALE of the run (default: 1; 0.1 is quickest)",
    )
    parser.add_argument("--seed", metavar="N", type=int, help="of the salts and all other chance")
    parser.add_argument(
        "--fail-fast", action="store_true", help="begin nothing more after the first failure"
    )


def run(args: argparse.Namespace) -> int:
    """Do what the command line says.

    Returns:
        0: conforms; 1: a deviation that was not expected, or one that was expected and is not
        there; 2: inconclusive; 3: wrong usage, or no case matches; 4: no target.
    """
    if args.command and args.what != "agent":
        return complain(
            _program(args), "only an agent's command stands behind --; a controller's is --start"
        )
    act: Callable[[argparse.Namespace], int] = {
        "export": _export,
        "report": _report,
        "coverage": _coverage,
    }.get(args.what, _test)
    try:
        return act(args)
    except Misuse as misuse:
        return complain(_program(args), str(misuse))


def _program(args: argparse.Namespace) -> str:
    return f"joinproto conform {args.what}"


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
    hear_signals()
    try:
        return _run(args, plan, runner)
    except CannotStart as error:
        return complain(_program(args), str(error), NO_TARGET)


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

    reach = reach_of(args, needed=not args.list)
    address, salt = running_at(args)
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
        expectations=read_file(args.expect, Expectations.read) if args.expect else Expectations({}),
        jobs=args.jobs or JOBS,
        fail_fast=args.fail_fast,
    )


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

    record = read_file(args.results, lambda text: read(text.splitlines()))
    write_all(record, args.output)
    print_record(Console(), record)
    # What was cut short says nothing in all.
    return UNDECIDED if record.summary is None else record.summary.exit_code
