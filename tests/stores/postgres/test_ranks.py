"""Ranks on Postgres while the ageing of a queue changes: what a store has read of it may be out of date."""

from datetime import timedelta

import pytest

from windlass._model.queue import STRICT_MS, Ordering, QueueSettings, Retention
from windlass._model.task import NewTask
from windlass._stores.postgres.enqueue.copy import MIN_TASKS
from windlass._stores.postgres.store import PostgresStore
from windlass.testing.conformance.steps import a_task, load, some_tasks

STRICT = QueueSettings(name="q")
AGED = QueueSettings(name="q", ordering=Ordering(ageing=timedelta(seconds=1)))
SECOND = 1_000


async def boost(store: PostgresStore, new: NewTask) -> int:
    return (await load(store, new.id)).boost


@pytest.mark.parametrize("size", [1, 2, MIN_TASKS])
async def test_a_producer_that_read_old_settings_ranks_its_tasks_when_it_reads_the_new(
    store: PostgresStore, size: int
) -> None:
    producer = store.another()
    try:
        await producer.refresh_layout()
        await store.put(AGED)
        late = some_tasks(size, queue="q", priority=2)
        await producer.enqueue(late)
        assert await boost(store, late[-1]) == 2 * STRICT_MS

        await producer.refresh_layout()

        assert [await boost(store, new) for new in (late[0], late[-1])] == [2 * SECOND] * 2
    finally:
        await producer.close()


@pytest.mark.parametrize(("before", "after"), [(STRICT, AGED), (AGED, STRICT)], ids=["aged", "strict"])
@pytest.mark.parametrize("priority", [3, -3])
async def test_the_keeper_ranks_what_a_long_transaction_left(
    store: PostgresStore, before: QueueSettings, after: QueueSettings, priority: int
) -> None:
    producer = store.another()
    try:
        await store.put(AGED)
        await store.put(before)
        await producer.refresh_layout()
        await store.put(after)
        late = a_task(queue="q", priority=priority)
        await producer.enqueue([late, a_task(queue="q")])

        await store.prune(Retention(), 10)

        head_start = STRICT_MS if after is STRICT else SECOND
        assert await boost(store, late) == priority * head_start
    finally:
        await producer.close()


async def test_a_rank_fits_its_run_at_and_boost_after_every_change(store: PostgresStore) -> None:
    batch = [a_task(queue="q", priority=priority) for priority in range(-5, 6)]
    await store.enqueue(batch)
    for settings in (AGED, STRICT, AGED):
        await store.put(settings)

    async with store.connections.one() as connection:
        rows = await connection.fetch(
            f"SELECT rank, boost, floor(extract(EPOCH FROM run_at) * 1000)::bigint AS due "
            f"FROM {store.address.schema}.task"
        )

    assert len(rows) == len(batch)
    assert all(row["rank"] == row["due"] - row["boost"] for row in rows)
