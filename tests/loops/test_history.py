"""History: every settled task is counted once, whoever settles it and whatever fails meanwhile."""

import asyncio
import logging
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.loops.workers import dead_worker, drained
from windlass import App, Backoff, By, Context, Fatal, Filter, Snooze
from windlass._ids import new_id
from windlass._keeper import history as chore_module
from windlass._keeper.due_tasks import cancel_expired
from windlass._keeper.history import HistoryChore
from windlass._keeper.rescue import rescue_silent
from windlass._model.lease import Heartbeat
from windlass._model.record import HistoryBucket, Worker
from windlass._model.verdict import Complete, Settlement
from windlass._observe.history import MAX_TALLIES, MAX_WAITING, HistoryRecorder
from windlass._observe.history_reader import HistoryReader
from windlass._observe.observed_store import ObservedStore
from windlass._policy.history.buckets import OTHER, TEN_SECONDS, bucket_name, start_of
from windlass._policy.history.points import History, HistoryPoint
from windlass._store.protocol import Store, all_records
from windlass._stores.memory import MemoryStore
from windlass._stores.sqlite import SQLiteStore
from windlass.errors import StoreUnavailable
from windlass.testing.clock import ManualClock
from windlass.testing.conformance.steps import ManualWorker, a_task, complete, some_tasks
from windlass.testing.conformance.upkeep.history import a_part
from windlass.testing.faults import Fault, FaultyStore, Hold, scripted

LENGTH = TEN_SECONDS.length
NO_RETRY = Backoff(base=0, jitter=0, max_attempts=1)


def counts(point: HistoryPoint) -> dict[str, int]:
    numbers = {
        name: getattr(point, name) for name in ("completed", "retried", "buried", "cancelled", "expired")
    }
    return {name: number for name, number in numbers.items() if number}


async def read(store: Store, clock: ManualClock, period: str = "1h") -> History:
    """What a keeper makes of all that was counted so far."""
    clock.advance(13)
    await HistoryChore(store).turn()
    clock.advance(3)
    return await HistoryReader(store).read(period)


async def parts(store: Store) -> list[HistoryBucket]:
    return [one for one in await all_records(store, HistoryBucket) if one.name.startswith("part")]


@pytest.fixture
async def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock=clock)


