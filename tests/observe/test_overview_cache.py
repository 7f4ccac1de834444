"""The cache of overviews: however many ask, the store is read no more often than it should be."""

import asyncio
from datetime import timedelta

import pytest

from tests.loops.workers import SOON, Watch, eventually
from windlass import Filter, StoreUnavailable
from windlass._observe.cached_reads import MAX_CACHED
from windlass._observe.overview import OverviewCache
from windlass._stores.memory import MemoryStore
from windlass.testing.faults import Fault, FaultyStore, Hold

FIFTY = 50


class Seconds:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def watch() -> Watch:
    return Watch()


@pytest.fixture
def seconds() -> Seconds:
    return Seconds()


@pytest.fixture
def overviews(watch: Watch, seconds: Seconds) -> OverviewCache:
    return OverviewCache(FaultyStore(MemoryStore(), watch), clock=seconds)


async def test_fifty_who_ask_at_once_share_one_look(overviews: OverviewCache, watch: Watch) -> None:
    seen = await asyncio.gather(*(overviews.get() for _ in range(FIFTY)))

    assert watch.calls["count"] == 1
    assert all(one is seen[0] for one in seen)


async def test_who_asks_just_as_a_look_ends_shares_it(seconds: Seconds) -> None:
    """A task is done a moment before those who wait for it are told."""
    meanwhile: list[asyncio.Task[object]] = []
    watch = Watch()

    def plan(verb: str) -> Fault | Hold | None:
        if verb == "count" and not meanwhile:  # in the very step in which the look ends
            meanwhile.append(asyncio.ensure_future(overviews.get()))
        return watch(verb)

    overviews = OverviewCache(FaultyStore(MemoryStore(), plan), clock=seconds)
    first = await overviews.get()

    assert await meanwhile[0] is first
    assert watch.calls["count"] == 1


async def test_it_is_fresh_for_five_seconds(overviews: OverviewCache, watch: Watch, seconds: Seconds) -> None:
    first = await overviews.get()
    seconds.now += 4.9
    assert await overviews.get() is first

    seconds.now += 0.2
    assert await overviews.get() is not first
    assert watch.calls["count"] == 2


async def test_looking_takes_a_tenth_of_the_time_at_most(
    overviews: OverviewCache, watch: Watch, seconds: Seconds
) -> None:
    hold = Hold()
    watch.then("count", hold)
    asked = asyncio.create_task(overviews.get())
    await asyncio.wait_for(hold.reached(), SOON)
    seconds.now += 2
    hold.let_go()
    first = await asked

    seconds.now += 17.9
    assert await overviews.get() is first
    seconds.now += 0.2
    assert await overviews.get() is not first


async def test_each_filter_is_looked_at_for_itself(overviews: OverviewCache, watch: Watch) -> None:
    for _ in range(2):
        await overviews.get()
        await overviews.get(Filter(tenants=("acme",)))
        await overviews.get(Filter(tenants=("ada",)))

    assert watch.calls["count"] == 3


async def test_only_so_many_filters_are_kept(overviews: OverviewCache, watch: Watch) -> None:
    for number in range(MAX_CACHED + 5):
        await overviews.get(Filter(tenants=(str(number),)))

    assert len(overviews._cached) == MAX_CACHED


async def test_a_store_in_trouble_is_not_asked_more_often(
    overviews: OverviewCache, watch: Watch, seconds: Seconds
) -> None:
    watch.then("count", Fault.BEFORE)

    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await overviews.get()
    assert watch.calls["count"] == 1

    seconds.now += 5.1
    assert await overviews.get()


async def test_one_who_leaves_does_not_take_it_from_the_others(
    overviews: OverviewCache, watch: Watch
) -> None:
    hold = Hold()
    watch.then("count", hold)
    leaving, staying = (asyncio.create_task(overviews.get()) for _ in range(2))
    await asyncio.wait_for(hold.reached(), SOON)
    leaving.cancel()
    hold.let_go()

    assert await staying
    with pytest.raises(asyncio.CancelledError):
        await leaving


async def test_nobody_waits_for_ever(watch: Watch) -> None:
    overviews = OverviewCache(FaultyStore(MemoryStore(), watch), timeout=timedelta(seconds=0.01))
    watch.then("count", Hold())

    with pytest.raises(StoreUnavailable, match=r"timed out after 0\.01 s"):
        await overviews.get()


async def test_a_failure_that_nobody_waits_for_is_no_noise(overviews: OverviewCache, watch: Watch) -> None:
    hold = Hold()
    watch.then("count", hold, Fault.BEFORE)
    asked = asyncio.create_task(overviews.get())
    await asyncio.wait_for(hold.reached(), SOON)
    asked.cancel()
    watch.then("now", Fault.BEFORE)
    hold.let_go()

    (kept,) = overviews._cached.values()
    await eventually(kept.read.done)
