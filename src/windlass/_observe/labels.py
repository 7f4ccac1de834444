"""Labels: the names that a metric shows, at most 200; the tasks of all others are one series, `other`."""

from collections.abc import Callable, Iterable
from heapq import nsmallest
from threading import Lock

MAX_LABEL_VALUES = 200
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


def first_by_name(names: Iterable[str], limit: int = MAX_LABEL_VALUES) -> Callable[[str], str]:
    """Return what labels a gauge: the first of these names in alphabetical order, then `other`.

    Gauges of the store are merged by their maximum over processes, so all must choose the same names.
    """
    shown = set(nsmallest(limit, set(names)))
    return lambda name: (name or UNKNOWN) if name in shown else OTHER
