"""Labels: the names that a metric shows, at most 200; the tasks of all others are one series, `other`.

Of pairs of queue and type 1,000 are shown. There would otherwise be up to 40,000 series for each metric, and
an exposition of a hundred megabytes.
"""

from collections.abc import Callable, Iterable
from heapq import nsmallest
from threading import Lock

MAX_LABEL_VALUES = 200
MAX_LABEL_PAIRS = 1_000
OTHER, UNKNOWN = "other", "unknown"


class LabelValues:
    """The values of one label of counters: the first names seen, then `other`. A name keeps its label."""

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


class TaskLabels:
    """The queue and type of a task as labels of counters: the first pairs seen; then the type is `other`."""

    def __init__(self, limit: int = MAX_LABEL_PAIRS) -> None:
        self.queues, self.types = LabelValues(), LabelValues()
        self._pairs: set[tuple[str, str]] = set()
        self._limit = limit
        self._lock = Lock()

    def __call__(self, queue: str, type_name: str) -> tuple[str, str]:
        pair = self.queues(queue), self.types(type_name)
        if pair in self._pairs:
            return pair
        with self._lock:
            if len(self._pairs) < self._limit:
                self._pairs.add(pair)
                return pair
        return pair[0], OTHER


def first_by_name(names: Iterable[str], limit: int = MAX_LABEL_VALUES) -> Callable[[str], str]:
    """Return what labels a gauge: the first of these names in alphabetical order, then `other`.

    Gauges of the store are merged by their maximum over processes, so all must choose the same names.
    """
    shown = set(nsmallest(limit, set(names)))
    return lambda name: (name or UNKNOWN) if name in shown else OTHER


def first_pairs(
    pairs: Iterable[tuple[str, str]],
    queues: Callable[[str], str],
    types: Callable[[str], str],
    limit: int = MAX_LABEL_PAIRS,
) -> Callable[[str, str], tuple[str, str]]:
    """Return what labels a gauge of queue and type: the first pairs of labels in alphabetical order.

    In further ones the type is `other`. `queues` and `types` label each by itself.
    """
    labels = {(queue, name): (queues(queue), types(name)) for queue, name in pairs}
    shown = set(nsmallest(limit, set(labels.values())))
    shown_labels = {pair: one if one in shown else (one[0], OTHER) for pair, one in labels.items()}
    return lambda queue, name: shown_labels[queue, name]
