"""A worker whose tasks are on several shards, one of which goes down and comes back."""

import asyncio

from tests.loops.workers import eventually, sessions, working
from tests.stores.shards.conftest import MAP, NAMES, Shards
from tests.stores.shards.prepared import PreparedShards
from windlass import App
from windlass._model.filter import Dimension, Filter
from windlass._model.state import State
from windlass._store.clock import SystemClock

QUEUES = tuple(f"on-{name}" for name in NAMES)


async def test_a_worker_goes_on_with_the_other_shards_and_settles_when_one_is_back() -> None:
    shards = Shards(SystemClock())
    app = App(PreparedShards(shards.faulty(), MAP))
    started, finish = asyncio.Event(), asyncio.Event()
    runs: list[str] = []

    @app.task(name="wait", queue="on-b")
    async def wait() -> None:
        runs.append("b")
        started.set()
        await finish.wait()

    @app.task(name="quick", queue="on-a")
    async def quick(number: int) -> int:
        runs.append("a")
        return number

    async with app, working(app, queues=QUEUES, lease=60):
        await wait.aenqueue()
        await asyncio.wait_for(started.wait(), 10)
        shards.down = {"b"}
        finish.set()
        results = [await (await quick.aenqueue(number=number)).result(timeout=30) for number in range(5)]
        (still,) = await shards.stores["b"].count(Filter(), (Dimension.STATE,))
        shards.down.clear()

        async def is_settled() -> bool:
            (count,) = await shards.stores["b"].count(Filter(), (Dimension.STATE,))
            return count.values == (State.COMPLETED.value,)

        await eventually(is_settled)

    assert results == [*range(5)]
    assert still.values == (State.RUNNING.value,)
    assert sorted(runs) == [*"aaaaab"]


async def test_the_worker_is_listed_on_every_shard_until_it_stops() -> None:
    shards = Shards(SystemClock())
    app = App(PreparedShards(shards.faulty(), MAP))

    @app.task(name="quick", queue="on-a")
    async def quick() -> None: ...

    async with app:
        async with working(app, lease=60):
            assert len(await sessions(app)) == 1
        assert await sessions(app) == []
