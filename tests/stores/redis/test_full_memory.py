"""A server whose memory is full takes no more tasks, but workers go on, and the keeper makes room."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
import redis

from tests.servers.redis import Program, Redis
from windlass._model.filter import Discard, Filter
from windlass._model.queue import Fairness, QueueSettings, Retention
from windlass._model.state import State
from windlass._model.verdict import Receipt
from windlass._stores.redis import RedisStore
from windlass.errors import StoreUnavailable
from windlass.testing.conformance.steps import (
    OPERATOR,
    a_task,
    all_tasks,
    bury,
    complete,
    retry,
    some_tasks,
    worker_on,
)

HOUR = timedelta(hours=1)
NOTHING = Retention(completed=timedelta(0), cancelled=timedelta(0), dead=timedelta(0))


@pytest.fixture(params=["valkey", "redis"])
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Redis]:
    program: Program = request.param
    with Redis.start(tmp_path, program=program) as server:
        yield server


@pytest.fixture
async def store(server: Redis) -> AsyncIterator[RedisStore]:
    store = RedisStore.from_url(server.url)
    await store.open()
    yield store
    await store.close()


def fill(server: Redis) -> None:
    redis.Redis(port=server.port).config_set("maxmemory", 1)


async def test_new_tasks_are_refused_as_a_whole(server: Redis, store: RedisStore) -> None:
    fill(server)

    for batch in ([a_task(), a_task()], [a_task(delay=HOUR)], [a_task(idempotency_key="k")]):
        with pytest.raises(StoreUnavailable, match="reached maxmemory"):
            await store.enqueue(batch)
    assert await all_tasks(store) == []


async def test_workers_beat_claim_and_settle(server: Redis, store: RedisStore) -> None:
    await store.enqueue(some_tasks(5))
    await store.put(QueueSettings(name="fair", fairness=Fairness.ROUND_ROBIN))
    await store.enqueue([a_task(queue="fair")])
    worker = await worker_on(store, lease_for=HOUR)
    held = await worker.claim(3)
    fill(server)

    assert (await worker.beat(*(one.lease for one in held))).alive
    verdicts = [complete(held[0]), retry(held[1]), bury(held[2])]
    for verdict in verdicts:
        assert (await store.settle([verdict])).receipts == (Receipt.APPLIED,)
    assert len(await worker.claim(9)) == 3
    assert len(await worker.claim(1, "fair")) == 1
    assert (await worker_on(store, "another")).session != worker.session


async def test_the_keeper_and_operators_make_room(server: Redis, store: RedisStore) -> None:
    await store.enqueue(some_tasks(4))
    worker = await worker_on(store, lease_for=HOUR)
    first, second, *_ = await worker.claim(4)
    await store.settle([complete(first), bury(second)])
    fill(server)

    assert await store.lead("keeper", HOUR)
    discarded = await store.apply(Discard(by=OPERATOR), Filter(states=(State.DEAD,)), 10)
    pruned = await store.prune(NOTHING, 10, OPERATOR)
    await store.put(QueueSettings(name="q", paused=True), OPERATOR)

    assert discarded.ids == (second.task.id,)
    assert [(one.state, one.number) for one in pruned.counts] == [(State.COMPLETED, 1)]
