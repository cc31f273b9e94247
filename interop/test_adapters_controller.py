"""The published controllers as targets of the conformance suite."""

from __future__ import annotations

import dataclasses
import json
import signal
from pathlib import Path

import pytest

from interop.peers import WIRES, free_port
from interop.processes import Watched, clean_environment
from joinproto.conformance.capabilities import read
from joinproto.conformance.case import Case, Step, load, parse
from joinproto.conformance.session import Settings, play_for_real
from joinproto.conformance.verdicts import Verdict

pytestmark = pytest.mark.interop

ADAPTERS = Path(__file__).parent / "adapters"
CONTROLLER = str(ADAPTERS / "published-controller")

SANITY = next(
    each for each in load("controller") if each.id == "controller/sanity/admits-and-forms"
)

STARTED_BY_HAND = {
    "id": "by-hand",
    "title": "A world that waits for its operator",
    "clauses": ["JP-WIN-009"],
    "setup": {"target_ranks": None},
    "steps": [
        {"honest": "c"},
        {"dial": "h", "channel": "", "raw": True},
        {"send": b"POST /start HTTP/1.1\r\nHost: x\r\n\r\n".hex(), "on": "h"},
        {"await": [{"http": {"status": 200}}], "on": "h"},
        {"await": [{"message": "WorldFormed"}]},
    ],
}


def play(version: str, case: Case, *options: str, admission: str = "open") -> Verdict:
    """What a case comes to with that version."""
    command = (CONTROLLER, version, *options)
    settings = Settings(role="controller", command=command, scale=0.1)
    played = play_for_real(settings, case, wire=WIRES[version], admission=admission)
    return played.outcome.verdict


def admissions(version: str) -> tuple[str, ...]:
    """The trust modes that the version is declared to have."""
    file = ADAPTERS / f"published-controller-{version}.json"
    return read(file.read_text(encoding="utf-8")).admissions or ()


def test_it_admits_and_forms_and_ends_well(version: str) -> None:
    for admission in admissions(version):
        assert play(version, SANITY, admission=admission) is Verdict.PASS


def test_its_window_has_no_target_where_none_is_given(version: str) -> None:
    steps: list[Step] = [{"honest": "c"}, {"quiet": 0.2}]
    case = dataclasses.replace(SANITY, setup={"target_ranks": None}, steps=steps)
    assert play(version, case) is Verdict.PASS


@pytest.mark.parametrize("mode", ["manual", "hybrid"])
def test_the_newest_can_be_started_by_hand(both_versions: list[str], mode: str) -> None:
    (case,) = parse("controller", "x.json", json.dumps({"cases": [STARTED_BY_HAND]}))
    assert play(both_versions[-1], case, "--start-mode", mode) is Verdict.PASS


def test_signals_reach_it(version: str) -> None:
    values = {"port": free_port(), "min_ranks": 1, "target_ranks": 1, "salt_file": None}
    case = values | {"join_timeout": 300, "max_join_timeout": 600}
    environment = clean_environment(JOINPROTO_CASE=json.dumps(case))
    with Watched((CONTROLLER, version), environment=environment) as controller:
        controller.wait_line("window open")
        controller.signal(signal.SIGTERM)
        assert controller.wait_exit() == -signal.SIGTERM


def test_what_the_oldest_cannot_be_told_is_an_error(both_versions: list[str]) -> None:
    environment = clean_environment(JOINPROTO_CASE=json.dumps({"salt_file": "salt"}))
    with Watched((CONTROLLER, both_versions[0]), environment=environment) as controller:
        assert controller.wait_exit() == 2
        controller.wait_line("makes its own salt")


@pytest.mark.parametrize("file", sorted(ADAPTERS.glob("*.json")), ids=lambda file: file.stem)
def test_what_is_declared_of_it_can_be_read(file: Path) -> None:
    version = file.stem.rpartition("-")[2]
    assert read(file.read_text(encoding="utf-8")).wires == (WIRES[version],)