class TestCounting:
    async def test_outcomes_are_counted_by_queue_and_type(self, clocked_app: App, clock: ManualClock) -> None:
        app = clocked_app

        @app.task(name="good", queue="mail")
        async def good() -> None: ...

        @app.task(name="flaky", queue="mail", backoff=Backoff(base=0, jitter=0, max_attempts=3))
        async def flaky(*, ctx: Context) -> None:
            if ctx.attempt < 3:
                raise ValueError

        @app.task(name="bad", queue="shop")
        async def bad() -> None:
            raise Fatal("never")

        for one in (good, good, flaky, bad):
            await one.aenqueue()
        await drained(app)
        await app.store.promote(10)
        await drained(app)
        await app.store.promote(10)
        await drained(app)

        history = await read(app.store, clock)

        assert history.names() == (("mail", "flaky"), ("mail", "good"), ("shop", "bad"))
        assert counts(history.total(type="good")) == {"completed": 2}
        assert counts(history.total(type="flaky")) == {"completed": 1, "retried": 2}
        assert counts(history.total(queue="shop")) == {"buried": 1}
        assert history.total().failed == 3

    async def test_waiting_and_running_times_are_measured(self, clocked_app: App, clock: ManualClock) -> None:
        app = clocked_app

        @app.task(name="t")
        async def t() -> None: ...

        for _ in range(100):
            await t.aenqueue()
        clock.advance(100)
        await drained(app)

        total = (await read(app.store, clock)).total()

        assert total.wait is not None
        assert total.run is not None
        assert total.wait.p50 == pytest.approx(100, rel=0.1)
        assert 0 < total.run.p50 < 1

    async def test_many_at_once_are_all_counted_though_not_all_are_timed(
        self, store: MemoryStore, clock: ManualClock
    ) -> None:
        observed = ObservedStore(store, ())
        await observed.enqueue(some_tasks(501))
        clock.advance(20)
        worker = ManualWorker(observed)
        await worker.beat(opening=True)
        claimed = await worker.claim(501)

        await observed.settle(
            [
                Settlement(lease=one.lease, verdict=Complete(), outcome="returned", duration=2.0)
                for one in claimed
            ]
        )
        await observed.close()

        (series,) = (await parts(store))[0].series
        assert series.completed == 501
        assert sum(series.wait[1::2]) == pytest.approx(501, rel=0.1)
        assert sum(series.run[1::2]) == sum(series.wait[1::2])

    async def test_what_is_handed_back_is_no_attempt(self, clocked_app: App, clock: ManualClock) -> None:
        @clocked_app.task(name="t")
        async def t() -> None:
            raise Snooze(60)

        await t.aenqueue()
        assert (await drained(clocked_app)).ran == 1

        assert (await read(clocked_app.store, clock)).names() == ()

    async def test_cancelled_and_expired_ones_are_counted(self, clocked_app: App, clock: ManualClock) -> None:
        app = clocked_app

        @app.task(name="t")
        async def t() -> None: ...

        await t.aenqueue()
        await t.using(expires=5).aenqueue()
        clock.advance(6)
        await cancel_expired(app.store)
        await app.operator.cancel(Filter(), by=By(who="ada"))
        await app.store.close()
        await app.store.open()

        assert counts((await read(app.store, clock)).total(type="t")) == {"cancelled": 1, "expired": 1}

    async def test_what_a_keeper_rescues_is_a_failed_attempt(
        self, clocked_app: App, clock: ManualClock
    ) -> None:
        app = clocked_app

        @app.task(name="t", backoff=NO_RETRY)
        async def t() -> None: ...

        await t.aenqueue()
        await dead_worker(app)
        session = new_id()
        await app.store.heartbeat(
            Heartbeat(session=session, worker=Worker(name="k"), lease_for=timedelta(60), opening=True)
        )
        await rescue_silent(app.store, session)
        assert app.store.history is not None
        await app.store.history.close()

        total = (await read(app.store, clock)).total()

        assert counts(total) == {"buried": 1}
        assert total.run is None  # nobody knows how long it ran

    async def test_a_settlement_that_is_repeated_counts_once(
        self, store: MemoryStore, clock: ManualClock
    ) -> None:
        observed = ObservedStore(store)
        await observed.enqueue([a_task()])
        worker = ManualWorker(observed)
        await worker.beat(opening=True)
        done = complete(await worker.claim_one())

        for _ in range(3):
            await observed.settle([done])
        await observed.close()

        assert counts((await read(store, clock)).total()) == {"completed": 1}

    async def test_a_task_that_another_process_claimed_is_looked_up(
        self, store: MemoryStore, clock: ManualClock
    ) -> None:
        one, other = ObservedStore(store), ObservedStore(store)
        await one.enqueue([a_task(queue="default", type="known"), *some_tasks(2, type="other")])
        worker = ManualWorker(one)
        await worker.beat(opening=True)
        claimed = await worker.claim(3)

        await other.settle([complete(claim) for claim in claimed])
        await other.close()
        await one.close()

        history = await read(store, clock)
        assert counts(history.total(type="known")) == {"completed": 1}
        assert counts(history.total(type="other")) == {"completed": 2}

    @pytest.mark.parametrize("fails", [False, True])
    async def test_a_transaction_counts_when_it_is_committed(
        self, tmp_path: Path, clock: ManualClock, *, fails: bool
    ) -> None:
        app = App(SQLiteStore(tmp_path / "w.db", clock=clock), backoff=NO_RETRY)

        @app.task(name="t")
        async def t(*, ctx: Context) -> None:
            async with ctx.transaction():
                if fails:
                    raise ValueError

        await t.aenqueue()
        await drained(app)

        assert counts((await read(app.store, clock)).total()) == {"buried" if fails else "completed": 1}
        await app.close()

    async def test_more_types_than_a_process_counts_are_summed(
        self, store: MemoryStore, clock: ManualClock
    ) -> None:
        observed = ObservedStore(store)
        for number in range(MAX_TALLIES + 50):
            await observed.enqueue([a_task(type=f"t{number}")])
        worker = ManualWorker(observed)
        await worker.beat(opening=True)
        await observed.settle([complete(one) for one in await worker.claim(2_000)])
        await observed.close()

        history = await read(store, clock)

        assert history.total().completed == MAX_TALLIES + 50
        assert ("default", OTHER) in history.names() or (OTHER, OTHER) in history.names()


