"""The meter: counts every step and times the store, for Prometheus. (O3)

Labels are bounded: a metric of tasks has their queue and type, of each the first two hundred that come by;
never a tenant, never a worker.
"""

import platform
from collections.abc import Callable, Iterable
from importlib import metadata
from threading import Lock

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, ProcessCollector
from prometheus_client.metrics_core import Metric

from ..errors import StoreUnavailable
from .events import Event, EventName

MAX_NAMES = 200
OTHER, UNKNOWN = "other", "unknown"

_WAITS = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800)
_RUNS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)
_ASKS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
_TASK = ("queue", "type")


class Names:
    """The values that one label takes: the first so many, and for the rest one more."""

    def __init__(self, most: int = MAX_NAMES) -> None:
        self._known: set[str] = set()
        self._most = most
        self._lock = Lock()

    def __call__(self, name: str) -> str:
        """What the label says of this name."""
        name = name or UNKNOWN
        if name in self._known:
            return name
        with self._lock:
            if len(self._known) < self._most:
                self._known.add(name)
                return name
        return OTHER


class _Registry(CollectorRegistry):
    """Without the instants at which counters were made: they double the series, and nobody reads them."""

    def collect(self) -> Iterable[Metric]:
        for family in super().collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


class _Series:
    """Everything that is counted of one type in one queue. All of it begins at nought, so that rates are."""

    __slots__ = ("counters", "run", "wait")

    def __init__(self, meter: "Meter", queue: str, type_name: str) -> None:
        task = queue, type_name
        self.wait = meter.waits.labels(*task)
        self.run = meter.runs.labels(*task)
        self.counters = {
            EventName.ENQUEUED: meter.enqueued.labels(*task),
            EventName.CLAIMED: meter.started.labels(*task),
            EventName.COMPLETED: meter.ended.labels(*task, "completed"),
            EventName.BURIED: meter.ended.labels(*task, "dead"),
            EventName.CANCELLED: meter.ended.labels(*task, "cancelled"),
            EventName.RETRIED: meter.postponed.labels(*task, "retry"),
            EventName.SNOOZED: meter.postponed.labels(*task, "snooze"),
            EventName.RELEASED: meter.postponed.labels(*task, "release"),
            EventName.LOST: meter.lost.labels(*task),
            EventName.RESCUED: meter.rescued.labels(*task),
            EventName.REPLAYED: meter.replayed.labels(*task),
            EventName.DISCARDED: meter.discarded.labels(*task),
        }


class Meter:
    """A sink that counts, and the timer of a store. Both may be told from any thread."""

    def __init__(self) -> None:
        self.registry = registry = _Registry()
        self.queues, self.types = Names(), Names()
        self._series: dict[tuple[str, str], _Series] = {}

        def counter(name: str, told: str, *labels: str) -> Counter:
            return Counter(f"windlass_{name}", told, labels, registry=registry)

        def histogram(name: str, told: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            return Histogram(f"windlass_{name}", told, labels, registry=registry, buckets=buckets)

        self.enqueued = counter("tasks_enqueued", "Tasks that this process enqueued.", *_TASK)
        self.started = counter("tasks_started", "Tasks claimed to run: first tries and later ones.", *_TASK)
        self.ended = counter("tasks_ended", "Tasks that ended, by how.", *_TASK, "state")
        self.postponed = counter("tasks_postponed", "Runs after which a task waits again.", *_TASK, "reason")
        self.rescued = counter("tasks_rescued", "Tasks taken over from silent workers.", *_TASK)
        self.replayed = counter("tasks_replayed", "Tasks that a person brought back.", *_TASK)
        self.discarded = counter("tasks_discarded", "Dead letters that a person deleted.", *_TASK)
        self.lost = counter("leases_lost", "Runs whose lease was another's by the end.", *_TASK)
        self.waits = histogram("task_wait_seconds", "From when a task was due to its start.", _WAITS, *_TASK)
        self.runs = histogram("task_run_seconds", "What handlers took, whatever came of it.", _RUNS, *_TASK)
        self.batches = histogram("settle_batch_size", "Tasks settled in one round trip.", _SIZES)
        self.asks = histogram("store_seconds", "What the store took to answer.", _ASKS, "verb")
        self.errors = counter("store_errors", "Calls at which the store failed.", "verb", "code")
        build = Info("windlass_build", "What runs here.", registry=registry)
        build.info({"version": metadata.version("windlass"), "python": platform.python_version()})
        ProcessCollector(registry=registry)
        self._asks: dict[str, Histogram] = {}  # by verb

    # -- as a sink -----------------------------------------------------------------------------------

    def wants(self, _: EventName) -> bool:
        """All of them."""
        return True

    def take(self, event: Event) -> None:
        """Count it."""
        series = self._series.get((event.queue, event.type)) or self._of(event)
        series.counters[event.name].inc()
        if event.waited is not None:
            series.wait.observe(event.waited)
        elif event.duration:  # nought: nobody ran it
            series.run.observe(event.duration)

    def _of(self, event: Event) -> _Series:
        """The series of names that come by for the first time, or too late to have their own."""
        key = self.queues(event.queue), self.types(event.type)
        if key not in self._series:
            self._series[key] = _Series(self, *key)
        return self._series[key]

    # -- as a timer ----------------------------------------------------------------------------------

    def took(self, verb: str, seconds: float) -> None:
        """A verb took so long."""
        asks = self._asks.get(verb)
        if asks is None:
            asks = self._asks[verb] = self.asks.labels(verb)
            self.errors.labels(verb, StoreUnavailable.code)  # at nought, so that the first one shows
        asks.observe(seconds)

    def failed(self, verb: str, code: str) -> None:
        """The store failed at it."""
        self.errors.labels(verb, code).inc()

    def batch(self, size: int) -> None:
        """So many were settled at once."""
        self.batches.observe(size)

    # -- a worker's own ------------------------------------------------------------------------------

    def slots(self, number: int, busy: Callable[[], int]) -> None:
        """Tell of this process's slots, as they are whenever somebody asks."""
        gauge = Gauge("windlass_slots", "Slots of this worker.", ["state"], registry=self.registry)
        gauge.labels("busy").set_function(lambda: min(busy(), number))
        gauge.labels("free").set_function(lambda: max(number - busy(), 0))
