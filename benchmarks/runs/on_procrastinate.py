"""Procrastinate's side: psycopg, 30 tasks at once, finished ones deleted, which is its fastest mode."""

import asyncio
import time
from pathlib import Path
from typing import Any

from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from benchmarks.runs import probe
from benchmarks.runs.tally import Tally

AT_ONCE = 30
POOL = {"min_size": 4, "max_size": 20}


def prepare(url: str) -> dict[str, Any]:
    """Create its tables."""
    with App(connector=SyncPsycopgConnector(conninfo=url)).open() as app:
        app.schema_manager.apply_schema()
    return {}


def fill(url: str, number: int, at_once: int) -> dict[str, Any]:
    """Enqueue in bulk."""
    with App(connector=SyncPsycopgConnector(conninfo=url)).open() as app:
        note = app.configure_task("note")
        started = time.perf_counter()
        for first in range(0, number, at_once):
            note.batch_defer(*({"n": n} for n in range(first, min(first + at_once, number))))
        taken = time.perf_counter() - started
    return {"rate": number / taken}


def enqueue(url: str, number: int, gap: float) -> dict[str, Any]:
    """Enqueue one by one, blocking, which is faster than from an event loop."""
    with App(connector=SyncPsycopgConnector(conninfo=url, min_size=1, max_size=1)).open() as app:
        note = app.configure_task("note")
        return probe.sent_blocking(number, gap, lambda n: note.defer(n=n))


def work(url: str, number: int, tally: str) -> dict[str, Any]:
    """Run a worker until stopped."""
    noted = Tally(Path(tally), number)

    async def serve() -> None:
        app = App(connector=PsycopgConnector(conninfo=url, **POOL))

        @app.task(name="note")
        async def note(n: int) -> None:
            noted.note(n)

        async with app.open_async():
            await probe.told("go")
            running = asyncio.create_task(
                app.run_worker_async(concurrency=AT_ONCE, delete_jobs="always", install_signal_handlers=False)
            )
            await probe.told("stop")
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    probe.looped(serve())
    return {}


if __name__ == "__main__":
    probe.main({verb.__name__: verb for verb in (prepare, fill, enqueue, work)})