class TestRecorder:
    async def test_a_part_is_stored_when_its_bucket_is_over(
        self, store: MemoryStore, clock: ManualClock
    ) -> None:
        observed = ObservedStore(store)
        recorder = observed.history
        assert recorder is not None
        await recorder.flush()
        await self.complete_one(observed)

        await recorder.flush()
        early = await parts(store)
        clock.advance(10)
        await recorder.flush()

        assert early == []
        (part,) = await parts(store)
        assert start_of(part.name) == TEN_SECONDS.floor(clock.now()) - LENGTH

    async def test_an_outage_keeps_what_was_counted(self, store: MemoryStore, clock: ManualClock) -> None:
        broken = FaultyStore(store, scripted(put=[Fault.BEFORE, Fault.AFTER]))
        recorder = HistoryRecorder(lambda: broken)
        await self.complete_one(ObservedStore(store, history=recorder))

        for _ in range(3):
            await recorder.flush(everything=True)

        assert counts((await read(store, clock)).total()) == {"completed": 1}

    async def test_a_long_outage_drops_the_oldest(self, store: MemoryStore, clock: ManualClock) -> None:
        broken = FaultyStore(store, scripted(put=[Fault.BEFORE] * (MAX_WAITING + 5)))
        recorder = HistoryRecorder(lambda: broken)
        observed = ObservedStore(store, history=recorder)
        for _ in range(MAX_WAITING + 5):
            await self.complete_one(observed)
            await recorder.flush(everything=True)
            clock.advance(10)

        await recorder.flush(everything=True)

        kept = [start_of(part.name) for part in await parts(store)]
        assert len(kept) == MAX_WAITING
        assert [start for start in kept if start and start < clock.now() - (MAX_WAITING + 2) * LENGTH] == []

    async def test_an_unexpected_error_is_logged_and_not_raised(
        self, store: MemoryStore, clock: ManualClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        class Odd(MemoryStore):
            async def put(self, *_: Any) -> None:
                raise ZeroDivisionError

        odd = Odd(clock=clock)
        recorder = HistoryRecorder(lambda: odd)
        await self.complete_one(ObservedStore(store, history=recorder))

        caplog.clear()  # of the task's own line, if another test has set up logging
        with caplog.at_level(logging.ERROR):
            await recorder.close()
            await recorder.close()

        assert [record.name for record in caplog.records] == ["windlass.history"]

    async def test_a_clock_that_is_set_back_begins_another_part(
        self, store: MemoryStore, clock: ManualClock
    ) -> None:
        observed = ObservedStore(store)
        assert observed.history is not None
        for step in (0, -3_600, 3_600):
            clock.advance(step)
            await observed.history.flush()
            await self.complete_one(observed)
        await observed.close()

        starts = Counter(start_of(part.name) for part in await parts(store))
        assert sorted(starts.values()) == [1, 2]

    async def complete_one(self, store: ObservedStore) -> None:
        await store.enqueue([a_task()])
        worker = ManualWorker(store)
        await worker.beat(opening=True)
        await store.settle([complete(await worker.claim_one())])


class TestChore:
    async def test_a_keeper_that_dies_at_any_step_loses_nothing_and_counts_nothing_twice(self) -> None:
        step = 0
        finished = False
        while not finished:
            for fault in Fault:
                finished = await self.died_at(step, fault)
            step += 1
        assert step > 30  # there were many steps to die at

    async def died_at(self, step: int, fault: Fault) -> bool:
        """Let a keeper die at a step of its work, and another one finish; return whether it did not die."""
        clock = ManualClock()
        store = MemoryStore(clock=clock)
        start = clock.now()
        await store.put(a_part(start, "before"))
        clock.advance(timedelta(hours=2))
        await HistoryChore(store).turn()  # so that what follows is late
        await store.put(a_part(start, "late"))
        await store.put(a_part(start + timedelta(seconds=30), "other"))
        await store.put(a_part(clock.now() - timedelta(seconds=50), "new"))
        clock.advance(60)
        left = [step]

        def plan(_: str) -> Fault | None:
            left[0] -= 1
            return fault if left[0] == -1 else None

        died = False
        try:
            await HistoryChore(FaultyStore(store, plan)).turn()
        except StoreUnavailable:
            died = True
        for _ in range(3):
            await HistoryChore(store).turn()
        clock.advance(3 + 7 * 60)
        await HistoryChore(store).turn()

        reader = HistoryReader(store)
        fine, minutes = await reader.read("3h"), await reader.read("6h")
        clock.advance(3_600)
        await HistoryChore(store).turn()
        found = [fine, minutes, await reader.read("7d")]
        assert [one.total().completed for one in found] == [4, 4, 4], (step, fault)
        assert await parts(store) == []
        return not died

    @pytest.mark.parametrize("step", [0, 1, 2], ids=["bucket", "minute", "hour"])
    async def test_a_former_leader_does_not_undo_what_the_new_one_does(
        self, store: MemoryStore, clock: ManualClock, step: int
    ) -> None:
        start, hold = clock.now(), Hold()
        await store.put(a_part(start, "first"))
        clock.advance(timedelta(hours=2))
        await HistoryChore(store).turn()
        await store.put(a_part(start, "late"))
        former = HistoryChore(FaultyStore(store, scripted(put=[*[None] * step, hold])))
        turn = asyncio.create_task(former.turn())
        await hold.reached()

        await store.put(a_part(start, "later"))
        await HistoryChore(store).turn()
        hold.let_go()
        assert await turn < 1  # it saw that it was not alone
        await former.turn()

        clock.advance(3)
        reader = HistoryReader(store)
        found = [await reader.read(period) for period in ("3h", "6h", "7d")]
        assert [one.total().completed for one in found] == [3, 3, 3]

    async def test_a_backlog_is_rolled_up_in_steps(
        self, store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(chore_module, "_MAX_PARTS", 50)
        start = clock.now()
        for number in range(6 * 60):  # an hour without a keeper
            await store.put(a_part(start + number * LENGTH))
        clock.advance(timedelta(hours=1, seconds=3))
        chore, turns = HistoryChore(store), 1
        while await chore.turn() < 1:
            turns += 1

        clock.advance(3)
        found = [await HistoryReader(store).read(period) for period in ("3h", "5h", "7d")]
        assert [one.total().completed for one in found] == [360, 360, 360]
        assert turns > 5

    async def test_parts_from_another_time_are_removed(self, store: MemoryStore, clock: ManualClock) -> None:
        for days in (-2, 3):
            await store.put(a_part(clock.now() + timedelta(days=days)))
        await store.put(HistoryBucket(name="part/nonsense"))

        await HistoryChore(store).turn()

        assert await parts(store) == []

    async def test_a_clock_that_was_set_forward_leaves_nothing_behind(
        self, store: MemoryStore, clock: ManualClock
    ) -> None:
        chore = HistoryChore(store)
        for years in (10, -10):
            clock.advance(timedelta(days=365 * years))
            await store.put(a_part(clock.now()))
            clock.advance(timedelta(hours=2))
            for _ in range(3):
                await chore.turn()

        starts = [start_of(one.name) for one in await all_records(store, HistoryBucket)]
        assert starts
        assert max(start for start in starts if start) <= clock.now()

    async def test_depths_are_counted_rarely_if_that_takes_long(
        self, store: MemoryStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        times = iter(range(0, 10_000, 5))  # every look at the clock takes five seconds
        monkeypatch.setattr(chore_module, "monotonic", lambda: float(next(times)))
        await store.enqueue([a_task()])
        chore = HistoryChore(store)
        for _ in range(100):
            clock.advance(10)
            await chore.turn()

        clock.advance(6)
        points = (await HistoryReader(store).read("1000s")).points()
        measured = [point for point in points if point.depth is not None]
        assert {point.depth for point in measured} == {1}
        assert 1 <= len(measured) <= 5


class TestReader:
    async def test_buckets_that_no_longer_change_are_read_once(
        self, store: MemoryStore, clock: ManualClock
    ) -> None:
        chore, start = HistoryChore(store), clock.now()
        for number in range(200):
            await store.put(a_part(start + number * LENGTH))
        clock.advance(2_003)
        while await chore.turn() < 1:
            pass
        rows: list[int] = []

        class Counting(MemoryStore):
            async def records(self, *args: Any) -> Any:
                found = await store.records(*args)
                rows.append(len(found.items))
                return found

        reader = HistoryReader(Counting(clock=clock))
        clock.advance(3)
        first = await reader.read("1h")
        rows_first, rows[:] = sum(rows), []
        clock.advance(10)
        second = await reader.read("1h")

        assert first.total().completed == second.total().completed == 200
        assert rows_first >= 200
        assert sum(rows) <= 20

    async def test_a_late_part_and_a_longer_period_are_seen(
        self, store: MemoryStore, clock: ManualClock
    ) -> None:
        reader, start = HistoryReader(store), clock.now()
        await store.put(a_part(start))
        clock.advance(16)
        await HistoryChore(store).turn()
        assert (await reader.read("20s")).total().completed == 1
        await store.put(a_part(start, "late"))
        await HistoryChore(store).turn()

        assert (await reader.read("20s")).total().completed == 2
        clock.advance(1_800)
        assert (await reader.read("1m")).total().completed == 0
        assert (await reader.read("1h")).total().completed == 2

    async def test_a_bucket_that_is_not_over_is_not_shown(
        self, store: MemoryStore, clock: ManualClock
    ) -> None:
        clock.advance(15)

        history = await HistoryReader(store).read("10s")

        assert history.until == clock.now() - timedelta(seconds=15)
        assert history.since == clock.now() - timedelta(seconds=25)


async def test_an_operator_reads_history_blocking_and_not(clocked_app: App, clock: ManualClock) -> None:
    await clocked_app.store.put(a_part(clock.now(), completed=7))
    expected = await read(clocked_app.store, clock)

    assert (await clocked_app.operator.history("1h")) == expected
    assert (await clocked_app.operator.acting_as(By(who="ada")).history()).total().completed == 7
    assert await asyncio.to_thread(clocked_app.sync_operator.history, "1h") == expected


async def test_a_worker_and_its_keeper_write_history_by_themselves(
    tmp_path: Path,
) -> None:
    app = App(SQLiteStore(tmp_path / "windlass.db"))

    @app.task(name="t")
    async def t() -> None: ...

    await t.aenqueue()
    await drained(app)

    (part,) = await parts(app.store)
    assert [(one.type, one.completed) for one in part.series] == [("t", 1)]
    start = start_of(part.name)
    assert start is not None
    assert bucket_name(TEN_SECONDS, TEN_SECONDS.floor(start)) == bucket_name(TEN_SECONDS, start)
    await app.close()
