from __future__ import annotations

import argparse
import signal
from pathlib import Path
from typing import Any

import pytest

from joinproto.cli.targets import (
    USAGE_EXIT,
    Misuse,
    complain,
    hear_signals,
    positive,
    reach_of,
    read_file,
    running_at,
    scale,
)


def args(**values: Any) -> argparse.Namespace:
    usual = {
        "what": "controller",
        "command": (),
        "start": None,
        "address": None,
        "ourselves": False,
        "capabilities": None,
        "salt_file": None,
    }
    return argparse.Namespace(**{**usual, **values})


def test_a_complaint_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert complain("x", "a\nb") == USAGE_EXIT
    assert complain("x", "a", 4) == 4
    assert capsys.readouterr().err == "x: a\\nb\nx: a\n"


def test_options_that_are_numbers() -> None:
    assert positive("12") == 12
    assert scale("0.5") == 0.5
    for parse, text in ((positive, "0"), (positive, "x"), (scale, "0"), (scale, "x")):
        with pytest.raises(argparse.ArgumentTypeError):
            parse(text)


def test_a_signal_that_is_ignored_here_is_not_by_targets() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        hear_signals()
        assert callable(signal.getsignal(signal.SIGHUP))
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_target_by_its_command_its_address_or_ourselves() -> None:
    assert reach_of(args(start="x --port {port}")).command == ("x", "--port", "{port}")
    assert reach_of(args(address="127.0.0.1:4000")).command == ()
    assert reach_of(args(ourselves=True)).can_tell("port")
    assert reach_of(args(what="agent", command=("x", "y"))).command == ("x", "y")
    assert reach_of(args(), needed=False).command == ()


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({}, "no target: --start COMMAND, --address HOST:PORT, or --self"),
        ({"what": "agent"}, "no target: a command behind --, or --self"),
        ({"start": "x {port}", "ourselves": True}, "only one target at a time"),
        ({"start": "x"}, "the command must hold {port}"),
        ({"start": "x '"}, "No closing quotation"),
        ({"start": "x {ports}"}, "{ports} is no placeholder"),
    ],
)
def test_what_is_no_target(values: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Misuse) as raised:
        reach_of(args(**values))
    assert complaint in str(raised.value)


def test_where_a_controller_is_up(tmp_path: Path) -> None:
    assert running_at(args()) == (None, None)
    assert running_at(args(address="127.0.0.1:4000")) == (("127.0.0.1", 4000), None)
    with pytest.raises(Misuse, match="--salt-file goes with --address"):
        running_at(args(salt_file="x"))
    with pytest.raises(Misuse, match="nowhere"):
        running_at(args(address="nowhere"))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x"
    with pytest.raises(Misuse, match="x: No such file"):
        read_file(path, str)
    path.write_text("a")
    assert read_file(path, str) == "a"
    with pytest.raises(Misuse, match="x: invalid literal"):
        read_file(path, int)
