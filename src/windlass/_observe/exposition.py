"""Expositions: metrics in the formats of Prometheus, and the newest of them for scrapers in any thread."""

from collections.abc import Callable
from threading import Lock
from typing import Any, TypeAlias

from prometheus_client import generate_latest
from prometheus_client.openmetrics import exposition as openmetrics_format

TEXT = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS = "application/openmetrics-text"
_SHARE = 10

Exposition: TypeAlias = tuple[bytes, str]
"""The text of all metrics, and its content type."""


def is_openmetrics(accept: str) -> bool:
    """Whether a scraper that accepts this gets OpenMetrics."""
    return _OPENMETRICS in accept


def exposition_of(registry: Any, *, openmetrics: bool) -> Exposition:
    """Return the metrics that a registry, or what has a `collect` like one, collects."""
    if openmetrics:
        body: bytes = openmetrics_format.generate_latest(registry)  # type: ignore[no-untyped-call]
        return body, openmetrics_format.CONTENT_TYPE_LATEST
    return generate_latest(registry), TEXT


class RecentExpositions:
    """The newest exposition in each format, for scrapers in any threads.

    Making them takes at most a tenth of the time of each: who asks sooner gets the last one.
    """

    def __init__(self, make: Callable[[bool], Exposition], clock: Callable[[], float]) -> None:
        self._make = make
        self._clock = clock
        self._lock = Lock()
        self._kept: dict[bool, tuple[float, Exposition]] = {}

    def get(self, openmetrics: bool) -> Exposition:  # noqa: FBT001  a key
        """Return an exposition, in OpenMetrics or text."""
        with self._lock:
            fresh_until, kept = self._kept.get(openmetrics, (0.0, None))
            began = self._clock()
            if kept is None or began >= fresh_until:
                kept = self._make(openmetrics)
                now = self._clock()
                self._kept[openmetrics] = now + (now - began) * (_SHARE - 1), kept
            return kept
