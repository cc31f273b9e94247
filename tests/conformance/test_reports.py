"""All reports of a record, as files; and what they need is loaded by nobody else."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings

from joinproto.conformance.reports import write_all
from joinproto.conformance.results import Happening, Record, Summary
from joinproto.conformance.verdicts import Verdict
from tests.support.python import run_python
from tests.support.records import failed, record, records, result

TALK = (Happening(at=0.5, who="target", what="bytes", connection="c", hex="00ff", size=2),)
FILES = ["junit.xml", "report.html", "summary.md", "badge.svg", "badge.json"]


def test_what_is_written(tmp_path: Path) -> None:
    whole = record(
        result(happenings=TALK),
        failed(case="agent/a/b", happenings=TALK),
        result(case="agent/a/c", verdict=Verdict.NON_STRICT, happenings=TALK),
        summary=Summary(counts={}),
    )
    directory = tmp_path / "new" / "reports"
    captures = ["pcap/agent.a.b_wire-4_open.pcap", "pcap/agent.a.c_wire-4_open.pcap"]
    for non_strict, expected in ((False, captures[:1]), (True, captures)):
        written = write_all(whole, directory, non_strict=non_strict)
        assert [path.relative_to(directory).as_posix() for path in written] == [*FILES, *expected]
        page = (directory / "report.html").read_text()
        assert [name in page for name in captures] == [name in expected for name in captures]
    assert "joinproto conform agent" in (directory / "summary.md").read_text()
    assert ElementTree.parse(directory / "junit.xml").getroot().get("tests") == "3"
    assert json.loads((directory / "badge.json").read_text())["message"] == "1/3 pass"


def test_other_files_are_left_alone_and_old_reports_are_not(tmp_path: Path) -> None:
    (tmp_path / "results.jsonl").write_text("the record\n")
    write_all(record(failed(happenings=TALK)), tmp_path)
    write_all(record(result()), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        [*FILES, "pcap", "results.jsonl"]
    )
    assert list((tmp_path / "pcap").iterdir()) == []
    assert (tmp_path / "results.jsonl").read_text() == "the record\n"


def test_where_nothing_can_be_written_that_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match="file"):
        write_all(record(), tmp_path / "file")


@settings(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(records)
def test_any_record_has_all_reports_and_stays_in_its_folder(tmp_path: Path, whole: Record) -> None:
    directory = tmp_path / "reports"
    assert all(path.is_file() for path in write_all(whole, directory))
    assert list(tmp_path.iterdir()) == [directory]


@pytest.mark.parametrize("module", ["joinproto.agent", "joinproto.cli.agent", "joinproto.cli"])
def test_an_agent_loads_nothing_of_them(module: str) -> None:
    code = (
        "import importlib\nimportlib.import_module(args[0])\nprint(json.dumps(list(sys.modules)))"
    )
    loaded = {name.partition(".")[0] for name in run_python(code, module)}
    assert not loaded & {"jinja2", "markupsafe", "junitparser", "anybadge", "rich"}
