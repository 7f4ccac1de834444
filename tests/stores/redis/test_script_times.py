"""A script takes as long with a million tasks as with a few thousand: the server must never be held up."""

import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import redis

from tests.servers.redis import VOLATILE, Redis
from windlass._model.filter import Discard, Filter, Page
from windlass._model.queue import Retention
from windlass._model.state import State
from windlass._stores.redis import RedisStore
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import OPERATOR, ManualWorker, a_task, bury, complete, worker_on

FEW, MANY = 5_000, 1_000_000
BATCH, REPEATS = 250, 9
RATIO, SLACK = 5, 2_000  # microseconds: a busy machine may stop the server for a moment
LOGGED = {"slowlog-log-slower-than": "0", "slowlog-max-len": "20000"}
NOTHING = Retention(completed=timedelta(0), cancelled=timedelta(0), dead=timedelta(0))
MONTH = timedelta(days=30)

logger = logging.getLogger(__name__)
Step = Callable[[], Awaitable[object]]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Redis]:
    with Redis.start(tmp_path, program="redis", settings={**VOLATILE, **LOGGED}) as server:
        yield server


@pytest.fixture
async def store(server: Redis, clock: ManualClock) -> AsyncIterator[RedisStore]:
    store = RedisStore.from_url(server.url, clock=clock)
    await store.open()
    yield store
    await store.close()


class Work:
    """Everything that workers, the keeper and operators do, on a store of any size."""

    def __init__(self, store: RedisStore, clock: ManualClock, worker: ManualWorker) -> None:
        self.store = store
        self.clock = clock
        self.worker = worker

    async def fill(self, number: int) -> None:
        """Add tasks: a third ready, a third scheduled, a third ready in another queue."""
        for _ in range(0, number, 3 * BATCH):
            await self.store.enqueue([a_task() for _ in range(BATCH)])
            await self.store.enqueue([a_task(delay=MONTH) for _ in range(BATCH)])
            await self.store.enqueue([a_task(queue="other", tenant="t") for _ in range(BATCH)])

    async def exchange(self) -> None:
        claimed = await self.worker.claim(BATCH)
        settled = await self.store.settle([complete(one) for one in claimed], self.worker.next_claim(BATCH))
        await self.worker.beat(*(one.lease for one in settled.claimed), through=self.worker.claims)
        await self.store.settle([bury(one) for one in settled.claimed])

    async def promote(self) -> None:
        await self.store.enqueue([a_task(delay=timedelta(seconds=1)) for _ in range(BATCH)])
        self.clock.advance(2)
        await self.worker.beat()
        assert (await self.store.promote(BATCH)).number == BATCH

    async def rescue(self) -> None:
        silent = await worker_on(self.store, lease_for=timedelta(seconds=1))
        await silent.claim(BATCH)
        self.clock.advance(2)
        await self.worker.beat()
        rescued = await self.worker.rescue(BATCH)
        assert len(rescued) == BATCH
        await self.store.settle([complete(one) for one in rescued])

    async def look(self) -> None:
        for states in ((State.READY,), (State.DEAD,), (State.COMPLETED,), None):
            await self.store.find(Filter(states=states), Page(limit=100, newest_first=True))
        await self.store.count(Filter(), ())

    async def act(self) -> None:
        await self.store.apply(Discard(by=OPERATOR), Filter(states=(State.DEAD,)), BATCH)

    async def prune(self) -> None:
        self.clock.advance(2)
        await self.worker.beat()
        await self.store.prune(NOTHING, BATCH)

    @property
    def steps(self) -> dict[str, Step]:
        return {
            "enqueue": lambda: self.store.enqueue([a_task() for _ in range(BATCH)]),
            "exchange": self.exchange,
            "promote": self.promote,
            "rescue": self.rescue,
            "look": self.look,
            "act": self.act,
            "prune": self.prune,
        }


async def times(work: Work, client: Any) -> dict[str, float]:
    """Return, for each step, the microseconds of its longest command: the median of several times."""
    found: dict[str, list[int]] = defaultdict(list)
    for _ in range(REPEATS):
        for name, step in work.steps.items():
            client.slowlog_reset()
            await step()
            longest = max(
                (one for one in client.slowlog_get(20_000) if not one["command"].startswith(b"SLOWLOG")),
                key=lambda one: one["duration"],
            )
            found[name].append(longest["duration"])
    return {name: median(durations) for name, durations in found.items()}


@pytest.mark.full
@pytest.mark.timeout(1200)
async def test_no_command_takes_longer_with_a_million_tasks(
    server: Redis, store: RedisStore, clock: ManualClock
) -> None:
    client: Any = redis.Redis(port=server.port)
    work = Work(store, clock, await worker_on(store, lease_for=MONTH))
    await work.fill(FEW)
    few = await times(work, client)
    await work.fill(MANY - FEW)
    many = await times(work, client)

    for name in few:
        logger.info("%s: %.2f ms, with a million tasks %.2f ms", name, few[name] / 1000, many[name] / 1000)
    longer = {name: (few[name], many[name]) for name in few if many[name] > RATIO * few[name] + SLACK}
    assert longer == {}
