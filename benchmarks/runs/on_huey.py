"""Huey's side, one verb per run: SqliteHuey in WAL mode, synced at every commit, one worker thread.

A path that begins with redis:// stands for Huey's storage on Redis.

Nothing is stored about a task that has run (`results=False`): that is Huey's fastest documented mode. It
deletes a task when it dequeues it, so a consumer that is killed loses its running tasks; nothing is written
when a task ends, so dequeuing is its last durable step.
"""

import threading
import time
from contextlib import contextmanager
from typing import Any

from huey import SqliteHuey
from huey.storage import RedisStorage

from benchmarks.runs import probe

huey = SqliteHuey("bench", filename=":memory:", results=False, store_none=False)
seen: list[int] = []
latencies: list[float] = []
enough = threading.Event()
wanted = 0


@huey.task()
def note(n: int, text: str = "") -> None:  # noqa: ARG001  the text only takes space
    seen.append(n)
    if len(seen) == wanted:
        enough.set()


@huey.task()
def stamp(sent: float) -> None:
    latencies.append(time.monotonic() - sent)
    if len(latencies) == wanted:
        enough.set()


def _use(path: str, number: int = 0, *, fsync: bool = True) -> None:
    global wanted  # noqa: PLW0603 - one run per process
    wanted = number
    if path.startswith("redis://"):
        huey.storage = RedisStorage("bench", url=path)
    else:
        huey.storage = huey.get_storage(filename=path, fsync=fsync)


def preload(path: str, number: int, size: int = 0) -> dict[str, Any]:
    """Enqueue this many tasks without syncs, each with a text of this size; not measured."""
    _use(path, fsync=False)
    for n in range(number):
        note(n, "x" * size) if size else note(n)
    return {}


def drain(path: str, number: int, *, results: bool = False) -> dict[str, Any]:
    """Drain the queue, timed from the start of the consumer to the end of the last handler.

    With `results` Huey writes down that a task has run, which is the nearest it has to a record.
    """
    _use(path, number)
    huey.results = huey.store_none = results
    processor, started = time.process_time(), time.perf_counter()
    with _consuming(delay=0.01):
        assert enough.wait(100), "the queue was not drained in time"
        taken, used = time.perf_counter() - started, time.process_time() - processor
    probe.exactly_once(seen, number)
    assert huey.storage.queue_size() == 0, "something is left in the queue"
    return {"rate": number / taken, "processor": used / number * 1e6}


def share(path: str) -> dict[str, Any]:
    """Run tasks beside other processes until none are left."""
    _use(path)
    probe.wait_for_go()
    with _consuming(delay=0.01):
        return probe.shared(seen)


def enqueue(path: str, number: int) -> dict[str, Any]:
    """Enqueue one by one; measure each call, which is synced on return."""
    _use(path)
    taken = []
    for n in range(number):
        started = time.perf_counter()
        note(n)
        taken.append(time.perf_counter() - started)
    assert huey.storage.queue_size() == number, "not every enqueued task stands"
    return probe.spread(taken) | {"rate": number / sum(taken)}


def pickup(path: str, number: int, gap: float, delay: float) -> dict[str, Any]:
    """Enqueue to an idle consumer in the same process."""
    _use(path, number)
    with _consuming(delay):
        _sent(number, gap)
        assert enough.wait(100), "not everything was picked up"
    return probe.spread(latencies)


def serve(path: str, number: int, delay: float) -> dict[str, Any]:
    """Run the consumer for pickup across processes."""
    _use(path, number)
    with _consuming(delay):
        idle = probe.idle_share()
        probe.ready()
        assert enough.wait(100), "not everything was picked up"
    return probe.spread(latencies) | {"idle": idle}


def send(path: str, number: int, gap: float) -> dict[str, Any]:
    """Run the producer for pickup across processes."""
    _use(path)
    _sent(number, gap)
    return {}


def _sent(number: int, gap: float) -> None:
    for _ in range(number):
        stamp(time.monotonic())
        time.sleep(gap)


@contextmanager
def _consuming(delay: float) -> Any:
    """Return a consumer with one worker thread that polls every `delay` seconds; Huey's default is 0.1."""
    growing = {} if delay >= 0.1 else {"backoff": 1.0, "max_delay": delay}
    consumer = huey.create_consumer(workers=1, periodic=False, initial_delay=delay, **growing)
    consumer.start()
    try:
        yield
    finally:
        consumer.stop(graceful=True)


if __name__ == "__main__":
    probe.main({verb.__name__: verb for verb in (preload, drain, share, enqueue, pickup, serve, send)})
