"""Windlass with many calls that wait for results: the process that waits, and one that ends the tasks."""

import asyncio
import contextlib
import json
import time
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any, ParamSpec, TypeVar

from benchmarks.runs import probe
from windlass import App, Handle
from windlass._http.server.run import Server, ServerLimits, listen
from windlass._model.filter import By, CancelTasks, Filter
from windlass._model.state import State
from windlass._store.forward import ForwardingStore
from windlass._store.protocol import Store
from windlass._stores import open_store
from windlass._worker.process import calm_collector

P = ParamSpec("P")
T = TypeVar("T")

QUEUE = "awaited"
HOST = "127.0.0.1"
OLD_SECONDS = 2.0  # after which no wait is young any more
STEP_SECONDS = 0.02  # between two batches of ends
ENQUEUES, GAP_SECONDS = 200, 0.01
WARM = 20
AT_ONCE = 50  # enqueues of the tasks that are waited for, and calls that begin to wait
_READS = frozenset({"find", "ended", "count", "records", "attempts"})


class Counted(ForwardingStore):
    """A store that counts what is read from it."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.reads = 0

    def another(self) -> Store:
        return self.inner.another()

    def _forward(
        self, verb: str, method: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, T]:
        self.reads += verb in _READS
        return method(*args, **kwargs)


class Meter:
    """What this process reads and uses."""

    def __init__(self, store: Counted) -> None:
        self._store = store
        self._began, self._used, self._reads = time.perf_counter(), time.process_time(), store.reads

    def rates(self) -> dict[str, float]:
        """Return reads a second and the share of a processor in percent, since it was made."""
        seconds = time.perf_counter() - self._began
        return {
            "reads": (self._store.reads - self._reads) / seconds,
            "processor": (time.process_time() - self._used) / seconds * 100,
        }


def wait(url: str, number: int, seconds: float, over: float) -> dict[str, Any]:
    """Wait for tasks by their handles; the tasks of a store in memory are ended here, too."""

    async def work() -> dict[str, Any]:
        calm_collector()
        app = App(store := Counted(open_store(url)))
        await app.open()
        alone = await _enqueues(app)
        handles = await _awaited(app, number)
        late: list[float] = []

        async def wait_for(number: int) -> None:
            task = await handles[number].wait()
            assert task.finished_at is not None
            late.append(time.time() - task.finished_at.timestamp())

        waiting = []
        for n in range(number):
            waiting.append(asyncio.create_task(wait_for(n)))
            await asyncio.sleep(STEP_SECONDS if n % AT_ONCE == 0 else 0)
        await asyncio.sleep(OLD_SECONDS)
        meter = Meter(store)
        await asyncio.sleep(seconds)
        idle = meter.rates()
        beside = await _enqueues(app)
        meter = Meter(store)
        probe.ready()
        if url == "memory://":
            await _end(store.another(), number, over)
        await asyncio.gather(*waiting)
        answer = {"idle": idle, "ending": meter.rates(), "late": late, "alone": alone, "beside": beside}
        await app.close()
        return answer

    return probe.looped(work())


async def _awaited(app: App, number: int) -> list[Handle[Any]]:
    """Enqueue the tasks to wait for, some at a time."""
    made: list[Handle[Any]] = []
    while len(made) < number:
        some = min(AT_ONCE, number - len(made))
        made += await asyncio.gather(*(app.client.send("note", queue=QUEUE) for _ in range(some)))
    return made


async def _enqueues(app: App) -> float:
    """Return the median of an enqueue in milliseconds."""
    taken = []
    for _ in range(WARM + ENQUEUES):
        began = time.perf_counter()
        await app.client.send("note")
        taken.append(time.perf_counter() - began)
        await asyncio.sleep(GAP_SECONDS)
    return probe.spread(taken[WARM:])["p50"]


def end(url: str, number: int, over: float) -> dict[str, Any]:
    """End the tasks one after another, as another process."""

    async def work() -> dict[str, Any]:
        store = open_store(url)
        await store.open()
        await _end(store, number, over)
        await store.close()
        return {}

    return probe.looped(work())


async def _end(store: Store, number: int, over: float) -> None:
    began, ended = time.perf_counter(), 0
    where, action = Filter(queues=(QUEUE,), states=(State.READY,)), CancelTasks(by=By(who="benchmark"))
    while ended < number:
        await asyncio.sleep(STEP_SECONDS)
        due = min(int((time.perf_counter() - began) / over * number) + 1, number)
        if due > ended:
            ended += len((await store.apply(action, where, due - ended)).ids)


# -- over HTTP ---------------------------------------------------------------------------------------


def serve(url: str, port: int, number: int, seconds: float) -> dict[str, Any]:
    """Serve the store; measure twice, when told to: while all wait, and while tasks end."""

    async def served() -> dict[str, Any]:
        calm_collector()
        app = App(store := Counted(open_store(url)))
        await app.open()
        with listen(HOST, port) as listener:
            limits = ServerLimits(max_connections=number + 1_000, max_streams_per_key=number + 1_000)
            server = Server(app, keeper=False, open_to_all=True, limits=limits)
            started = asyncio.Event()
            running = asyncio.create_task(server.run(listener, started.set))
            await started.wait()
            await probe.told("go")
            meter = Meter(store)
            await asyncio.sleep(seconds)
            idle = meter.rates()
            meter = Meter(store)
            probe.ready()
            await probe.told("stop")
            answer = {"idle": idle, "ending": meter.rates()}
            server.stop()
            await running
        await app.close()
        return answer

    return probe.looped(served())


def get(url: str, port: int, number: int) -> dict[str, Any]:
    """Wait for tasks by as many `GET /tasks/{id}?wait=`."""

    async def work() -> dict[str, Any]:
        app = App(url)
        await app.open()
        ids = [one.id for one in await _awaited(app, number)]
        await app.close()
        late: list[float] = []

        async def wait_for(task_id: str) -> None:
            reader, writer = await asyncio.open_connection(HOST, port)
            head = f"GET /tasks/{task_id}?wait=60 HTTP/1.1\r\nhost: {HOST}\r\nconnection: close\r\n\r\n"
            writer.write(head.encode())
            answer = await reader.read()
            received = time.time()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
            document = json.loads(answer.partition(b"\r\n\r\n")[2])
            late.append(received - datetime.fromisoformat(document["finished_at"]).timestamp())

        waiting = [asyncio.create_task(wait_for(task_id)) for task_id in ids]
        await asyncio.sleep(OLD_SECONDS)
        probe.ready()
        await asyncio.gather(*waiting)
        return {"late": late}

    return probe.looped(work())


if __name__ == "__main__":
    probe.main({"wait": wait, "end": end, "serve": serve, "get": get})
