"""Dramatiq's side on Redis, one verb per run: 8 worker threads, its default. It keeps no record of a task."""

import threading
import time
from typing import Any

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from benchmarks.runs import probe

seen: list[int] = []
enough = threading.Event()
wanted = 0


def _use(path: str) -> tuple[Any, Any]:
    broker = RedisBroker(url=path)
    dramatiq.set_broker(broker)

    @dramatiq.actor
    def note(n: int, text: str = "") -> None:  # noqa: ARG001  the text only takes space
        seen.append(n)
        if len(seen) == wanted:
            enough.set()

    return broker, note


def preload(path: str, number: int, size: int = 0) -> dict[str, Any]:
    """Enqueue this many tasks, one by one: it has no batches."""
    _, note = _use(path)
    started = time.perf_counter()
    for n in range(number):
        note.send(n, "x" * size) if size else note.send(n)
    return {"rate": number / (time.perf_counter() - started)}


enqueue = preload


def drain(path: str, number: int) -> dict[str, Any]:
    """Drain the queue, timed from the start of the worker to the end of the last handler."""
    global wanted  # noqa: PLW0603  one run per process
    wanted = number
    broker, _ = _use(path)
    processor, started = time.process_time(), time.perf_counter()
    worker = dramatiq.Worker(broker, worker_threads=8)
    worker.start()
    assert enough.wait(100), "the queue was not drained in time"
    taken, used = time.perf_counter() - started, time.process_time() - processor
    worker.stop()
    probe.exactly_once(seen, number)
    return {"rate": number / taken, "processor": used / number * 1e6}


if __name__ == "__main__":
    probe.main({"preload": preload, "enqueue": enqueue, "drain": drain})
