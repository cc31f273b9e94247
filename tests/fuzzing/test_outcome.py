from __future__ import annotations

from joinproto.fuzzing.finding import Finding
from joinproto.fuzzing.oracles import Strike
from joinproto.fuzzing.outcome import FOUND, NOTHING_NEW, Regression
from joinproto.fuzzing.sequence import Sequence
from joinproto.fuzzing.shadow import rows_of
from tests.support.findings import outcome

STRIKE = Strike(oracle="hung", what="it did not end", where="Admitted")


def finding() -> Finding:
    sequence = Sequence(role="controller", wire=4, steps=({"dial": "c"},))
    return Finding(sequence=sequence, strike=STRIKE, seed=1, number=7, scale=0.1, found=2, tried=3)


def test_nothing_new_is_0_and_a_finding_1() -> None:
    assert outcome().exit_code == NOTHING_NEW
    assert outcome(findings=(finding(),)).exit_code == FOUND


def test_a_regression_counts_when_it_strikes_again_and_was_not_expected() -> None:
    gone = Regression(file="a.json", finding=finding(), again=False)
    again = Regression(file="b.json", finding=finding(), again=True)
    assert outcome(regressions=(gone,)).exit_code == NOTHING_NEW
    assert outcome(regressions=(gone, again)).struck_again == [again]
    assert outcome(regressions=(again,)).exit_code == FOUND
    expected = outcome(regressions=(again,), known={STRIKE.bucket: "is known"})
    assert expected.exit_code == NOTHING_NEW


def test_every_row_is_covered_missing_or_out_of_reach() -> None:
    row = ("Routing", "EndOfStream", "")
    made = outcome(covered={row: 4})
    assert row in made.reachable
    assert row not in made.missing
    assert len(made.missing) == len(made.reachable) - 1
    assert {*made.reachable, *made.unreachable} == {*rows_of("controller")}
    assert not {*made.reachable} & {*made.unreachable}
    assert all(made.unreachable.values())


def test_the_rate() -> None:
    assert outcome().rate == 50.0
    assert outcome(seconds=0.0).rate == 0.0


def test_as_plain_data() -> None:
    row = ("Routing", "EndOfStream", "")
    plain = outcome(findings=(finding(),), covered={row: 4}, interrupted=True).to_json()
    (found,) = plain["findings"]
    assert found["id"] == finding().id
    assert found["flaky"] is True
    assert plain["coverage"]["covered"] == 1
    counted = [each for each in plain["coverage"]["rows"] if each["cases"]]
    assert counted == [
        {"state": row[0], "input": row[1], "when": "", "cases": 4, "unreachable": ""}
    ]
    assert plain["interrupted"] is True
    assert plain["exit_code"] == FOUND
