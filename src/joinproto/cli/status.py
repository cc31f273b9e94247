"""`joinproto status`: what a controller, ours or a published one, says of its run."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from joinproto.cli.settings import read_scale
from joinproto.errors import RemoteError

if TYPE_CHECKING:
    from joinproto.cli.client import Client

State: TypeAlias = Mapping[str, Any]

INTERVAL: Final = 1.0
"""Seconds between two looks at a controller that does not tell by itself."""

ENDS: Final = ("done", "failed")
COUNTDOWNS: Final = ("window_remaining_secs", "cap_remaining_secs")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("address", metavar="HOST:PORT", help="the controller's address")
    add("--json", action="store_true", help="the state as JSON, one object a line")
    add("--watch", action="store_true", help="go on until the run has ended")
    add("--token-file", metavar="FILE", help="file with the controller's status token")
    add("--net-timeout-scale", metavar="X", help="stretches or shrinks the deadline (10 s)")


def run(args: argparse.Namespace) -> int:
    """Show the state; with `--watch`, every one until the run has ended.

    Returns:
        1 when the run has failed, else 0.

    Raises:
        ConfigError: an option has a value that it cannot have.
        RemoteError: the controller cannot be reached, has no state yet, or is gone before the run
            has ended.
    """
    from joinproto.cli.client import Client, read_token

    token = None if args.token_file is None else read_token("status", args.token_file)
    scale = read_scale("status", args.net_timeout_scale)
    client = Client(args.address, token=token, scale=scale)
    state: State = {}
    with ExitStack() as stack:
        show = _write_json if args.json else _shower(stack, live=args.watch)
        for state in _watch(client) if args.watch else _once(client, whole=not args.json):
            show(state)
    failed = state.get("phase") == "failed" or state.get("outcome") not in (None, "ok")
    return 1 if failed else 0


def _once(client: Client, *, whole: bool) -> Iterator[State]:
    """The state now; `whole`: with all that our controller tells besides what is published."""
    state = (next(_told(client), None) if whole else None) or client.state()
    if state is None:
        raise RemoteError(f"{client.where} has no state to show yet")
    yield state


def _watch(client: Client) -> Iterator[State]:
    """States until the last one: as they are told, or looked for where nobody tells them."""
    phase = None
    try:
        for state in chain(_told(client), _looked_for(client)):
            phase = state["phase"]
            yield state
            if _is_last(state):
                return
    except RemoteError as error:
        if phase is None:
            raise
        raise RemoteError(f"{error}; when last seen, the run was in phase {phase!r}") from None


def _is_last(state: State) -> bool:
    if "outcome" in state:
        return state["outcome"] is not None
    return state["phase"] in ENDS


def _told(client: Client) -> Iterator[State]:
    """States as the controller tells them; it may not."""
    # What is wrong with it shows when it is asked for its state.
    with suppress(RemoteError):
        for event in client.follow("/events"):
            if isinstance(event.get("phase"), str):
                yield event


def _looked_for(client: Client) -> Iterator[State]:
    while True:
        if (state := client.state()) is not None:
            yield state
        time.sleep(INTERVAL)


def _write_json(state: State) -> None:
    # ASCII only: nothing in it can steer a terminal.
    print(json.dumps(state), flush=True)


def _shower(stack: ExitStack, *, live: bool) -> Callable[[State], None]:
    """What shows a state to people: in one place on a terminal, else one below the other."""
    if live and sys.stdout.isatty():
        from joinproto.cli.live import LiveTable

        board = _Seen()
        table = LiveTable(board, sys.stdout)
        stack.callback(table.close)

        def draw(state: State) -> None:
            board.state = state
            table.refresh()

        return draw
    return _Printer()


class _Printer:
    """Prints states one below the other; those in which only time has gone by are left out."""

    def __init__(self) -> None:
        from joinproto.cli.live import Screen

        self._console = Screen(sys.stdout)
        self._last: State = {}

    def __call__(self, state: State) -> None:
        """Print it."""
        from joinproto.cli.live import render

        lasting = {name: value for name, value in state.items() if name not in COUNTDOWNS}
        if lasting != self._last:
            self._last = lasting
            self._console.print(render(state))


class _Seen:
    """The state that was seen last, as a board."""

    def __init__(self) -> None:
        self.state: State | None = None

    def detail(self) -> dict[str, Any]:
        """It; LookupError: none was."""
        if self.state is None:
            raise LookupError("nothing seen yet")
        return dict(self.state)
