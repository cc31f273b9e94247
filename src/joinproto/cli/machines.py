"""`joinproto machines`: the state machines, drawn from the tables that drive them."""

from __future__ import annotations

import argparse
import json
from typing import Any, Final

from joinproto.cli import drawing
from joinproto.machines.agent import AGENT
from joinproto.machines.child import CHILD
from joinproto.machines.controller import CONTROLLER
from joinproto.machines.window import WINDOW
from joinproto.table import Table

MACHINES: Final[dict[str, Table[Any]]] = {
    table.name: table for table in (AGENT, CONTROLLER, WINDOW, CHILD)
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "name",
        nargs="?",
        choices=MACHINES,
        metavar="NAME",
        help=f"{', '.join(MACHINES)}; all of them when left out",
    )
    parser.add_argument(
        "--format",
        choices=("mermaid", "dot", "json"),
        default="mermaid",
        help="json also lists what is ignored and what cannot happen (default: mermaid)",
    )


def run(args: argparse.Namespace) -> int:
    """Print one machine or all."""
    tables = MACHINES.values() if args.name is None else (MACHINES[args.name],)
    if args.format == "json":
        bodies = [drawing.body(table) for table in tables]
        print(json.dumps(bodies if args.name is None else bodies[0], indent=2))
    else:
        draw = drawing.mermaid if args.format == "mermaid" else drawing.dot
        print("\n".join(map(draw, tables)), end="")
    return 0
