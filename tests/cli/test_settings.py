"""settings: what options come to; what becomes of them is tested with the commands."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

import pytest

from joinproto.cli import agent
from joinproto.cli.settings import (
    read_options,
    read_reports,
    read_salt,
    read_scale,
    read_signature,
    read_spec,
    read_wires,
)
from joinproto.errors import ConfigError
from joinproto.keys import Salt
from joinproto.runtime.reports import Reports
from joinproto.runtime.spec import AgentSpec
from joinproto.runtime.streams import OutputSettings
from joinproto.runtime.torch import TorchSettings

DIGITS = "00112233445566778899aabbccddeeff"


def parse(*options: str, command: tuple[str, ...] = ("true",)) -> argparse.Namespace:
    """The options of an agent."""
    parser = argparse.ArgumentParser()
    agent.add_arguments(parser)
    args = parser.parse_args(["--controller", "c.lan:7000", "--host", "a", *options])
    args.command = command
    return args


def options(*given: str) -> dict[str, Any]:
    return read_options(parse(*given))


# -- what an agent is to do -------------------------------------------------------------------


def test_without_more_everything_is_as_usual() -> None:
    assert options() == {
        "relay_command": None,
        "wires": (4, 2),
        "nccl_version": None,
        "grace": 5.0,
        "scale": 1.0,
        "extra_env": {},
        "cwd": None,
        "verbose": False,
        "output": None,
        "torch": None,
    }


def test_everything_else(tmp_path: Path) -> None:
    found = options(
        *("--relay-command", "a 'b c'", "--wire", "2", "--nccl-version", "2.27.3", "-v"),
        *("--grace", "0.5", "--net-timeout-scale", "2", "--env", "A=b=c", "--cwd", str(tmp_path)),
    )
    assert found | {"output": None, "torch": None} == {
        "relay_command": ["a", "b c"],
        "wires": (2,),
        "nccl_version": (2, 27, 3),
        "grace": 0.5,
        "scale": 2.0,
        "extra_env": {"A": "b=c"},
        "cwd": str(tmp_path),
        "verbose": True,
        "output": None,
        "torch": None,
    }


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        (("--no-prefix",), {"prefix": None}),
        (("--only-ranks", "0,3-5"), {"only_ranks": frozenset((0, 3, 4, 5))}),
        (("--on-stalled-output", "drop"), {"drop": True}),
        (("--log-dir", "logs"), {"log_dir": "logs"}),
        (
            ("--log-dir", "logs", "--log-size", "0.5", "--log-total", "3"),
            {"log_dir": "logs", "log_bytes": 1 << 19, "log_total": 3 << 20},
        ),
    ],
)
def test_what_becomes_of_output(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: tuple[str, ...],
    changed: dict[str, Any],
) -> None:
    monkeypatch.chdir(tmp_path)
    output = options(*given)["output"]
    usual = OutputSettings()
    for name in OutputSettings.fields:
        expected = changed.get(name, getattr(usual, name))
        got = getattr(output, name)
        if name == "prefix" and expected is not None:
            assert got.template is None
        else:
            assert got == expected, name
    assert os.listdir() == (["logs"] if "log_dir" in changed else [])


@pytest.mark.parametrize("template", ["", "{rank}> "])
def test_a_prefix(template: str) -> None:
    assert options("--prefix", template)["output"].prefix.template == template


def test_torch() -> None:
    assert options("--torch")["torch"] == TorchSettings()
    found = options("--torch", "--master-addr", "m", "--master-port", "65535")["torch"]
    assert found == TorchSettings(master_addr="m", master_port=65535)


def test_who_else_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def reports(*given: str) -> Reports | None:
        return read_reports(parse(*given))

    assert reports() is None
    assert reports("--events", "json") == Reports(events_fd=2)
    assert reports("--events", "json", "--events-fd", "1") == Reports(events_fd=1)
    path = str(tmp_path / "status")
    assert reports("--status-file", path) == Reports(status_file=path)
    monkeypatch.setenv("NOTIFY_SOCKET", "@x")
    assert reports() == Reports()
    ends: list[Any] = []
    again = read_reports(parse(), 3, ends.append)
    assert again == Reports(restarts=3, ended=ends.append)


def test_a_spec_of_options_alone() -> None:
    given = ("--devices", "3,1", "--libtorch", "cu126", "--data-path", "/d")
    assert read_spec(parse(*given)) == AgentSpec(
        host="a",
        controller_host="c.lan",
        controller_port=7000,
        local_devices=(3, 1),
        libtorch="cu126",
        data_path="/d",
    )


# -- what other commands read likewise --------------------------------------------------------


def test_wires() -> None:
    assert [read_wires(choice) for choice in ("auto", "2", "4")] == [(4, 2), (2,), (4,)]


def test_a_signature() -> None:
    assert read_signature("--x", None) is None
    assert read_signature("--x", "Ab" * 32) == b"\xab" * 32
    for text in ("", "ab" * 31, "ab" * 33, "xy" * 32):
        with pytest.raises(ConfigError, match="^--x: a signature is 64 hex digits$"):
            read_signature("--x", text)


def test_a_salt_that_others_can_read_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "salt"
    path.write_text(DIGITS)
    path.chmod(0o600)
    assert read_salt("controller", str(path)) == Salt.from_hex(DIGITS)
    assert capsys.readouterr().err == ""
    path.chmod(0o644)
    assert read_salt("controller", str(path)) == Salt.from_hex(DIGITS)
    told = capsys.readouterr().err
    assert told.startswith("joinproto controller: ")
    assert told.count("\n") == 1
    assert DIGITS not in told


def test_a_scale(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("FLODL_NET_TIMEOUT_SCALE", "3")
    assert (read_scale("agent", None), read_scale("agent", "2")) == (3.0, 2.0)
    with pytest.raises(ConfigError, match="^--net-timeout-scale: 'x' is not a number$"):
        read_scale("agent", "x")
    monkeypatch.setenv("FLODL_NET_TIMEOUT_SCALE", "x")
    assert capsys.readouterr().err == ""
    assert read_scale("agent", None) == 1.0
    assert capsys.readouterr().err.startswith("joinproto agent: FLODL_NET_TIMEOUT_SCALE: 'x' is")
