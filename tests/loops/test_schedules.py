"""Firing schedules: every tick fires in time and once, though schedules change, pause or break."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

import pytest
from msgspec.structs import replace

from tests.loops.workers import drained, eventually, pause, tasks, watched, working
from windlass import App, By, Retention, State
from windlass._ids import new_id
from windlass._keeper import schedules as schedules_module
from windlass._keeper.keeper import Keeper
from windlass._keeper.schedules import Ticker
from windlass._model.filter import Page
from windlass._model.schedule import Overlap, Schedule, Tick
from windlass._policy.schedule import former_tick_key, tick_task
from windlass.testing.clock import START, ManualClock
from windlass.testing.faults import Fault, FaultyStore, scripted

HOUR, DAY = timedelta(hours=1), timedelta(days=1)


@pytest.fixture
def app(clocked_app: App) -> App:
    return clocked_app


@pytest.fixture(autouse=True)
def _looks_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules_module, "RELOAD_EVERY", 0.0)


HOURLY = Schedule(name="s", type="t", every=HOUR, since=START)


@asynccontextmanager
async def keeping(app: App) -> AsyncIterator[None]:
    keeper = Keeper(app.store, lease=timedelta(seconds=5), name="test")
    run = asyncio.create_task(keeper.run())
    try:
        yield
    finally:
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run


async def reached(app: App, name: str = "s") -> Tick | None:
    found = {tick.name: tick for tick in (await app.store.records(Tick, Page())).items}
    return found.get(name)


async def instants(app: App) -> list[datetime]:
    """The ticks that have a task, oldest first."""
    keys = [task.idempotency_key for task in await tasks(app)]
    return sorted(datetime.fromisoformat(key.split(":", 2)[2]) for key in keys)


# -- in time ---------------------------------------------------------------------------------------------


async def test_ticks_fire_within_milliseconds_without_being_polled_for(
    monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    monkeypatch.setattr(schedules_module, "RELOAD_EVERY", 1.0)
    app, watch = watched()
    started: list[float] = []

    @app.task(schedule="1s")
    async def note() -> None:
        started.append((await app.operator.now()).timestamp() % 1)

    async with working(app, keeper=True, poll=30, lease=30):
        await eventually(lambda: started)
        watch.calls.clear()
        began = monotonic()
        await eventually(lambda: len(started) >= 4)
        calls, took = dict(watch.calls), monotonic() - began

    record_property("late", started)
    assert min(started) < 0.1, started
    assert calls["records"] <= 8 * (took + 1), calls  # a handful a second, nothing like a busy loop
    assert calls["enqueue"] >= 3


async def test_a_schedule_added_at_run_time_is_noticed_within_seconds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(schedules_module, "RELOAD_EVERY", 1.0)
    app = App("memory://")

    @app.task
    async def note() -> None: ...

    async with working(app, keeper=True, poll=30):
        await pause(0.1)
        await app.operator.schedules.add("s", note.name, "1s")
        (task, *_) = await eventually(lambda: tasks(app, State.COMPLETED), within=3)

    assert task.enqueued_by == "schedule s"
    assert task.claimed_at is not None


async def test_a_tick_is_never_early(app: App, clock: ManualClock) -> None:
    await app.store.put(HOURLY)
    ticker = Ticker(app.store)

    clock.advance(HOUR - timedelta(microseconds=1))
    await ticker.fire_due()
    assert await instants(app) == []
    clock.advance(timedelta(microseconds=1))
    await ticker.fire_due()

    assert await instants(app) == [START + HOUR]


async def test_jitter_delays_the_task_and_not_the_ticks(app: App, clock: ManualClock) -> None:
    await app.store.put(replace(HOURLY, jitter=timedelta(minutes=30)))
    ticker = Ticker(app.store)
    for _ in range(10):
        clock.advance(HOUR)
        await ticker.fire_due()

    found = await tasks(app)
    delays = [task.run_at - tick for task, tick in zip(found, await instants(app), strict=True)]
    assert len(set(delays)) == 10
    assert all(timedelta(0) <= delay < timedelta(minutes=30) for delay in delays)


async def test_it_waits_until_the_next_tick_and_no_longer(
    app: App, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules_module, "RELOAD_EVERY", 100_000.0)
    await app.store.put(HOURLY)
    await app.store.put(replace(HOURLY, name="sooner", every=timedelta(minutes=7)))
    ticker = Ticker(app.store)

    assert 6.9 * 60 < await ticker.fire_due() <= 7 * 60


# -- once ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["enqueue", "put"])
@pytest.mark.parametrize("fault", Fault)
async def test_a_leader_that_fails_while_it_fires_is_followed_by_one_that_does_it(
    app: App, clock: ManualClock, verb: str, fault: Fault
) -> None:
    await app.store.put(HOURLY)
    await Ticker(app.store).fire_due()
    clock.advance(HOUR)
    with pytest.raises(Exception, match="a planned fault"):
        await Ticker(FaultyStore(app.store.inner, scripted(**{verb: [fault]}))).fire_due()
    await Ticker(app.store).fire_due()
    await Ticker(app.store).fire_due()

    assert await instants(app) == [START + HOUR]
    tick = await reached(app)
    assert tick is not None
    assert (tick.at, tick.fired_at) == (START + HOUR, START + HOUR)
    assert [task.id for task in await tasks(app)] == [tick.task_id]


async def test_a_callers_key_does_not_suppress_a_tick(app: App, clock: ManualClock) -> None:
    key = f"schedule:s:{(START + HOUR).isoformat()}"
    mine = await app.client.send("t", {}, idempotency_key=key)
    await app.store.put(HOURLY)
    clock.advance(HOUR)

    await Ticker(app.store).fire_due()

    fired = [task for task in await tasks(app) if task.id != mine.id]
    assert [task.enqueued_by for task in fired] == ["schedule s"]
    tick = await reached(app)
    assert tick is not None
    assert tick.task_id == fired[0].id


async def test_a_tick_that_an_earlier_version_fired_is_not_fired_again(app: App, clock: ManualClock) -> None:
    await app.store.put(HOURLY)
    clock.advance(HOUR)
    fired = replace(
        tick_task(HOURLY, START + HOUR, new_id), idempotency_key=former_tick_key(HOURLY, START + HOUR)
    )
    await app.store.enqueue([fired])  # and its keeper died before it recorded the tick

    ticker = Ticker(app.store)
    await ticker.fire_due()

    assert [task.id for task in await tasks(app)] == [fired.id]
    tick = await reached(app)
    assert tick is not None
    assert (tick.at, tick.fired_at, tick.task_id) == (START + HOUR, START + HOUR, fired.id)
    clock.advance(HOUR)
    await ticker.fire_due()
    assert len(await tasks(app)) == 2


async def test_two_leaders_at_once_fire_every_tick_once(app: App, clock: ManualClock) -> None:
    await app.store.put(HOURLY)
    leaders = [Ticker(app.store) for _ in range(4)]
    for _ in range(20):
        clock.advance(HOUR)
        await asyncio.gather(*(leader.fire_due() for leader in leaders))

    assert await instants(app) == [START + n * HOUR for n in range(1, 21)]


async def test_a_tick_whose_task_was_pruned_is_not_fired_again(app: App, clock: ManualClock) -> None:
    await app.store.put(HOURLY)
    ticker = Ticker(app.store)
    clock.advance(HOUR)
    await ticker.fire_due()
    before = await reached(app)
    assert before is not None
    (task,) = await tasks(app)
    await app.operator.cancel_one(task.id, by=By(who="test", why="test"))
    clock.advance(timedelta(seconds=1))
    assert await app.operator.prune(Retention(cancelled=timedelta(0))) == 1
    await app.store.put(replace(before, at=START))  # as if the leader had died before it wrote that down
    await Ticker(app.store).fire_due()

    assert await tasks(app) == []


async def test_a_clock_that_is_set_back_fires_nothing_twice_and_holds_nothing_up(
    app: App, clock: ManualClock
) -> None:
    await app.store.put(HOURLY)
    ticker = Ticker(app.store)
    for step in (HOUR, HOUR, HOUR, -2.5 * HOUR, HOUR / 2, HOUR, HOUR, HOUR):
        clock.advance(step)
        await ticker.fire_due()

    assert await instants(app) == [START + n * HOUR for n in (1, 2, 3, 4)]


async def test_a_clock_that_goes_astray_for_a_year_and_comes_back_holds_nothing_up(
    app: App, clock: ManualClock
) -> None:
    await app.store.put(HOURLY)
    ticker = Ticker(app.store)
    for step in (HOUR, 365 * DAY, -365 * DAY, HOUR, HOUR):
        clock.advance(step)
        await ticker.fire_due()

    assert [tick for tick in await instants(app) if tick < START + DAY] == [
        START + n * HOUR for n in (1, 2, 3)
    ]


# -- missed ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("missed", "hours"), [("skip", [25]), ("once", [24, 25]), ("all", [*range(1, 26)])], ids=str
)
async def test_after_a_day_of_downtime_each_policy_does_what_it_says(
    app: App, clock: ManualClock, missed: str, hours: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    await app.operator.schedules.add("s", "t", "1h", missed=missed)
    async with keeping(app):
        await eventually(lambda: reached(app))
    clock.advance(DAY + timedelta(minutes=30))
    async with keeping(app):
        await eventually(lambda: _is_at(app, START + DAY))
        clock.advance(timedelta(minutes=30))
        await eventually(lambda: _is_at(app, START + DAY + HOUR))

    assert await instants(app) == [START + n * HOUR for n in hours]
    assert f"ticks after {START.isoformat()}, up to {(START + DAY).isoformat()}, were missed" in caplog.text


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
async def test_ticks_of_the_last_minute_are_fired_and_not_logged_as_missed(
    app: App, clock: ManualClock, missed: str, caplog: pytest.LogCaptureFixture
) -> None:
    await app.operator.schedules.add("s", "t", "5s", missed=missed, at_most=2)
    await Ticker(app.store).fire_due()
    clock.advance(timedelta(minutes=3))
    await Ticker(app.store).fire_due()

    late = {"skip": [], "once": [120], "all": [115, 120]}[missed]
    assert await instants(app) == [START + timedelta(seconds=n) for n in (*late, *range(125, 181, 5))]
    last = (START + timedelta(minutes=2)).isoformat()
    assert f"ticks after {START.isoformat()}, up to {last}, were missed" in caplog.text


async def test_ticks_before_the_rule_was_changed_are_not_logged_as_missed(
    app: App, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    await app.operator.schedules.add("s", "t", "1h")
    await Ticker(app.store).fire_due()
    clock.advance(2 * HOUR)
    await app.operator.schedules.change("s", rule="30m")
    changed = clock.now()
    clock.advance(DAY)
    await Ticker(app.store).fire_due()

    last = clock.now() - timedelta(minutes=30)
    assert f"ticks after {changed.isoformat()}, up to {last.isoformat()}, were missed" in caplog.text


async def test_catching_up_is_bounded(app: App, clock: ManualClock) -> None:
    await app.operator.schedules.add("s", "t", "* * * * *", missed="all", at_most=7)
    await Ticker(app.store).fire_due()
    clock.advance(365 * DAY + timedelta(seconds=30))
    await Ticker(app.store).fire_due()

    end = START + 365 * DAY
    assert await instants(app) == [end - n * timedelta(minutes=1) for n in reversed(range(8))]


# -- overlap ---------------------------------------------------------------------------------------------


async def test_a_tick_is_passed_over_while_the_task_of_an_earlier_one_has_not_ended(
    app: App, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    @app.task(name="t")
    async def report() -> None: ...

    await app.store.put(replace(HOURLY, overlap=Overlap.SKIP))
    ticker = Ticker(app.store)
    for _ in range(3):
        clock.advance(HOUR)
        await ticker.fire_due()
    assert await instants(app) == [START + HOUR]
    assert "schedule s: skipping the tick of 2026-01-01T02:00:00+00:00" in caplog.text
    await drained(app)
    clock.advance(HOUR)
    await ticker.fire_due()

    assert await instants(app) == [START + HOUR, START + 4 * HOUR]


# -- changed at run time ---------------------------------------------------------------------------------


async def test_what_comes_while_it_is_paused_is_not_made_up_for(app: App, clock: ManualClock) -> None:
    await app.operator.schedules.add("s", "t", "1h", missed="all")
    ticker = Ticker(app.store)
    clock.advance(HOUR)
    await ticker.fire_due()
    await app.operator.schedules.pause("s")
    for _ in range(3):
        clock.advance(HOUR)
        await ticker.fire_due()
    await app.operator.schedules.resume("s")
    clock.advance(HOUR)
    await ticker.fire_due()

    assert await instants(app) == [START + HOUR, START + 5 * HOUR]


async def test_another_rule_starts_anew(app: App, clock: ManualClock) -> None:
    schedules = app.operator.schedules
    await schedules.add("s", "t", "1h", missed="all")
    ticker = Ticker(app.store)
    await ticker.fire_due()
    clock.advance(2.5 * HOUR)  # nobody leads meanwhile
    await schedules.add("s", "t", "30m", missed="all", instead=True)
    clock.advance(HOUR)
    await ticker.fire_due()

    assert await instants(app) == [START + 3 * HOUR, START + 3.5 * HOUR]


async def test_a_removed_one_fires_no_more_and_comes_back_as_a_new_one(app: App, clock: ManualClock) -> None:
    schedules, ticker = app.operator.schedules, Ticker(app.store)
    await schedules.add("s", "t", "1h", missed="all")
    clock.advance(HOUR)
    await ticker.fire_due()
    await schedules.remove("s")
    clock.advance(5 * HOUR)
    await ticker.fire_due()
    assert await reached(app) is None
    await schedules.add("s", "t", "1h", missed="all")
    await ticker.fire_due()
    clock.advance(HOUR)
    await ticker.fire_due()

    assert await instants(app) == [START + HOUR, START + 7 * HOUR]


async def test_a_tick_that_was_fired_before_its_payload_changed_is_not_fired_again(
    app: App, clock: ManualClock
) -> None:
    await app.store.put(HOURLY)
    await Ticker(app.store).fire_due()
    clock.advance(2 * HOUR)
    plan = scripted(put=[Fault.BEFORE])
    with pytest.raises(Exception, match="a planned fault"):
        await Ticker(FaultyStore(app.store.inner, plan)).fire_due()
    await app.store.put(replace(HOURLY, payload=b'{"new":true}', missed="all"))
    await Ticker(app.store).fire_due()

    assert await instants(app) == [START + HOUR, START + 2 * HOUR]
    assert {task.payload for task in await tasks(app)} == {b"{}", b'{"new":true}'}
    tick = await reached(app)
    assert tick is not None
    assert tick.at == START + 2 * HOUR  # and it does not come up again


# -- broken ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "broken",
    [
        {"cron": "not a rule"},
        {"cron": "0 3 * * *", "zone": "Mars/Base"},
        {},
        {"every": timedelta(0)},
        {"cron": "* * * * *", "payload": b"not json"},
        {"cron": "* * * * *", "next": b"not steps"},
    ],
    ids=str,
)
async def test_a_broken_one_is_told_once_and_does_not_hold_up_the_others(
    app: App, clock: ManualClock, broken: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    await app.store.put(Schedule(name="broken", type="t", since=START, **broken))
    await app.store.put(HOURLY)
    ticker = Ticker(app.store)
    for _ in range(3):
        clock.advance(HOUR)
        await ticker.fire_due()

    assert await instants(app) == [START + n * HOUR for n in (1, 2, 3)]
    assert [record.message for record in caplog.records if "cannot fire schedule broken" in record.message][
        1:
    ] == []
    assert "cannot fire schedule broken" in caplog.text


async def test_many_that_are_due_at_once_are_fired_in_parts(
    app: App, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schedules_module, "_BATCH", 10)
    for number in range(25):
        await app.store.put(replace(HOURLY, name=f"s{number:02}"))
    ticker = Ticker(app.store)
    clock.advance(HOUR)

    waits = [await ticker.fire_due() for _ in range(3)]

    assert waits[:2] == [0.0, 0.0]
    assert len(await tasks(app)) == 25


async def _is_at(app: App, instant: datetime) -> bool:
    tick = await reached(app)
    return tick is not None and tick.at == instant
