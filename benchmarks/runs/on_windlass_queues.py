"""Windlass with thousands of queues, one verb per run."""

import asyncio
import contextlib
import http.client
import time
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from benchmarks.runs import probe
from windlass import App, Filter, State, TaskType, Worker, WorkerSettings
from windlass._model.filter import Dimension
from windlass._observe.overview import read_overview
from windlass._timers import wait_until
from windlass._worker.process import calm_collector
from windlass.testing.conformance.steps import worker_on

ENQUEUES = 128  # under way at a time
CLAIMED = 10  # tasks at most by one claim
SLOTS = 100
CACHED_SECONDS, CACHED_TIMES = 1.1, 10.0  # a server reads again after 1 s and 9 times what the last read took
GRACE = timedelta(seconds=5)
_READY = Filter(states=(State.READY,))


class Queues:
    """An app with a task that runs in any of these queues, and what ran here."""

    def __init__(self, url: str, number: int) -> None:
        self.app = App(url)
        self.names = tuple(f"customer-{n:05}" for n in range(number))
        self.seen: list[int] = []
        self.ran = asyncio.Event()
        self.pickups: list[float] = []

        @self.app.task(name="queues.note")
        async def note(n: int) -> None:
            self.seen.append(n)
            self.ran.set()

        @self.app.task(name="queues.stamp")
        async def stamp(sent: float) -> None:
            self.pickups.append(time.time() - sent)

        self.note: TaskType[[int], Any, None] = note
        self.stamp: TaskType[[float], Any, None] = stamp

    def worker(self, *, named: bool, drain: bool = False) -> Worker:
        """Return a worker that names all queues, or serves whatever queues there are."""
        served: dict[str, Any] = {"queues": self.names} if named else {"all_queues": True}
        return self.app.worker(WorkerSettings(slots=SLOTS, drain=drain, grace=GRACE, **served))

    async def enqueue(self, tasks: int, queues: int) -> None:
        """Enqueue this many tasks into each of the first queues, concurrently as many callers do."""
        room = asyncio.Semaphore(ENQUEUES)

        async def send(n: int) -> None:
            async with room:
                await self.note.using(queue=self.names[n % queues]).aenqueue(n=n)

        async with asyncio.TaskGroup() as group:
            for n in range(tasks * queues):
                group.create_task(send(n))

    async def ready(self) -> int:
        """Return how many tasks are ready; exact also if the store only estimates large counts."""
        counts = await self.app.store.count(_READY, ())
        if all(one.exact for one in counts):
            return sum(one.number for one in counts)
        return len([task async for task in self.app.operator.every(_READY)])


def fill(url: str, queues: int, tasks: int) -> dict[str, Any]:
    """Enqueue tasks into each queue; return the rate."""

    async def work() -> dict[str, Any]:
        all_queues = Queues(url, queues)
        await all_queues.app.open()
        began = time.perf_counter()
        await all_queues.enqueue(tasks, queues)
        taken = time.perf_counter() - began
        await all_queues.app.close()
        return {"rate": tasks * queues / taken}

    return probe.looped(work())


def drain(url: str, queues: int, limit: float, *, named: bool) -> dict[str, Any]:
    """Run a worker with `drain`, for so many seconds at most; return its time and the tasks that it left."""

    async def work() -> dict[str, Any]:
        all_queues = Queues(url, queues)
        await all_queues.app.open()
        calm_collector()
        used, began = time.process_time(), time.perf_counter()
        worker = all_queues.worker(named=named, drain=True)
        asyncio.get_running_loop().call_later(limit, partial(worker.stop, at_once=True))
        await worker.run()
        taken, used = time.perf_counter() - began, time.process_time() - used
        left = await all_queues.ready()
        await all_queues.app.close()
        seen = all_queues.seen
        assert len(set(seen)) == len(seen), f"{len(seen)} runs of {len(set(seen))} tasks"
        return {"seconds": taken, "left": left, "processor": used / max(len(seen), 1) * 1e6}

    return probe.looped(work())


