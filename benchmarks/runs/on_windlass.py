"""Windlass's side, one verb per run, with the settings that docs/benchmarks.md lists."""

import asyncio
import contextlib
import time
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from benchmarks.runs import probe
from benchmarks.runs.app import app, keep, latencies, note, note_in_process, note_in_thread, seen, stamp
from windlass import State, TaskType, WorkerSettings
from windlass._worker.process import calm_collector

KINDS: dict[str, TaskType[Any, Any, Any]] = {
    "loop": note,
    "thread": note_in_thread,
    "process": note_in_process,
}
AT_ONCE = 1_000
SAMPLED = 100

T = TypeVar("T")


def preload(url: str, number: int, kind: str = "loop", size: int = 0) -> dict[str, Any]:
    """Enqueue this many tasks in batches, each with a text of this size."""
    app.use_store(url)
    task_type, text = (keep, {"text": "x" * size}) if size else (KINDS[kind], {})

    async def work() -> float:
        await app.open()
        started = time.perf_counter()
        for first in range(0, number, AT_ONCE):
            numbers = range(first, min(first + AT_ONCE, number))
            await task_type.aenqueue_many([{"n": n, **text} for n in numbers])
        taken = time.perf_counter() - started
        await app.close()
        return taken

    return {"rate": number / _looped(url, work())}


def drain(url: str, number: int, slots: int, kind: str = "loop", *, memory: bool = False) -> dict[str, Any]:
    """Drain the queue, timed from the start of the worker to the return of the last settle."""
    app.use_store(url)

    async def work() -> dict[str, Any]:
        await app.open()
        before = probe.resident()
        taken, processor = await _drained(slots)
        after = probe.resident()
        if kind != "process":
            probe.exactly_once(seen, number)
        await _recorded(number)
        await app.close()
        return {
            "rate": number / taken,
            "processor": processor / number * 1e6,
            "before": before,
            "after": after,
        }

    if memory:
        assert url == "memory://"
        return asyncio.run(_preloaded(number, kind, work))
    return _looped(url, work())


def share(url: str, slots: int) -> dict[str, Any]:
    """Drain the queue beside other processes."""
    app.use_store(url)

    async def work() -> dict[str, Any]:
        await app.open()
        await probe.told("go")
        began = time.monotonic()
        taken, processor = await _drained(slots)
        await app.close()
        return {"began": began, "ended": began + taken, "seen": seen, "processor": processor}

    return _looped(url, work())


def recorded(url: str, number: int) -> dict[str, Any]:
    """Check that every task of the store has its record."""
    app.use_store(url)

    async def work() -> None:
        await app.open()
        await _recorded(number)
        await app.close()

    _looped(url, work())
    return {}


