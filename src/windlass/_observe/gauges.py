"""Gauges: metrics read from the store at each scrape. What a process counts itself is in `metrics.py`."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from .._model.limit import OTHERS, Quota, Use
from .._policy.quota import by_quota
from .labels import first_by_name, first_pairs
from .overview import COUNTED, Overview

TenantsUse: TypeAlias = tuple[Mapping[str, Quota], Mapping[str, Use]]
"""The quotas by name, and what each tenant has stored."""


class Gauges:
    """The gauges of an overview of the store. All processes export the same: take the max, not the sum."""

    def __init__(self, overview: Overview) -> None:
        self._overview = overview
        self._types = first_by_name({depth.type for depth in overview.depths} | overview.stuck().keys())
        pairs = ((depth.queue, depth.type) for depth in overview.depths)
        self._pairs = first_pairs(pairs, first_by_name(overview.queues), self._types)

    def collect(self) -> Iterator[Metric]:
        overview = self._overview
        yield self._tasks()
        paused = {queue: float(queue in overview.paused) for queue in overview.queues}
        closed = {queue: float(queue in overview.closed) for queue in overview.queues}
        by_queue: tuple[tuple[str, str, Mapping[str, float]], ...] = (
            ("oldest_ready_seconds", "Time since the oldest ready task was due.", overview.oldest_ready()),
            ("queue_paused", "1 if the queue is paused, so that workers claim nothing from it.", paused),
            ("queue_closed", "1 if the windows of the queue let no task start now.", closed),
            ("queue_workers", "Live workers that serve the queue.", overview.serving()),
        )
        for name, documentation, values in by_queue:
            yield _maximum(f"windlass_{name}", documentation, "queue", values)
        yield self._unhandled()
        yield GaugeMetricFamily("windlass_workers", "Live workers.", len(overview.workers))
        slots = GaugeMetricFamily("windlass_worker_slots", "Slots of all live workers.", labels=["state"])
        slots.add_metric(["busy"], overview.busy)
        slots.add_metric(["free"], overview.slots - overview.busy)
        yield slots
        yield self._stuck()
        yield GaugeMetricFamily(
            "windlass_keeper_alive", "1 if a keeper leads.", float(overview.keeper is not None)
        )
        yield _maximum(
            "windlass_limit_used_ratio",
            "Share of a limit in use, for the value that uses most; at 1 nothing more may start.",
            "limit",
            overview.limits,
        )
        yield _maximum(
            "windlass_schedule_lag_seconds",
            "Time since a schedule's oldest unfired tick was due.",
            "schedule",
            overview.schedules,
        )
        yield _maximum("windlass_alert_raised", "1 if the alert is raised.", "alert", overview.alerts)

    def _tasks(self) -> Metric:
        """Export all states of each type that has tasks in any, so that an empty state is 0, not absent."""
        numbers: dict[tuple[str, str], dict[str, float]] = {}
        for depth in self._overview.depths:
            pair = self._pairs(depth.queue, depth.type)
            if (states := numbers.get(pair)) is None:
                states = numbers[pair] = {str(state): 0.0 for state in COUNTED}
            states[str(depth.state)] += depth.number
        family = GaugeMetricFamily(
            "windlass_tasks",
            "Tasks that have not ended, and dead letters. Large numbers are estimates.",
            labels=["queue", "type", "state"],
        )
        for pair, states in numbers.items():
            for state, number in states.items():
                family.add_metric([*pair, state], number)
        return family

    def _stuck(self) -> Metric:
        """Export every type that has tasks, so that one without stuck handlers is 0, not absent."""
        numbers = Counter({self._types(depth.type): 0 for depth in self._overview.depths})
        for type_name, number in self._overview.stuck().items():
            numbers[self._types(type_name)] += number
        family = GaugeMetricFamily(
            "windlass_handlers_stuck",
            "Handlers that run on after their timeout, whether or not their slot was given to others.",
            labels=["type"],
        )
        for label, number in numbers.items():
            family.add_metric([label], number)
        return family

    def _unhandled(self) -> Metric:
        """Export every type that has tasks, so that one that is handled is 0, not absent."""
        numbers: Counter[tuple[str, str]] = Counter()
        unhandled = self._overview.unhandled()
        for queue, type_name in {(depth.queue, depth.type) for depth in self._overview.depths}:
            numbers[self._pairs(queue, type_name)] += unhandled.get((queue, type_name), 0)
        family = GaugeMetricFamily(
            "windlass_tasks_unhandled",
            "Pending tasks of types that no live worker of their queue has a handler for.",
            labels=["queue", "type"],
        )
        for labels, number in numbers.items():
            family.add_metric(labels, number)
        return family


def quota_gauges(tenants: TenantsUse) -> Iterator[Metric]:
    """Return what tenants with their own quota have stored, and how full each quota is."""
    quotas, used = tenants
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
        yield _maximum(f"windlass_{name}", documentation, "tenant", values)


def _maximum(name: str, documentation: str, label: str, values: Mapping[str, float]) -> Metric:
    """A gauge with one label; names that share a label value are merged by their maximum."""
    label_of, maximum = first_by_name(values), dict[str, float]()
    for key, value in values.items():
        labelled = label_of(key)
        maximum[labelled] = max(value, maximum.get(labelled, value))
    family = GaugeMetricFamily(name, documentation, labels=[label])
    for labelled, value in maximum.items():
        family.add_metric([labelled], value)
    return family
