"""taskiq's side on Redis, one verb per run: its stream, which redelivers tasks of dead workers.

It keeps no record of a task; the entries of its stream stay until they are trimmed.
"""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

from taskiq.receiver import Receiver
from taskiq_redis import RedisStreamBroker

from benchmarks.runs.asyncio_verbs import Enqueue, Verbs

RUNNING = 100  # its default

seen: list[int] = []
latencies: list[float] = []


def _used(path: str) -> tuple[Any, Any, Any]:
    logging.getLogger("taskiq").setLevel(logging.WARNING)
    queue = RedisStreamBroker(path, consumer_id="0", xread_block=200)

    @queue.task(task_name="note")
    async def note(n: int, text: str = "") -> None:  # noqa: ARG001  the text only takes space
        seen.append(n)

    @queue.task(task_name="stamp")
    async def stamp(sent: float) -> None:
        latencies.append(time.monotonic() - sent)

    return queue, note, stamp


@contextlib.asynccontextmanager
async def _connected(path: str) -> AsyncIterator[tuple[Enqueue, Enqueue]]:
    queue, note, stamp = _used(path)
    await queue.startup()
    yield note.kiq, stamp.kiq
    await queue.shutdown()


@contextlib.asynccontextmanager
async def _at_work(path: str) -> AsyncIterator[None]:
    queue, _, _ = _used(path)
    queue.is_worker_process = True
    over = asyncio.Event()
    working = asyncio.create_task(Receiver(queue, max_async_tasks=RUNNING).listen(over))
    try:
        yield
    finally:
        over.set()
        await working
        await queue.shutdown()


if __name__ == "__main__":
    Verbs(_connected, _at_work, seen, latencies).main()