def _looped(url: str, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine; on a server with uvloop, like the asyncio sides of peers."""
    is_server = not url.startswith(("sqlite:", "memory:"))
    return probe.looped(work) if is_server else asyncio.run(work)


async def _preloaded(number: int, kind: str, work: Any) -> dict[str, Any]:
    for first in range(0, number, AT_ONCE):
        await KINDS[kind].aenqueue_many([{"n": n} for n in range(first, min(first + AT_ONCE, number))])
    answer: dict[str, Any] = await work()
    return answer


async def _drained(slots: int) -> tuple[float, float]:
    """Return the seconds, and the CPU seconds, until the last settlement was durable."""
    settle = app.store.settle
    last = 0.0

    async def timed(batch: Sequence[Any], claim: Any = None) -> Any:
        nonlocal last
        settled = await settle(batch, claim)
        if batch:
            last = time.perf_counter()
        return settled

    app.store.settle = timed  # type: ignore[method-assign]
    calm_collector()  # as `windlass worker` does
    processor, started = time.process_time(), time.perf_counter()
    await app.worker(WorkerSettings(slots=slots, drain=True)).run()
    return last - started, time.process_time() - processor


async def _recorded(number: int) -> None:
    """Check that every task has ended and, for a sample, that it has an attempt record."""
    await _standing(number)
    completed = [task async for task in app.operator.every() if task.state is State.COMPLETED]
    assert len(completed) == number, "not all tasks are recorded"
    for task in completed[:: max(1, number // SAMPLED)]:
        attempts = await app.operator.attempts(task.id)
        assert [attempt.outcome for attempt in attempts] == ["returned"], "no single attempt recorded"


def enqueue(url: str, number: int) -> dict[str, Any]:
    """Enqueue one by one, blocking; measure each call, which is durable on return."""
    app.use_store(url)
    app.setup()
    taken = []
    for n in range(number):
        started = time.perf_counter()
        note.enqueue(n=n)
        taken.append(time.perf_counter() - started)
    asyncio.run(_standing(number))
    return probe.spread(taken) | {"rate": number / sum(taken)}


def aenqueue(url: str, number: int, callers: int) -> dict[str, Any]:
    """Enqueue one by one from an event loop, by this many concurrent callers."""
    app.use_store(url)
    taken: list[float] = []

    async def call(numbers: range) -> None:
        for n in numbers:
            started = time.perf_counter()
            await note.aenqueue(n=n)
            taken.append(time.perf_counter() - started)

    async def work() -> float:
        await app.open()
        started = time.perf_counter()
        async with asyncio.TaskGroup() as group:
            for caller in range(callers):
                group.create_task(call(range(caller, number, callers)))
        whole = time.perf_counter() - started
        await _standing(number)
        await app.close()
        return whole

    return {"rate": number / _looped(url, work())} | probe.spread(taken)


async def _standing(number: int) -> None:
    counts = await app.operator.count()
    found = sum(count.number for count in counts)
    if not all(count.exact for count in counts):
        found = len([task async for task in app.operator.every()])
    assert found == number, f"{found} tasks stand, not {number}"


def pickup(url: str, number: int, gap: float) -> dict[str, Any]:
    """Enqueue to an idle worker in the same process."""
    app.use_store(url)

    async def work() -> list[float]:
        async with _at_work():
            await _sent(number, gap)
            return await _seen(number)

    return probe.spread(_looped(url, work()))


def serve(url: str, number: int) -> dict[str, Any]:
    """Run the worker for pickup across processes, until this many tasks have started."""
    app.use_store(url)

    async def work() -> dict[str, Any]:
        async with _at_work():
            idle = await asyncio.to_thread(probe.idle_share)
            probe.ready()
            return probe.spread(await _seen(number)) | {"idle": idle}

    return _looped(url, work())


def send(url: str, number: int, gap: float) -> dict[str, Any]:
    """Run the producer for pickup across processes."""
    app.use_store(url)

    async def work() -> None:
        await app.open()
        await _sent(number, gap)
        await app.close()

    _looped(url, work())
    return {}


@contextlib.asynccontextmanager
async def _at_work() -> Any:
    """Run a worker that is ready for the duration of the block."""
    up = asyncio.Event()
    worker = app.worker()
    running = asyncio.create_task(worker.run(ready=up.set))
    await up.wait()
    try:
        yield
    finally:
        worker.stop()
        await running
        await app.close()


async def _sent(number: int, gap: float) -> None:
    for _ in range(number):
        await stamp.aenqueue(sent=time.monotonic())
        await asyncio.sleep(gap)


async def _seen(number: int) -> list[float]:
    return [await latencies.get() for _ in range(number)]


def loop(number: int, slots: int) -> dict[str, Any]:
    """Compare a task in memory (claim, run, settle, record) with making and awaiting an asyncio task."""

    async def work() -> dict[str, Any]:
        for first in range(0, number, AT_ONCE):
            await note.aenqueue_many([{"n": n} for n in range(first, first + AT_ONCE)])
        bare = await _bare(number)
        taken, _ = await _drained(slots)
        bare = min(bare, await _bare(number))
        probe.exactly_once(seen, number)
        await _recorded(number)
        return {"windlass": taken / number * 1e6, "bare": bare / number * 1e6}

    return asyncio.run(work())


async def _bare(number: int) -> float:
    async def nothing(n: int) -> None:
        noted.append(n)

    noted: list[int] = []
    started = time.perf_counter()
    for n in range(number):
        await asyncio.create_task(nothing(n))
    return time.perf_counter() - started


if __name__ == "__main__":
    verbs = (preload, drain, share, recorded, enqueue, aenqueue, pickup, serve, send, loop)
    probe.main({verb.__name__: verb for verb in verbs})
