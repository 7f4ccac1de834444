"""SAQ's side on Redis, one verb per run. It keeps the end of a task for ten minutes, its default."""

import asyncio
import contextlib
import functools
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

from saq import Queue, Worker

from benchmarks.runs.asyncio_verbs import Enqueue, Verbs

RUNNING = 50

seen: dict[int, None] = {}  # its first sweep may repeat a task that has just been taken
latencies: list[float] = []


async def note(_: Any, *, n: int, text: str = "") -> None:  # noqa: ARG001  the text only takes space
    seen[n] = None


async def stamp(_: Any, *, sent: float) -> None:
    latencies.append(time.monotonic() - sent)


@contextlib.asynccontextmanager
async def _connected(path: str) -> AsyncIterator[tuple[Enqueue, Enqueue]]:
    queue = Queue.from_url(path)
    yield functools.partial(queue.enqueue, "note"), functools.partial(queue.enqueue, "stamp")
    await queue.disconnect()


@contextlib.asynccontextmanager
async def _at_work(path: str) -> AsyncIterator[None]:
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
    Verbs(_connected, _at_work, seen, latencies).main()
