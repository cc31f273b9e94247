"""A published agent as the target of one conformance case.

    python -m interop.published_agent VERSION

The suite has put the agent's spec into the environment, and JOINPROTO_HELPER says what its ranks
and its relay are to run.  This process becomes the agent, so that its pid and its end are its own.
"""

from __future__ import annotations

import argparse
import os
import sys

from interop.peers import WIRES, binary, unhex_json

NOT_BUILT = 40
"""The exit code where there is no such peer to run; no agent ends with it by itself."""

SPEC_VARIABLE = "FLODL_INTERNAL_AGENT_JSON"


def main() -> None:
    """Become the agent that the command line asks for."""
    parser = argparse.ArgumentParser(prog="published-agent")
    parser.add_argument("version", choices=sorted(WIRES))
    version = parser.parse_args().version
    try:
        program = str(binary(version))
    except FileNotFoundError as missing:
        print(f"published-agent: {missing}", file=sys.stderr)
        sys.exit(NOT_BUILT)
    helper = f"exec {os.environ['JOINPROTO_HELPER']}"
    environment = {**os.environ, "PEER_RANK_CMD": helper, "PEER_RELAY_CMD": helper}
    # Flodl's ranks look themselves up in their envelope by the name of their host.
    if (host := host_in(os.environ.get(SPEC_VARIABLE, ""))) is not None:
        environment["FLODL_HOST_NAME"] = host
    os.execve(program, [program], environment)


def host_in(text: str) -> str | None:
    """The host that a spec names; None where it cannot be read, which is for the agent to say."""
    try:
        spec = unhex_json(text)
        host = spec["host"] if isinstance(spec, dict) else spec[0]
    except (ValueError, LookupError, TypeError):
        return None
    # What no environment can hold is no name that a rank could find.
    return host if isinstance(host, str) and host and "\0" not in host else None


if __name__ == "__main__":
    main()
