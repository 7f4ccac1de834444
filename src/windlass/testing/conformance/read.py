"""Find, count and attempts."""

from collections import Counter
from datetime import timedelta
from functools import partial
from itertools import permutations

import pytest
from msgspec.structs import replace

from ..._ids import new_id
from ..._model.attempt import MAX_RECORDED, Attempt
from ..._model.filter import CancelTasks, Count, Dimension, Filter, Page
from ..._model.lease import Claimed
from ..._model.state import State
from ..._model.task import Error, TaskId
from ..._model.verdict import Receipt
from .steps import (
    BOOM,
    ENDINGS,
    OPERATOR,
    Ending,
    ManualWorker,
    StoreTest,
    a_task,
    all_pages,
    bury,
    complete,
    retry,
    snooze,
    some_tasks,
)


class TestFind(StoreTest):
    async def found(self, **fields: object) -> list[TaskId]:
        """Return the ids of matching tasks, oldest first."""
        return [task.id for task in await self.all_tasks(Filter(**fields))]  # type: ignore[arg-type]  # by name

    async def test_an_empty_filter_matches_all(self) -> None:
        ids = [await self.enqueue_one() for _ in range(3)]

        assert await self.found() == ids

    async def test_by_ids(self) -> None:
        ids = [await self.enqueue_one() for _ in range(3)]

        assert await self.found(ids=(ids[2], ids[0], "no such id")) == [ids[0], ids[2]]

    async def test_by_many_ids(self) -> None:
        batch = some_tasks(1200)
        await self.store.enqueue(batch)

        assert len(await self.found(ids=tuple(new.id for new in batch))) == 1200

    @pytest.mark.parametrize("field", ["ids", "states", "types", "queues", "tenants", "failures"])
    async def test_an_empty_list_matches_nothing(self, field: str) -> None:
        before = await self.enqueue_one()
        nothing = Filter(**{field: ()})  # type: ignore[arg-type]  # by name

        assert await self.found(**{field: ()}) == []
        assert [count.number for count in await self.store.count(nothing, ())] == [0]
        assert list(await self.store.count(nothing, (Dimension.QUEUE,))) == []
        assert (await self.store.apply(CancelTasks(by=OPERATOR), nothing, limit=10)).ids == ()
        assert await self.state_of(before) is State.READY

    async def test_by_state(self, worker: ManualWorker) -> None:
        ready = await self.enqueue_one()
        scheduled = await self.enqueue_one(delay=timedelta(seconds=9))
        held = (await self.enqueue_and_claim(worker)).task.id

        assert await self.found(states=(State.READY,)) == [ready]
        assert await self.found(states=(State.RUNNING, State.SCHEDULED)) == [scheduled, held]
        assert await self.found(states=(State.DEAD,)) == []

    @pytest.mark.parametrize(
        ("field", "name"), [("types", "type"), ("queues", "queue"), ("tenants", "tenant")]
    )
    async def test_by_type_queue_and_tenant(self, field: str, name: str) -> None:
        ids = [await self.enqueue_one(**{name: value}) for value in ("a", "b", "c", "a", "A", "a_")]

        assert await self.found(**{field: ("a",)}) == [ids[0], ids[3]]
        assert await self.found(**{field: ("b", "c")}) == [ids[1], ids[2]]
        assert await self.found(**{field: ("d", "a%", "_")}) == []

    async def test_by_no_tenant(self) -> None:
        ids = [await self.enqueue_one(tenant=tenant) for tenant in ("", "acme")]

        assert await self.found(tenants=("",)) == [ids[0]]

    async def test_by_root(self) -> None:
        root = await self.enqueue_one()
        step = await self.enqueue_one(root=root)
        await self.enqueue_one()

        assert await self.found(root=root) == [root, step]

    async def test_those_of_chains_and_groups(self) -> None:
        await self.enqueue_one()
        steps = b'[{"id":"%s","type":"step","payload":{}}]' % new_id().encode()
        first = await self.enqueue_one(next=steps)
        root = await self.enqueue_one()
        member = await self.enqueue_one(root=root, queue="other")

        assert await self.found(chained=True) == [first, member]
        assert await self.found(chained=True, queues=("other",)) == [member]
        assert await self.found(chained=True, states=(State.READY,), root=root) == [member]
        assert [count.number for count in await self.store.count(Filter(chained=True), ())] == [2]

    async def test_pages_of_chains_and_groups(self, worker: ManualWorker) -> None:
        root = await self.enqueue_one()
        first = await self.enqueue_one(root=root)
        claimed = await self.enqueue_and_claim(worker, root=root)
        await self.settle_now(complete(claimed))
        await self.enqueue_one()

        assert await self.found(chained=True, states=(State.COMPLETED,)) == [claimed.task.id]
        newest = await self.store.find(Filter(chained=True), Page(limit=1, newest_first=True))
        assert [task.id for task in newest.items] == [claimed.task.id]
        page = Page(limit=1, newest_first=True, cursor=newest.cursor)
        rest = await self.store.find(Filter(chained=True), page)
        assert ([task.id for task in rest.items], rest.cursor) == ([first], None)

    async def test_by_idempotency_key(self) -> None:
        ids = [
            await self.enqueue_one(tenant=tenant, idempotency_key=key)
            for tenant, key in (("", "k"), ("a", "k"), ("", "other"))
        ]

        assert await self.found(idempotency_key="k") == ids[:2]

    async def test_by_a_part_of_the_error(self, worker: ManualWorker) -> None:
        ids = []
        for name, message in (("ValueError", "100% of it_is gone"), ("KeyError", "100 of it is gone")):
            claimed = await self.enqueue_and_claim(worker)
            await self.settle_now(bury(claimed, Error(type=name, message=message)))
            ids.append(claimed.task.id)
        await self.enqueue_one()

        for part in ("Error", "gone", "GONE"):
            assert await self.found(error=part) == ids
        for part in ("ValueErr", "0% o", "t_i"):
            assert await self.found(error=part) == [ids[0]]
        assert await self.found(error="nothing of it") == []

    async def test_by_creation(self) -> None:
        ids = []
        for _ in range(4):
            ids.append(await self.enqueue_one())
            self.clock.advance(1)
        second, last = (await self.load(ids[1])).created_at, (await self.load(ids[3])).created_at

        assert await self.found(created_after=second) == ids[1:]
        assert await self.found(created_before=last) == ids[:3]
        assert await self.found(created_after=second, created_before=last) == ids[1:3]
        assert await self.found(created_before=second, created_after=last) == []

    async def test_by_finish(self, worker: ManualWorker) -> None:
        await self.enqueue_one()
        ids, ends = [], []
        for _ in range(3):
            claimed = await self.enqueue_and_claim(worker)
            self.clock.advance(1)
            await self.settle_now(complete(claimed))
            ids.append(claimed.task.id)
            ends.append(self.clock.now())

        assert await self.found(finished_after=ends[1]) == ids[1:]
        assert await self.found(finished_before=ends[1]) == ids[:1]
        assert await self.found(finished_after=ends[0], finished_before=ends[2]) == ids[:2]

    async def test_every_field_must_match(self) -> None:
        both = await self.enqueue_one(queue="a", tenant="t")
        await self.enqueue_one(queue="a")
        await self.enqueue_one(tenant="t")

        assert await self.found(queues=("a",), tenants=("t",), states=(State.READY,)) == [both]
        assert await self.found(queues=("a",), tenants=("t",), states=(State.DEAD,)) == []


