"""Schedules that programs declare, and operators add, pause, trigger and remove."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.loops.workers import drained, tasks
from windlass import App, DuplicateTask, InvalidOption, InvalidPayload, NotFound, Refused, chain
from windlass._model.schedule import Missed, Overlap, Schedule, Tick
from windlass._model.task import Enqueued
from windlass._stores.memory import MemoryStore
from windlass._stores.sqlite import SQLiteStore
from windlass.testing.clock import START, ManualClock

HOUR = timedelta(hours=1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock=clock)


@pytest.fixture
async def app(store: MemoryStore) -> AsyncIterator[App]:
    app = App(store)
    await app.open()
    yield app
    await app.close()


async def only(app: App) -> Schedule:
    (status,) = await app.operator.schedules.list()
    return status.schedule


# -- declared --------------------------------------------------------------------------------------------


async def test_a_task_type_is_declared_with_its_schedule(store: MemoryStore) -> None:
    app = App(store)

    @app.task(name="tidy", queue="night", schedule="0 3 * * *")
    async def tidy() -> None: ...

    await app.open()

    schedule = await only(app)
    assert (schedule.name, schedule.type, schedule.cron, schedule.queue) == (
        "tidy",
        "tidy",
        "0 3 * * *",
        "night",
    )
    assert (schedule.declared, schedule.paused, schedule.since) == (True, False, START)


async def test_a_task_type_with_an_invalid_schedule_is_not_declared(store: MemoryStore) -> None:
    app = App(store)

    async def tidy() -> None: ...

    async def report(region: str) -> None: ...

    with pytest.raises(InvalidOption, match="a rule must be a cron expression or an interval"):
        app.task(name="tidy", schedule="nightly")(tidy)
    with pytest.raises(InvalidOption, match=r"missing .* 'region'; `schedule=` enqueues tasks without arg"):
        app.task(name="report", schedule="1h")(report)
    assert not app.types
    app.task(name="tidy", schedule="1h")(tidy)
    with pytest.raises(InvalidOption, match="the task type 'tidy' is already declared"):
        app.task(name="tidy", schedule="2h")(report)

    await app.open()

    assert (await only(app)).every == HOUR


async def test_a_schedule_of_its_own_says_payload_and_options(store: MemoryStore) -> None:
    app = App(store)
    app.queue("slow", ageing="1m")

    @app.task(name="report", timeout=60, secret=("key",))
    async def report(region: str, key: str = "") -> None: ...

    step = report.using(queue="slow", tenant="acme", priority=5, max_attempts=2).step(region="eu")
    app.schedule("eu", step, "1h", missed="all", at_most=3, overlap="skip", jitter="30s")
    await app.open()

    schedule = await only(app)
    assert (schedule.name, schedule.payload, schedule.every) == ("eu", b'{"region":"eu"}', HOUR)
    assert (schedule.queue, schedule.tenant, schedule.priority) == ("slow", "acme", 5)
    assert (schedule.max_attempts, schedule.timeout, schedule.secret) == (2, timedelta(minutes=1), ("key",))
    assert (schedule.missed, schedule.at_most, schedule.overlap) == (Missed.ALL, 3, Overlap.SKIP)


async def test_a_chain_may_be_scheduled(app: App) -> None:
    ran: list[str] = []

    @app.task(name="note")
    async def note(text: str) -> None:
        ran.append(text)

    app.schedule("both", chain(note.step("first"), note.step("second")), "1h")
    await app.open()
    for _ in range(2):
        await app.operator.schedules.trigger("both")
    await drained(app)

    assert sorted(ran) == ["first", "first", "second", "second"]


def test_what_makes_no_sense_fails_where_it_is_declared() -> None:
    app = App("memory://")

    @app.task
    async def report(region: str) -> None: ...

    with pytest.raises(InvalidPayload, match="region"):
        app.schedule("a", report, "1h")
    with pytest.raises(InvalidPayload):
        app.schedule("a", report.step(region=7), "1h")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="invalid hour '25'"):
        app.schedule("a", report.step(region="eu"), "0 25 * * *")
    with pytest.raises(InvalidOption, match="did you mean 'zone'"):
        app.schedule("a", report.step(region="eu"), "1h", zon="UTC")  # type: ignore[call-arg]
    with pytest.raises(InvalidOption, match=r"using\(queue=…\)"):
        app.schedule("a", report.step(region="eu"), "1h", queue="slow")  # type: ignore[call-arg]
    assert app.schedules.names == frozenset()

    app.schedule("a", report.step(region="eu"), "1h")
    with pytest.raises(InvalidOption, match="already declared on this app"):
        app.schedule("a", report.step(region="us"), "1h")


def declaring(store: MemoryStore, rule: str, **timing: Any) -> App:
    app = App(store)

    @app.task(name="tidy")
    async def tidy() -> None: ...

    app.schedule("tidy", tidy, rule, **timing)
    return app


async def test_starting_again_changes_nothing(store: MemoryStore, clock: ManualClock) -> None:
    await declaring(store, "1h").open()
    clock.advance(HOUR)
    app = declaring(store, "60m")
    await app.operator.schedules.pause("tidy")
    await app.open()

    schedule = await only(app)
    assert (schedule.since, schedule.paused) == (START, True)


async def test_another_declaration_is_put_and_it_stays_paused(store: MemoryStore, clock: ManualClock) -> None:
    app = declaring(store, "1h")
    await app.open()
    await app.operator.schedules.pause("tidy")
    clock.advance(HOUR)
    await declaring(store, "1h", jitter=5).open()
    same = await only(app)
    await declaring(store, "2h").open()
    other = await only(app)

    assert (same.jitter, same.since, same.paused) == (timedelta(seconds=5), START, True)
    assert (other.every, other.since, other.paused) == (2 * HOUR, START + HOUR, True)


async def test_what_an_operator_did_stands_until_the_declaration_changes(store: MemoryStore) -> None:
    app = declaring(store, "1h")
    await app.open()
    await app.operator.schedules.add("tidy", "tidy", "5m", instead=True)
    await app.open()
    assert (await only(app)).every == timedelta(minutes=5)
    await app.operator.schedules.remove("tidy")
    await app.open()
    assert await app.operator.schedules.list() == []
    await declaring(store, "3h").open()

    assert (await only(app)).every == 3 * HOUR


async def test_what_another_program_declares_is_left_alone(store: MemoryStore) -> None:
    await declaring(store, "1h").open()
    other = App(store)

    @other.task(name="other", schedule="1d")
    async def work() -> None: ...

    await other.open()

    assert [one.schedule.name for one in await other.operator.schedules.list()] == ["other", "tidy"]


# -- by an operator --------------------------------------------------------------------------------------


async def test_one_is_added_seen_and_removed(app: App, clock: ManualClock) -> None:
    schedules = app.operator.schedules
    await schedules.add("a", "t", "1h", {"x": 1}, queue="slow", tenant="acme", priority="high", timeout=5)
    await app.store.put(Tick(name="a", at=START, fired_at=START, task_id="task"))

    status = await schedules.get("a")

    assert (status.next_at, status.last_at, status.task_id) == (START + HOUR, START, "task")
    assert (status.schedule.payload, status.schedule.queue, status.schedule.priority) == (
        b'{"x":1}',
        "slow",
        10,
    )
    assert status.schedule.declared is False
    await schedules.remove("a")
    assert await schedules.list() == []


async def test_a_name_that_is_taken_is_refused_unless_it_is_to_be_replaced(
    app: App, clock: ManualClock
) -> None:
    schedules = app.operator.schedules
    await schedules.add("a", "t", "1h")
    with pytest.raises(Refused, match="already"):
        await schedules.add("a", "t", "2h")
    clock.advance(HOUR)
    await schedules.add("a", "t", "1h", jitter=3, instead=True)
    assert (await only(app)).since == START  # the same rule goes on
    await schedules.add("a", "t", "2h", instead=True)

    assert (await only(app)).since == START + HOUR


@pytest.mark.parametrize("verb", ["get", "pause", "resume", "trigger", "remove", "upcoming"])
async def test_one_that_is_not_there_is_not_found_with_a_hint(app: App, verb: str) -> None:
    await app.operator.schedules.add("report", "t", "1h")

    with pytest.raises(NotFound, match="did you mean 'report'"):
        await getattr(app.operator.schedules, verb)("reprot")
    with pytest.raises(NotFound, match="schedules list"):
        await getattr(app.operator.schedules, verb)("\x00" * 5000)


async def test_the_next_ticks_can_be_asked_for(app: App) -> None:
    await app.operator.schedules.add("a", "t", "30 2 * * *", zone="Europe/Berlin")
    await app.operator.schedules.pause("a")

    found = await app.operator.schedules.upcoming("a", 2)

    assert found == [datetime(2026, 1, 1, 1, 30, tzinfo=UTC), datetime(2026, 1, 2, 1, 30, tzinfo=UTC)]
    assert (await app.operator.schedules.get("a")).next_at is None  # it is paused
    with pytest.raises(InvalidOption, match="1 to 1,000"):
        await app.operator.schedules.upcoming("a", 0)


async def test_a_trigger_enqueues_one_task_and_moves_no_tick(app: App) -> None:
    await app.operator.schedules.add("a", "t", "1h", {"x": 1}, jitter="1h")
    await app.operator.schedules.pause("a")

    ids = [await app.operator.schedules.trigger("a") for _ in range(2)]

    found = await tasks(app)
    assert [task.id for task in found] == ids
    assert {(str(task.state), task.payload, task.idempotency_key) for task in found} == {
        ("ready", b'{"x":1}', None)
    }
    assert (await app.operator.schedules.get("a")).last_at is None


async def test_a_repeated_trigger_enqueues_one_task(app: App, clock: ManualClock) -> None:
    schedules = app.operator.schedules
    await schedules.add("s", "t", "1h", overlap="skip")
    await schedules.add("s2", "t", "1h")
    first = await schedules.trigger("s", idempotency_key="k")
    await schedules.add("s", "t", "1h", {"other": 1}, overlap="skip", instead=True)

    assert await schedules.trigger("s", idempotency_key="k") == first
    assert await schedules.trigger_once("s", "k") == Enqueued(id=first, created=False)
    assert len(await tasks(app)) == 1
    other = await schedules.trigger("s2", idempotency_key="k")
    mine = await app.client.send("t", {}, idempotency_key="k")
    assert len({first, other, mine.id}) == len(await tasks(app)) == 3
    with pytest.raises(InvalidOption, match="not printable"):
        await schedules.trigger("s", idempotency_key="\x1fk")


async def test_a_trigger_is_refused_while_a_task_has_not_ended_that_must_not_overlap(app: App) -> None:
    await app.operator.schedules.add("a", "t", "1h", overlap="skip")
    first = await app.operator.schedules.trigger("a")

    with pytest.raises(DuplicateTask, match="tasks must not overlap") as refused:
        await app.operator.schedules.trigger("a")

    assert refused.value.standing == first


async def test_one_that_cannot_be_read_is_listed_with_what_is_wrong(app: App) -> None:
    await app.operator.schedules.add("a", "t", "1h")
    await app.store.put(replace(await only(app), name="b", every=None, cron="nonsense"))

    good, bad = await app.operator.schedules.list()

    assert (good.error, bad.next_at) == (None, None)
    assert "cron expression 'nonsense'" in (bad.error or "")


def test_all_of_it_can_be_done_without_an_event_loop(tmp_path: Path, clock: ManualClock) -> None:
    app = App(SQLiteStore(tmp_path / "windlass.db", clock=clock))
    schedules = app.sync_operator.schedules
    schedules.add("a", "t", "1h", {"x": 1})
    schedules.pause("a")
    assert schedules.get("a").schedule.paused
    schedules.resume("a")
    task_id = schedules.trigger("a")
    assert schedules.upcoming("a", 1) == [START + HOUR]
    assert app.sync_operator.task(task_id).type == "t"
    assert [one.schedule.name for one in schedules.list()] == ["a"]
    schedules.remove("a")
    assert schedules.list() == []
