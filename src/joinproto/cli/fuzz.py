"""`joinproto fuzz`: looks for faults in an agent or a controller, and repeats what was found."""

from __future__ import annotations

import argparse
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from joinproto.cli.targets import (
    USAGE_EXIT,
    Misuse,
    complain,
    hear_signals,
    positive,
    reach_of,
    read_file,
    scale,
)
from joinproto.errors import ConfigError
from joinproto.grammar import WIRES
from joinproto.runtime.addresses import parse_address
from joinproto.runtime.salts import read_salt_file

if TYPE_CHECKING:
    from joinproto.conformance.capabilities import Reach
    from joinproto.conformance.session import Settings
    from joinproto.fuzzing.finding import Finding
    from joinproto.fuzzing.harness import Harness
    from joinproto.fuzzing.hunt import Plan
    from joinproto.fuzzing.outcome import Regression

TAKES_COMMAND: Final = True
JOBS: Final = 2
SECONDS: Final = 60.0
SCALE: Final = 0.1
T = TypeVar("T")

OUTPUT: Final = Path("joinproto-fuzz")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.usage = (
        "joinproto fuzz agent [options] -- COMMAND [ARG ...]\n"
        "       joinproto fuzz controller [options] --start COMMAND | --address HOST:PORT\n"
        "       joinproto fuzz replay FILE [options]"
        " -- COMMAND [ARG ...] | --start COMMAND | --address HOST:PORT\n"
        "       joinproto fuzz replay FILE --script SCRIPT"
    )
    roles = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    agent = roles.add_parser(
        "agent",
        prog="joinproto fuzz agent",
        description="Play a controller that does what it should not, for agents.",
        usage_exit=USAGE_EXIT,
    )
    agent.usage = "joinproto fuzz agent [options] -- COMMAND [ARG ...]"
    _add_hunt(agent)
    controller = roles.add_parser(
        "controller",
        prog="joinproto fuzz controller",
        description="Play agents that do what they should not, for a controller.",
        usage_exit=USAGE_EXIT,
    )
    controller.usage = "joinproto fuzz controller [options] --start COMMAND | --address HOST:PORT"
    _add_where(controller)
    _add_hunt(controller)
    replay = roles.add_parser(
        "replay",
        prog="joinproto fuzz replay",
        description="Play what was found once more, or write a script that does.",
        usage_exit=USAGE_EXIT,
    )
    replay.usage = (
        "joinproto fuzz replay FILE [options]"
        " -- COMMAND [ARG ...] | --start COMMAND | --address HOST:PORT"
    )
    replay.add_argument("file", metavar="FILE", type=Path, help="a finding")
    replay.add_argument(
        "--script",
        metavar="SCRIPT",
        type=Path,
        help="write a script that repeats it with Python's standard library alone",
    )
    _add_where(replay)
    _add_common(replay)


def _add_where(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--start", metavar="COMMAND", help="starts the controller")
    which.add_argument(
        "--address",
        metavar="HOST:PORT",
        help="of a controller that is up already, with a quorum that is never reached",
    )


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--self", dest="ourselves", action="store_true", help="test joinproto's own"
    )
    trust = parser.add_mutually_exclusive_group()
    trust.add_argument("--open", action="store_true", help="open admission (the default)")
    trust.add_argument(
        "--salt-file", metavar="FILE", help="pre-shared admission, with the salt in this file"
    )
    parser.add_argument(
        "--capabilities", metavar="FILE", type=Path, help="what the target can be told and has"
    )
    parser.add_argument(
        "--time-scale",
        metavar="X",
        type=scale,
        help=f"FLODL_NET_TIMEOUT_SCALE of the run (default: {SCALE:g}; of a replay: as found)",
    )


