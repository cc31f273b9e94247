from __future__ import annotations

import json
import os
import select
import sys
from pathlib import Path

import pytest

from joinproto.conformance.target import (
    BYSTANDER_VARIABLE,
    Target,
    beside_bystander,
    check,
    environment_of,
    filled,
    placeholders_in,
)

HELPER = ("python3", "a b.py", "sock")


def test_placeholders_of_a_command() -> None:
    assert placeholders_in(["x", "--p={port}", "{helper}", "{other}"]) == {"port", "helper"}


def test_placeholders_are_filled_in() -> None:
    words = ["c", "--port={port}", "{helper}", "RANK={helper}", "{unknown}"]
    assert filled(words, {"port": 5}, HELPER) == [
        "c",
        "--port=5",
        *HELPER,
        "RANK=python3 'a b.py' sock",
        "{unknown}",
    ]


def test_a_group_is_left_out_where_a_value_is_missing() -> None:
    words = ["c", "[--salt", "{salt_file}]", "[{admission}]", "[--x", "y]", "[--h", "{helper}]"]
    given = {"salt_file": None, "admission": "open"}
    assert filled(words, given, HELPER) == ["c", "open", "--x", "y", "--h", *HELPER]
    assert filled(["[--salt", "{salt_file}]"], {"salt_file": "/s"}, HELPER) == ["--salt", "/s"]


def test_a_value_that_is_missing_outside_of_a_group_is_empty() -> None:
    assert filled(["{dataset_sig}"], {"dataset_sig": None}, HELPER) == [""]


def test_a_command_is_checked() -> None:
    check(["c", "{port}", "[a", "b]"])
    with pytest.raises(ValueError, match="{ports} is no placeholder"):
        check(["{ports}"])
    with pytest.raises(ValueError, match=r"\[ \]"):
        check(["[a"])


def test_the_environment_speaks_of_this_case_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLODL_INTERNAL_RELAY_JSON", "x")
    monkeypatch.setenv("JOINPROTO_SALT", "x")
    env = environment_of({"port": 5}, HELPER, 0.1, {"A": "b"})
    assert "FLODL_INTERNAL_RELAY_JSON" not in env
    assert "JOINPROTO_SALT" not in env
    assert json.loads(env["JOINPROTO_CASE"]) == {"port": 5}
    assert env["JOINPROTO_HELPER"] == "python3 'a b.py' sock"
    assert env["FLODL_NET_TIMEOUT_SCALE"] == "0.1"
    assert env["A"] == "b"


def test_a_case_may_take_a_variable_out() -> None:
    assert "FLODL_NET_TIMEOUT_SCALE" not in environment_of(
        {}, HELPER, 0.1, {"FLODL_NET_TIMEOUT_SCALE": None}
    )


def test_a_bystander_shares_the_group_but_is_no_child(tmp_path: Path) -> None:
    told = tmp_path / "told"
    os.mkfifo(told)
    read = os.open(told, os.O_RDONLY | os.O_NONBLOCK)
    code = (
        f"import os; os.write(os.open({str(told)!r}, os.O_WRONLY), b'%d %d %s' % "
        f"(os.getpgrp(), os.getppid(), os.environb[b'{BYSTANDER_VARIABLE}']))"
    )
    stay = [sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"]
    target = Target(beside_bystander(stay, (*stay[:-1], code)), {})
    try:
        poll = select.poll()
        poll.register(read, select.POLLIN)
        assert poll.poll(10_000)
        group, parent, marked = os.read(read, 100).split()
        assert int(group) == target.pid
        assert int(parent) != target.pid
        assert marked == b"1"
    finally:
        target.close()
        os.close(read)


def run(code: str, tmp_path: Path) -> Target:
    return Target([sys.executable, "-I", "-S", "-c", code], {})


def ended(target: Target) -> None:
    poll = select.poll()
    poll.register(target.pidfd, select.POLLIN)
    assert poll.poll(10_000)


def test_lines_and_the_end_of_a_target(tmp_path: Path) -> None:
    target = run("import sys; print('a'); sys.stderr.write('b\\nc'); sys.exit(3)", tmp_path)
    try:
        ended(target)
        assert target.reap() == 3
        assert target.read("stdout") == ["a"]
        assert target.read("stdout") is None
        assert target.read("stderr") == ["b"]
        assert (target.stderr, target.written) == ("b\nc", 5)
    finally:
        target.close()


def test_a_target_that_stays_is_killed(tmp_path: Path) -> None:
    target = run("import signal; signal.pause()", tmp_path)
    assert target.read("stdout") == []
    target.close()
    assert target.code == -9


def test_a_target_that_is_not_there() -> None:
    with pytest.raises(OSError, match="No such file"):
        Target(["/nowhere/to/be/found"], {})
