"""Many at once: by COPY, by arrays, and enqueues of one event loop together."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest
from msgspec.structs import replace

from windlass._model.filter import Filter
from windlass._model.state import State
from windlass._model.task import Enqueued, NewTask
from windlass._stores.postgres import PostgresStore
from windlass._stores.postgres.enqueue.coalesce import Coalescer
from windlass._stores.postgres.enqueue.copy import MIN_TASKS
from windlass.errors import DuplicateTask, StoreUnavailable
from windlass.testing.conformance.steps import a_task, complete, load, settle, some_tasks, worker_on


async def number(store: PostgresStore, *states: State) -> int:
    (count,) = await store.count(Filter(states=states or None), [])
    return count.number


async def test_a_hundred_thousand_in_one_call(store: PostgresStore) -> None:
    batch = some_tasks(100_000, queue="q")

    answers = await store.enqueue(batch)

    assert all(answer.created for answer in answers)
    assert [answer.id for answer in answers] == [new.id for new in batch]
    async with store.connections.one() as connection:
        assert await connection.fetchval(f"SELECT count(*) FROM {store.address.schema}.task") == 100_000


@pytest.mark.parametrize("size", [1, 2, MIN_TASKS])
async def test_every_way_in_keeps_every_field(store: PostgresStore, size: int) -> None:
    one = a_task(
        queue="q",
        tenant="acme",
        priority=3,
        delay=timedelta(hours=1),
        max_attempts=5,
        timeout=timedelta(seconds=9),
        next=b"[]",
        result_into="x",
        secret=("a", "b"),
        trace="00-1",
        enqueued_by="me",
    )
    batch = [replace(one, id=new.id, root=new.id) for new in some_tasks(size)]

    await store.enqueue(batch)

    for new in (batch[0], batch[-1]):
        task = await load(store, new.id)
        for name in new.__struct_fields__:
            if hasattr(task, name) and name not in ("run_at", "idempotency_for"):
                assert getattr(task, name) == getattr(new, name), name
        assert task.state is State.SCHEDULED
        assert task.run_at - task.created_at == timedelta(hours=1)
        assert task.rank == rank_in_table(await raw(store, new.id, "rank"))


async def raw(store: PostgresStore, task_id: str, column: str) -> int:
    async with store.connections.one() as connection:
        sql = f"SELECT {column} FROM {store.address.schema}.task WHERE id = $1"
        value: int = await connection.fetchval(sql, task_id)
        return value


def rank_in_table(rank: int) -> int:
    return rank


@pytest.mark.parametrize("size", [1, 2, MIN_TASKS])
async def test_a_repeat_is_noticed_also_after_the_end(store: PostgresStore, size: int) -> None:
    batch = some_tasks(size, queue="q")
    await store.enqueue(batch)
    worker = await worker_on(store)
    ended = await worker.claim(size, "q")
    await settle(store, *[complete(one) for one in ended])

    again = await store.enqueue(batch)

    assert not any(answer.created for answer in again)
    assert await number(store, State.READY) == 0


async def test_a_bulk_with_one_that_stands_keeps_the_others(store: PostgresStore) -> None:
    batch = some_tasks(MIN_TASKS + 5, queue="q")
    await store.enqueue([batch[7]])

    answers = await store.enqueue([*batch, batch[3]])

    assert [answer.created for answer in answers].count(True) == len(batch) - 1
    assert not answers[7].created
    assert not answers[-1].created


async def test_a_refusal_keeps_all_of_a_bulk_out(store: PostgresStore) -> None:
    standing = a_task(fingerprint="f")
    await store.enqueue([standing])

    with pytest.raises(DuplicateTask):
        await store.enqueue([*some_tasks(MIN_TASKS), a_task(fingerprint="f")])

    async with store.connections.one() as connection:
        assert await connection.fetchval(f"SELECT count(*) FROM {store.address.schema}.task") == 1


async def test_days_have_24_hours_whatever_the_database_says(url: str, postgres15) -> None:
    name = f"zone_{url[-8:]}"
    postgres15.new_database(name)
    store = PostgresStore.from_url(url.replace("/windlass?", f"/{name}?"))
    async with store.connections.one() as connection:
        await connection.execute(f"ALTER DATABASE {name} SET timezone = 'America/New_York'")
    await store.close()
    await store.open()
    try:
        for batch in (some_tasks(1), some_tasks(2), some_tasks(MIN_TASKS)):
            late = [replace(new, delay=timedelta(days=180)) for new in batch]
            await store.enqueue(late)
            task = await load(store, late[0].id)
            assert task.run_at - task.created_at == timedelta(days=180)
    finally:
        await store.close()


# -- together ----------------------------------------------------------------------------------------


class Sender:
    """Takes batches in, one at a time, when let."""

    def __init__(self) -> None:
        self.sent: list[int] = []
        self.gate = asyncio.Event()
        self.refused: set[str] = set()
        self.down = False

    async def send(self, batch: Sequence[NewTask]) -> list[Enqueued]:
        self.sent.append(len(batch))
        await self.gate.wait()
        if self.down:
            raise StoreUnavailable("down")
        if any(new.id in self.refused for new in batch):
            raise ValueError("not this one")
        return [Enqueued(id=new.id, created=True) for new in batch]


async def test_who_comes_while_others_are_under_way_goes_next_with_all_the_rest() -> None:
    sender = Sender()
    together = Coalescer(sender.send)
    batches = [some_tasks(n) for n in (1, 1, 1, 3, 1)]
    calls = [asyncio.create_task(together.send(batch)) for batch in batches]
    await asyncio.sleep(0)
    assert sender.sent == [1]

    sender.gate.set()
    answers = await asyncio.gather(*calls)

    assert sender.sent == [1, 6]
    assert [[one.id for one in answer] for answer in answers] == [[n.id for n in b] for b in batches]


async def test_one_at_fault_does_not_make_the_others_fail() -> None:
    sender = Sender()
    together = Coalescer(sender.send)
    batches = [some_tasks(1) for _ in range(5)]
    sender.refused = {batches[3][0].id}
    calls = [asyncio.create_task(together.send(batch)) for batch in batches]
    await asyncio.sleep(0)
    sender.gate.set()

    answers = await asyncio.gather(*calls, return_exceptions=True)

    assert [type(answer) for answer in answers] == [list, list, list, ValueError, list]


async def test_all_hear_of_an_outage_and_one_who_gave_up_holds_nobody_up() -> None:
    sender = Sender()
    together = Coalescer(sender.send)
    calls = [asyncio.create_task(together.send(some_tasks(1))) for _ in range(5)]
    await asyncio.sleep(0)
    calls[0].cancel()
    calls[4].cancel()
    sender.down = True
    sender.gate.set()

    answers = await asyncio.gather(*calls, return_exceptions=True)

    kinds = [asyncio.CancelledError, *[StoreUnavailable] * 3, asyncio.CancelledError]
    assert [type(answer) for answer in answers] == kinds
    sender.down = False
    assert (await together.send(some_tasks(1)))[0].created
