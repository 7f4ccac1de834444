"""Workers on several shards: claims in turn, settlements and heartbeats where they belong."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from tests.loops.workers import eventually
from tests.stores.shards.conftest import MAP, NAMES, Shards
from tests.stores.shards.prepared import PreparedShards
from windlass._model.filter import CancelTasks, Filter, Page
from windlass._model.lease import Claimed
from windlass._model.record import Session
from windlass._model.state import State
from windlass._model.verdict import Receipt
from windlass._store.protocol import Wake
from windlass._stores.shards import work
from windlass._stores.shards.connection import handle as renewals
from windlass.errors import SessionLost, StoreUnavailable
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import (
    OPERATOR,
    ManualWorker,
    all_tasks,
    complete,
    enqueue_one,
    retry,
    state_of,
    worker_on,
)

QUEUES = tuple(f"on-{name}" for name in NAMES)


@pytest.fixture
async def worker(store: PreparedShards) -> ManualWorker:
    return await worker_on(store)


async def _claim_on_each(store: PreparedShards, worker: ManualWorker) -> dict[str, Claimed]:
    """One running task on each shard, by its name."""
    for queue in QUEUES:
        await enqueue_one(store, queue=queue)
    claimed = await worker.claim(3, *QUEUES)
    return {one.task.queue.removeprefix("on-"): one for one in claimed}


async def test_one_claim_takes_from_all_shards(store, worker) -> None:
    assert set(await _claim_on_each(store, worker)) == set(NAMES)


async def test_busy_shards_are_served_in_turn(store, worker) -> None:
    for _ in range(10):
        for queue in QUEUES:
            await enqueue_one(store, queue=queue)

    first = Counter([(await worker.claim_one(*QUEUES)).task.queue for _ in range(9)])

    assert first == dict.fromkeys(QUEUES, 3)


async def test_one_exchange_settles_and_claims_on_several_shards(store, worker) -> None:
    claimed = await _claim_on_each(store, worker)
    waiting = await enqueue_one(store, queue="on-b")

    settled = await store.settle([complete(one) for one in claimed.values()], worker.next_claim(2, *QUEUES))

    assert settled.receipts == (Receipt.APPLIED,) * 3
    assert [one.task.id for one in settled.claimed] == [waiting]


async def test_receipts_are_in_the_order_of_the_settlements(store, worker) -> None:
    claimed = await _claim_on_each(store, worker)
    batch = [complete(claimed["c"]), retry(claimed["a"]), complete(claimed["b"])]
    await store.settle([batch[2]])

    settled = await store.settle([*batch, batch[0]])

    assert settled.receipts == (Receipt.APPLIED, Receipt.APPLIED, Receipt.REPEATED, Receipt.REPEATED)


async def test_another_process_settles_what_it_has_not_claimed(store, worker, shards: Shards) -> None:
    claimed = await _claim_on_each(store, worker)
    stranger = PreparedShards(shards.faulty(), MAP)
    await stranger.open()

    settled = await stranger.settle([complete(one) for one in claimed.values()])

    assert settled.receipts == (Receipt.APPLIED,) * 3


async def test_a_mark_is_left_on_the_shard_of_the_task(store, worker) -> None:
    claimed = await _claim_on_each(store, worker)

    assert [await store.once(claimed[name].lease, "mail") for name in NAMES] == [True] * 3


async def test_a_heartbeat_reports_leases_and_requests_of_all_shards(store, worker) -> None:
    claimed = await _claim_on_each(store, worker)
    await store.settle([complete(claimed["a"])])
    await store.apply(CancelTasks(by=OPERATOR), Filter(ids=(claimed["c"].task.id,)), 1)

    reply = await worker.beat(*(one.lease for one in claimed.values()))

    assert reply.alive
    assert reply.lost == (claimed["a"].lease,)
    assert [one.task_id for one in reply.cancel] == [claimed["c"].task.id]


async def test_a_stranger_reports_a_lease_as_lost_only_if_no_shard_has_it(store, worker, shards) -> None:
    claimed = await _claim_on_each(store, worker)
    await store.settle([complete(claimed["a"])])
    worker.store = PreparedShards(shards.faulty(), MAP)
    await worker.store.open()

    assert (await worker.beat(*(one.lease for one in claimed.values()))).lost == (claimed["a"].lease,)


async def test_claims_whose_reply_was_lost_are_released_on_every_shard(store, worker) -> None:
    claimed = await _claim_on_each(store, worker)

    await worker.beat(claimed["a"].lease, through=worker.claims)

    states = {task.queue: task.state for task in await all_tasks(store)}
    assert states == {"on-a": State.RUNNING, "on-b": State.READY, "on-c": State.READY}


async def test_tasks_of_a_silent_worker_are_rescued_on_all_shards(store, worker, clock: ManualClock) -> None:
    claimed = await _claim_on_each(store, worker)
    clock.advance(60)
    other = await worker_on(store, "other")

    rescued = [*await other.rescue(2), *await other.rescue(2)]

    assert {one.task.id for one in rescued} == {one.task.id for one in claimed.values()}


async def test_wakes_of_all_shards_arrive(store: PreparedShards) -> None:
    hints = store.wakes(QUEUES)
    waiting = asyncio.ensure_future(anext(hints))

    async def is_woken() -> bool:
        await enqueue_one(store, queue="on-c")
        return waiting.done()

    await eventually(is_woken)
    assert waiting.result() is Wake.READY
    await hints.aclose()


class TestAShardThatIsDown:
    async def test_the_others_are_claimed_from(self, store, worker, shards: Shards) -> None:
        for queue in QUEUES:
            await enqueue_one(store, queue=queue)
        shards.down = {"a"}

        claimed = await worker.claim(3, *QUEUES)

        assert {one.task.queue for one in claimed} == {"on-b", "on-c"}

    async def test_a_claim_of_its_queues_only_fails(self, worker, shards: Shards) -> None:
        shards.down = {"a"}

        with pytest.raises(StoreUnavailable, match="shard a"):
            await worker.claim(1, "on-a")

    async def test_settlements_there_are_unknown_and_the_others_applied(self, store, worker, shards) -> None:
        claimed = await _claim_on_each(store, worker)
        batch = [complete(claimed[name]) for name in NAMES]
        shards.down = {"b"}

        settled = await store.settle(batch, worker.next_claim(1, "on-c"))
        with pytest.raises(StoreUnavailable, match="shard b"):
            await store.settle(batch)
        shards.down.clear()

        assert settled.receipts == (Receipt.APPLIED, Receipt.UNKNOWN, Receipt.APPLIED)

    async def test_its_leases_are_lost_before_they_run_out(self, store, worker, shards, monkeypatch) -> None:
        claimed = await _claim_on_each(store, worker)
        leases = [one.lease for one in claimed.values()]
        await worker.beat(*leases)
        shards.down = {"b"}
        meanwhile = await worker.beat(*leases)
        monkeypatch.setattr(renewals, "STOP_AT", 0.0)

        reply = await worker.beat(*leases)

        assert (meanwhile.alive, meanwhile.lost) == (True, ())
        assert (reply.alive, reply.lost) == (True, (claimed["b"].lease,))

    async def test_its_session_is_opened_again_when_it_is_back(self, store, worker, shards, clock) -> None:
        claimed = await _claim_on_each(store, worker)
        clock.advance(60)
        rescuer = await worker_on(shards.stores["b"], "rescuer")
        await rescuer.rescue()
        await enqueue_one(store, queue="on-b")

        reply = await worker.beat(*(one.lease for one in claimed.values()))

        assert (reply.alive, reply.lost) == (True, (claimed["b"].lease,))
        assert len(await worker.claim(1, "on-b")) == 1

    async def test_the_keeper_leads_and_does_the_chores_of_the_others(self, store, shards, clock) -> None:
        await enqueue_one(store, queue="on-b", delay=timedelta(seconds=5))
        shards.down = {"a"}
        clock.advance(10)

        assert await store.lead("keeper", timedelta(seconds=10))
        assert not await store.lead("other", timedelta(seconds=10))
        assert (await store.promote(10)).number == 1

    async def test_with_all_down_every_verb_fails(self, store, worker, shards: Shards) -> None:
        shards.down = set(NAMES)

        for call in (
            worker.claim(1, *QUEUES),
            worker.beat(),
            store.promote(1),
            store.lead("keeper", timedelta(seconds=1)),
            store.rescue(worker.session, 1),
        ):
            with pytest.raises(StoreUnavailable):
                await call


async def test_a_session_that_no_shard_has_is_lost(store: PreparedShards) -> None:
    worker = ManualWorker(store)

    assert not (await worker.beat()).alive
    with pytest.raises(SessionLost):
        await worker.claim(1, *QUEUES)


async def test_a_shard_without_the_session_yet_keeps_no_other_from_settling(store, worker, shards) -> None:
    """A shard that was just added gets the session with the next heartbeat."""
    claimed = await _claim_on_each(store, worker)
    await shards.stores["b"].remove(Session, worker.session)
    await enqueue_one(store, queue="on-c")

    settled = [
        await store.settle([complete(claimed[name])], worker.next_claim(1, *QUEUES)) for name in ("a", "c")
    ]
    await worker.beat()

    assert [one.receipts for one in settled] == [(Receipt.APPLIED,)] * 2
    assert sum(len(one.claimed) for one in settled) == 1


async def test_listeners_are_woken_when_a_shard_is_back_and_not_before(store, shards, monkeypatch) -> None:
    monkeypatch.setattr(work, "_LISTEN_AGAIN_AFTER", 0.01)
    heard: list[Wake] = []

    async def listen() -> None:
        async for wake in store.wakes(("on-b",)):
            heard.append(wake)  # noqa: PERF401 - the test looks at it meanwhile

    async def is_heard() -> bool:
        await enqueue_one(store, queue="on-b")
        return bool(heard)

    listening = asyncio.create_task(listen())
    await eventually(is_heard)
    shards.down = {"b"}
    with pytest.raises(StoreUnavailable):
        await store.find(Filter(queues=("on-b",)), Page())
    await enqueue_one(shards.stores["b"], queue="on-b")  # breaks the stream
    heard.clear()
    asked = shards.stores["b"], store.shards["b"].health
    failures = iter(range(3))
    while next(failures, None) is not None:  # it is asked in vain some times
        before = asked[1]._ask_again_at
        await eventually(lambda before=before: asked[1]._ask_again_at > before)
    while_down = [*heard]
    shards.down.clear()
    await eventually(lambda: set(heard) == set(Wake))
    listening.cancel()
    await asyncio.wait([listening])

    assert while_down == []


async def test_the_state_of_a_task_is_read_where_it_is(store, worker) -> None:
    claimed = await _claim_on_each(store, worker)

    assert [await state_of(store, one.task.id) for one in claimed.values()] == [State.RUNNING] * 3


@pytest.mark.parametrize("turns", range(8))
async def test_listening_ends_though_a_hint_arrives_at_the_same_moment(
    store: PreparedShards, turns: int
) -> None:
    """At whichever turn of the event loop it arrives."""
    heard = asyncio.Event()

    async def listen() -> None:
        async for _ in store.wakes(QUEUES):
            heard.set()

    async def is_heard() -> bool:
        await enqueue_one(store, queue="on-b")
        return heard.is_set()

    listening = asyncio.create_task(listen())
    await eventually(is_heard)
    await enqueue_one(store, queue="on-b")
    for _ in range(turns):
        await asyncio.sleep(0)
    listening.cancel()

    ended, _ = await asyncio.wait([listening], timeout=20)
    assert ended, "it goes on listening after it was cancelled"
