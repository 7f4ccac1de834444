"""The keeper while a shard is down: what needs only the others is done."""

import asyncio
import logging
from datetime import timedelta

import pytest

from tests.loops.workers import eventually
from tests.stores.shards.conftest import NAMES, Shards
from tests.stores.shards.prepared import PreparedShards
from windlass._keeper import keeper as keeper_module
from windlass._keeper.alerts import AlertNotifier, AlertWatch
from windlass._keeper.keeper import Keeper
from windlass._keeper.schedules import Ticker
from windlass._model.alert import Alert, AlertState
from windlass._model.filter import Filter
from windlass._model.schedule import Schedule
from windlass._model.state import State
from windlass.errors import StoreUnavailable
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import all_records, all_tasks, bury, enqueue_one, worker_on

HOUR = timedelta(hours=1)


async def test_schedules_of_other_shards_fire(
    store: PreparedShards, shards: Shards, clock: ManualClock
) -> None:
    for name in NAMES:
        schedule = Schedule(name=name, type="t", every=HOUR, since=clock.now(), queue=f"on-{name}")
        await store.put(schedule)
    await Ticker(store).fire_due()
    clock.advance(3600)
    shards.down = {"b"}

    new_leader = Ticker(store)
    with pytest.raises(StoreUnavailable, match="shard b"):
        await new_leader.fire_due()
    fired = [len(await all_tasks(one)) for one in shards.stores.values()]
    shards.down.clear()

    async def is_fired() -> bool:
        try:
            await new_leader.fire_due()
        except StoreUnavailable:
            return False
        return len(await all_tasks(shards.stores["b"])) == 1

    assert fired == [1, 0, 1]
    assert await eventually(is_fired)


async def test_alerts_of_other_shards_are_raised(store: PreparedShards, shards: Shards) -> None:
    worker = await worker_on(store)
    for queue in ("on-b", "on-c"):
        await store.put(Alert(name=queue, queue=queue))
        await enqueue_one(store, queue=queue)
        await store.settle([bury(await worker.claim_one(queue))])
    shards.down = {"b"}

    with pytest.raises(StoreUnavailable, match="shard b"):
        await AlertWatch(store, AlertNotifier(), lambda: None).evaluate_all()

    raised = [state.name for state in await all_records(store, AlertState) if state.raised_at]
    assert raised == ["on-c"]


async def test_the_keeper_goes_on_leading_and_logs_a_chore_that_fails_once(
    store, shards: Shards, clock: ManualClock, monkeypatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keeper_module, "_ALERT_EVERY", 0.01)
    await store.put(Alert(name="all"))
    await enqueue_one(store, queue="on-c", delay=HOUR)
    caplog.set_level(logging.WARNING, "windlass")
    shards.down = {"b"}

    keeper = Keeper(store, lease=timedelta(seconds=60))
    running = asyncio.create_task(keeper.run())
    await eventually(lambda: "cannot finish the chore alert" in caplog.text)
    clock.advance(7200)

    async def is_promoted() -> bool:
        return bool(await all_tasks(store, Filter(queues=("on-c",), states=(State.READY,))))

    await eventually(is_promoted)
    leads = keeper.leads
    running.cancel()
    await asyncio.wait([running])

    assert leads
    assert caplog.text.count("cannot finish the chore alert") == 1
    assert "the store is not available" not in caplog.text
