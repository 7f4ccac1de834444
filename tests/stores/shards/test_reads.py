"""Reading several shards is reading one store: the same pages in the same order, the same counts."""

import asyncio
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.stores.shards.conftest import MAP, NAMES, Shards
from tests.stores.shards.prepared import PreparedShards
from windlass._model.filter import CancelTasks, Dimension, Discard, Filter, Page, Replay
from windlass._model.record import Audit, Session
from windlass._model.state import State
from windlass._store.protocol import Store
from windlass._stores.memory import MemoryStore
from windlass.errors import StoreUnavailable
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import (
    OPERATOR,
    a_task,
    all_pages,
    all_records,
    all_tasks,
    enqueue_one,
    worker_on,
)

tasks = st.lists(
    st.fixed_dictionaries(
        {
            "queue": st.sampled_from(["on-a", "on-b", "by-tenant", "x", "y", "z"]),
            "tenant": st.sampled_from(["", "t", "u", "v"]),
            "type": st.sampled_from(["mail", "pdf"]),
        }
    ),
    max_size=25,
)
filters = st.builds(
    Filter,
    queues=st.none() | st.lists(st.sampled_from(["on-a", "x", "by-tenant"]), max_size=2).map(tuple),
    tenants=st.none() | st.lists(st.sampled_from(["t", "u"]), max_size=2).map(tuple),
    types=st.none() | st.just(("pdf",)),
)


@given(tasks, filters, st.integers(1, 7), st.booleans(), st.lists(st.sampled_from(Dimension), unique=True))
def test_shards_answer_as_one_store(some: list[dict[str, Any]], where, limit, newest_first, by) -> None:
    async def compare() -> None:
        clock = ManualClock()
        sharded = PreparedShards(Shards(clock).faulty(), MAP)
        single = MemoryStore(clock=clock)
        await sharded.open()
        for fields in some:
            task = a_task(**fields)
            for store in (sharded, single):
                await store.enqueue([task])
            clock.advance(1)
        read: Any = partial(all_pages, limit=limit, newest_first=newest_first)
        assert await read(partial(sharded.find, where)) == await read(partial(single.find, where))
        for sized in (False, True):
            answers = [await store.count(where, tuple(by), sized=sized) for store in (sharded, single)]
            assert [*answers[0]] == [*answers[1]]
        await sharded.close()

    asyncio.run(compare())


async def _on_each(store: Store) -> list[str]:
    return [await enqueue_one(store, queue=f"on-{name}") for name in NAMES]


async def test_a_task_is_found_by_its_id_alone(store: PreparedShards, shards: Shards) -> None:
    ids = await _on_each(store)
    stranger = PreparedShards(shards.faulty(), MAP)  # a process that has not seen these tasks
    await stranger.open()

    found = await stranger.find(Filter(ids=tuple(ids)), Page())

    assert [task.id for task in found.items] == ids
    assert [len(await stranger.attempts(task_id)) for task_id in ids] == [0, 0, 0]


async def test_tasks_of_every_shard_are_cancelled_replayed_and_discarded(store: PreparedShards) -> None:
    ids = await _on_each(store)

    cancelled = await store.apply(CancelTasks(by=OPERATOR), Filter(), 10)
    replayed = await store.apply(Replay(by=OPERATOR), Filter(ids=tuple(ids[1:])), 10)
    discarded = await store.apply(Discard(by=OPERATOR), Filter(), 10)

    assert sorted(cancelled.ids) == ids
    assert sorted(replayed.ids) == ids[1:]
    assert discarded.ids == ()
    assert [task.state for task in await all_tasks(store)] == [State.CANCELLED, State.READY, State.READY]
    assert len(await all_records(store, Audit)) == 5


async def test_the_limit_of_an_action_is_one_for_all_shards(store: PreparedShards) -> None:
    await _on_each(store)

    assert len((await store.apply(CancelTasks(by=OPERATOR), Filter(), 2)).ids) == 2


async def test_a_replay_over_time_goes_on_over_shards(store: PreparedShards, clock: ManualClock) -> None:
    ids = await _on_each(store)
    await store.apply(CancelTasks(by=OPERATOR), Filter(), 10)
    start, minute = clock.now() + timedelta(hours=1), timedelta(minutes=1)

    await store.apply(Replay(by=OPERATOR, run_at=start, interval=minute), Filter(ids=tuple(ids)), 10)

    due = [task.run_at for task in await all_tasks(store)]
    assert due == [start, start + minute, start + 2 * minute]


async def test_a_session_is_listed_once(store: PreparedShards) -> None:
    worker = await worker_on(store)

    assert [session.id for session in await all_records(store, Session)] == [worker.session]
    assert await store.remove(Session, worker.session)
    assert await all_records(store, Session) == ()


class TestAShardThatIsDown:
    async def test_listings_name_it_instead_of_leaving_its_tasks_out(self, store, shards: Shards) -> None:
        await _on_each(store)
        shards.down = {"b"}

        with pytest.raises(StoreUnavailable, match="shard b"):
            await store.find(Filter(), Page())
        with pytest.raises(StoreUnavailable, match="shard b"):
            await store.count(Filter(), ())

    async def test_queues_and_tasks_of_the_others_can_be_read(self, store, shards: Shards) -> None:
        ids = await _on_each(store)
        shards.down = {"b"}
        stranger = PreparedShards(shards.faulty(), MAP)
        await stranger.open()

        assert len(await all_tasks(stranger, Filter(queues=("on-a", "on-c")))) == 2
        assert len((await stranger.find(Filter(ids=(ids[0],)), Page())).items) == 1
        with pytest.raises(StoreUnavailable, match="shard b"):
            await stranger.find(Filter(ids=(ids[1],)), Page())
