"""Dramatiq's side on Redis, one verb per run: 8 worker threads, its default. It keeps no record of a task."""

import contextlib
import time
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.runs import probe

THREADS = 8  # its default

seen: list[int] = []
latencies: list[float] = []


def _used(path: str) -> tuple[Any, Any, Any]:
    queue = RedisBroker(url=path)
    dramatiq.set_broker(queue)

    @dramatiq.actor
    def note(n: int, text: str = "") -> None:  # noqa: ARG001  the text only takes space
        seen.append(n)

    @dramatiq.actor
    def stamp(sent: float) -> None:
        latencies.append(time.monotonic() - sent)

    return queue, note, stamp


def preload(path: str, number: int, size: int = 0) -> dict[str, Any]:
    """Enqueue this many tasks, one by one: it has no batches."""
    _, note, _ = _used(path)
    started = time.perf_counter()
    for n in range(number):
        note.send(n, "x" * size) if size else note.send(n)
    return {"rate": number / (time.perf_counter() - started)}


enqueue = preload


def drain(path: str, number: int) -> dict[str, Any]:
    """Drain the queue, timed from the start of the worker to the end of the last handler."""
    with _at_work(path):
        return probe.drained(seen, number)


def share(path: str) -> dict[str, Any]:
    """Run tasks beside other processes until none are left."""
    probe.wait_for_go()
    with _at_work(path):
        return probe.shared(seen)


def serve(path: str, number: int) -> dict[str, Any]:
    """Run the worker for pickup across processes, until this many tasks have started."""
    with _at_work(path):
        probe.idle_share()
        probe.ready()
        probe.wait_for(latencies, number)
    return probe.spread(latencies)


def send(path: str, number: int, gap: float) -> dict[str, Any]:
    """Run the producer for pickup across processes."""
    _, _, stamp = _used(path)
    probe.sent_blocking(number, gap, lambda _: stamp.send(time.monotonic()))
    return {}


@contextlib.contextmanager
def _at_work(path: str) -> Any:
    queue, _, _ = _used(path)
    worker = dramatiq.Worker(queue, worker_threads=THREADS)
    worker.start()
    try:
        yield
    finally:
        worker.stop()


if __name__ == "__main__":
    verbs = (preload, drain, share, serve, send)
    probe.main({verb.__name__: verb for verb in verbs} | {"enqueue": enqueue})