def _add_hunt(parser: argparse.ArgumentParser) -> None:
    _add_common(parser)
    add = parser.add_argument
    add(
        "--max-time",
        metavar="S",
        type=_seconds,
        default=SECONDS,
        help=f"seconds to look for faults (default: {SECONDS:g})",
    )
    add("--max-cases", metavar="N", type=positive, help="cases to play, at most")
    add("--stop-after", metavar="N", type=positive, help="findings after which it is enough")
    add("--seed", metavar="N", type=int, help="of all chance; without it a new one, which is told")
    add("--jobs", metavar="N", type=positive, help="targets at a time (default: 2)")
    add(
        "--wire",
        action="append",
        type=int,
        choices=sorted(WIRES),
        help="only this wire version (repeatable; default: all that the target speaks)",
    )
    add(
        "--corpus",
        metavar="DIR",
        type=Path,
        help="findings there are replayed first; cases there are begun with, and added to",
    )
    add("--expect", metavar="FILE", type=Path, help="findings that are known, with reasons")
    add(
        "--output",
        metavar="DIR",
        type=Path,
        default=OUTPUT,
        help=f"write findings and reports there (default: {OUTPUT})",
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return seconds


def run(args: argparse.Namespace) -> int:
    """Do what the command line says.

    Returns:
        0: nothing new (of a replay: it does not strike); 1: a finding (of a replay: it strikes
        again); 3: wrong usage; 4: the target cannot be run or reached.
    """
    from joinproto.conformance.session import CannotStart
    from joinproto.fuzzing.outcome import NO_TARGET

    program = f"joinproto fuzz {args.what}"
    if args.command and args.what == "controller":
        return complain(
            program, "only an agent's command stands behind --; a controller's is --start"
        )
    hear_signals()
    try:
        return _replay(args) if args.what == "replay" else _hunt(args)
    except Misuse as misuse:
        return complain(program, str(misuse))
    except CannotStart as error:
        return complain(program, str(error), NO_TARGET)


# -- a run ------------------------------------------------------------------------------------


def _hunt(args: argparse.Namespace) -> int:
    from joinproto.fuzzing import corpus
    from joinproto.fuzzing.harness import Harness

    plan = _plan(args)
    findings = _made(lambda: corpus.read_findings(args.corpus, args.what)) if args.corpus else {}
    folder = _folder(args.output)
    from joinproto.fuzzing.reports import write_all
    from joinproto.fuzzing.reports.terminal import Terminal

    terminal = Terminal(plan)
    with terminal:
        harness = Harness(
            plan,
            jobs=args.jobs or JOBS,
            stop_after=args.stop_after,
            tell=lambda finding: terminal.tell(finding, finding.write(folder)),
            progress=terminal.progress,
        )
        with _interrupts(harness):
            outcome = harness.run(_regressions(harness, findings))
    terminal.summary(outcome)
    write_all(outcome, args.output)
    if args.corpus:
        _made(lambda: corpus.write_cases(args.corpus, harness.kept))
    return outcome.exit_code


def _regressions(harness: Harness, findings: dict[str, Finding]) -> tuple[Regression, ...]:
    return harness.replay(findings) if findings else ()


def _folder(output: Path) -> Path:
    folder = output / "findings"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Misuse(f"--output {output}: {error.strerror}") from None
    return folder


def _made(make: Callable[[], T]) -> T:
    try:
        return make()
    except OSError as error:
        raise Misuse(f"{error.filename}: {error.strerror}") from None
    except ValueError as error:
        raise Misuse(str(error)) from None


@contextmanager
def _interrupts(harness: Harness) -> Iterator[None]:
    """Have SIGINT and SIGTERM end the run, with what was found so far."""
    before = {
        number: signal.signal(number, lambda *_: harness.interrupt())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _plan(args: argparse.Namespace) -> Plan:
    from joinproto.conformance.selection import Expectations
    from joinproto.fuzzing import corpus
    from joinproto.fuzzing.hunt import Plan

    if getattr(args, "address", None):
        if args.jobs not in (None, 1):
            raise Misuse("hosts of two jobs are in each other's way at one --address; use --jobs 1")
        args.jobs = 1
    seed = random.SystemRandom().randrange(2**32) if args.seed is None else args.seed
    reach = reach_of(args)
    settings = _settings(args, args.what, reach, args.time_scale or SCALE, seed)
    wires = tuple(args.wire or sorted(WIRES))
    if reach.capabilities.wires is not None:
        wires = tuple(wire for wire in wires if wire in reach.capabilities.wires)
    if not wires:
        raise Misuse("the target is declared to speak none of the wire versions asked for")
    known = read_file(args.expect, Expectations.read).reasons if args.expect else {}
    cases = _made(lambda: corpus.read_cases(args.corpus, args.what)) if args.corpus else ()
    return Plan(
        settings=settings,
        admission="pre-shared" if args.salt_file else "open",
        wires=wires,
        seconds=args.max_time,
        cases=args.max_cases,
        known=known,
        ourselves=args.ourselves,
        corpus=cases,
    )


def _settings(
    args: argparse.Namespace, role: str, reach: Reach, scale: float, seed: int
) -> Settings:
    from joinproto.conformance.session import Settings

    admission = "pre-shared" if args.salt_file else "open"
    if reach.command and admission not in reach.admissions():
        hint = "; a command is told by {salt_file}" if args.salt_file else ""
        raise Misuse(f"the target cannot be told to run with {admission} admission{hint}")
    address = getattr(args, "address", None)
    try:
        return Settings(
            role=role,
            command=tuple(reach.command),
            address=parse_address(address) if address else None,
            scale=scale,
            seed=seed,
            salt=read_salt_file(args.salt_file)[0] if args.salt_file else None,
        )
    except ConfigError as error:
        raise Misuse(str(error)) from None


# -- a replay ---------------------------------------------------------------------------------


def _replay(args: argparse.Namespace) -> int:
    from joinproto.fuzzing.finding import read
    from joinproto.fuzzing.harness import Harness
    from joinproto.fuzzing.hunt import Plan
    from joinproto.fuzzing.outcome import FOUND, NOTHING_NEW

    finding = _made(lambda: read(args.file))
    if args.script:
        from joinproto.fuzzing.script import script_of

        _made(lambda: args.script.write_text(script_of(finding), encoding="utf-8"))
        if not (args.command or args.start or args.address or args.ourselves):
            print(f"{args.script} repeats {finding.id}")
            return NOTHING_NEW
    role = args.what = finding.sequence.role
    if args.command and role == "controller":
        raise Misuse("this finding is about a controller; its command is --start")
    if (args.start or args.address) and role == "agent":
        raise Misuse("this finding is about an agent; its command stands behind --")
    admission = "pre-shared" if args.salt_file else "open"
    if finding.sequence.admission != admission:
        wanted = "--salt-file" if admission == "open" else "--open"
        raise Misuse(f"this finding was made in {finding.sequence.admission} admission: {wanted}")
    settings = _settings(args, role, reach_of(args), args.time_scale or finding.scale, finding.seed)
    plan = Plan(settings=settings, admission=admission, wires=(finding.sequence.wire,))
    (regression,) = Harness(plan, jobs=1).replay({args.file.name: finding})
    if regression.again:
        print(f"it strikes again: {finding.summary}")
        return FOUND
    print(f"it does not strike: {finding.summary}", file=sys.stdout)
    return NOTHING_NEW