def look(url: str, queues: int, looks: int) -> dict[str, Any]:
    """Return the seconds of a count by queue and of what GET /queues, dashboard and metrics read."""

    async def work() -> dict[str, Any]:
        app = Queues(url, queues).app
        await app.open()
        by = (Dimension.QUEUE, Dimension.STATE)
        counts = [await _timed(app.store.count(Filter(), by)) for _ in range(looks)]
        overviews = [await _timed(read_overview(app.store)) for _ in range(looks)]
        await app.close()
        return {"count": sorted(counts)[looks // 2], "overview": sorted(overviews)[looks // 2]}

    return probe.looped(work())


def get(address: str, paths: Sequence[str], looks: int) -> dict[str, Any]:
    """Return the seconds of a GET of each path, after pauses in which what the server caches gets too old."""
    answer, last = {}, 0.0
    with contextlib.closing(http.client.HTTPConnection(address, timeout=probe.LIMIT_SECONDS)) as client:
        for path in paths:
            taken: list[float] = []
            for _ in range(looks):
                time.sleep(max(CACHED_SECONDS, last * CACHED_TIMES))
                began = time.perf_counter()
                client.request("GET", path)
                response = client.getresponse()
                body = response.read()
                taken.append(last := time.perf_counter() - began)
                assert response.status == 200, f"GET {path}: {response.status} {body[:200]!r}"
            answer[path] = sorted(taken)[looks // 2]
    return answer


def claim(url: str, queues: int, ready: int, looks: int, limit: float) -> dict[str, Any]:
    """Claim naming all queues while none has a task, then while a few of them have one each."""

    async def work() -> dict[str, Any]:
        all_queues = Queues(url, queues)
        await all_queues.app.open()
        worker = await worker_on(all_queues.app.store)
        answer = {}
        for what, number in (("empty", 0), ("few", ready)):
            if number:
                await all_queues.enqueue(1, number)
            taken: list[float] = []
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(limit):
                    while len(taken) < looks:
                        taken.append(await _timed(worker.claim(CLAIMED, *all_queues.names)))
            answer[what] = sorted(taken)[len(taken) // 2] if taken else limit
        await all_queues.app.close()
        return answer

    return probe.looped(work())


def serve(url: str, queues: int, tasks: int, limit: float, *, named: bool) -> dict[str, Any]:
    """Run a worker until SIGTERM; ready once it has run all tasks. Return its pickups since, and its stop."""

    async def work() -> dict[str, Any]:
        all_queues = Queues(url, queues)
        await all_queues.app.open()
        calm_collector()
        worker = all_queues.worker(named=named)
        running = asyncio.create_task(worker.run(signals=True))
        await wait_until(lambda: len(all_queues.seen) >= tasks * queues, all_queues.ran, limit)
        ran = len(all_queues.seen)
        probe.ready()
        await running
        await all_queues.app.close()
        return {"pickups": all_queues.pickups, "ran": ran}

    return probe.looped(work())


def send(url: str, queues: int, number: int, gap: float) -> dict[str, Any]:
    """Enqueue into one queue after the other; the payload says when. Wait until all have ended."""

    async def work() -> None:
        all_queues = Queues(url, queues)
        app = all_queues.app
        await app.open()
        handles = []
        for n in range(number):
            queue = all_queues.names[n * queues // number]
            handles.append(await all_queues.stamp.using(queue=queue).aenqueue(sent=time.time()))
            await asyncio.sleep(gap)
        for handle in handles:
            await handle.result(timeout=probe.FIRST_SECONDS)
        await app.close()

    probe.looped(work())
    return {}


async def _timed(awaited: Any) -> float:
    began = time.perf_counter()
    await awaited
    return time.perf_counter() - began


if __name__ == "__main__":
    probe.main({verb.__name__: verb for verb in (fill, drain, look, get, claim, serve, send)})
