"""Expiry: a task that has not started by an instant never starts, on any path of a claim."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from ..._model.filter import Expire, Filter
from ..._model.lease import Claimed
from ..._model.limit import Limit
from ..._model.queue import Fairness, Level, Ordering, QueueSettings
from ..._model.record import Audit
from ..._model.state import PENDING, State
from ..._model.task import NewTask, TaskId
from ...errors import InvalidOption
from ..clock import START
from .steps import ManualWorker, StoreTest, a_task, bury, complete, release, retry, snooze

MICROSECOND = timedelta(microseconds=1)
HOUR = timedelta(hours=1)
LATER = timedelta(minutes=5)
ALONE = QueueSettings(name="q")

PATHS: dict[str, tuple[Any, ...]] = {
    "in order": (),
    "stripes": (replace(ALONE, stripes=4),),
    "round robin": (replace(ALONE, fairness=Fairness.ROUND_ROBIN),),
    "random": (replace(ALONE, fairness=Fairness.RANDOM),),
    "shares of levels": (replace(ALONE, ordering=Ordering(shares={Level.HIGH: 50, Level.LOW: 10})),),
    "a cap on the queue": (Limit(name="cap", queue="q", running=50),),
    "a cap by tenant": (Limit(name="cap", by="tenant", running=50),),
    "a rate": (Limit(name="rate", queue="q", rate=100.0, burst=50),),
    "turns and a cap": (
        replace(ALONE, fairness=Fairness.ROUND_ROBIN),
        Limit(name="cap", by="tenant", running=50),
    ),
}
"""What to set up so that a claim takes each of its paths."""


class ExpiryTest(StoreTest):
    """Base of the test classes on expiry."""

    async def expire(self, limit: int = 100) -> list[TaskId]:
        """Cancel what has expired, as the keeper does."""
        until = self.clock.now() + timedelta(microseconds=1)
        return [*(await self.store.apply(Expire(), Filter(expires_before=until), limit)).ids]


class TestNeverStarts(ExpiryTest):
    @pytest.fixture
    async def patient(self) -> ManualWorker:
        """A worker whose session outlives every expiry."""
        return await self.new_worker(lease_for=timedelta(days=9))

    async def fill(self, *records: Any) -> tuple[list[NewTask], list[NewTask]]:
        """Set up queue q, and enqueue tasks that expire in five minutes and as many that do not."""
        for record in records:
            await self.store.put(record)
        batch = [
            a_task(queue="q", tenant=tenant, priority=priority, expires_in=expires)
            for expires in (LATER, None)
            for tenant in ("", "ada", "bob")
            for priority in (10, 0, -10)
        ]
        await self.store.enqueue(batch)
        return batch[:9], batch[9:]

    @pytest.mark.parametrize("path", PATHS)
    async def test_an_expired_task_is_never_claimed(self, patient: ManualWorker, path: str) -> None:
        expiring, others = await self.fill(*PATHS[path])
        self.clock.advance(LATER)

        claimed = await patient.claim_ids(100, "q")

        assert sorted(claimed) == sorted(new.id for new in others)
        assert {await self.state_of(new.id) for new in expiring} == {State.READY}

    @pytest.mark.parametrize("path", PATHS)
    async def test_until_then_it_is_claimed(self, patient: ManualWorker, path: str) -> None:
        expiring, others = await self.fill(*PATHS[path])
        self.clock.advance(LATER - timedelta(microseconds=1))

        claimed = await patient.claim_ids(100, "q")

        assert sorted(claimed) == sorted(new.id for new in [*expiring, *others])

    @pytest.mark.parametrize("path", PATHS)
    async def test_expired_tasks_do_not_use_up_the_room_of_a_claim(
        self, patient: ManualWorker, path: str
    ) -> None:
        _, others = await self.fill(*PATHS[path])
        self.clock.advance(LATER)

        claimed = [*await patient.claim_ids(2, "q"), *await patient.claim_ids(100, "q")]

        assert sorted(claimed) == sorted(new.id for new in others)

    @pytest.mark.parametrize("path", PATHS)
    async def test_a_settle_that_claims_does_not_claim_it(self, patient: ManualWorker, path: str) -> None:
        held = await self.enqueue_and_claim(patient)
        _, others = await self.fill(*PATHS[path])
        self.clock.advance(LATER)

        settled = await self.store.settle([complete(held)], patient.next_claim(100, "q"))

        assert sorted(one.task.id for one in settled.claimed) == sorted(new.id for new in others)

    @pytest.mark.parametrize("level", Level)
    @pytest.mark.parametrize("path", ["in order", "round robin", "a cap by tenant"])
    async def test_a_claim_for_one_level_does_not_claim_it(
        self, patient: ManualWorker, path: str, level: Level
    ) -> None:
        _, others = await self.fill(*PATHS[path])
        self.clock.advance(LATER)

        claimed = await self.store.claim(replace(patient.next_claim(100, "q"), level=level))

        sign = {Level.HIGH: 10, Level.MEDIUM: 0, Level.LOW: -10}[level]
        assert sorted(one.task.id for one in claimed) == sorted(o.id for o in others if o.priority == sign)

    async def test_several_queues_are_claimed_from_without_it(self, patient: ManualWorker) -> None:
        await self.enqueue_one(queue="a", expires_in=LATER)
        await self.enqueue_one(queue="b", expires_in=LATER)
        kept = [await self.enqueue_one(queue=queue) for queue in "ab"]
        self.clock.advance(LATER)

        assert await patient.claim_ids(100, "a", "b") == kept

    async def test_what_is_promoted_or_unblocked_too_late_never_starts(self, patient: ManualWorker) -> None:
        held = await self.enqueue_and_claim(patient)
        waiting = await self.enqueue_one(after=(held.task.id,), expires_in=LATER)
        scheduled = await self.enqueue_one(delay=LATER, expires_in=LATER)
        self.clock.advance(HOUR)
        await self.store.promote(10)
        await self.settle_now(complete(held))
        assert {await self.state_of(one) for one in (waiting, scheduled)} == {State.READY}

        assert len(await patient.claim(10)) == 0

    @pytest.mark.parametrize("ending", [release, snooze])
    async def test_a_first_attempt_that_was_given_back_has_not_started(
        self, patient: ManualWorker, ending: Any
    ) -> None:
        held = await self.enqueue_and_claim(patient, expires_in=LATER)
        self.clock.advance(LATER)
        await self.settle_now(ending(held))

        assert len(await patient.claim(10, held.task.queue)) == 0
        assert await self.expire() == [held.task.id]

    async def test_a_claim_whose_reply_was_lost_has_not_started(self, patient: ManualWorker) -> None:
        held = await self.enqueue_and_claim(patient, expires_in=LATER)
        self.clock.advance(LATER)
        await patient.beat(through=patient.claims, lease_for=timedelta(days=9))

        assert await self.state_of(held.task.id) is State.READY
        assert len(await patient.claim(10, held.task.queue)) == 0

    async def test_a_task_that_had_started_is_retried_after_its_expiry(self, patient: ManualWorker) -> None:
        held = await self.enqueue_and_claim(patient, expires_in=LATER)
        await self.settle_now(retry(held))
        self.clock.advance(HOUR)

        assert await self.expire() == []
        again = await patient.claim_one(held.task.queue)
        assert (again.task.id, again.task.attempt) == (held.task.id, 2)

    async def test_a_running_task_is_rescued_after_its_expiry(self, worker: ManualWorker) -> None:
        held = await self.enqueue_and_claim(worker, expires_in=timedelta(seconds=1))
        _, rescued = await self.take_over(held)

        assert await self.expire() == []
        assert rescued.task.id == held.task.id


class TestExpire(ExpiryTest):
    async def test_a_duration_counts_from_the_enqueue_or_from_when_the_task_is_due(self) -> None:
        now = self.clock.now()
        fields: list[tuple[dict[str, Any], datetime | None]] = [
            ({}, None),
            ({"expires_in": HOUR}, now + HOUR),
            ({"expires_in": HOUR, "delay": LATER}, now + LATER + HOUR),
            ({"expires_in": HOUR, "run_at": now + HOUR}, now + 2 * HOUR),
            ({"expires_in": HOUR, "run_at": now - HOUR}, now + HOUR),
            ({"expires_at": now + LATER}, now + LATER),
            ({"expires_at": now + HOUR, "run_at": now + LATER}, now + HOUR),
            ({"expires_at": now - HOUR}, now - HOUR),
            ({"expires_in": MICROSECOND}, now + MICROSECOND),
        ]
        tasks = [a_task(**given) for given, _ in fields]
        await self.store.enqueue(tasks)

        assert [(await self.load(new.id)).expires_at for new in tasks] == [at for _, at in fields]

    @pytest.mark.parametrize(
        "fields",
        [
            {"expires_in": timedelta(0)},
            {"expires_in": timedelta(0), "delay": HOUR},
            {"expires_in": timedelta(seconds=-1)},
            {"expires_in": timedelta(days=3661)},
            {"expires_at": datetime(1969, 12, 31, tzinfo=UTC)},
            {"expires_at": datetime(9999, 12, 31, tzinfo=UTC)},
            {"delay": HOUR, "expires_at": START + HOUR},
            {"run_at": START + HOUR, "expires_at": START + LATER},
        ],
    )
    async def test_an_expiry_out_of_range_or_before_the_task_is_due_is_refused(
        self, fields: dict[str, Any]
    ) -> None:
        async with self.refused(InvalidOption):
            await self.store.enqueue([a_task(**fields)])
        async with self.refused(InvalidOption):
            await self.store.enqueue([a_task(), a_task(idempotency_key="k", **fields)])

    async def test_a_successor_cannot_expire_at_once(self, worker: ManualWorker) -> None:
        held = await self.enqueue_and_claim(worker)
        successor = a_task(expires_in=timedelta(0))

        async with self.refused(InvalidOption):
            await self.settle_now(complete(held, None, successor))

        await self.settle_now(complete(held))

    async def test_many_at_once_keep_their_expiry(self) -> None:
        """A store may have another way to write many tasks."""
        batch = [a_task(expires_in=HOUR, queue="many") for _ in range(1500)]
        await self.store.enqueue(batch)

        found = await self.all_tasks(Filter(queues=("many",)))

        assert {task.expires_at for task in found} == {self.clock.now() + HOUR}

    async def test_successors_count_from_their_own_enqueue(self, worker: ManualWorker) -> None:
        held = await self.enqueue_and_claim(worker)
        self.clock.advance(1)
        successor = a_task(expires_in=LATER)
        await self.settle_now(complete(held, None, successor))

        assert (await self.load(successor.id)).expires_at == self.clock.now() + LATER

    async def test_pending_tasks_in_any_state_end_as_cancelled(self, held: Claimed) -> None:
        ids = [
            await self.enqueue_one(expires_in=LATER),
            await self.enqueue_one(delay=timedelta(seconds=1), expires_in=LATER),
            await self.enqueue_one(after=(held.task.id,), expires_in=LATER),
        ]
        expires_at = [(await self.load(one)).expires_at for one in ids]
        self.clock.advance(HOUR)

        assert await self.expire() == ids

        for task_id, at in zip(ids, expires_at, strict=True):
            task = await self.load(task_id)
            assert (task.state, task.finished_at) == (State.CANCELLED, self.clock.now())
            assert task.error is not None
            assert at is not None
            assert task.error.type == "Expired"
            assert at.isoformat() in task.error.message
            assert (task.cancelled_by, task.expires_at) == (None, at)

    async def test_successors_are_cancelled_and_say_why(self) -> None:
        first = a_task(expires_in=LATER)
        second = a_task(after=(first.id,))
        third = a_task(after=(second.id,))
        await self.store.enqueue([first, second, third])
        self.clock.advance(LATER)

        assert await self.expire() == [first.id]

        for successor in (second, third):
            task = await self.load(successor.id)
            assert task.state is State.CANCELLED
            assert task.error is not None
            assert task.error.type == "Cancelled"
            assert first.id in task.error.message
            assert "expired at" in task.error.message

    async def test_nothing_else_is_touched(self, worker: ManualWorker) -> None:
        await self.enqueue_one()
        await self.enqueue_one(expires_in=HOUR)
        await self.enqueue_and_claim(worker, expires_in=timedelta(seconds=1))
        for ending in (complete, bury):
            await self.enqueue_and_settle(worker, ending, expires_in=timedelta(seconds=1))
        self.clock.advance(10)

        async with self.unchanged():
            assert await self.expire() == []
            assert (await self.store.apply(Expire(), Filter(), 100)).ids == ()

    async def test_it_is_not_audited_and_takes_the_oldest_first(self) -> None:
        ids = [await self.enqueue_one(expires_in=LATER) for _ in range(3)]
        self.clock.advance(LATER)

        assert [await self.expire(2), await self.expire(2), await self.expire(2)] == [ids[:2], ids[2:], []]
        assert await self.all_records(Audit) == ()

    async def test_a_replay_clears_the_expiry(self, worker: ManualWorker) -> None:
        task_id = await self.enqueue_one(expires_in=timedelta(seconds=1))
        self.clock.advance(1)
        await self.expire()

        await self.replay(task_id)

        assert (await worker.claim_one()).task.expires_at is None

    async def test_tasks_are_found_by_their_expiry(self, worker: ManualWorker) -> None:
        soon = await self.enqueue_one(expires_in=LATER)
        await self.enqueue_one(expires_in=HOUR)
        await self.enqueue_one()
        await self.enqueue_and_claim(worker, expires_in=LATER)
        until = self.clock.now() + LATER + timedelta(microseconds=1)

        for states in (None, tuple(PENDING), (State.READY,)):
            found = await self.all_tasks(Filter(expires_before=until, states=states))
            assert [task.id for task in found] == [soon]
            (count,) = await self.store.count(Filter(expires_before=until, states=states), ())
            assert count.number == 1
        assert await self.all_tasks(Filter(expires_before=until, states=())) == []

        self.clock.advance(LATER)
        await self.expire()
        assert [task.id for task in await self.all_tasks(Filter(expires_before=until))] == [soon]