class TestPages(StoreTest):
    @pytest.mark.parametrize("newest_first", [False, True])
    @pytest.mark.parametrize("limit", [1, 3, 7, 10, 11])
    async def test_pages_are_complete_and_without_duplicates(self, limit: int, *, newest_first: bool) -> None:
        batch = some_tasks(10)
        await self.store.enqueue(batch[::-1])

        pages = await all_pages(partial(self.store.find, Filter()), limit=limit, newest_first=newest_first)

        ids = [task.id for part in pages for task in part]
        assert ids == sorted((new.id for new in batch), reverse=newest_first)
        assert [len(part) for part in pages[:-1]] == [limit] * (len(pages) - 1)
        assert len(pages) == -(-10 // limit)

    @pytest.mark.parametrize("newest_first", [False, True])
    async def test_tasks_enqueued_meanwhile_neither_hide_nor_repeat_others(
        self, *, newest_first: bool
    ) -> None:
        batch = some_tasks(10)
        await self.store.enqueue(batch)
        page, ids = Page(limit=3, newest_first=newest_first), []
        while True:
            part = await self.store.find(Filter(), page)
            ids += [task.id for task in part.items]
            if part.cursor is None:
                break
            if len(ids) < 10:
                await self.enqueue_one()
            page = replace(page, cursor=part.cursor)

        assert len(ids) == len(set(ids))
        assert set(ids) >= {new.id for new in batch}
        assert ids == sorted(ids, reverse=newest_first)

    async def test_pages_of_a_filter_contain_only_matches(self) -> None:
        batch = [a_task(queue="ab"[n % 2]) for n in range(10)]
        await self.store.enqueue(batch)

        assert await self.all_tasks(Filter(queues=("b",)), limit=2) == [
            await self.load(new.id) for new in batch[1::2]
        ]


class TestCount(StoreTest):
    async def test_nothing_counts_as_zero(self) -> None:
        assert list(await self.store.count(Filter(), ())) == [Count(values=(), number=0)]
        assert list(await self.store.count(Filter(), (Dimension.STATE,))) == []

    async def test_counts_report_when_the_first_task_was_due(self) -> None:
        """Whatever the order in which they were enqueued, or would be claimed."""
        start = await self.store.now()
        await self.enqueue_one(queue="a", delay=timedelta(seconds=30))
        self.clock.advance(10)
        await self.enqueue_one(queue="a", priority=9)
        # The waiting time starts at its creation.
        await self.enqueue_one(queue="b", run_at=start - timedelta(days=1))
        self.clock.advance(50)
        await self.store.promote(10)
        await self.enqueue_one(queue="a")

        by_queue = {
            count.values[0]: count.oldest_at
            for count in await self.store.count(Filter(states=(State.READY,)), (Dimension.QUEUE,))
        }
        (late,) = await self.store.count(Filter(created_before=start + timedelta(seconds=1)), ())
        (none,) = await self.store.count(Filter(states=(State.DEAD,)), ())

        assert by_queue == {"a": start + timedelta(seconds=10), "b": start + timedelta(seconds=10)}
        assert late.oldest_at == start + timedelta(seconds=30)
        assert none.oldest_at is None

    async def test_a_retried_task_counts_from_when_it_is_due(self, held: Claimed) -> None:
        self.clock.advance(100)
        await self.settle_now(retry(held, timedelta(seconds=5)))
        self.clock.advance(7)
        await self.store.promote(10)

        (count,) = await self.store.count(Filter(states=(State.READY,)), ())

        assert count.oldest_at == await self.store.now() - timedelta(seconds=2)

    async def test_without_dimensions_all_matches_are_counted_together(self) -> None:
        await self.store.enqueue([a_task(queue=queue) for queue in "aab"])

        (all_of_them,) = await self.store.count(Filter(), ())
        (some,) = await self.store.count(Filter(queues=("a",)), ())

        assert (all_of_them.values, all_of_them.number, some.number) == ((), 3, 2)

    @pytest.mark.parametrize(
        "by", [by for size in (1, 2, 5) for by in permutations(Dimension, size)][:75], ids="-".join
    )
    async def test_by_every_combination_of_dimensions(self, by: tuple[Dimension, ...]) -> None:
        delays = [None if n % 5 else timedelta(seconds=9) for n in range(12)]
        batch = [
            a_task(queue="ab"[n % 2], type="xyz"[n % 3], tenant=("", "t")[n // 4 % 2], delay=delay)
            for n, delay in enumerate(delays)
        ]
        await self.store.enqueue(batch)
        expected = Counter(
            tuple(str(getattr(task, dimension.value) or "") for dimension in by)
            for task in await self.all_tasks()
        )

        counts = await self.store.count(Filter(), by)

        assert [(count.values, count.number) for count in counts] == sorted(expected.items())

    async def test_only_matching_tasks_are_counted(self) -> None:
        await self.store.enqueue([a_task(queue=queue, tenant=tenant) for queue in "ab" for tenant in "stt"])

        counts = await self.store.count(Filter(tenants=("t",)), (Dimension.QUEUE,))

        assert [(count.values, count.number) for count in counts] == [(("a",), 2), (("b",), 2)]


class TestAttempts(StoreTest):
    async def test_every_settled_lease_is_recorded(self) -> None:
        worker = await self.new_worker("w7")
        trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
        claimed = await self.enqueue_and_claim(worker, trace=trace)
        expected = []
        for number, ending in ((1, retry), (2, snooze), (2, complete)):
            claimed_at = self.clock.now()
            self.clock.advance(1)
            done = ending(claimed)
            await self.settle_now(done)
            line = Attempt(
                task_id=claimed.task.id,
                number=number,
                fence=claimed.task.fence,
                worker="w7",
                claimed_at=claimed_at,
                finished_at=self.clock.now(),
                duration=0.25,
                outcome=done.outcome,
                error=BOOM if ending is retry else None,
                trace=trace,
            )
            expected.append(line)
            if ending is not complete:
                claimed = await worker.claim_one(claimed.task.queue)

        assert list(await self.store.attempts(claimed.task.id)) == expected

    @pytest.mark.parametrize("ending", ENDINGS)
    async def test_notes_are_kept_with_the_attempt(self, held: Claimed, ending: str) -> None:
        noted = replace(ENDINGS[ending](held), notes=b'{"response_code":503,"word":"\xc3\xa9"}')

        await self.settle_now(noted)

        (line,) = await self.store.attempts(held.task.id)
        assert (line.notes, line.outcome, line.fence) == (noted.notes, noted.outcome, held.task.fence)
        assert (line.number, line.duration) == (1, 0.25)

    async def test_only_what_was_noted_has_notes(self, worker: ManualWorker) -> None:
        first, second, third = [await self.enqueue_and_claim(worker) for _ in range(3)]
        successor = a_task()
        noted = replace(complete(second, b"2", successor), notes=b'{"n":1}')

        receipts = await self.settle(complete(first, b"1"), noted, retry(third))

        lines = [(await self.store.attempts(one.task.id))[-1] for one in (first, second, third)]
        assert receipts == (Receipt.APPLIED,) * 3
        assert [line.notes for line in lines] == [None, b'{"n":1}', None]
        assert [(await self.load(one.task.id)).result for one in (first, second)] == [b"1", b"2"]
        assert await self.state_of(successor.id) is State.READY

    async def test_a_repeated_settlement_notes_nothing_again(self, held: Claimed) -> None:
        noted = replace(complete(held), notes=b'{"n":1}')
        await self.settle_now(noted)

        assert await self.settle(replace(noted, notes=b'{"n":2}')) == (Receipt.REPEATED,)

        assert [line.notes for line in await self.store.attempts(held.task.id)] == [b'{"n":1}']

    async def test_a_task_that_never_ran_has_no_attempts(self) -> None:
        assert list(await self.store.attempts(await self.enqueue_one())) == []

    async def test_an_unknown_task_has_no_attempts(self) -> None:
        assert list(await self.store.attempts(a_task().id)) == []

    async def test_postponing_for_want_of_a_handler_is_not_recorded(
        self, worker: ManualWorker, held: Claimed
    ) -> None:
        await self.settle_now(replace(snooze(held), outcome="unhandled"))
        again = await worker.claim_one(held.task.queue)
        assert list(await self.store.attempts(held.task.id)) == []

        await self.settle_now(replace(bury(again), outcome="unhandled"))

        (line,) = await self.store.attempts(held.task.id)
        assert (line.fence, line.error) == (again.task.fence, BOOM)

    @pytest.mark.parametrize("ending", [complete, bury])
    async def test_only_the_newest_attempts_are_kept(self, worker: ManualWorker, ending: Ending) -> None:
        held = await self.enqueue_and_claim(worker)
        fences = [held.task.fence]
        for _ in range(MAX_RECORDED + 5):
            await self.settle_now(snooze(held))
            held = await worker.claim_one(held.task.queue)
            fences.append(held.task.fence)
        await self.settle_now(ending(held))

        lines = await self.store.attempts(held.task.id)

        assert [line.fence for line in lines] == fences[-MAX_RECORDED:]
        assert lines[-1].outcome == ending(held).outcome

    async def test_attempts_outlive_a_replay(self, worker: ManualWorker, held: Claimed) -> None:
        await self.settle_now(bury(held))
        await self.replay(held.task.id)
        again = await worker.claim_one(held.task.queue)
        await self.settle_now(complete(again))

        lines = await self.store.attempts(held.task.id)

        fences = [held.task.fence, again.task.fence]
        assert [(line.number, line.fence) for line in lines] == [(1, fence) for fence in fences]
