from __future__ import annotations

from typing import Any

import pytest

from joinproto.conformance.capabilities import (
    Capabilities,
    Reach,
    of_ourselves,
    read,
    split,
    uses_children,
)
from joinproto.conformance.case import load
from tests.support.conformance import case_of

FULL = split(
    "ctl --port {port} --min {min_ranks} --target {target_ranks} --timeout {join_timeout}"
    " --cap {max_join_timeout} [--salt {salt_file}] [--sig {dataset_sig}]"
)


def reach(command: Any = FULL, role: str = "controller", **declared: Any) -> Reach:
    return Reach(role=role, command=command, capabilities=Capabilities(**declared))


def controller_case(**values: Any) -> Any:
    return case_of({"listen": True}, role="controller", **values)


def test_what_a_file_declares() -> None:
    known = read(
        '{"wires": [2], "admissions": ["open"], "reads": ["port"], "has": ["relay"],'
        ' "with": {"manual": "--start-mode manual"}, "fixed": {"min_ranks": 2}, "command": "x"}'
    )
    assert known.wires == (2,)
    assert known.admissions == ("open",)
    assert known.options == {"manual": "--start-mode manual"}
    assert known.words_for(controller_case(needs=("manual", "relay"))) == ("--start-mode", "manual")
    assert read("{}") == Capabilities()


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "not JSON"),
        ("1", "not a JSON object"),
        ('{"wire": [2]}', "'wire' is none of"),
        ('{"wires": 2}', "wires is not an array"),
        ('{"with": []}', "with is not an object"),
        ('{"wires": [3]}', "wires: 3 is none of 2, 4"),
        ('{"admissions": ["closed"]}', "'closed' is none of"),
        ('{"reads": ["ports"]}', "'ports' is none of"),
        ('{"command": 1}', "command is not a string"),
    ],
)
def test_what_is_no_file_of_capabilities(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        read(text)


@pytest.mark.parametrize("command", ["a '", "a {ports}", "a [b", "a [b [c]]", "a b]"])
def test_a_command_that_cannot_be(command: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        split(command)


@pytest.mark.parametrize("role", ["agent", "controller"])
def test_ours_can_be_told_everything(role: str) -> None:
    ours = of_ourselves(role)
    whole = Reach(
        role=role, command=split(ours.command.replace("{python}", "python")), capabilities=ours
    )
    for case in load(role):
        for admission in case.admissions:
            assert whole.missing(case, admission) == "", case.id


@pytest.mark.parametrize(
    ("command", "admissions"),
    [
        ("c {port}", ("open",)),
        ("c {port} --salt {salt_file}", ("pre-shared",)),
        ("c {port} [--salt {salt_file}]", ("open", "pre-shared")),
        ("c {port} {salt_file} {admission}", ("open", "pre-shared")),
    ],
)
def test_the_trust_modes_that_a_command_can_tell(command: str, admissions: tuple[str, ...]) -> None:
    assert reach(split(command)).admissions() == admissions


def test_the_trust_modes_of_others() -> None:
    assert reach((), reads=frozenset()).admissions() == ("open",)
    assert reach(split("c {port}"), reads=frozenset({"salt_file"})).admissions() == (
        "open",
        "pre-shared",
    )
    assert reach(admissions=("open",)).admissions() == ("open",)
    assert reach(("a",), role="agent").admissions() == ("open", "pre-shared")
    running = Reach(
        role="controller", command=(), capabilities=Capabilities(), admission="pre-shared"
    )
    assert running.admissions() == ("pre-shared",)


def test_what_a_case_lacks() -> None:
    assert reach().missing(controller_case(), "open") == ""
    assert "pre-shared" in reach(split("c {port}")).missing(controller_case(), "pre-shared")
    assert "relay" in reach().missing(controller_case(needs=("relay",)), "open")
    assert reach(has=frozenset({"relay"})).missing(controller_case(needs=("relay",)), "open") == ""
    assert reach(options={"relay": "-r"}).missing(controller_case(needs=("relay",)), "open") == ""


def test_what_a_command_cannot_be_told() -> None:
    bare = split("c {port}")
    untold = reach(bare).missing(controller_case(), "open")
    assert untold.startswith("the target cannot be told: min_ranks, target_ranks (")
    fixed = {"min_ranks": 1, "target_ranks": 1}
    assert reach(bare, fixed=fixed).missing(controller_case(), "open") == ""
    assert reach(bare, fixed=fixed).missing(controller_case(setup={"min_ranks": 2}), "open") != ""
    # What everybody takes who is told nothing need not be told.
    assert (
        reach(bare, fixed=fixed).missing(controller_case(setup={"join_timeout": 300}), "open") == ""
    )
    timeout = controller_case(setup={"join_timeout": 10})
    assert "join_timeout" in reach(bare, fixed=fixed).missing(timeout, "open")
    signature = controller_case(setup={"dataset_sig": "ab" * 32})
    assert "dataset_sig" in reach(bare, fixed=fixed).missing(signature, "open")


def test_a_controller_that_is_up_already() -> None:
    assert "--start" in reach(()).missing(controller_case(), "open")
    assert reach(()).missing(controller_case(setup={"harmless": True}), "open") == ""


def test_an_agent_that_cannot_be_told_what_its_ranks_run() -> None:
    looks = case_of({"await": [{"up": 0}]})
    assert uses_children(looks)
    assert not uses_children(case_of({"await": [{"end": ["fin"]}]}))
    assert "helper" in reach(("agent",), role="agent").missing(looks, "open")
    assert reach(("agent", "{helper}"), role="agent").missing(looks, "open") == ""


def test_what_is_told_nothing() -> None:
    silent = controller_case(setup={"join_timeout": None})
    assert "join_timeout" in reach().missing(silent, "open")
    optional = split("ctl {min_ranks} {target_ranks} [--timeout {join_timeout}]")
    assert reach(optional).missing(silent, "open") == ""
    bare = split("ctl {min_ranks} {target_ranks}")
    assert reach(bare).missing(silent, "open") == ""
    assert "join_timeout" in reach(bare, fixed={"join_timeout": 20}).missing(silent, "open")
