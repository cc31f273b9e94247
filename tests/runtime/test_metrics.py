"""metrics: a run as Prometheus reads it."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from joinproto.runtime.metrics import render


def member(*ranks: tuple[str, int | None]) -> dict[str, Any]:
    return {"host": 'a"\n{b}', "ranks": [{"state": state, "code": code} for state, code in ranks]}


def run(*members: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "phase": "training",
        "joined_hosts": len(members),
        "min_rank_start": 2,
        "target_ranks": None,
        "window_remaining_secs": None,
        "turned_away": 3,
        "unadmitted": 4,
        "members": list(members),
        **fields,
    }


def samples(detail: dict[str, Any]) -> dict[str, float]:
    """Sample with its label → value, as a reader of Prometheus' own reads them."""
    body, kind = render(detail)
    assert kind.startswith("text/plain; version=")
    return {
        "|".join([sample.name, *sample.labels.values()]): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
        if not sample.name.endswith("_created")
    }


def test_a_run_in_full() -> None:
    ranks = ("running", None), ("exited", 0), ("exited", 7), ("exited", -9)
    found = samples(run(member(*ranks), member(("lost", None))))
    assert found == {
        "joinproto_phase|waiting": 0.0,
        "joinproto_phase|staging": 0.0,
        "joinproto_phase|forming": 0.0,
        "joinproto_phase|training": 1.0,
        "joinproto_phase|done": 0.0,
        "joinproto_phase|failed": 0.0,
        "joinproto_ranks|waiting": 0.0,
        "joinproto_ranks|running": 1.0,
        "joinproto_ranks|exited": 3.0,
        "joinproto_ranks|lost": 1.0,
        "joinproto_hosts": 2.0,
        "joinproto_quorum_ranks": 2.0,
        "joinproto_unadmitted_connections": 4.0,
        "joinproto_turned_away_total": 3.0,
        "joinproto_rank_exits_total|ok": 1.0,
        "joinproto_rank_exits_total|failed": 2.0,
    }


def test_what_there_is_only_while_the_window_is_open() -> None:
    found = samples(run(phase="waiting", target_ranks=8, window_remaining_secs=290))
    assert found["joinproto_target_ranks"] == 8.0
    assert found["joinproto_window_remaining_seconds"] == 290.0


def test_two_runs_do_not_mix() -> None:
    first = samples(run(turned_away=1))
    second = samples(run(turned_away=2))
    key = "joinproto_turned_away_total"
    assert (first[key], second[key]) == (1.0, 2.0)
