"""Windlass with fair or limited queues: configure them, fill them, run their tasks."""

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.runs import probe
from benchmarks.runs.tally import Tally
from windlass import App, WorkerSettings
from windlass._model.options import Defaults, Options
from windlass._model.task import NewTask
from windlass._policy.input.payload import encode_payload
from windlass._worker.process import calm_collector

AT_ONCE = 10_000
PRIORITIES = (-5, 0, 5)
LINGERING = 0.1


def put(url: str, queues: dict[str, Any], limits: dict[str, Any]) -> dict[str, Any]:
    """Set the options of queues and limits, by name."""

    async def set_them() -> None:
        app = _declared(url)
        for name, changes in queues.items():
            await app.operator.set_queue(name, create=True, **changes)
        for name, options in limits.items():
            await app.operator.limits.set(name, create=True, **options)
        await app.close()

    probe.looped(set_them())
    return {}


@dataclass(frozen=True, kw_only=True)
class Dealt:
    """Which tasks to make: type, queue, and how many tenants, keys and levels to use in turn."""

    type: str = "note"
    queue: str = "default"
    tenant: str = ""
    tenants: int = 0
    keys: int = 1
    levels: bool = False

    def task(self, app: App, n: int) -> NewTask:
        """Return task number n."""
        options: Options = {"queue": self.queue}
        if self.tenant or self.tenants:
            options["tenant"] = self.tenant or f"t{n % self.tenants}"
        if self.levels:
            options["priority"] = PRIORITIES[n % len(PRIORITIES)]
        payload = encode_payload({"n": n, "key": f"k{n % self.keys}"})
        return app.builder.build(self.type, payload, options, Defaults())


def fill(url: str, number: int, first: int = 0, at_once: int = AT_ONCE, **dealt: Any) -> dict[str, Any]:
    """Enqueue in bulk, in this order."""
    deal = Dealt(**dealt)

    async def send() -> float:
        app = _declared(url)
        await app.open()
        started = time.perf_counter()
        for begin in range(first, first + number, at_once):
            some = range(begin, min(begin + at_once, first + number))
            await app.client.enqueue_tasks([deal.task(app, n) for n in some])
        taken = time.perf_counter() - started
        await app.close()
        return taken

    return {"rate": number / probe.looped(send())}


def work(url: str, number: int, tally: str, slots: int, queues: list[str]) -> dict[str, Any]:
    """Run a worker until stopped, as `windlass worker` does."""
    noted = Tally(Path(tally), number)

    async def serve() -> None:
        over = asyncio.Event()
        app = _declared(url, noted, over)
        await app.open()
        calm_collector()
        await probe.told("go")
        worker = app.worker(WorkerSettings(slots=slots, queues=tuple(queues)))
        running = asyncio.create_task(worker.run())
        await probe.told("stop")
        over.set()
        worker.stop()
        await running
        await app.close()

    probe.looped(serve())
    return {}


def _declared(url: str, tally: Tally | None = None, over: asyncio.Event | None = None) -> App:
    """Declare no-op tasks, slow ones, and tasks that hold their permits until the end of the run."""
    app = App(url)

    # Limits use the arguments that the handlers ignore.
    @app.task(name="note")
    async def note(n: int, key: str) -> None:  # noqa: ARG001
        assert tally is not None, "a process that only enqueues runs nothing"
        tally.note(n)

    @app.task(name="linger")
    async def linger(n: int, key: str) -> None:  # noqa: ARG001
        await asyncio.sleep(LINGERING)

    @app.task(name="hold")
    async def hold(n: int, key: str) -> None:  # noqa: ARG001
        assert over is not None, "a process that only enqueues runs nothing"
        await over.wait()

    return app


if __name__ == "__main__":
    probe.main({verb.__name__: verb for verb in (put, fill, work)})
