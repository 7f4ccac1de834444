"""An overview as Prometheus wants it: gauges whose labels are bounded."""

from collections import Counter
from collections.abc import Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from .meter import Meter, Names
from .overview import COUNTED, Overview


class Gauges:
    """Draws gauges; names that come too late to have a label of their own share one, as the meter's do."""

    def __init__(self, meter: Meter) -> None:
        self._queues, self._types = meter.queues, meter.types
        self._limits, self._schedules = Names(), Names()

    def of(self, overview: Overview) -> Iterator[Metric]:
        """What an overview tells. Every server tells the same: take the `max` over them, not the sum."""
        yield self._tasks(overview)
        yield self._by_queue(
            "windlass_oldest_ready_seconds",
            "For how long the longest waiting ready task has been due.",
            overview.oldest_ready(),
        )
        yield self._by_queue(
            "windlass_queue_paused",
            "1: nothing of it is claimed.",
            {queue: float(queue in overview.paused) for queue in overview.queues},
        )
        yield self._by_queue("windlass_queue_workers", "Live workers that serve it.", overview.serving())
        yield GaugeMetricFamily("windlass_workers", "Live workers.", len(overview.workers))
        slots = GaugeMetricFamily("windlass_worker_slots", "Slots of all live workers.", labels=["state"])
        slots.add_metric(["busy"], overview.busy)
        slots.add_metric(["free"], overview.slots - overview.busy)
        yield slots
        yield GaugeMetricFamily(
            "windlass_keeper_alive", "1: a keeper leads.", float(overview.keeper is not None)
        )
        yield _highest(
            "windlass_limit_used_ratio",
            "What is in use of a limit, by the value that uses most. 1: nothing more may start.",
            "limit",
            self._limits,
            overview.limits,
        )
        yield _highest(
            "windlass_schedule_lag_seconds",
            "For how long a schedule has had a tick to fire.",
            "schedule",
            self._schedules,
            overview.schedules,
        )

    def _tasks(self, overview: Overview) -> Metric:
        """Every state of a type that is there in any, so that nought is nought and not nothing."""
        numbers: Counter[tuple[str, str, str]] = Counter()
        for depth in overview.depths:
            task = self._queues(depth.queue), self._types(depth.type)
            numbers.update(dict.fromkeys([(*task, str(state)) for state in COUNTED], 0))
            numbers[*task, str(depth.state)] += depth.number
        family = GaugeMetricFamily(
            "windlass_tasks",
            "Tasks that have not ended, and dead letters. Large numbers are estimates.",
            labels=["queue", "type", "state"],
        )
        for labels, number in numbers.items():
            family.add_metric(labels, number)
        return family

    def _by_queue(self, name: str, told: str, values: Mapping[str, float]) -> Metric:
        return _highest(name, told, "queue", self._queues, values)


def _highest(name: str, told: str, label: str, names: Names, values: Mapping[str, float]) -> Metric:
    """A gauge with one label; of those that share a name, the highest."""
    highest: dict[str, float] = {}
    for value_name, value in values.items():
        known = names(value_name)
        highest[known] = max(value, highest.get(known, value))
    family = GaugeMetricFamily(name, told, labels=[label])
    for known, value in highest.items():
        family.add_metric([known], value)
    return family
