from __future__ import annotations

import pytest

from joinproto.fuzzing.reports.machine import HEIGHT, WIDTH, Reach, count, drawing, title
from joinproto.fuzzing.shadow import rows_of
from tests.support.findings import outcome

ROLES = ["agent", "controller"]


@pytest.mark.parametrize("role", ROLES)
def test_every_state_and_every_row_is_in_it(role: str) -> None:
    made = drawing(outcome(role=role))
    states = {row[0] for row in rows_of(role)}
    assert states <= {node.name for node in made.nodes}
    texts = [node.text for node in made.nodes] + [edge.text for edge in made.edges]
    told = "\n".join(texts)
    assert all(f"{title(row)}: " in told for row in rows_of(role))


@pytest.mark.parametrize("role", ROLES)
def test_all_of_it_lies_in_the_picture(role: str) -> None:
    made = drawing(outcome(role=role))
    for node in made.nodes:
        assert 65 <= node.x <= WIDTH - 65
        assert 17 <= node.y <= HEIGHT - 17
    for edge in made.edges:
        assert all(0 <= x <= WIDTH for x in (edge.x, edge.to_x))
        assert all(0 <= y <= HEIGHT for y in (edge.y, edge.to_y))


@pytest.mark.parametrize("role", ROLES)
def test_what_was_covered_is_told(role: str) -> None:
    nothing, everything = outcome(role=role), outcome(role=role)
    everything = outcome(role=role, covered=dict.fromkeys(everything.reachable, 2))
    reached = {edge.reach for edge in drawing(everything).edges}
    assert Reach.COVERED in reached
    assert Reach.MISSING not in reached
    assert Reach.COVERED not in {edge.reach for edge in drawing(nothing).edges}


def test_rows_in_words() -> None:
    made = outcome(covered={("Routing", "Start", ""): 1})
    assert title(("Routing", "Routed", "is join")) == "Routing, Routed [is join]"
    assert count(made, ("Routing", "Start", "")) == "1 case"
    assert count(made, ("Routing", "EndOfStream", "")) == "not reached"
    out_of_reach = next(iter(made.unreachable))
    assert count(made, out_of_reach).startswith("out of reach: ")
