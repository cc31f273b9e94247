"""The published agents as targets of the conformance suite."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from interop.peers import WIRES, agent_spec, binary, hex_json
from interop.processes import PATIENCE, Watched, clean_environment
from interop.published_agent import NOT_BUILT, host_in
from joinproto.conformance.case import Case, load
from joinproto.conformance.session import Settings, play_for_real
from joinproto.conformance.verdicts import Verdict

pytestmark = pytest.mark.interop

AGENT = str(Path(__file__).parent / "adapters/published-agent")

SANITY = [case for case in load("agent") if case.sanity]


@pytest.fixture(autouse=True)
def python(monkeypatch: pytest.MonkeyPatch) -> None:
    """The adapter runs in the Python that runs the tests."""
    monkeypatch.setenv("PYTHON", sys.executable)


@pytest.mark.parametrize("admission", ["open", "pre-shared"])
@pytest.mark.parametrize("case", SANITY, ids=lambda case: case.id)
def test_it_plays_sanity(version: str, case: Case, admission: str) -> None:
    settings = Settings(role="agent", command=(AGENT, version), scale=0.1)
    played = play_for_real(settings, case, wire=WIRES[version], admission=admission)
    assert played.outcome.verdict is Verdict.PASS, played.outcome.got


def test_it_becomes_the_peer_so_signals_reach_that(version: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        environment = clean_environment(
            JOINPROTO_HELPER="true",
            FLODL_INTERNAL_AGENT_JSON=hex_json(agent_spec("h", server.getsockname()[1], [0])),
            PYTHON=sys.executable,
        )
        with Watched((AGENT, version), environment=environment) as agent, server.accept()[0]:
            assert os.readlink(f"/proc/{agent.pid}/exe") == str(binary(version).resolve())
            agent.signal(signal.SIGTERM)
            assert agent.wait_exit() == -signal.SIGTERM


def test_one_that_is_not_built_is_one_clear_line(tmp_path: Path) -> None:
    environment = clean_environment(JOINPROTO_PEERS=str(tmp_path), PYTHON=sys.executable)
    with Watched((AGENT, "0.8.0"), environment=environment) as agent:
        assert agent.wait_exit() == NOT_BUILT
        assert len(agent.lines("stderr")) == 1
        agent.wait_line("is not built; run interop/build_peers.sh 0.8.0")


@pytest.mark.parametrize(
    ("spec", "host"),
    [
        (hex_json({"host": "h"}), "h"),
        (hex_json(["h", "127.0.0.1"]), "h"),
        (hex_json({"host": 1}), None),
        (hex_json({}), None),
        (hex_json(7), None),
        ("zz", None),
        ("", None),
    ],
)
def test_the_host_of_a_spec(spec: str, host: str | None) -> None:
    assert host_in(spec) == host
