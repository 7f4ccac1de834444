"""Chancy's side: psycopg, the asyncio executor, 500 tasks at once, eager polling, its log at warnings.

It writes the outcomes of tasks in the background, by default once a second; here almost immediately.
"""

import logging
import time
from pathlib import Path
from typing import Any

from chancy import Chancy, Queue, Worker, job

from benchmarks.runs import probe
from benchmarks.runs.tally import Tally

QUEUE = Queue(
    "default", concurrency=500, executor=Chancy.Executor.Async, polling_interval=1, eager_polling=True
)
FLUSH_SECONDS = 0.02
tallies: list[Tally] = []  # global, because Chancy imports the handler by name


@job()
async def note(*, n: int) -> None:
    tallies[0].note(n)


def prepare(url: str) -> dict[str, Any]:
    """Create its tables and its queue."""

    async def make() -> None:
        async with _chancy(url) as chancy:
            await chancy.migrate()
            await chancy.declare(QUEUE, upsert=True)

    probe.looped(make())
    return {}


def fill(url: str, number: int, at_once: int) -> dict[str, Any]:
    """Enqueue in bulk."""

    async def send() -> float:
        async with _chancy(url) as chancy:
            started = time.perf_counter()
            tasks = [note.job.with_kwargs(n=n) for n in range(number)]
            async for _ in chancy.push_many(tasks, batch_size=at_once):
                pass
            return time.perf_counter() - started

    return {"rate": number / probe.looped(send())}


def enqueue(url: str, number: int, gap: float) -> dict[str, Any]:
    """Enqueue one by one."""

    async def send() -> dict[str, Any]:
        async with _chancy(url) as chancy:
            return await probe.sent(number, gap, lambda n: chancy.push(note.job.with_kwargs(n=n)))

    return probe.looped(send())


def work(url: str, number: int, tally: str) -> dict[str, Any]:
    """Run a worker until stopped."""
    tallies.append(Tally(Path(tally), number))

    async def serve() -> None:
        async with _chancy(url) as chancy:
            await probe.told("go")
            worker = Worker(chancy, register_signal_handlers=False)
            worker.send_outgoing_interval = FLUSH_SECONDS
            async with worker:
                await probe.told("stop")

    probe.looped(serve())
    return {}


def _chancy(url: str) -> Chancy:
    log = logging.getLogger("chancy")
    log.setLevel(logging.WARNING)
    return Chancy(url, log=log)


if __name__ == "__main__":
    probe.main({verb.__name__: verb for verb in (prepare, fill, enqueue, work)})
