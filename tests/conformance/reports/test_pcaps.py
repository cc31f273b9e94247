"""Captures of failed cases: which there are, their names, and the bytes in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from joinproto.conformance.pcap import Endpoint, Event
from joinproto.conformance.reports import pcaps
from joinproto.conformance.results import Happening, Record, Result
from joinproto.conformance.verdicts import Verdict
from tests.support.records import failed, record, records, result, run

START = 1769903999.0  # 2026-01-31T23:59:59+00:00


def happened(at: float, who: str, what: str, data: bytes = b"", **changes: Any) -> Happening:
    values: dict[str, Any] = {"connection": "c", "hex": data.hex(), "size": len(data)} | changes
    return Happening(at=at, who=who, what=what, **values)


TALK = (
    happened(0.5, "target", "open"),
    happened(0.75, "target", "bytes", b"hello"),
    happened(1.0, "suite", "bytes", b"welcome"),
    happened(1.25, "suite", "line", connection=""),
    happened(1.5, "suite", "fin"),
    happened(1.75, "target", "rst"),
)


def only(role: str, *happenings: Happening) -> list[tuple[float, str, object]]:
    """The events of the one conversation, in seconds since the run began."""
    (found,) = pcaps.conversations(run(role=role), failed(happenings=happenings))
    assert found.server == Endpoint("127.0.0.1", 29500)
    assert found.client.port == 40001
    return [(time - START, side, what) for time, side, what in found.events]


def test_an_agent_under_test_dials() -> None:
    assert only("agent", *TALK) == [
        (0.5, "client", "syn"),
        (0.5, "server", "syn"),
        (0.75, "client", b"hello"),
        (1.0, "server", b"welcome"),
        (1.5, "server", "fin"),
        (1.75, "client", "rst"),
    ]


def test_a_controller_under_test_is_dialed() -> None:
    sides = [side for _, side, _ in only("controller", *TALK)]
    assert sides == ["client", "server", "server", "client", "client", "server"]


def test_after_bytes_that_the_record_lacks_a_direction_has_none() -> None:
    found = only(
        "agent",
        happened(0, "target", "bytes", b"flood", size=70_000),
        happened(1, "target", "bytes", b"more"),
        happened(2, "suite", "bytes", b"ok"),
        happened(3, "target", "fin"),
    )
    assert [what for _, _, what in found] == ["syn", "syn", b"flood", b"ok", "fin"]


def test_each_connection_has_its_own_port() -> None:
    talk = [happened(0, "target", "open", connection=name) for name in ("c", "d", "c")]
    found = pcaps.conversations(run(), failed(happenings=tuple(talk)))
    assert [each.client.port for each in found] == [40001, 40002, 40003]


@pytest.mark.parametrize("started", ["", "yesterday", "0001-01-01T00:00:00", "9999-12-31T00:00Z"])
def test_a_run_that_does_not_say_when_begins_with_the_epoch(started: str) -> None:
    (found,) = pcaps.conversations(run(started=started), failed(happenings=TALK))
    assert Event(*found.events[0]).time == 0.5


def test_only_what_failed_has_a_capture(tmp_path: Path) -> None:
    whole = record(
        *(
            result(case=f"agent/x/{verdict.lower()}", verdict=verdict, happenings=TALK)
            for verdict in Verdict
        ),
        failed(case="agent/x/silent"),
    )
    names = [path.name for path in pcaps.write(whole, tmp_path / "pcap")]
    assert names == [
        "agent.x.fail_wire-4_open.pcap",
        "agent.x.harness-error_wire-4_open.pcap",
    ]
    more = {path.name for path in pcaps.write(whole, tmp_path / "pcap", non_strict=True)}
    assert more == {*names, "agent.x.non-strict_wire-4_open.pcap"}
    pcaps.write(record(result()), tmp_path / "pcap")
    assert list((tmp_path / "pcap").iterdir()) == []


def test_without_a_failure_there_is_no_folder(tmp_path: Path) -> None:
    assert pcaps.write(record(result()), tmp_path / "pcap") == []
    assert not (tmp_path / "pcap").exists()


def test_the_bytes_are_in_the_file(tmp_path: Path) -> None:
    (path,) = pcaps.write(record(failed(happenings=TALK)), tmp_path)
    content = path.read_bytes()
    assert content.index(b"hello") < content.index(b"welcome")


@pytest.mark.parametrize(
    "case", ["../../etc/passwd", "/abs", "a\0b", "a/" * 200 + "b", "A:B", "a.b", "\ud800", "", "."]
)
def test_a_name_is_safe_whatever_the_case_is_called(case: str) -> None:
    name = pcaps.file_name(result(case=case))
    assert set(name) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._")
    assert not name.startswith(".")
    assert len(name) < 200
    assert name != pcaps.file_name(result(case=case + "x"))


def test_names_differ_where_results_do() -> None:
    several: list[Result] = [
        result(case="a/b"),
        result(case="a.b"),
        result(case="a-b"),
        result(case="a/b", wire=2),
        result(case="a/b", admission="pre-shared"),
    ]
    assert len({pcaps.file_name(each) for each in several}) == len(several)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records)
def test_any_record_can_be_written(tmp_path: Path, whole: Record) -> None:
    for path in pcaps.write(whole, tmp_path, non_strict=True):
        assert path.parent == tmp_path
        assert path.stat().st_size >= 24
