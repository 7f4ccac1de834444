"""taskiq's side on Redis, one verb per run: its stream, which redelivers tasks of dead workers.

It keeps no record of a task; the entries of its stream stay until they are trimmed.
"""

import asyncio
import contextlib
import logging
import time
from typing import Any

from taskiq.receiver import Receiver
from taskiq_redis import RedisStreamBroker

from benchmarks.runs import probe

RUNNING = 100  # its default
AT_ONCE = 1_000

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


def preload(path: str, number: int, size: int = 0) -> dict[str, Any]:
    """Enqueue this many tasks, 1,000 at once: it has no batches."""

    async def send() -> float:
        queue, note, _ = _used(path)
        await queue.startup()
        text = {"text": "x" * size} if size else {}
        started = time.perf_counter()
        for first in range(0, number, AT_ONCE):
            some = range(first, min(first + AT_ONCE, number))
            await asyncio.gather(*(note.kiq(n=n, **text) for n in some))
        taken = time.perf_counter() - started
        await queue.shutdown()
        return taken

    return {"rate": number / probe.looped(send())}


def enqueue(path: str, number: int) -> dict[str, Any]:
    """Enqueue one by one."""

    async def send() -> dict[str, Any]:
        queue, note, _ = _used(path)
        await queue.startup()
        answer = await probe.sent(number, 0, lambda n: note.kiq(n=n))
        await queue.shutdown()
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
        queue, _, stamp = _used(path)
        await queue.startup()
        await probe.sent(number, gap, lambda _: stamp.kiq(sent=time.monotonic()))
        await queue.shutdown()

    probe.looped(produce())
    return {}


@contextlib.asynccontextmanager
async def _at_work(path: str) -> Any:
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
    probe.main({verb.__name__: verb for verb in (preload, enqueue, drain, share, serve, send)})
