from __future__ import annotations

from xml.etree import ElementTree

from joinproto.fuzzing.oracles import ORACLES
from joinproto.fuzzing.outcome import Outcome, Regression
from joinproto.fuzzing.reports.junit import details, render
from tests.support.findings import finding, hostile, outcome


def suite(of: Outcome) -> ElementTree.Element:
    found = ElementTree.fromstring(render(of)).find("testsuite")
    assert found is not None
    return found


def test_nothing_new_passes_for_every_oracle() -> None:
    cases = suite(outcome()).findall("testcase")
    assert [case.get("name") for case in cases] == list(ORACLES)
    assert not any(list(case) for case in cases)


def test_a_finding_fails_its_oracle_whatever_the_target_wrote() -> None:
    made = suite(outcome(findings=(hostile(),)))
    assert made.get("failures") == "1"
    (failed,) = [case for case in made.findall("testcase") if list(case)]
    assert failed.get("name") == "died"
    (failure,) = failed
    assert failure.tag == "failure"
    assert "\\x1b[31m" in str(failure.text)


def test_what_was_replayed() -> None:
    hung = finding("controller", "hung")
    died = finding("controller", "died")
    regressions = (
        Regression(file="again.json", finding=hung, again=True),
        Regression(file="gone.json", finding=hung, again=False),
        Regression(file="known.json", finding=died, again=True),
    )
    made = suite(outcome(regressions=regressions, known={died.bucket: "ticket 12"}))
    cases = {str(case.get("name")): [each.tag for each in case] for case in made}
    assert cases["again.json"] == ["failure"]
    assert cases["gone.json"] == []
    assert cases["known.json"] == ["skipped"]


def test_what_is_told_of_a_finding() -> None:
    told = details(finding("controller", "died", {"dial": "c"}))
    assert "clause: JP-PAY-017" in told
    assert "steps: 1" in told
    assert "exit" not in told
    assert "exit: -11" in details(hostile())
