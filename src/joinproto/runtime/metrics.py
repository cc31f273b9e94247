"""A run as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from prometheus_client.core import Metric

PHASES = ("waiting", "staging", "forming", "training", "done", "failed")
STATES = ("waiting", "running", "exited", "lost")


def render(detail: Mapping[str, Any]) -> tuple[bytes, str]:
    """The metrics of a run, and their content type.

    Args:
        detail: what `Board.detail` gives.
    """
    # Takes a tenth of a second to import.
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Run(detail))
    return generate_latest(registry), CONTENT_TYPE_LATEST


class _Run:
    """Collects one state of a run."""

    def __init__(self, detail: Mapping[str, Any]) -> None:
        self._detail = detail

    def collect(self) -> Iterator[Metric]:
        """The metrics, in the order in which they are shown."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, text, labels in (
            ("phase", "Whether the run is in this phase.", self._phases()),
            ("ranks", "Ranks of the hosts admitted, by state.", self._ranks()),
        ):
            label = "phase" if name == "phase" else "state"
            family = GaugeMetricFamily(f"joinproto_{name}", text, labels=[label])
            for value, number in labels.items():
                family.add_metric([value], number)
            yield family
        for name, text, key in (
            ("hosts", "Hosts admitted.", "joined_hosts"),
            ("quorum_ranks", "Ranks needed for a world to form.", "min_rank_start"),
            ("target_ranks", "Ranks at which a world forms at once.", "target_ranks"),
            ("window_remaining_seconds", "Time left to the window.", "window_remaining_secs"),
            ("unadmitted_connections", "Connections not admitted, or not yet.", "unadmitted"),
        ):
            # What there is not has no value rather than a wrong one.
            if self._detail[key] is not None:
                yield GaugeMetricFamily(f"joinproto_{name}", text, value=self._detail[key])
        turned_away = "Dials turned away."
        yield CounterMetricFamily(
            "joinproto_turned_away", turned_away, value=self._detail["turned_away"]
        )
        exits = CounterMetricFamily("joinproto_rank_exits", "Ranks ended.", labels=["result"])
        for result, number in self._exits().items():
            exits.add_metric([result], number)
        yield exits

    def _phases(self) -> dict[str, int]:
        return {phase: int(phase == self._detail["phase"]) for phase in PHASES}

    def _all_ranks(self) -> Iterator[Mapping[str, Any]]:
        for member in self._detail["members"]:
            yield from member["ranks"]

    def _ranks(self) -> dict[str, int]:
        counts = dict.fromkeys(STATES, 0)
        for rank in self._all_ranks():
            counts[rank["state"]] += 1
        return counts

    def _exits(self) -> dict[str, int]:
        counts = {"ok": 0, "failed": 0}
        for rank in self._all_ranks():
            if rank["state"] == "exited":
                counts["failed" if rank["code"] else "ok"] += 1
        return counts
