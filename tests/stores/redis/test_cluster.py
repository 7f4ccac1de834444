"""A Cluster: several stores on it, a primary that dies, and slots that move while they are used."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import redis
from redis.crc import key_slot

from tests.servers.fixtures import running
from tests.servers.process import ServerFailed
from tests.servers.redis import Redis
from tests.servers.redis_cluster import Cluster, command, id_of, until
from windlass._model.queue import QueueSettings
from windlass._model.state import State
from windlass._store.protocol import Durability
from windlass._stores.redis import RedisStore
from windlass.errors import StoreUnavailable
from windlass.testing.conformance.steps import (
    all_tasks,
    complete,
    dump,
    enqueue_one,
    settle_now,
    some_tasks,
    worker_on,
)

DEADLINE = 60.0
pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One that these tests may maltreat."""
    with running(lambda: Cluster.start(tmp_path_factory.mktemp("cluster"))) as cluster:
        yield cluster


def slot_of(name: str) -> int:
    return key_slot(f"{{{name}}}".encode())


def other_primary(cluster: Cluster, than: Redis) -> Redis:
    return next(
        node
        for node in cluster.nodes
        if node is not than and node.is_alive and command(node, "ROLE")[0] == b"master"
    )


async def persistently(verb: Any) -> Any:
    """Repeat a verb until the store is available."""
    async with asyncio.timeout(DEADLINE):
        while True:
            with suppress(StoreUnavailable):
                return await verb()
            await asyncio.sleep(0)


async def test_stores_on_one_cluster_do_not_see_each_other(cluster: Cluster) -> None:
    stores = [RedisStore.from_url(f"{cluster.url}?name=shop-{number}") for number in range(3)]
    for store in stores:
        await enqueue_one(store)

    seen = [await all_tasks(store) for store in stores]
    owners = {cluster.owner(store.address.name).port for store in stores}
    for store in stores:
        await store.close()

    assert [len(tasks) for tasks in seen] == [1, 1, 1]
    assert len({tasks[0].id for tasks in seen}) == 3
    assert len(owners) > 1


async def test_a_cluster_promises_less_unless_replicas_confirm_writes(cluster: Cluster) -> None:
    for node in cluster.nodes:
        command(node, "CONFIG SET", "appendfsync", "always")
    alone, confirmed = (RedisStore.from_url(f"{cluster.url}?replicas={number}") for number in (0, 1))
    for store in (alone, confirmed):
        await store.open()
        await store.close()

    assert alone.promise.durability is Durability.RELAXED
    assert "replicas=1" in alone.promise.why
    assert confirmed.promise.durability is Durability.DURABLE


async def test_tasks_that_replicas_confirmed_survive_the_death_of_the_primary(cluster: Cluster) -> None:
    store = RedisStore.from_url(f"{cluster.url}?name=failover&replicas=1")
    worker = await worker_on(store)
    before = some_tasks(20)
    await store.enqueue(before)
    held = await worker.claim(5)
    after = RedisStore.from_url(f"{cluster.url}?name=failover")  # There is no further replica to confirm.
    primary = cluster.owner("failover")
    primary.stop(signal.SIGKILL)
    await persistently(lambda: after.settle(list(map(complete, held))))
    primary.start_again()

    states = [task.state for task in await all_tasks(after)]
    for one in (store, after):
        await one.close()
    assert len(states) == 20
    assert states.count(State.COMPLETED) == 5
    until(lambda: command(primary, "ROLE")[0] == b"slave", "the old primary is a replica")


async def test_nothing_runs_halfway_while_a_slot_is_moved_key_by_key(cluster: Cluster) -> None:
    store = RedisStore.from_url(f"{cluster.url}?name=moving")
    await store.put(QueueSettings(name="default"))
    worker = await worker_on(store)
    await store.enqueue(some_tasks(30))
    held = await worker.claim(5)
    before = await dump(store)
    source = cluster.owner("moving")
    target, slot = other_primary(cluster, source), slot_of("moving")
    command(target, "CLUSTER SETSLOT", slot, "IMPORTING", id_of(source))
    command(source, "CLUSTER SETSLOT", slot, "MIGRATING", id_of(target))

    # Last the key that all scripts declare: without it the server itself refuses them.
    keys = sorted(command(source, "CLUSTER GETKEYSINSLOT", slot, 1000), key=lambda key: key.endswith(b"meta"))
    for number, key in enumerate(keys):
        command(source, "MIGRATE", "127.0.0.1", target.port, key, 0, 5000)
        if number % 10 == 0:
            with pytest.raises(StoreUnavailable):
                await worker.claim(3)
            with pytest.raises(StoreUnavailable):
                await settle_now(store, complete(held[0]))
            with pytest.raises(StoreUnavailable):
                await enqueue_one(store)
    for node in (target, source):
        command(node, "CLUSTER SETSLOT", slot, "NODE", id_of(target))

    assert await persistently(lambda: dump(store)) == before
    await settle_now(store, *map(complete, held))
    assert len(await worker.claim(100)) == 25
    assert cluster.owner("moving") is target
    await store.close()


async def test_a_slot_that_is_moved_at_once_interrupts_nobody(cluster: Cluster) -> None:
    """As Valkey 9 moves slots."""
    store = RedisStore.from_url(f"{cluster.url}?name=leaping")
    worker = await worker_on(store)
    source = cluster.owner("leaping")
    target, slot = other_primary(cluster, source), slot_of("leaping")
    try:
        command(source, "CLUSTER MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", id_of(target))
    except redis.ResponseError as error:
        raise ServerFailed(f"this server cannot move slots at once: {error}") from error
    async with asyncio.timeout(DEADLINE):
        while cluster.owner("leaping") is not target:
            await persistently(lambda: store.enqueue(some_tasks(5)))
            held = await persistently(lambda: worker.claim(5))
            await persistently(lambda held=held: store.settle(list(map(complete, held))))
    held = await persistently(lambda: worker.claim(100))
    await persistently(lambda: store.settle(list(map(complete, held))))

    states = {task.state for task in await all_tasks(store)}
    await store.close()
    assert states == {State.COMPLETED}
