"""`joinproto start`: give the start to a controller, ours or a published one, that waits for it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from joinproto.cli.settings import read_scale
from joinproto.errors import RemoteError

if TYPE_CHECKING:
    from joinproto.cli.client import Client


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add("address", metavar="HOST:PORT", help="the controller's address")
    add("--token-file", metavar="FILE", help="file with the token (for published ones, the salt)")
    add("--net-timeout-scale", metavar="X", help="stretches or shrinks the deadline (10 s)")


def run(args: argparse.Namespace) -> int:
    """Give the start; 0 once the controller has taken it.

    Raises:
        ConfigError: an option has a value that it cannot have.
        RemoteError: the controller cannot be reached, or does not take it; the text is its own.
    """
    from urllib.parse import quote

    from joinproto.cli.client import Client, read_token

    token = None if args.token_file is None else read_token("start", args.token_file)
    client = Client(args.address, scale=read_scale("start", args.net_timeout_scale))
    # Published controllers take it nowhere else.
    query = "" if token is None else f"?token={quote(token, safe='')}"
    try:
        answer = client.ask("POST", f"/start{query}")
    except RemoteError as error:
        if _is_old(client):
            raise RemoteError(_without(client)) from None
        raise error from None
    if answer.status in (404, 405, 501):
        raise RemoteError(_without(client))
    if answer.status == 403:
        hint = "" if token else "; give its token with --token-file"
        raise RemoteError(f"{client.where} does not let us start it: {answer.text}{hint}")
    if answer.status != 200:
        raise RemoteError(f"{client.where} is not to be started ({answer.status}): {answer.text}")
    print(f"{client.where} has the start: the world forms as soon as there is quorum")
    return 0


def _without(client: Client) -> str:
    return f"{client.where} cannot be started by hand: such a controller (0.7) has no start"


def _is_old(client: Client) -> bool:
    """Whether a controller that breaks off at a POST is a published one of 0.7, which does so."""
    try:
        state = client.state()
    except RemoteError:
        return False
    return state is not None and "start_mode" not in state
