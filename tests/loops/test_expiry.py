"""Expiry in programs: declared, given, in chains and schedules; an expired task never runs and says so."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from tests.loops.workers import eventually, tasks, working
from windlass import RESULT, App, Filter, Handle, InvalidOption, State, TaskCancelled, chain
from windlass._keeper.due_tasks import cancel_expired
from windlass._stores.memory import MemoryStore
from windlass.testing.clock import START, ManualClock

HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def app(clock: ManualClock) -> App:
    return App(MemoryStore(clock=clock))


async def test_an_expired_task_never_runs_though_no_keeper_does() -> None:
    app = App("memory://")
    ran: list[str] = []
    done = asyncio.Event()

    @app.task
    async def note(word: str) -> None:
        ran.append(word)
        done.set()

    late = await note.using(expires=0.001).aenqueue("late")
    await eventually(lambda: _is_expired(app, late))
    await note.using(expires="1h").aenqueue("in time")
    async with working(app, keeper=False):
        await asyncio.wait_for(done.wait(), 5)

    assert ran == ["in time"]
    assert await late.state() is State.READY


async def test_the_type_declares_it_and_a_caller_overrides_it(app: App) -> None:
    @app.task(expires="1h")
    async def otp(n: int) -> None: ...

    @app.task
    async def plain() -> None: ...

    at = START + timedelta(minutes=7)
    given = [
        await otp.aenqueue(1),
        await otp.using(expires="5m").aenqueue(1),
        await otp.using(expires=at).aenqueue(1),
        await otp.using(expires=None).aenqueue(1),
        await otp.using(delay="1h").aenqueue(1),
        await plain.aenqueue(),
        await app.client.enqueue(plain.step(), expires=30),
        await app.client.enqueue(otp.step(1), expires=at),
        await app.client.send("elsewhere", expires="2h"),
    ]
    many = await otp.aenqueue_many([{"n": 1}, {"n": 2}])

    assert [(await one.task()).expires_at for one in given] == [
        START + HOUR,
        START + timedelta(minutes=5),
        at,
        None,
        START + 2 * HOUR,
        None,
        START + timedelta(seconds=30),
        at,
        START + 2 * HOUR,
    ]
    assert {(await one.task()).expires_at for one in many} == {START + HOUR}


async def test_a_step_counts_from_its_own_enqueue(app: App, clock: ManualClock) -> None:
    @app.task
    async def first() -> int:
        return 1

    @app.task(expires="1h")
    async def second(n: int) -> None: ...

    handle = await app.client.enqueue(chain(first.step(), second.using(queue="later").step(n=RESULT)))
    clock.advance(10 * 60)
    async with working(app, keeper=False):
        await handle.wait(timeout=5)

    (step,) = await tasks(app, State.READY)
    assert step.expires_at == START + timedelta(minutes=10) + HOUR


@pytest.mark.parametrize(
    "expires", [0, "0s", -1, timedelta(days=4000), "soon", START.replace(tzinfo=None), True]
)
async def test_what_makes_no_sense_is_refused(app: App, expires: object) -> None:
    @app.task
    async def note() -> None: ...

    with pytest.raises(InvalidOption, match="expires"):
        await note.using(expires=expires).aenqueue()


async def test_an_expiry_before_the_task_is_due_is_refused(app: App) -> None:
    @app.task
    async def note() -> None: ...

    for when in ({"delay": "2h"}, {"run_at": START + 2 * HOUR}):
        with pytest.raises(InvalidOption, match="would never start"):
            await note.using(expires=START + HOUR, **when).aenqueue()
    assert await tasks(app) == []


async def test_a_step_and_a_schedule_take_a_duration_only(app: App) -> None:
    @app.task
    async def note() -> None: ...

    with pytest.raises(InvalidOption, match="must be a duration"):
        note.using(expires=START + HOUR).step()
    with pytest.raises(InvalidOption, match="must be a duration"):
        await app.operator.schedules.add("s", "note", "1h", expires=START + HOUR)


async def test_the_tasks_of_a_schedule_expire(app: App) -> None:
    @app.task(expires="10m")
    async def note() -> None: ...

    app.schedule("declared", note.step(), "1h")
    await app.open()
    await app.publish()
    await app.operator.schedules.add("added", "note", "1h", expires="5m")
    for name in ("declared", "added"):
        await app.operator.schedules.trigger(name)

    found = {task.enqueued_by.rpartition(" ")[2]: task.expires_at for task in await tasks(app)}
    assert found == {"declared": START + timedelta(minutes=10), "added": START + timedelta(minutes=5)}


async def test_its_end_is_told(app: App, clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    @app.task(expires="1h")
    async def note() -> None: ...

    metrics = app.metrics()
    caplog.set_level("INFO", "windlass.events")
    handle = await note.aenqueue()
    clock.advance(HOUR)
    await cancel_expired(app.store)

    with pytest.raises(TaskCancelled, match="Expired: had not started by 2026-01-01T01:00:00"):
        await handle.result(timeout=1)
    (record,) = [record for record in caplog.records if record.name == "windlass.events"]
    assert (record.event, record.task_id, record.error_type) == ("expired", handle.id, "Expired")
    assert f"{handle.id} expired (Expired: had not started by 2026" in record.getMessage()
    body, _ = await metrics.exposition()
    of_type = f'type="{note.name}"}} 1.0'
    assert f'windlass_tasks_expired_total{{queue="default",{of_type}' in body.decode()
    assert f'windlass_tasks_ended_total{{queue="default",state="cancelled",{of_type}' in body.decode()


async def test_tasks_are_found_by_their_expiry(app: App) -> None:
    @app.task
    async def note() -> None: ...

    soon = await note.using(expires="5m").aenqueue()
    await note.using(expires="2h").aenqueue()
    await note.aenqueue()

    found = await app.operator.find(Filter(expires_before=datetime(2026, 1, 1, 1, tzinfo=UTC)))

    assert [task.id for task in found.items] == [soon.id]


async def _is_expired(app: App, handle: Handle[None]) -> bool:
    return (await handle.task()).is_expired(await app.store.now())
