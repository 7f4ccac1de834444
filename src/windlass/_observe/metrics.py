"""Metrics: what this process counts and times as it happens, and the answer to a Prometheus scrape.

What is read from the store at each scrape is in `gauges.py`. Metrics of tasks are labelled by queue and type,
each with a bounded number of values; never by worker, and by tenant only where a tenant has its own quota.
"""

import asyncio
import platform
from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from functools import partial
from importlib import metadata
from time import monotonic

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from ..errors import StoreError, StoreUnavailable
from .cached_reads import CachedReads
from .events import Event, EventName
from .exposition import Exposition, RecentExpositions, exposition_of, is_openmetrics
from .gauges import Gauges, TenantsUse, quota_gauges
from .labels import LabelValues, TaskLabels
from .observed_store import ObservedStore
from .overview import MAX_AGE, Overview, OverviewCache
from .process_metrics import are_shared, shared_families

_MAKING_TIME = timedelta(minutes=1)  # for an exposition; a busy machine takes seconds

_WAIT_BUCKETS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_RUN_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_STORE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_SIZE_BUCKETS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_TASK = ("queue", "type")
_SLOTS_SECONDS = 1.0


class Metrics:
    """The metrics of a program, from when this is made."""

    def __init__(
        self,
        store: ObservedStore,
        *,
        max_age: timedelta = MAX_AGE,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.meter = Meter()
        self.overviews = OverviewCache(store, max_age=max_age)
        self.in_thread: Callable[[Callable[[], Exposition]], Awaitable[Exposition]] = asyncio.to_thread
        """How an exposition is made: not in the event loop, which it would block."""
        self._shared = CachedReads(
            self._make, "metrics", max_age=timedelta(), timeout=_MAKING_TIME, clock=clock
        )
        self._own = RecentExpositions(self._make_own, clock)
        store.attach(self.meter)

    async def exposition(
        self, accept: str = "", quotas: Callable[[], TenantsUse] | None = None
    ) -> Exposition:
        """Return all metrics and their content type: OpenMetrics if `accept` names it, else text.

        `quotas` returns those of tenants, and what each has stored, if that was counted.

        However many scrape, the store is read at most once in a few seconds, and an exposition is made at
        most for a tenth of the time: who asks sooner gets the last one. If the store cannot be read the
        metrics of this process are returned all the same, with `windlass_store_up` at 0.
        """
        await self._overview()
        return await self._shared.get((is_openmetrics(accept), quotas))

    def own(self, accept: str) -> Exposition:
        """Return what this process has counted, or all that share metrics, and the content type.

        Callers share expositions as above. Safe to call from any thread.
        """
        return self._own.get(is_openmetrics(accept))

    async def _overview(self) -> Overview | None:
        """Return the newest overview; None if the store cannot be read."""
        try:
            return await self.overviews.get()
        except StoreError:
            return None

    async def _make(self, key: tuple[bool, Callable[[], TenantsUse] | None]) -> Exposition:
        openmetrics, quotas = key
        overview = await self._overview()
        use = None if quotas is None else quotas()
        return await self.in_thread(partial(self._make_whole, overview, use, openmetrics=openmetrics))

    def _make_whole(
        self, overview: Overview | None, use: TenantsUse | None, *, openmetrics: bool
    ) -> Exposition:
        families = [_store_up(False)] if overview is None else _gauges(overview)
        if use is not None:
            families = [*families, *quota_gauges(use)]
        return exposition_of(_Combined(self.meter, families), openmetrics=openmetrics)

    def _make_own(self, openmetrics: bool) -> Exposition:  # noqa: FBT001  a key
        return exposition_of(_Combined(self.meter, ()), openmetrics=openmetrics)


class Meter:
    """Counts every step and times the store: a sink of events. Safe to call from any thread."""

    def __init__(self) -> None:
        self.registry = registry = _Registry()
        self.tasks, self.tenants = TaskLabels(), LabelValues()
        self._series: dict[tuple[str, str], _Series] = {}
        self._times_by_verb: dict[str, Histogram] = {}

        def counter(name: str, documentation: str, *labels: str) -> Counter:
            return Counter(f"windlass_{name}", documentation, labels, registry=registry)

        def histogram(name: str, documentation: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"windlass_{name}", documentation, labels, registry=registry, buckets=buckets)

        self.enqueued = counter("tasks_enqueued", "Tasks enqueued by this process.", *_TASK)
        self.unblocked = counter(
            "tasks_unblocked", "Tasks whose last predecessor completed, so that they may run.", *_TASK
        )
        self.promoted = counter("tasks_promoted", "Scheduled tasks that became due.")
        self.pruned = counter("tasks_pruned", "Ended tasks deleted by retention.", "queue", "state")
        self.started = counter("tasks_started", "Tasks claimed to run, first attempts and retries.", *_TASK)
        self.ended = counter("tasks_ended", "Tasks that ended, by final state.", *_TASK, "state")
        self.expired = counter(
            "tasks_expired", "Tasks that expired before they started; they also ended as cancelled.", *_TASK
        )
        self.postponed = counter(
            "tasks_postponed", "Runs after which the task waits again, by reason.", *_TASK, "reason"
        )
        self.rescued = counter("tasks_rescued", "Tasks taken over from workers without a heartbeat.", *_TASK)
        self.replayed = counter("tasks_replayed", "Tasks replayed by an operator.", *_TASK)
        self.discarded = counter("tasks_discarded", "Dead letters deleted by an operator.", *_TASK)
        self.lost = counter("leases_lost", "Runs whose lease was lost before they ended.", *_TASK)
        self.stuck = counter("tasks_stuck", "Attempts whose handler ran on after its timeout.", *_TASK)
        self.waits = histogram(
            "task_wait_seconds", "Time from when a task was due to its start.", _WAIT_BUCKETS, *_TASK
        )
        self.runs = histogram(
            "task_run_seconds", "Run time of handlers, whatever the outcome.", _RUN_BUCKETS, *_TASK
        )
        self.batches = histogram("settle_batch_size", "Tasks settled in one round trip.", _SIZE_BUCKETS)
        self.times = histogram("store_seconds", "Time of calls to the store.", _STORE_BUCKETS, "verb")
        self.errors = counter("store_errors", "Calls that failed in the store.", "verb", "code")
        self.limited = counter(
            "rate_limited", "Requests refused because of a rate of their API key, by what it counts.", "rate"
        )
        for measure in ("requests", "tasks", "bytes"):
            self.limited.labels(measure)  # exported at 0, so that the first one shows
        self.over_quota = counter(
            "quota_refusals", "Requests refused because the quota of a tenant is used up.", "tenant"
        )
        self.build = Info("windlass_build", "Version of windlass and of Python.", registry=registry)
        self.build.info({"version": metadata.version("windlass"), "python": platform.python_version()})
        ProcessCollector(registry=registry)

    def wants(self, _: EventName) -> bool:
        return True

    def take(self, event: Event) -> None:
        if event.number is not None:
            self._count_many(event, event.number)
            return
        series = self._series.get((event.queue, event.type)) or self._labelled(event)
        series.counters[event.name].inc()
        if event.waited is not None:
            series.wait.observe(event.waited)
        elif event.duration:  # 0: the handler did not run
            series.run.observe(event.duration)

    def _count_many(self, event: Event, number: int) -> None:
        if event.name is EventName.PRUNED:
            self.pruned.labels(self.tasks.queues(event.queue), str(event.state)).inc(number)
        else:
            self.promoted.inc(number)

    def _labelled(self, event: Event) -> "_Series":
        """Return the series of a queue and type seen for the first time, or beyond the bound of labels."""
        key = self.tasks(event.queue, event.type)
        if key not in self._series:
            self._series[key] = _Series(self, *key)
        return self._series[key]

    def took(self, verb: str, seconds: float) -> None:
        times = self._times_by_verb.get(verb)
        if times is None:
            times = self._times_by_verb[verb] = self.times.labels(verb)
            self.errors.labels(verb, StoreUnavailable.code)  # exported at 0, so that the first one shows
        times.observe(seconds)

    def failed(self, verb: str, code: str) -> None:
        self.errors.labels(verb, code).inc()

    def batch(self, size: int) -> None:
        self.batches.observe(size)

    def rate_limited(self, measure: str) -> None:
        self.limited.labels(measure).inc()

    def quota_exceeded(self, quota: str) -> None:
        self.over_quota.labels(self.tenants(quota)).inc()

    def slots(self, number: int, busy: Callable[[], int]) -> None:
        """Export the slots of this worker; `busy` is called at each scrape."""
        gauge = Gauge("windlass_slots", "Slots of this worker.", ["state"], registry=self.registry)
        gauge.labels("busy").set_function(lambda: min(busy(), number))
        gauge.labels("free").set_function(lambda: max(number - busy(), 0))

    async def keep_slots(self, number: int, busy: Callable[[], int]) -> None:
        """Export the slots of this worker, kept fresh until cancelled, for the sum over worker processes."""
        gauge = Gauge(
            "windlass_slots",
            "Slots of all workers.",
            ["state"],
            registry=self.registry,
            multiprocess_mode="livesum",
        )
        while True:
            taken = min(busy(), number)
            gauge.labels("busy").set(taken)
            gauge.labels("free").set(number - taken)
            await asyncio.sleep(_SLOTS_SECONDS)

    def refusals(self, reasons: Iterable[str]) -> Callable[[str], None]:
        """Export the number of refused HTTP requests, from 0 for each reason; returns what counts one."""
        text = "HTTP requests refused for lack of a valid key, of a scope or of bounds, by reason."
        counter = Counter("windlass_http_refused", text, ["reason"], registry=self.registry)
        counters = {reason: counter.labels(str(reason)) for reason in reasons}
        return lambda reason: counters[reason].inc()


class _Series:
    """All series of one type in one queue, made at once so that each starts at 0 and rates are right."""

    __slots__ = ("counters", "run", "wait")

    def __init__(self, meter: Meter, queue: str, type_name: str) -> None:
        task = queue, type_name
        self.wait = meter.waits.labels(*task)
        self.run = meter.runs.labels(*task)
        cancelled = meter.ended.labels(*task, "cancelled")
        self.counters: dict[EventName, Counter | _Both] = {
            EventName.ENQUEUED: meter.enqueued.labels(*task),
            EventName.UNBLOCKED: meter.unblocked.labels(*task),
            EventName.CLAIMED: meter.started.labels(*task),
            EventName.COMPLETED: meter.ended.labels(*task, "completed"),
            EventName.BURIED: meter.ended.labels(*task, "dead"),
            EventName.CANCELLED: cancelled,
            EventName.EXPIRED: _Both(cancelled, meter.expired.labels(*task)),
            EventName.RETRIED: meter.postponed.labels(*task, "retry"),
            EventName.SNOOZED: meter.postponed.labels(*task, "snooze"),
            EventName.RELEASED: meter.postponed.labels(*task, "release"),
            EventName.LOST: meter.lost.labels(*task),
            EventName.STUCK: meter.stuck.labels(*task),
            EventName.RESCUED: meter.rescued.labels(*task),
            EventName.REPLAYED: meter.replayed.labels(*task),
            EventName.DISCARDED: meter.discarded.labels(*task),
        }


class _Both:
    """Two counters of one event."""

    __slots__ = ("_counters",)

    def __init__(self, *counters: Counter) -> None:
        self._counters = counters

    def inc(self) -> None:
        for one in self._counters:
            one.inc()


class _Registry(CollectorRegistry):
    """A registry without the `_created` samples, which would double the number of series."""

    def collect(self) -> Iterable[Metric]:
        for family in super().collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


class _Combined:
    """The meter's families and others, as a registry for one exposition."""

    def __init__(self, meter: Meter, families: Iterable[Metric]) -> None:
        self._meter = meter
        self._families = families

    def collect(self) -> Iterable[Metric]:
        if are_shared():
            yield from shared_families()
            yield from self._meter.build.collect()
        else:
            yield from self._meter.registry.collect()
        yield from self._families


def _store_up(up: bool) -> Metric:  # noqa: FBT001  the one thing it is about
    return GaugeMetricFamily("windlass_store_up", "1 if the store responded when last read.", float(up))


def _gauges(overview: Overview) -> list[Metric]:
    """Return the gauges of an overview, which are collected once for each."""
    documents = overview.documents
    if Gauges not in documents:
        documents[Gauges] = [_store_up(True), *Gauges(overview).collect()]
    gauges: list[Metric] = documents[Gauges]
    return gauges
