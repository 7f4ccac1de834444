"""Records: settings are on every shard, the rest on the home shard; limits across shards are refused."""

import asyncio
from time import monotonic

import pytest

from tests.loops.workers import eventually
from tests.stores.shards.conftest import MAP, NAMES, Shards
from tests.stores.shards.prepared import PreparedShards
from windlass._model.limit import Limit, Quota
from windlass._model.queue import QueueSettings, Retention
from windlass._model.record import Audit, ShardMap
from windlass.errors import Conflict, NotSupported, StoreUnavailable
from windlass.testing.conformance.steps import OPERATOR, all_records, enqueue_one, worker_on
from windlass.testing.faults import FaultyStore, Hold

PAUSED = QueueSettings(name="by-tenant", paused=True)


async def test_settings_are_on_every_shard(store: PreparedShards, shards: Shards) -> None:
    await store.put(PAUSED, OPERATOR)

    assert [await all_records(one, QueueSettings) for one in shards.stores.values()] == [(PAUSED,)] * 3
    assert await all_records(store, QueueSettings) == (PAUSED,)
    assert len(await all_records(store, Audit)) == 1


async def test_a_queue_that_is_spread_is_paused_everywhere(store: PreparedShards) -> None:
    for tenant in map(str, range(10)):
        await enqueue_one(store, queue="by-tenant", tenant=tenant)
    worker = await worker_on(store)
    await store.put(PAUSED)
    paused = await worker.claim(10, "by-tenant")
    await store.remove(QueueSettings, "by-tenant")

    assert (len(paused), len(await worker.claim(10, "by-tenant"))) == (0, 10)


async def test_other_records_are_on_the_home_shard(store: PreparedShards, shards: Shards) -> None:
    await store.put(Quota(name="acme", tasks=1))

    assert [len(await all_records(one, Quota)) for one in shards.stores.values()] == [1, 0, 0]


async def test_the_home_shard_decides_between_changes_at_the_same_time(store, shards: Shards) -> None:
    await store.put(PAUSED, None, None)

    with pytest.raises(Conflict):
        await store.put(QueueSettings(name="by-tenant"), None, None)

    assert [await all_records(one, QueueSettings) for one in shards.stores.values()] == [(PAUSED,)] * 3


@pytest.mark.parametrize(
    ("limit", "remedy"),
    [
        (Limit(name="all", running=1), "set it for one queue"),
        (Limit(name="type", type="mail", running=1), "set it for one queue"),
        (Limit(name="queue", queue="by-tenant", running=1), "count by tenant"),
        (Limit(name="field", queue="by-tenant", by="to", running=1), "count by tenant"),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
async def test_a_limit_across_shards_is_refused(store, shards: Shards, limit: Limit, remedy: str) -> None:
    with pytest.raises(NotSupported, match=remedy):
        await store.put(limit)

    assert [await all_records(one, Limit) for one in shards.stores.values()] == [()] * 3


@pytest.mark.parametrize(("queue", "by"), [("on-b", None), ("by-tenant", "tenant")])
async def test_a_limit_within_shards_holds(store: PreparedShards, queue: str, by: str | None) -> None:
    for _ in range(3):
        await enqueue_one(store, queue=queue, tenant="t")
    await store.put(Limit(name="l", running=2, queue=queue, by=by))
    worker = await worker_on(store)

    assert len(await worker.claim(5, queue)) == 2


async def test_the_map_is_not_a_record_of_the_store(store: PreparedShards) -> None:
    (stored,) = await all_records(store, ShardMap)

    for call in (store.put(stored), store.remove(ShardMap, stored.name)):
        with pytest.raises(NotSupported, match="windlass shards"):
            await call


async def test_a_shard_that_missed_a_change_gets_it_from_the_keeper(store, shards: Shards) -> None:
    shards.down = {"c"}
    with pytest.raises(StoreUnavailable, match=r"shard c.*gets it when it is back"):
        await store.put(PAUSED)
    await shards.stores["b"].put(QueueSettings(name="stray"))
    shards.down.clear()

    async def all_have_it() -> bool:
        await store.prune(Retention(), 1)
        found = [await all_records(shards.stores[name], QueueSettings) for name in NAMES]
        return found == [(PAUSED,)] * 3

    assert await eventually(all_have_it)


async def test_a_setting_that_is_made_while_settings_are_copied_stays(shards: Shards) -> None:
    hold = Hold()
    held: set[str] = set()
    stores = shards.faulty()
    stores["b"] = FaultyStore(shards.stores["b"], lambda verb: hold if verb in held else None)
    store = PreparedShards(stores, MAP)
    await store.open()
    store.shards.watch.due = monotonic() + 3600  # the map is not read meanwhile
    held.add("records")

    copying = asyncio.create_task(store.copy_settings("b"))
    await hold.reached()
    await store.put(PAUSED)
    hold.let_go()
    await copying

    assert await all_records(shards.stores["b"], QueueSettings) == (PAUSED,)
    await store.close()


async def test_settings_are_read_elsewhere_while_the_home_shard_is_down(store, shards: Shards) -> None:
    await store.put(PAUSED)
    shards.down = {"a"}

    assert await all_records(store, QueueSettings) == (PAUSED,)
    with pytest.raises(StoreUnavailable, match="shard a"):
        await all_records(store, Quota)
