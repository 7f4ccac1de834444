"""A process that holds many windlass workers on one event loop, each with a session, heartbeats and claims.

`sharing` workers share an app, hence its connections, as the workers of one process do; with 1, each has its
own, as a worker process has.
"""

import asyncio
import json
import logging
import os
import random
import sys
import time
from datetime import timedelta
from math import ceil
from typing import Any

from benchmarks.runs import probe
from windlass import App, TaskType, Worker, WorkerSettings
from windlass._model.record import Session
from windlass._worker.process import calm_collector
from windlass.testing.conformance.steps import ManualWorker, worker_on

QUEUE = "crowd"
SLOTS = 4
AT_ONCE = 50  # that start


class Warnings(logging.Handler):
    """Counts what the workers log, instead of writing it to a pipe that nobody reads."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.number = 0
        self.last = ""

    def emit(self, record: logging.LogRecord) -> None:
        self.number += 1
        self.last = record.getMessage()


class Crowd:
    """The workers of this process, and what they ran."""

    def __init__(self, urls: list[str], number: int, *, sharing: int, settings: WorkerSettings) -> None:
        self._pickups: list[float] = []
        self._warnings = Warnings()
        logging.getLogger().addHandler(self._warnings)
        self._claims = 0
        apps = [self._app(urls[n % len(urls)]) for n in range(ceil(number / sharing))]
        self.workers: list[Worker] = [apps[n % len(apps)].worker(settings) for n in range(number)]
        self._ready = 0
        self._starting = asyncio.Semaphore(AT_ONCE)
        self._all_ready = asyncio.Event()

    def _app(self, url: str) -> App:
        app = App(url)

        @app.task(name="crowd.note", queue=QUEUE)
        async def note(sent: float) -> None:
            self._pickups.append(time.time() - sent)

        return app

    async def run(self) -> None:
        """Start all, report when all claim, and answer questions until told to stop."""
        running = [asyncio.create_task(self._run(one)) for one in self.workers]
        waiting = asyncio.create_task(self._all_ready.wait())
        await asyncio.wait([waiting, *running], return_when=asyncio.FIRST_COMPLETED)
        assert self._all_ready.is_set(), [one for one in running if one.done()]
        calm_collector()
        probe.ready()
        await self._answer()
        for one in self.workers:
            one.stop()
        await asyncio.wait(running)

    async def _run(self, worker: Worker) -> None:
        """Run a worker. A process that started all of them at once would only slow itself down."""
        await self._starting.acquire()
        await worker.run(ready=self._note_ready)

    def _note_ready(self) -> None:
        self._starting.release()
        self._ready += 1
        if self._ready == len(self.workers):
            self._all_ready.set()

    async def _answer(self) -> None:
        while (await asyncio.to_thread(sys.stdin.readline)).strip() == "sample":
            print(json.dumps(self._sample()), flush=True)
            if self._warnings.last:
                print(self._warnings.last, file=sys.stderr, flush=True)
                self._warnings.last = ""

    def _sample(self) -> dict[str, Any]:
        """What there is now, and what was since the last sample."""
        claims = sum(one.held.claims for one in self.workers)
        sample = {
            "resident": probe.resident(),
            "processor": time.process_time(),
            "files": len(os.listdir("/proc/self/fd")),  # noqa: PTH208
            "claims": claims - self._claims,
            "warnings": self._warnings.number,
            "pickups": self._pickups,
        }
        self._claims, self._pickups = claims, []
        return sample


def hold(urls: list[str], number: int, sharing: int, heartbeat: float, lease: float) -> dict[str, Any]:
    """Hold this many workers until told to stop."""
    settings = WorkerSettings(
        slots=SLOTS,
        heartbeat=timedelta(seconds=heartbeat),
        lease=timedelta(seconds=lease),
        grace=timedelta(seconds=1),
    )
    random.shuffle(urls)

    async def work() -> None:
        await Crowd(urls, number, sharing=sharing, settings=settings).run()

    probe.looped(work())
    return {}


def send(url: str, number: int, gap: float) -> dict[str, Any]:
    """Enqueue one by one; the payload says when."""

    async def work() -> None:
        app = App(url)
        note = _declared(app)
        await app.open()
        for _ in range(number):
            await note.aenqueue(sent=time.time())
            await asyncio.sleep(gap)
        await app.close()

    probe.looped(work())
    return {}


def flood(url: str, number: int) -> dict[str, Any]:
    """Enqueue all at once."""

    async def work() -> None:
        app = App(url)
        note = _declared(app)
        await app.open()
        await note.aenqueue_many([{"sent": time.time()} for _ in range(number)])
        await app.close()

    probe.looped(work())
    return {}


def beat(url: str, number: int, at_once: int) -> dict[str, Any]:
    """Send heartbeats of some sessions as fast as they are answered; return the time they took."""

    async def work() -> float:
        app = App(url)
        await app.open()
        workers = [await worker_on(app.store) for _ in range(at_once)]

        async def renew(worker: ManualWorker) -> None:
            for _ in range(number // at_once):
                await worker.beat()

        began = time.perf_counter()
        await asyncio.gather(*(renew(one) for one in workers))
        taken = time.perf_counter() - began
        for one in workers:
            await app.store.remove(Session, one.session)
        await app.close()
        return taken

    return {"seconds": probe.looped(work())}


def prepare(url: str) -> dict[str, Any]:
    """Create the tables, and a key for workers."""

    async def work() -> str:
        app = App(url)
        await app.open()
        made = await app.operator.keys.create("crowd", scopes=("read", "enqueue", "work", "operate"))
        await app.close()
        return made.text

    return {"key": probe.looped(work())}


def _declared(app: App) -> "TaskType[[float], Any, None]":
    @app.task(name="crowd.note", queue=QUEUE)
    async def note(sent: float) -> None: ...

    return note


if __name__ == "__main__":
    probe.main({verb.__name__: verb for verb in (hold, send, flood, beat, prepare)})
