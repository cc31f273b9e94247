from __future__ import annotations

from pathlib import Path

import pytest

from joinproto.fuzzing.corpus import CASES, FINDINGS, read_cases, read_findings, write_cases
from joinproto.fuzzing.finding import Finding
from joinproto.fuzzing.oracles import Strike
from joinproto.fuzzing.sequence import Sequence

ONE = Sequence(role="controller", wire=4, steps=({"dial": "c"},))
OTHER = Sequence(role="agent", wire=2, steps=({"accept": "c"},))


def finding(sequence: Sequence) -> Finding:
    strike = Strike(oracle="died", what="exit code 1", where="Routing, 1")
    return Finding(sequence=sequence, strike=strike, seed=1, number=1, scale=0.1)


def test_cases_come_back_each_for_its_role(tmp_path: Path) -> None:
    assert write_cases(tmp_path / "new", [ONE, OTHER]) == 2
    assert read_cases(tmp_path / "new", "controller") == (ONE,)
    assert read_cases(tmp_path / "new", "agent") == (OTHER,)


def test_a_case_is_written_once(tmp_path: Path) -> None:
    write_cases(tmp_path, [ONE])
    assert write_cases(tmp_path, [ONE, ONE]) == 0
    assert len(list((tmp_path / CASES).iterdir())) == 1


def test_there_may_be_nothing_yet(tmp_path: Path) -> None:
    assert read_cases(tmp_path / "none", "agent") == ()
    assert read_findings(tmp_path / "none", "agent") == {}


def test_findings_come_back_by_file_each_for_its_role(tmp_path: Path) -> None:
    folder = tmp_path / FINDINGS
    folder.mkdir()
    path = finding(ONE).write(folder)
    finding(OTHER).write(folder)
    assert read_findings(tmp_path, "controller") == {path.name: finding(ONE)}


def test_a_file_that_is_something_else_is_named(tmp_path: Path) -> None:
    for folder in (CASES, FINDINGS):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.json").write_text("{}")
    with pytest.raises(ValueError, match=r"x\.json: not a case"):
        read_cases(tmp_path, "agent")
    with pytest.raises(ValueError, match=r"x\.json: format None"):
        read_findings(tmp_path, "agent")
