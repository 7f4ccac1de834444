"""Enqueue: each task on the shard of its queue; what would span shards is refused and stored nowhere."""

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest
from msgspec.structs import replace

from tests.loops.workers import eventually
from tests.stores.shards.conftest import MAP, NAMES, Shards
from tests.stores.shards.prepared import PreparedShards
from windlass._model.filter import CancelTasks, Filter, Page
from windlass._model.record import QueueRoute, ShardMap
from windlass._stores.shards.routes import routed
from windlass.errors import DuplicateTask, IdempotencyConflict, NotFound, NotSupported, StoreUnavailable
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import OPERATOR, a_task, all_records, all_tasks, enqueue_one
from windlass.testing.faults import Fault, FaultyStore, Hold, scripted

OTHER = b'[{"id":"00000000-0000-7000-8000-000000000009","type":"x","payload":{},"queue":"%s"}]'


async def shard_of(shards: Shards, task_id: str) -> str:
    """The only shard that has the task."""
    (name,) = [
        name
        for name, store in shards.stores.items()
        if (await store.find(Filter(ids=(task_id,)), Page())).items
    ]
    return name


@pytest.mark.parametrize("name", NAMES)
async def test_a_task_is_stored_on_the_shard_of_its_queue(store, shards: Shards, name: str) -> None:
    assert await shard_of(shards, await enqueue_one(store, queue=f"on-{name}")) == name


async def test_tenants_of_a_queue_that_is_spread_are_on_different_shards(store, shards: Shards) -> None:
    where = {
        tenant: await shard_of(shards, await enqueue_one(store, queue="by-tenant", tenant=tenant))
        for tenant in map(str, range(30))
    }
    again = {
        tenant: await shard_of(shards, await enqueue_one(store, queue="by-tenant", tenant=tenant))
        for tenant in where
    }

    assert set(where.values()) == set(NAMES)
    assert again == where


async def test_a_batch_for_several_shards_is_refused_as_a_whole(store: PreparedShards) -> None:
    with pytest.raises(NotSupported, match="separate calls"):
        await store.enqueue([a_task(queue="on-a"), a_task(queue="on-b")])

    assert await all_tasks(store) == []


async def test_a_batch_for_one_shard_is_stored(store: PreparedShards) -> None:
    batch = [a_task(queue="on-b", tenant=tenant) for tenant in ("", "t", "u")]

    assert [one.created for one in await store.enqueue(batch)] == [True] * 3
    assert [one.created for one in await store.enqueue(batch)] == [False] * 3


async def test_a_chain_over_several_shards_is_refused(store: PreparedShards) -> None:
    with pytest.raises(NotSupported, match="steps of a chain must be on one shard"):
        await enqueue_one(store, queue="on-a", next=OTHER % b"on-b")
    await enqueue_one(store, queue="on-a", next=OTHER % b"on-a")

    assert [task.queue for task in await all_tasks(store)] == ["on-a"]


async def test_a_task_cannot_wait_for_one_on_another_shard(store: PreparedShards) -> None:
    first = await enqueue_one(store, queue="on-a")

    with pytest.raises(NotSupported, match="which is on shard a"):
        await enqueue_one(store, queue="on-b", after=(first,))
    with pytest.raises(NotFound):
        await enqueue_one(store, queue="on-b", after=(a_task().id,))
    await enqueue_one(store, queue="on-a", after=(first,))


