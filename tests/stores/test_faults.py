"""The store that fails on purpose fails where it was told to, and keeps every promise otherwise."""

import asyncio

import pytest

from windlass._store.protocol import Store, Wake
from windlass._stores.memory import MemoryStore
from windlass.errors import StoreUnavailable
from windlass.testing.conformance.steps import a_task, all_tasks
from windlass.testing.faults import Fault, FaultyStore, Hold, scripted, seeded


async def test_before_means_that_nothing_was_done() -> None:
    store = FaultyStore(MemoryStore(), scripted(enqueue=[Fault.BEFORE]))

    with pytest.raises(StoreUnavailable):
        await store.enqueue([a_task()])

    assert await all_tasks(store) == []


async def test_after_means_that_it_was_done_and_repeating_it_is_harmless() -> None:
    store = FaultyStore(MemoryStore(), scripted(enqueue=[None, Fault.AFTER]))
    first, second = a_task(), a_task()
    await store.enqueue([first])

    with pytest.raises(StoreUnavailable):
        await store.enqueue([second])
    (answer,) = await store.enqueue([second])

    assert not answer.created
    assert [task.id for task in await all_tasks(store)] == [first.id, second.id]


async def test_a_held_verb_is_not_done_until_let_go() -> None:
    hold = Hold()
    store = FaultyStore(MemoryStore(), scripted(enqueue=[hold]))

    async with asyncio.TaskGroup() as group:
        group.create_task(store.enqueue([a_task()]))
        await hold.reached()
        assert await all_tasks(store) == []
        hold.let_go()
        hold.let_go()

    assert len(await all_tasks(store)) == 1


async def test_a_hold_outlives_a_caller_that_gave_up() -> None:
    hold = Hold()
    store = FaultyStore(MemoryStore(), scripted(enqueue=[hold, hold]))
    given_up = asyncio.ensure_future(store.enqueue([a_task()]))
    await hold.reached()
    given_up.cancel()

    async with asyncio.TaskGroup() as group:
        group.create_task(store.enqueue([a_task()]))
        await asyncio.sleep(0)
        hold.let_go()

    assert given_up.cancelled()
    assert len(await all_tasks(store)) == 1


async def test_the_same_seed_gives_the_same_faults() -> None:
    def course(seed: int) -> list[Fault | Hold | None]:
        plan = seeded(seed, rate=0.5, verbs={"claim"})
        return [plan("claim") for _ in range(50)]

    assert course(7) == course(7) != course(8)
    assert set(course(7)) == {None, *Fault}
    assert seeded(7, rate=1, verbs={"claim"})("settle") is None


async def test_a_stream_of_wakes_can_break() -> None:
    inner = MemoryStore()
    store = FaultyStore(inner, scripted(wakes=[None, Fault.BEFORE]))
    hints = store.wakes(["default"])
    for ending in (None, StoreUnavailable):
        hearing = asyncio.ensure_future(anext(hints))
        await asyncio.sleep(0)
        await inner.enqueue([a_task()])
        if ending is None:
            assert await hearing is Wake.READY
        else:
            with pytest.raises(ending):
                await hearing


async def test_a_further_handle_shares_the_plan() -> None:
    store: Store = FaultyStore(MemoryStore(), scripted(find=[Fault.BEFORE]))

    with pytest.raises(StoreUnavailable):
        await all_tasks(store.another())

    assert await all_tasks(store) == []
