"""Metrics, as Prometheus asks for them: what this process counted, and what is in its store. (O3, I4)"""

import asyncio
from collections.abc import Iterable
from datetime import timedelta

from prometheus_client import generate_latest, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import exposition as openmetrics

from ..errors import Refused, StoreError
from .gauges import Gauges
from .meter import Meter
from .observed_store import ObservedStore
from .overviews import EVERY, Overviews

TEXT = "text/plain; version=0.0.4; charset=utf-8"
_OPENMETRICS = "application/openmetrics-text"


class Metrics:
    """Counts from its making on, and answers those who scrape."""

    def __init__(self, store: ObservedStore, *, every: timedelta = EVERY) -> None:
        self.meter = Meter()
        self.overviews = Overviews(store, every=every)
        self._gauges = Gauges(self.meter)
        store.attach(self.meter)

    async def exposition(self, accept: str = "") -> tuple[bytes, str]:
        """Everything there is to know, and its content type: OpenMetrics for those who accept it.

        What is in the store is looked up at most once in a few seconds, whoever asks. Where that fails the
        rest is told all the same, with `windlass_store_up` at 0.
        """
        families = [_up(False)]
        try:
            overview = await self.overviews.get()
            families = [_up(True), *self._gauges.of(overview)]
        except StoreError:
            pass
        # Thousands of lines: the loop has better to do.
        return await asyncio.to_thread(_written, _Together(self.meter, families), accept)

    def serve(self, host: str, port: int) -> int:
        """Answer, from a thread, with what this process counted; says on which port. For workers."""
        try:
            server, _ = start_http_server(port, host, self.meter.registry)
        except OSError as error:
            raise Refused(
                f"metrics cannot be served on port {port} of {host}: {error.strerror or error}"
            ) from None
        return int(server.server_port)


class _Together:
    """The meter's families and some more."""

    def __init__(self, meter: Meter, families: Iterable[Metric]) -> None:
        self._meter = meter
        self._families = families

    def collect(self) -> Iterable[Metric]:
        yield from self._meter.registry.collect()
        yield from self._families


def _up(answered: bool) -> Metric:  # noqa: FBT001  the one thing it is about
    return GaugeMetricFamily("windlass_store_up", "1: the store answered when last asked.", float(answered))


def _written(together: _Together, accept: str) -> tuple[bytes, str]:
    if _OPENMETRICS in accept:
        written: bytes = openmetrics.generate_latest(together)  # type: ignore[no-untyped-call]
        return written, openmetrics.CONTENT_TYPE_LATEST
    return generate_latest(together), TEXT
