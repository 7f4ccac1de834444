"""Helpers of the loop tests: run a worker, wait for a condition, watch and break a store."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from time import monotonic, perf_counter
from typing import Any, TypeVar

from windlass import App, Filter, Page, State, Worker, WorkerSettings
from windlass._model.lease import Claim, Claimed, Heartbeat
from windlass._model.record import Session
from windlass._model.record import Worker as WorkerRecord
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore
from windlass.testing.faults import Fault, FaultyStore, Hold

T = TypeVar("T")

SOON = 10.0  # seconds: more than anything here may take, unless it hangs


async def eventually(look: Callable[[], T | Awaitable[T]], *, within: float = SOON) -> T:
    """What `look` answers once that is true; fails if it never is. The only wait that is not for an event."""
    deadline = monotonic() + within
    never = asyncio.Event()
    while True:
        found = look()
        answer = await found if isinstance(found, Awaitable) else found
        if answer:
            return answer
        if monotonic() > deadline:
            raise AssertionError(f"it did not come about within {within:g} s")
        await pause(0.005, never)


async def pause(seconds: float, event: asyncio.Event | None = None) -> None:
    """Let the loop run for so long: for handlers that are to take a while, and for a look now and then."""
    try:
        await asyncio.wait_for((event or asyncio.Event()).wait(), seconds)
    except TimeoutError:
        return


def block(seconds: float) -> None:
    """Keep this thread for so long, as a handler that blocks does."""
    threading.Event().wait(seconds)


def hold_gil(seconds: float) -> float:
    """Keep every thread of this process for about so long, as a long call into C does; returns how long."""
    number, taken = 1_000_000, 0.0
    while taken < 0.1:  # until it is long enough to tell the speed
        number, began = 2 * number, perf_counter()
        sum(range(number))
        taken = perf_counter() - began
    began = perf_counter()
    sum(range(int(number * min(seconds / taken, 20.0))))
    return perf_counter() - began


def settings(**changes: Any) -> WorkerSettings:
    """A worker that is quick to notice: short heartbeat, short poll."""
    quick: dict[str, Any] = {
        "slots": 4,
        "processes": 2,
        "lease": timedelta(seconds=5),
        "heartbeat": timedelta(seconds=0.05),
        "poll": timedelta(seconds=0.2),
        "grace": timedelta(seconds=5),
        "keeper": False,
        "name": "alice",
    }
    seconds = {"lease", "heartbeat", "poll", "grace"}
    given = {k: timedelta(seconds=v) if k in seconds else v for k, v in changes.items()}
    return WorkerSettings(**(quick | given))


@asynccontextmanager
async def working(app: App, **changes: Any) -> AsyncIterator[Worker]:
    """A worker at work, until the end of the block."""
    worker = app.worker(settings(**changes))
    standing = asyncio.Event()
    run = asyncio.create_task(worker.run(ready=standing.set))
    opened = asyncio.create_task(standing.wait())
    try:
        await asyncio.wait({run, opened}, return_when=asyncio.FIRST_COMPLETED, timeout=SOON)
        if run.done():
            await run
        yield worker
    finally:
        opened.cancel()
        worker.stop()
        await asyncio.wait_for(run, SOON)


async def drained(app: App, **changes: Any) -> Worker:
    """A worker that has run everything that was ready, and what followed from it."""
    worker = app.worker(settings(drain=True, **changes))
    await asyncio.wait_for(worker.run(), SOON)
    return worker


async def tasks(app: App, *states: State) -> list[Any]:
    """The tasks of an app in these states, or all, oldest first."""
    return [*(await app.store.find(Filter(states=states or None), Page(limit=1000))).items]


async def sessions(app: App) -> list[Session]:
    """The sessions that the store knows."""
    return [*(await app.store.records(Session, Page(limit=100))).items]


async def assert_nothing_held(app: App) -> None:
    """No session stands and no task runs: nobody holds a lease any more."""
    assert await sessions(app) == []
    assert await tasks(app, State.RUNNING) == []


async def dead_worker(
    app: App, *, limit: int = 1, lease: float = 0.0, queue: str = "default"
) -> list[Claimed]:
    """Claim as a worker that then falls silent for ever; its lease ends after so many seconds."""
    session = f"ghost-{monotonic()}"
    beat = Heartbeat(
        session=session, worker=WorkerRecord(name="ghost"), lease_for=timedelta(seconds=60), opening=True
    )
    await app.store.heartbeat(beat)
    claimed = await app.store.claim(Claim(session=session, queues=(queue,), limit=limit, number=1))
    if lease:
        held = tuple(one.lease for one in claimed)
        await app.store.heartbeat(
            Heartbeat(
                session=session,
                worker=WorkerRecord(name="ghost"),
                lease_for=timedelta(seconds=lease),
                held=held,
                through=1,
            )
        )
    else:
        await app.store.remove(Session, session)
    return [*claimed]


class Watch:
    """A plan for FaultyStore that can be changed while it is at work, and counts the calls of each verb."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.faults: dict[str, list[Fault | Hold | None]] = {}
        self.down: set[str] = set()  # verbs that fail until taken out again
        self.lock = threading.Lock()

    def __call__(self, verb: str) -> Fault | Hold | None:
        with self.lock:
            self.calls[verb] += 1
            if verb in self.down:
                return Fault.BEFORE
            script = self.faults.get(verb)
            return script.pop(0) if script else None

    def then(self, verb: str, *faults: Fault | Hold | None) -> None:
        """What befalls the next calls of this verb."""
        with self.lock:
            self.faults.setdefault(verb, []).extend(faults)


def watched(inner: Store | None = None) -> tuple[App, Watch]:
    """An app on a memory store whose calls are counted and can be made to fail."""
    watch = Watch()
    return App(FaultyStore(inner or MemoryStore(), watch)), watch


class BrokenFor(FaultyStore):
    """A store with a bug: it cannot take a settlement of certain tasks, and blames the value."""

    def __init__(
        self,
        inner: Store,
        plan: Watch,
        broken: Callable[[Any], bool],
        error: Exception | None = None,
    ) -> None:
        super().__init__(inner, plan)
        self._broken = broken
        self._error = error or ValueError("a bug in the store")

    def another(self) -> "BrokenFor":
        return BrokenFor(self.inner.another(), self._plan, self._broken, self._error)  # type: ignore[arg-type]

    async def settle(self, batch: Any, claim: Any = None) -> Any:
        if any(self._broken(settlement) for settlement in batch):
            raise self._error
        return await super().settle(batch, claim)


__all__ = [
    "BrokenFor",
    "Watch",
    "assert_nothing_held",
    "block",
    "dead_worker",
    "drained",
    "eventually",
    "pause",
    "sessions",
    "settings",
    "tasks",
    "watched",
    "working",
]


async def error_of(app: App) -> str:
    """The error of the only task of an app, with its traceback."""
    [task] = await tasks(app)
    assert task.error is not None
    return f"{task.error.type}: {task.error.message}\n{task.error.traceback}"
