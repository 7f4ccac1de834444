"""PgQueuer's side: asyncpg, one connection per worker, batches of 250, completions buffered by default.

Its tables are logged, which is its default (`durable`); a finished task leaves a row in its log.
"""

import asyncio
import time
from pathlib import Path
from typing import Any

import asyncpg
from pgqueuer import PgQueuer
from pgqueuer.queries import Queries

from benchmarks.runs import probe
from benchmarks.runs.tally import Tally

BATCH = 250
TYPE = "note"


def prepare(url: str) -> dict[str, Any]:
    """Create its tables."""

    async def make() -> None:
        queries = Queries.from_asyncpg_connection(await asyncpg.connect(url))
        await queries.install()

    probe.looped(make())
    return {}


def fill(url: str, number: int, at_once: int) -> dict[str, Any]:
    """Enqueue in bulk."""

    async def send() -> float:
        queries = Queries.from_asyncpg_connection(await asyncpg.connect(url))
        started = time.perf_counter()
        for first in range(0, number, at_once):
            payloads = [str(n).encode() for n in range(first, min(first + at_once, number))]
            await queries.enqueue([TYPE] * len(payloads), payloads, [0] * len(payloads))
        return time.perf_counter() - started

    return {"rate": number / probe.looped(send())}


def enqueue(url: str, number: int, gap: float) -> dict[str, Any]:
    """Enqueue one by one."""

    async def send() -> dict[str, Any]:
        queries = Queries.from_asyncpg_connection(await asyncpg.connect(url))
        return await probe.sent(number, gap, lambda n: queries.enqueue(TYPE, str(n).encode()))

    return probe.looped(send())


def work(url: str, number: int, tally: str) -> dict[str, Any]:
    """Run a worker until stopped."""
    noted = Tally(Path(tally), number)

    async def serve() -> None:
        manager = PgQueuer.from_asyncpg_connection(await asyncpg.connect(url))

        @manager.entrypoint(TYPE)
        async def note(task: Any) -> None:
            noted.note(int(task.payload))

        await probe.told("go")
        running = asyncio.create_task(manager.run(batch_size=BATCH))
        await probe.told("stop")
        manager.shutdown.set()
        await running

    probe.looped(serve())
    return {}


if __name__ == "__main__":
    probe.main({verb.__name__: verb for verb in (prepare, fill, enqueue, work)})
