"""The published peers are held against the specification, in both roles.

`expectations/` gives each deviation its reason; docs/peers.md tells what they come to.  Whatever
else deviates fails here, and so does a deviation that is not there any more.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from interop.peers import OURS, WIRES
from interop.processes import clean_environment
from joinproto.conformance.results import read
from joinproto.conformance.selection import Expectations

pytestmark = [pytest.mark.interop, pytest.mark.long]

HERE = Path(__file__).parent
PEERS = HERE.parent / "docs" / "peers.md"

KNOWN = {
    "agent": {
        "agent/payload/string-of-2-40": "FAIL",
        "agent/framing/formed-of-kind-6": "FAIL",
        "agent/teardown/sigterm": "FAIL",
        "agent/messages/code-of-sigkill": "NON-STRICT",
    },
    "controller": {
        "controller/payload/string-of-2-40": "FAIL",
        "controller/payload/string-of-2-64": "FAIL",
        "controller/admission/beside-two-silent-dials": "FAIL",
        "controller/framing/kind-1-from-a-member": "FAIL",
    },
}
"""What must be found: case → verdict."""


@pytest.mark.parametrize("role", list(KNOWN))
def test_what_deviates_is_known(role: str, version: str, tmp_path: Path) -> None:
    adapter = shlex.join([str(HERE / "adapters" / f"published-{role}"), version])
    expected = HERE / "expectations" / f"{role}-{version}.json"
    command = [*OURS, "conform", role, "--time-scale", "0.1", "--seed", "1"]
    command += ["--capabilities", str(HERE / "adapters" / f"published-{role}-{version}.json")]
    command += ["--expect", str(expected), "--output", str(tmp_path)]
    command += ["--start", adapter] if role == "controller" else ["--", *shlex.split(adapter)]
    done = subprocess.run(
        command, env=clean_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    verdicts = {
        result.case: result.verdict.value
        for result in read((tmp_path / "results.jsonl").read_text().splitlines()).results
    }
    for case, verdict in KNOWN[role].items():
        assert verdicts[case] == verdict, case


@pytest.mark.parametrize("version", list(WIRES))
@pytest.mark.parametrize("role", list(KNOWN))
def test_the_page_tells_of_every_deviation(role: str, version: str) -> None:
    page = PEERS.read_text(encoding="utf-8")
    text = (HERE / "expectations" / f"{role}-{version}.json").read_text(encoding="utf-8")
    for case in Expectations.read(text).reasons:
        assert f"`{case}`" in page, case
    assert json.loads(text)
