"""Add, drain, route and remove shards while tasks are enqueued and run."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from tests.loops.workers import drained, eventually, working
from tests.stores.shards.conftest import MAP, NAMES, Shards
from tests.stores.shards.prepared import PreparedShards
from windlass import App
from windlass._model.filter import By, Filter
from windlass._model.limit import Limit
from windlass._model.queue import QueueSettings, Retention
from windlass._model.record import Audit, QueueRoute, ShardMap
from windlass._model.state import State
from windlass._store.clock import SystemClock
from windlass._stores import shards_of
from windlass._stores.memory import MemoryStore
from windlass._stores.shards import ShardedStore
from windlass._stores.shards.admin import ShardAdmin
from windlass._stores.shards.map_watch import publish
from windlass._stores.shards.routes import routed
from windlass.errors import NotSupported, Refused, StoreUnavailable, WindlassError
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import (
    all_records,
    all_tasks,
    complete,
    enqueue_one,
    worker_on,
)

BY = By(who="ada", why="a test")


def admin_of(store: ShardedStore) -> ShardAdmin:
    """Changes take effect at once: nobody else uses the store."""
    admin = shards_of(store)
    admin.effective_after = timedelta(0)
    return admin


async def test_a_drained_shard_takes_no_new_tasks_and_is_removed_once_it_is_empty(
    store: PreparedShards, shards: Shards, clock: ManualClock
) -> None:
    admin = admin_of(store)
    queues = [f"queue {number}" for number in range(12)]
    for queue in queues:
        await enqueue_one(store, queue=queue)
    await admin.route("on-c", ["a"], BY)
    await admin.route("by-tenant", ["a", "b"], BY, by_tenant=True)
    before = len(await all_tasks(shards.stores["c"]))

    await admin.drain("c", BY)
    for queue in queues:
        await enqueue_one(store, queue=queue)
    with pytest.raises(Refused, match=f"still has tasks: {before}, not ended: {before};"):
        await admin.remove("c", BY)
    worker = await worker_on(store)
    claimed = await worker.claim(100, *queues)
    await store.settle([complete(one) for one in claimed])
    status = {one.name: one for one in await admin.list()}
    clock.advance(1)
    await store.prune(Retention(completed=timedelta(0)), 100)
    await admin.remove("c", BY)

    assert before > 0
    assert len(claimed) == 24
    assert (status["c"].state, status["c"].tasks, status["c"].unfinished) == ("draining", before, 0)
    assert [one.name for one in await admin.list()] == ["a", "b"]
    assert await all_tasks(store) == []
    assert await all_records(shards.stores["c"], ShardMap) == ()


async def test_all_handles_of_a_process_close_a_shard_that_is_removed(store, shards: Shards) -> None:
    other = store.another()
    await other.open()
    admin = admin_of(store)
    await admin.route("on-c", ["a"])
    await admin.route("by-tenant", ["a", "b"], by_tenant=True)
    await admin.drain("c")
    await admin.remove("c")

    for one in (store, other):
        await enqueue_one(one, queue="on-a")

    assert [[*one.shards._shards] for one in (store, other)] == [["a", "b"]] * 2
    await other.close()


async def test_a_shard_that_is_added_takes_queues_with_their_settings(store, shards: Shards) -> None:
    queues = [f"queue {number}" for number in range(12)]
    for queue in queues:
        await store.put(QueueSettings(name=queue, stripes=2))
    new = MemoryStore(clock=shards.stores["a"].clock)
    store.shards.registry.add("d", new)

    await admin_of(store).add("d", BY)
    for queue in queues:
        await enqueue_one(store, queue=queue)

    assert len(await all_records(new, QueueSettings)) == 12
    assert {task.queue for task in await all_tasks(new)}
    assert len(await all_tasks(store)) == 12
    assert {line.who for line in await all_records(store, Audit)} == {"ada"}


async def test_other_processes_learn_of_a_change(store, shards: Shards) -> None:
    other = PreparedShards(shards.faulty(), MAP)
    await other.open()

    await admin_of(store).route("on-a", ["c"])
    other.shards.watch.due = 0.0  # it is time to look
    await enqueue_one(other, queue="on-a")

    assert len(await all_tasks(shards.stores["c"])) == 1


async def test_new_tasks_follow_the_former_routes_until_a_change_takes_effect(
    store, shards: Shards, clock
) -> None:
    admin = shards_of(store)
    await admin.route("on-a", ["c"])

    await enqueue_one(store, queue="on-a")
    with pytest.raises(Refused, match="takes effect in 10 s"):
        await admin.route("on-a", ["b"])

    assert len(await all_tasks(shards.stores["a"])) == 1
    assert (await admin.routes()).queues["on-a"].over == ("c",)
    assert 0 < admin.seconds_until_effective <= 10


async def test_former_routes_are_forgotten_once_nothing_is_there(store, clock: ManualClock) -> None:
    admin = admin_of(store)
    await enqueue_one(store, queue="on-a")
    await admin.route("on-a", ["b"])
    await admin.route("on-b", ["c"])
    needed = len(store.shards.map.former)
    worker = await worker_on(store)
    await store.settle([complete(one) for one in await worker.claim(9, "on-a", "on-b")])
    clock.advance(1)
    await store.prune(Retention(completed=timedelta(0)), 100)

    await admin.route("on-b", ["a"])

    assert (needed, len(store.shards.map.former)) == (2, 1)


async def test_former_routes_stay_while_steps_of_a_chain_are_to_come(store) -> None:
    admin = admin_of(store)
    step = b'[{"id":"00000000-0000-7000-8000-000000000009","type":"x","payload":{},"queue":"on-a"}]'
    await admin.route("other", ["a"])
    await enqueue_one(store, queue="other", next=step)
    await admin.route("on-a", ["b"])

    await admin.route("more", ["b"])

    assert len(store.shards.map.former) == 3


async def test_no_task_goes_to_a_shard_that_is_removed(store, shards: Shards) -> None:
    """Though former routes are kept, for the steps of a chain: they lead to the removed shard."""
    admin = admin_of(store)
    step = b'[{"id":"00000000-0000-7000-8000-000000000009","type":"x","payload":{},"queue":"on-a"}]'
    await enqueue_one(store, queue="on-a", next=step)
    await admin.route("on-c", ["a"])
    await admin.route("by-tenant", ["a", "b"], by_tenant=True)
    await admin.drain("c")
    admin.effective_after = timedelta(seconds=10)

    await admin.remove("c")
    for number in range(12):
        await enqueue_one(store, queue=f"queue {number}")

    assert store.shards.map.former
    assert len(await all_tasks(shards.stores["c"])) == 0
    assert len(await all_tasks(store)) == 13


@pytest.mark.parametrize("use", ["map", "task", "worker"])
async def test_a_store_in_use_is_not_added_and_keeps_its_settings(store, clock, use: str) -> None:
    other = MemoryStore(clock=clock)
    await other.put(QueueSettings(name="theirs", paused=True))
    match use:
        case "map":
            await other.put(replace(MAP, id="other"))
        case "task":
            await enqueue_one(other)
        case _:
            await worker_on(other)
    store.shards.registry.add("d", other)

    with pytest.raises(WindlassError, match=r"another store|tasks or workers already"):
        await admin_of(store).add("d")

    assert len(await all_records(other, QueueSettings)) == 1
    assert store.shards.map.shards == NAMES


async def test_a_change_reaches_the_others_though_a_shard_goes_down_meanwhile(store, shards: Shards) -> None:
    before = store.shards.map
    changed = routed(before, "on-a", QueueRoute(over=("c",)))
    shards.down = {"b"}

    with pytest.raises(StoreUnavailable, match=r"shard b.*stored on the others"):
        await publish(changed, before, [store.shards[name] for name in NAMES], BY)

    versions = {name: (await all_records(one, ShardMap))[0].version for name, one in shards.stores.items()}
    assert versions == {"a": 2, "b": 1, "c": 2}


async def test_a_change_needs_every_shard(store, shards: Shards) -> None:
    shards.down = {"b"}

    with pytest.raises(StoreUnavailable, match="shard b"):
        await admin_of(store).route("on-a", ["c"])

    shards.down.clear()
    assert (await eventually(lambda: _maps(shards))) == {1}


async def _maps(shards: Shards) -> set[int]:
    return {one.version for store in shards.stores.values() for one in await all_records(store, ShardMap)}


async def test_a_limit_that_would_span_shards_keeps_a_shard_from_being_added(clock) -> None:
    store = ShardedStore({"a": MemoryStore(clock=clock)})
    await store.open()
    await store.put(Limit(name="all", running=1))
    store.shards.registry.add("b", MemoryStore(clock=clock))

    with pytest.raises(NotSupported, match="limit 'all'"):
        await admin_of(store).add("b")


def test_a_store_without_shards_has_none_to_change() -> None:
    with pytest.raises(NotSupported, match="has no shards"):
        App("memory://").shards()


async def test_nothing_is_lost_or_run_twice_while_shards_come_and_go() -> None:
    """Tasks are enqueued and run without a pause, while a shard is added and another drained and removed."""
    shards = Shards(SystemClock())
    store = ShardedStore({name: shards.stores[name] for name in NAMES})
    app = App(store)
    runs: list[int] = []
    enqueued: list[str] = []

    @app.task(name="count", queue="0")
    async def count(number: int) -> None:
        runs.append(number)

    async def produce() -> None:
        for number in range(600):
            using = count.using(queue=str(number % 20), idempotency_key=str(number))
            enqueued.extend({(await using.aenqueue(number=number)).id for _ in range(2)})

    async with app:
        store.shards.registry.add("d", MemoryStore())
        admin = admin_of(store)
        async with working(app, all_queues=True, lease=60, keeper=True):
            producing = asyncio.create_task(produce())
            await eventually(lambda: len(runs) > 50)
            await admin.add("d", BY)
            await eventually(lambda: len(runs) > 200)
            await admin.drain("b", BY)
            await producing
            await eventually(lambda: len(runs) >= 600, within=60)
        await drained(app, all_queues=True)
        tasks = await all_tasks(store)
        await store.prune(Retention(completed=timedelta(0)), 1000)
        await admin.remove("b", BY)

    assert sorted(runs) == [*range(600)]
    assert sorted(enqueued) == sorted(task.id for task in tasks)
    assert {task.state for task in tasks} == {State.COMPLETED}
    assert len(await all_tasks(shards.stores["b"], Filter())) == 0
