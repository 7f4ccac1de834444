"""An overview says what is in a store, whichever it is. (O3)"""

from datetime import timedelta

import pytest

from windlass import Filter, State
from windlass._model.lease import Heartbeat
from windlass._model.limit import Limit
from windlass._model.queue import QueueSettings
from windlass._model.record import Worker
from windlass._model.schedule import Schedule, Tick
from windlass._observe import overview
from windlass._observe.overview import Overview, read_overview
from windlass._store.protocol import Store
from windlass._stores.http import HttpStore
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import (
    a_task,
    bury,
    enqueue_and_claim,
    enqueue_one,
    settle_now,
    worker_on,
)

MINUTE = timedelta(minutes=1)


def numbers(seen: Overview) -> dict[tuple[str, str, str], int]:
    return {(depth.queue, depth.type, str(depth.state)): depth.number for depth in seen.depths}


async def beat(store: Store, name: str, *, lease: float = 60, **about: object) -> None:
    worker = Worker(name=name, **about)  # type: ignore[arg-type]  # by name
    await store.heartbeat(
        Heartbeat(session=name, worker=worker, lease_for=timedelta(seconds=lease), opening=True)
    )


async def test_of_an_empty_store(store: Store, clock: ManualClock) -> None:
    assert await read_overview(store) == Overview(at=clock.now())


async def test_how_many_wait_and_since_when(store: Store, clock: ManualClock) -> None:
    worker = await worker_on(store)
    await settle_now(store, bury(await enqueue_and_claim(store, worker, queue="mail", type="a")))
    await enqueue_and_claim(store, worker, queue="mail", type="a")
    await enqueue_one(store, queue="mail", type="a")
    clock.advance(10)
    await store.enqueue([a_task(queue="mail", type="b"), a_task(queue="slow", type="b", delay=MINUTE)])
    clock.advance(20)

    seen = await read_overview(store)

    assert numbers(seen) == {
        ("mail", "a", "dead"): 1,
        ("mail", "a", "running"): 1,
        ("mail", "a", "ready"): 1,
        ("mail", "b", "ready"): 1,
        ("slow", "b", "scheduled"): 1,
    }
    assert {"mail", "slow"} <= {*seen.queues}
    assert {queue: seen.oldest_ready()[queue] for queue in ("mail", "slow")} == {"mail": 30.0, "slow": 0.0}


async def test_workers_live_until_their_lease_ends_and_keepers_are_none(
    store: Store, clock: ManualClock
) -> None:
    await beat(store, "gone", lease=1, slots=99, busy=99)
    clock.advance(5)
    await beat(store, "alice", slots=4, busy=6, queues=("mail", "slow"))
    await beat(store, "bob", slots=8, busy=1, queues=("mail",))
    await beat(store, "keeper alice", keeper=True)
    await store.put(QueueSettings(name="idle", paused=True))

    seen = await read_overview(store)

    assert [session.worker.name for session in seen.workers] == ["alice", "bob"]
    assert (seen.slots, seen.busy) == (12, 5)  # a worker may hold more than it has slots
    assert seen.serving() == {"idle": 0, "mail": 2, "slow": 1}
    assert seen.paused == {"idle"}
    assert seen.keeper is not None
    clock.advance(61)
    assert (await read_overview(store)).keeper is None


async def test_of_a_limit_it_is_the_value_that_uses_most(store: Store) -> None:
    for limit in (
        Limit(name="by-tenant", by="tenant", running=4),
        Limit(name="none", queue="elsewhere", running=0),
        Limit(name="unused", queue="elsewhere", running=3),
        Limit(name="rate", type="b", rate=2.0),
    ):
        await store.put(limit)
    worker = await worker_on(store)
    for tenant in ("acme", "acme", "acme", "ada"):
        await enqueue_and_claim(store, worker, tenant=tenant, type="a")
    await enqueue_and_claim(store, worker, tenant="zoe", type="b")

    seen = await read_overview(store)

    assert seen.limits == {"by-tenant": 0.75, "none": 1.0, "unused": 0.0, "rate": 0.5}


async def test_how_late_schedules_are(store: Store, clock: ManualClock) -> None:
    start = clock.now()
    for schedule in (
        Schedule(name="kept", type="t", every=MINUTE),
        Schedule(name="late", type="t", every=MINUTE),
    ):
        await store.put(schedule)
    if not isinstance(store, HttpStore):  # whose server refuses it
        await store.put(Schedule(name="broken", type="t", cron="no rule"))
    clock.advance(150)
    await store.put(Tick(name="kept", at=start + 2 * MINUTE))
    for name in ("late", "broken"):
        await store.put(Tick(name=name, at=start))

    assert (await read_overview(store)).schedules == {"kept": 0.0, "late": 90.0}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (Filter(tenants=("acme",)), {("mail", "a", "ready"): 1, ("slow", "a", "ready"): 1}),
        (Filter(queues=("mail",)), {("mail", "a", "ready"): 2}),
        (Filter(tenants=("acme",), queues=("mail",)), {("mail", "a", "ready"): 1}),
    ],
)
async def test_of_some_tasks_it_says_nothing_of_others(
    store: Store, where: Filter, expected: dict[tuple[str, str, str], int]
) -> None:
    for queue, tenant in (("mail", "acme"), ("mail", "ada"), ("slow", "acme"), ("other", "ada")):
        await enqueue_one(store, queue=queue, tenant=tenant, type="a")
    await beat(store, "alice", slots=1, queues=("mail", "secret"))
    await beat(store, "keeper alice", keeper=True)
    await store.put(Limit(name="limit", running=1))
    await store.put(Schedule(name="schedule", type="t", every=MINUTE))
    for queue in ("mail", "secret"):
        await store.put(QueueSettings(name=queue, paused=True))

    seen = await read_overview(store, where)

    assert numbers(seen) == expected
    assert seen.paused == {"mail"}
    assert set(seen.queues) == {queue for queue, *_ in expected}
    assert (seen.workers, seen.keeper, dict(seen.limits), dict(seen.schedules)) == ((), None, {}, {})


async def test_it_looks_at_so_many_values_of_limits_and_no_more(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "MAX_USAGES", 2)
    monkeypatch.setattr(overview, "MAX_PAGE", 1)
    await store.put(Limit(name="by-tenant", by="tenant", running=4))
    worker = await worker_on(store)
    for tenant in ("a", "b", "c", "c"):
        await enqueue_and_claim(store, worker, tenant=tenant)

    assert (await read_overview(store)).limits == {"by-tenant": 0.25}


def test_what_is_counted_is_what_is_not_done() -> None:
    assert {*State} - {*overview.COUNTED} == {State.COMPLETED, State.CANCELLED}