class TestMovedQueues:
    """The queue `on-a` is routed to b; its tasks on a stay there, and count as enqueued."""

    @pytest.fixture
    async def moved(self, store: PreparedShards, shards: Shards):
        async def move() -> PreparedShards:
            changed = routed(MAP, "on-a", QueueRoute(over=("b",)))
            for one in shards.stores.values():
                await one.put(changed)
            await store.shards.refresh()
            return store

        return move

    async def test_new_tasks_go_to_the_new_shard(self, store, shards: Shards, moved) -> None:
        before = await enqueue_one(store, queue="on-a")
        after = await enqueue_one(await moved(), queue="on-a")

        assert (await shard_of(shards, before), await shard_of(shards, after)) == ("a", "b")

    async def test_repeating_an_enqueue_after_the_move_stores_nothing(self, store, moved) -> None:
        task = a_task(queue="on-a")
        await store.enqueue([task])
        (again, new) = await (await moved()).enqueue([task, a_task(queue="on-a")])

        assert (again.id, again.created, new.created) == (task.id, False, True)
        assert len(await all_tasks(store)) == 2

    async def test_an_idempotency_key_holds_across_the_move(self, store, moved) -> None:
        first = await enqueue_one(store, queue="on-a", idempotency_key="k", idempotency_digest="d")
        await moved()
        (again,) = await store.enqueue([a_task(queue="on-a", idempotency_key="k", idempotency_digest="d")])

        assert (again.id, again.created) == (first, False)
        with pytest.raises(IdempotencyConflict):
            await enqueue_one(store, queue="on-a", idempotency_key="k", payload=b'{"to":"bob"}')
        assert len(await all_tasks(store)) == 1

    async def test_a_unique_task_is_unique_across_the_move(self, store, moved) -> None:
        first = await enqueue_one(store, queue="on-a", fingerprint="f")
        await moved()

        with pytest.raises(DuplicateTask) as refused:
            await enqueue_one(store, queue="on-a", fingerprint="f")
        await enqueue_one(store, queue="on-a", fingerprint="g")
        assert refused.value.standing == first

    async def test_a_key_and_a_period_that_have_passed_are_free_after_the_move(
        self, store, moved, clock: ManualClock
    ) -> None:
        day, hour = timedelta(days=1), timedelta(hours=1)
        keyed = {"queue": "on-a", "idempotency_key": "k", "idempotency_digest": "d", "idempotency_for": day}
        unique = {"queue": "on-a", "fingerprint": "f", "unique_for": hour}
        first = [await enqueue_one(store, **keyed), await enqueue_one(store, **unique)]
        await store.apply(CancelTasks(by=OPERATOR), Filter(ids=tuple(first)), 2)
        await moved()

        with pytest.raises(DuplicateTask, match="unique for a period"):
            await enqueue_one(store, **unique)
        (repeated,) = await store.enqueue([a_task(**keyed)])
        clock.advance(2 * 86_400)
        (keyed_again,) = await store.enqueue([a_task(**keyed)])
        (unique_again,) = await store.enqueue([a_task(**unique)])

        assert (repeated.id, repeated.created) == (first[0], False)
        assert (keyed_again.created, unique_again.created) == (True, True)

    async def test_an_encrypted_payload_is_the_same_request_though_it_differs(self, store, moved) -> None:
        key = {"queue": "on-a", "idempotency_key": "k", "idempotency_digest": "d"}
        payloads = [b'{"to":"~windlass-encrypted:1:k1:%s"}' % text for text in (b"x", b"y")]
        first = await enqueue_one(store, **key, payload=payloads[0])
        await moved()

        (again,) = await store.enqueue([a_task(**key, payload=payloads[1])])

        assert (again.id, again.created) == (first, False)

    async def test_nothing_is_enqueued_while_the_former_shard_cannot_be_asked(
        self, store, shards: Shards, moved
    ) -> None:
        await moved()
        shards.down = {"a"}

        with pytest.raises(StoreUnavailable, match="shard a"):
            await enqueue_one(store, queue="on-a", idempotency_key="k")


async def test_nobody_goes_by_an_older_map_while_a_newer_one_is_being_read(store, shards: Shards) -> None:
    """One caller has read the new map of a, and waits for c; another must not take a's answer for the old."""
    changed = routed(MAP, "on-a", QueueRoute(over=("b",)))
    for one in shards.stores.values():
        await one.put(changed)
    store.shards.watch._read_at.clear()  # five seconds later
    shards.silent["c"] = hold = Hold()

    first = asyncio.create_task(store.shards.refresh())
    await hold.reached()
    second = asyncio.create_task(enqueue_one(store, queue="on-a"))
    await asyncio.wait([second], timeout=0.05)
    shards.let_go()
    await first

    assert await shard_of(shards, await second) == "b"


async def test_a_newer_map_is_copied_though_the_shard_it_came_from_is_down(store, shards: Shards) -> None:
    await shards.stores["a"].put(routed(MAP, "on-a", QueueRoute(over=("b",))))
    shards.down = {"b", "c"}
    await store.shards.refresh()
    shards.down = {"a"}

    async def is_copied() -> bool:
        with suppress(StoreUnavailable):  # b and c were down, and are asked again after a pause
            await store.shards.refresh()
        maps = [(await all_records(shards.stores[name], ShardMap))[0] for name in "bc"]
        return [one.version for one in maps] == [2, 2]

    assert await eventually(is_copied)


async def test_a_process_with_an_older_map_takes_over_the_newer_one(store, shards: Shards, clock) -> None:
    changed = replace(routed(MAP, "on-a", QueueRoute(over=("b",))), version=9)
    await shards.stores["c"].put(changed)

    other = PreparedShards(shards.faulty(), MAP)
    other.shards.watch.map = MAP
    await other.shards.refresh()

    assert await shard_of(shards, await enqueue_one(other, queue="on-a")) == "b"


async def test_an_enqueue_that_failed_can_be_repeated_at_once(shards: Shards) -> None:
    plan = scripted(enqueue=[Fault.BEFORE])
    stores = {**shards.faulty(), "b": FaultyStore(shards.stores["b"], plan)}
    store = PreparedShards(stores, MAP)
    await store.open()
    task = a_task(queue="on-b")

    with pytest.raises(StoreUnavailable, match="shard b"):
        await store.enqueue([task])

    assert [one.created for one in await store.enqueue([task])] == [True]


async def test_a_process_that_cannot_read_the_map_enqueues_nothing(shards: Shards) -> None:
    """It may have missed a change: another process may enqueue on another shard by now."""
    lost: set[str] = set()
    stores = {
        name: FaultyStore(one, lambda verb: Fault.BEFORE if verb in lost else None)
        for name, one in shards.stores.items()
    }
    store = PreparedShards(stores, MAP)
    await store.open()
    lost.add("records")
    known = await enqueue_one(store, queue="on-b")
    store.shards.watch._read_at.clear()  # five seconds later

    with pytest.raises(StoreUnavailable, match="fault before records"):
        await enqueue_one(store, queue="on-b")

    assert [task.id for task in await all_tasks(shards.stores["b"])] == [known]
