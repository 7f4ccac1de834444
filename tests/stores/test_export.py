"""Export on every store: ended tasks in the order of their ends, resumed without loss or repetition."""

from datetime import timedelta

import pytest

from windlass import App, By
from windlass._client.published_types import KnownTypes
from windlass._client.tasks import export
from windlass._client.tasks.export import EndedTask, export_tasks, parse_cursor
from windlass._handler.task_types import TaskTypes
from windlass._model.filter import Filter
from windlass._model.state import State
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore
from windlass.errors import InvalidOption
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import (
    ManualWorker,
    bury,
    cancel,
    complete,
    enqueue_one,
    retry,
    settle_now,
    some_tasks,
    stop,
    worker_on,
)

LATER = timedelta(seconds=10)


@pytest.fixture
async def worker(store: Store) -> ManualWorker:
    return await worker_on(store, lease_for=timedelta(days=900))


async def exported(store: Store, where: Filter | None = None, after: str | None = None) -> list[EndedTask]:
    return [
        ended async for ended in export_tasks(store, KnownTypes(store, TaskTypes()), where or Filter(), after)
    ]


async def ends(store: Store, worker: ManualWorker, clock: ManualClock, *gaps: timedelta) -> list[str]:
    """Enqueue tasks at once; end them in the reverse order, with these gaps. Returns ids in order of ends."""
    batch = some_tasks(len(gaps))
    await store.enqueue(batch)
    claimed = list(await worker.claim(len(gaps)))[::-1]
    for one, gap in zip(claimed, gaps, strict=True):
        clock.advance(gap)
        await settle_now(store, complete(one, b"1"))
    clock.advance(LATER)
    return [one.task.id for one in claimed]


async def test_nothing_to_export(store: Store) -> None:
    await enqueue_one(store)

    assert await exported(store) == []


async def test_tasks_come_in_the_order_of_their_ends_with_their_attempts(
    store: Store, worker: ManualWorker, clock: ManualClock
) -> None:
    first, second, third = [await enqueue_one(store, queue=str(n)) for n in range(3)]
    claimed = {n: await worker.claim_one(str(n)) for n in range(3)}
    await settle_now(store, retry(claimed[0]))
    clock.advance(1)
    await settle_now(store, bury(claimed[2]))
    clock.advance(1)
    await settle_now(store, stop(claimed[1]))
    clock.advance(timedelta(days=400))
    await settle_now(store, complete(await worker.claim_one("0")))
    clock.advance(LATER)

    found = await exported(store)

    assert [ended.task.id for ended in found] == [third, second, first]
    assert [ended.task.state for ended in found] == [State.DEAD, State.CANCELLED, State.COMPLETED]
    assert [[one.outcome for one in ended.attempts] for ended in found] == [
        ["failed"],
        ["stopped"],
        ["failed", "returned"],
    ]


async def test_an_export_continues_after_each_of_its_tasks(
    store: Store, worker: ManualWorker, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "MAX_TASKS", 3)
    nothing, hours = timedelta(0), timedelta(hours=30)
    gaps = (nothing, nothing, timedelta(seconds=1), hours, nothing, nothing, nothing, nothing, hours)
    in_order = await ends(store, worker, clock, *gaps)

    whole = await exported(store)

    # Tasks that ended at the same instant come by id.
    assert [ended.task.id for ended in whole] == [
        *sorted(in_order[:2]),
        in_order[2],
        *sorted(in_order[3:8]),
        in_order[8],
    ]
    for number, ended in enumerate(whole):
        assert await exported(store, after=ended.cursor) == whole[number + 1 :]


async def test_what_ended_just_now_is_left_for_the_next_export(
    store: Store, worker: ManualWorker, clock: ManualClock
) -> None:
    await ends(store, worker, clock, timedelta(0))
    (first,) = await exported(store)
    second = await enqueue_one(store)
    await cancel(store, second)

    assert await exported(store, after=first.cursor) == []
    clock.advance(LATER)
    assert [ended.task.id for ended in await exported(store, after=first.cursor)] == [second]


async def test_only_ended_tasks_that_match_are_exported(
    store: Store, worker: ManualWorker, clock: ManualClock
) -> None:
    kept = await enqueue_one(store, queue="mail")
    other = await enqueue_one(store, queue="other")
    await enqueue_one(store, queue="mail")
    await cancel(store, kept, other)
    begun = clock.now()
    clock.advance(LATER)

    async def ids(where: Filter) -> list[str]:
        return [ended.task.id for ended in await exported(store, where)]

    assert await ids(Filter(queues=("mail",))) == [kept]
    assert await ids(Filter(states=(State.CANCELLED, State.READY))) == [kept, other]
    assert await ids(Filter(states=(State.DEAD,))) == []
    assert await ids(Filter(states=(State.READY,))) == []
    assert await ids(Filter(finished_after=begun)) == [kept, other]
    assert await ids(Filter(finished_before=begun)) == []


@pytest.mark.parametrize("text", ["", "x", "2026-11-16T00:00:00Z", "2026-11-16T00:00:00,x", ","])
def test_a_cursor_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidOption, match="not a cursor"):
        parse_cursor(text)


def test_blocking_operators_export_too() -> None:
    app = App("memory://")
    app.store.swap(MemoryStore(clock=(clock := ManualClock())))
    handles = [app.sync_client.send("t") for _ in range(3)]
    app.sync_operator.cancel(Filter(), by=By(who="ann"))
    clock.advance(LATER)

    first, *rest = app.sync_operator.export()

    assert [ended.task.id for ended in (first, *rest)] == [handle.id for handle in handles]
    assert list(app.sync_operator.export(after=first.cursor)) == rest
