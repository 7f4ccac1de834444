"""Gauges: metrics read from the store at each scrape. What a process counts itself is in `metrics.py`."""

from collections import Counter
from collections.abc import Iterator, Mapping
from threading import Lock

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from .._model.limit import OTHERS, Quota, Use
from .._policy.quota import by_quota
from .overview import COUNTED, Overview

MAX_LABEL_VALUES = 200
OTHER, UNKNOWN = "other", "unknown"


class LabelValues:
    """The values of one label: the first `limit` names seen, then `other`. Bounds the number of series."""

    def __init__(self, limit: int = MAX_LABEL_VALUES) -> None:
        self._known: set[str] = set()
        self._limit = limit
        self._lock = Lock()

    def __call__(self, name: str) -> str:
        name = name or UNKNOWN
        if name in self._known:
            return name
        with self._lock:
            if len(self._known) < self._limit:
                self._known.add(name)
                return name
        return OTHER


class Gauges:
    """Turns an overview of the store into gauges. All servers export the same: take the max, not the sum."""

    def __init__(self, queues: LabelValues, types: LabelValues) -> None:
        self._queues, self._types = queues, types
        self._limits, self._schedules, self._alerts = LabelValues(), LabelValues(), LabelValues()

    def collect(self, overview: Overview) -> Iterator[Metric]:
        yield self._tasks(overview)
        paused = {queue: float(queue in overview.paused) for queue in overview.queues}
        closed = {queue: float(queue in overview.closed) for queue in overview.queues}
        by_queue: tuple[tuple[str, str, Mapping[str, float]], ...] = (
            ("oldest_ready_seconds", "Time since the oldest ready task was due.", overview.oldest_ready()),
            ("queue_paused", "1 if the queue is paused, so that workers claim nothing from it.", paused),
            ("queue_closed", "1 if the windows of the queue let no task start now.", closed),
            ("queue_workers", "Live workers that serve the queue.", overview.serving()),
        )
        for name, documentation, values in by_queue:
            yield _maximum(f"windlass_{name}", documentation, "queue", self._queues, values)
        yield self._unhandled(overview)
        yield GaugeMetricFamily("windlass_workers", "Live workers.", len(overview.workers))
        slots = GaugeMetricFamily("windlass_worker_slots", "Slots of all live workers.", labels=["state"])
        slots.add_metric(["busy"], overview.busy)
        slots.add_metric(["free"], overview.slots - overview.busy)
        yield slots
        yield self._stuck(overview)
        yield GaugeMetricFamily(
            "windlass_keeper_alive", "1 if a keeper leads.", float(overview.keeper is not None)
        )
        yield _maximum(
            "windlass_limit_used_ratio",
            "Share of a limit in use, for the value that uses most; at 1 nothing more may start.",
            "limit",
            self._limits,
            overview.limits,
        )
        yield _maximum(
            "windlass_schedule_lag_seconds",
            "Time since a schedule's oldest unfired tick was due.",
            "schedule",
            self._schedules,
            overview.schedules,
        )
        yield _maximum(
            "windlass_alert_raised", "1 if the alert is raised.", "alert", self._alerts, overview.alerts
        )

    def _tasks(self, overview: Overview) -> Metric:
        """Export all states of each type that has tasks in any, so that an empty state is 0, not absent."""
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

    def _stuck(self, overview: Overview) -> Metric:
        """Export every type that has tasks, so that one without stuck handlers is 0, not absent."""
        numbers = Counter({self._types(depth.type): 0 for depth in overview.depths})
        for type_name, number in overview.stuck().items():
            numbers[self._types(type_name)] += number
        family = GaugeMetricFamily(
            "windlass_handlers_stuck",
            "Handlers that run on after their timeout, whether or not their slot was given to others.",
            labels=["type"],
        )
        for label, number in numbers.items():
            family.add_metric([label], number)
        return family

    def _unhandled(self, overview: Overview) -> Metric:
        """Export every type that has tasks, so that one that is handled is 0, not absent."""
        numbers: Counter[tuple[str, str]] = Counter()
        unhandled = overview.unhandled()
        for queue, type_name in {(depth.queue, depth.type) for depth in overview.depths}:
            labels = self._queues(queue), self._types(type_name)
            numbers[labels] += unhandled.get((queue, type_name), 0)
        family = GaugeMetricFamily(
            "windlass_tasks_unhandled",
            "Pending tasks of types that no live worker of their queue has a handler for.",
            labels=["queue", "type"],
        )
        for labels, number in numbers.items():
            family.add_metric(labels, number)
        return family


def quota_gauges(
    quotas: Mapping[str, Quota], used: Mapping[str, Use], tenants: LabelValues
) -> Iterator[Metric]:
    """Return what tenants with their own quota have stored, and how full each quota is."""
    users = by_quota(quotas, used)
    own = {name: users[name][0].use for name in quotas if name != OTHERS}
    full = {name: max((quotas[name].share(one.use) for one in users[name]), default=0.0) for name in quotas}
    for name, documentation, values in (
        ("tenant_stored_tasks", "Stored tasks of a tenant that has a quota, with steps to come.",
         {tenant: float(use.tasks) for tenant, use in own.items()}),
        ("tenant_stored_bytes", "Bytes of payloads, results and steps of a tenant that has a quota.",
         {tenant: float(use.bytes) for tenant, use in own.items()}),
        ("quota_used_ratio", "Share of a quota in use, of * by the tenant that uses most; at 1 it is full.",
         full),
    ):  # fmt: skip
        yield _maximum(f"windlass_{name}", documentation, "tenant", tenants, values)


def _maximum(
    name: str, documentation: str, label: str, label_values: LabelValues, values: Mapping[str, float]
) -> Metric:
    """A gauge with one label; names that share a label value are merged by their maximum."""
    maximum: dict[str, float] = {}
    for key, value in values.items():
        labelled = label_values(key)
        maximum[labelled] = max(value, maximum.get(labelled, value))
    family = GaugeMetricFamily(name, documentation, labels=[label])
    for labelled, value in maximum.items():
        family.add_metric([labelled], value)
    return family
