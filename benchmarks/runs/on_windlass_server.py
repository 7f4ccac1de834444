"""Windlass's side on a database server, with the same verbs as its peers."""

import asyncio
import time
from pathlib import Path
from typing import Any

from benchmarks.runs import probe
from benchmarks.runs.tally import Tally
from windlass import App, TaskType, WorkerSettings
from windlass._worker.process import calm_collector


def prepare(url: str) -> dict[str, Any]:
    """Create its tables."""

    async def make() -> None:
        app, _ = _declared(url)
        await app.open()
        await app.close()

    probe.looped(make())
    return {}


def fill(url: str, number: int, at_once: int, **options: Any) -> dict[str, Any]:
    """Enqueue in bulk. `options` are those of `using`: a queue, a delay."""

    async def send() -> float:
        app, note = _declared(url)
        await app.open()
        prepared = note.using(**options)
        started = time.perf_counter()
        for first in range(0, number, at_once):
            await prepared.aenqueue_many([{"n": n} for n in range(first, min(first + at_once, number))])
        taken = time.perf_counter() - started
        await app.close()
        return taken

    return {"rate": number / probe.looped(send())}


def enqueue(url: str, number: int, gap: float) -> dict[str, Any]:
    """Enqueue one by one."""

    async def send() -> dict[str, Any]:
        app, note = _declared(url)
        await app.open()
        answer = await probe.sent(number, gap, lambda n: note.aenqueue(n=n))
        await app.close()
        return answer

    return probe.looped(send())


def work(url: str, number: int, tally: str, slots: int, queue: str = "default") -> dict[str, Any]:
    """Run a worker until stopped, as `windlass worker` does."""
    noted = Tally(Path(tally), number)

    async def serve() -> None:
        app, _ = _declared(url, noted)
        await app.open()
        calm_collector()
        await probe.told("go")
        worker = app.worker(WorkerSettings(slots=slots, queues=(queue,)))
        running = asyncio.create_task(worker.run())
        await probe.told("stop")
        worker.stop()
        await running
        await app.close()

    probe.looped(serve())
    return {}


def _declared(url: str, tally: Tally | None = None) -> tuple[App, TaskType[[int], Any, None]]:
    app = App(url)

    @app.task(name="note")
    async def note(n: int) -> None:
        assert tally is not None, "a process that only enqueues runs nothing"
        tally.note(n)

    return app, note


if __name__ == "__main__":
    probe.main({verb.__name__: verb for verb in (prepare, fill, enqueue, work)})
