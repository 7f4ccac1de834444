"""SAQ's side on Redis, one verb per run. It keeps the end of a task for ten minutes, its default."""

import asyncio
import contextlib
import logging
import time
from typing import Any

from saq import Queue, Worker

from benchmarks.runs import probe

RUNNING = 50
AT_ONCE = 1_000

seen: dict[int, None] = {}  # its first sweep may repeat a task that has just been taken
latencies: list[float] = []


async def note(_: Any, *, n: int, text: str = "") -> None:  # noqa: ARG001  the text only takes space
    seen[n] = None


async def stamp(_: Any, *, sent: float) -> None:
    latencies.append(time.monotonic() - sent)


def preload(path: str, number: int, size: int = 0) -> dict[str, Any]:
    """Enqueue this many tasks, 1,000 at once: it has no batches."""

    async def send() -> float:
        queue = Queue.from_url(path)
        text = {"text": "x" * size} if size else {}
        started = time.perf_counter()
        for first in range(0, number, AT_ONCE):
            some = range(first, min(first + AT_ONCE, number))
            await asyncio.gather(*(queue.enqueue("note", n=n, **text) for n in some))
        taken = time.perf_counter() - started
        await queue.disconnect()
        return taken

    return {"rate": number / probe.looped(send())}


def enqueue(path: str, number: int) -> dict[str, Any]:
    """Enqueue one by one."""

    async def send() -> dict[str, Any]:
        queue = Queue.from_url(path)
        answer = await probe.sent(number, 0, lambda n: queue.enqueue("note", n=n))
        await queue.disconnect()
        return answer

    return probe.looped(send())


def drain(path: str, number: int) -> dict[str, Any]:
    """Drain the queue, timed from the start of the worker to the end of the last handler."""

    async def work() -> dict[str, Any]:
        async with _at_work(path):
            return await asyncio.to_thread(probe.drained, seen, number)

    return probe.looped(work())


def share(path: str) -> dict[str, Any]:
    """Run tasks beside other processes until none are left."""

    async def work() -> dict[str, Any]:
        await probe.told("go")
        async with _at_work(path):
            return await asyncio.to_thread(probe.shared, seen)

    return probe.looped(work())


def serve(path: str, number: int) -> dict[str, Any]:
    """Run the worker for pickup across processes, until this many tasks have started."""

    async def work() -> dict[str, Any]:
        async with _at_work(path):
            await asyncio.to_thread(probe.idle_share)
            probe.ready()
            await asyncio.to_thread(probe.wait_for, latencies, number)
        return probe.spread(latencies)

    return probe.looped(work())


def send(path: str, number: int, gap: float) -> dict[str, Any]:
    """Run the producer for pickup across processes."""

    async def produce() -> None:
        queue = Queue.from_url(path)
        await probe.sent(number, gap, lambda _: queue.enqueue("stamp", sent=time.monotonic()))
        await queue.disconnect()

    probe.looped(produce())
    return {}


@contextlib.asynccontextmanager
async def _at_work(path: str) -> Any:
    logging.getLogger("saq").setLevel(logging.ERROR)
    queue = Queue.from_url(path)
    worker: Any = Worker(queue, [note, stamp], concurrency=RUNNING)
    working = asyncio.create_task(worker.start())
    try:
        yield
    finally:
        await worker.stop()
        await working
        await queue.disconnect()


if __name__ == "__main__":
    probe.main({verb.__name__: verb for verb in (preload, enqueue, drain, share, serve, send)})
