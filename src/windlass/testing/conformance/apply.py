"""Apply: operators' actions on tasks, and the audit log."""

from datetime import timedelta

import msgspec
import pytest
from msgspec.structs import replace

from ..._model.filter import (
    By,
    CancelTasks,
    Discard,
    Filter,
    Replay,
    Reveal,
    Rewrite,
    Rewritten,
    TaskDocuments,
    Trigger,
    documents_of,
)
from ..._model.lease import CancelRequest, Claimed
from ..._model.options import DeclaredType, Defaults
from ..._model.record import Audit
from ..._model.state import State
from ..._model.task import Error, Task
from ..._model.verdict import Bury
from .steps import BOOM, OPERATOR, Ending, ManualWorker, StoreTest, a_task, bury, complete, some_tasks, stop


class TestCancel(StoreTest):
    async def test_a_pending_task_is_cancelled_at_once(self, held: Claimed) -> None:
        ids = [
            await self.enqueue_one(),
            await self.enqueue_one(delay=timedelta(seconds=5)),
            await self.enqueue_one(after=(held.task.id,)),
        ]
        self.clock.advance(1)

        done = await self.cancel(*ids)

        assert list(done) == ids
        for task_id in ids:
            task = await self.load(task_id)
            assert (task.state, task.finished_at, task.attempt) == (State.CANCELLED, self.clock.now(), 0)
            assert task.error is not None

    async def test_a_running_task_is_requested_to_stop_and_keeps_running(
        self, worker: ManualWorker, held: Claimed
    ) -> None:
        done = await self.cancel(held.task.id)

        task = await self.load(held.task.id)
        assert list(done) == [held.task.id]
        assert (task.state, task.cancel_requested, task.fence) == (State.RUNNING, True, held.task.fence)
        assert (await worker.beat(held.lease, through=worker.claims)).cancel == (
            CancelRequest(held.task.id, OPERATOR.who, OPERATOR.why),
        )

    async def test_ended_tasks_are_untouched(self, worker: ManualWorker) -> None:
        ended = [await self.enqueue_and_settle(worker, ending) for ending in (complete, bury, stop)]

        async with self.unchanged():
            assert list(await self.cancel(*(one.task.id for one in ended))) == []

    async def test_a_replay_clears_the_request_to_stop(self, worker: ManualWorker, held: Claimed) -> None:
        await self.cancel(held.task.id)
        await self.settle_now(stop(held))
        await self.replay(held.task.id)

        again = await worker.claim_one(held.task.queue)

        assert not again.task.cancel_requested


class TestReplay(StoreTest):
    @pytest.mark.parametrize("ending", [bury, stop])
    async def test_dead_and_cancelled_tasks_are_replayed_with_all_their_attempts(
        self, held: Claimed, ending: Ending
    ) -> None:
        await self.settle_now(ending(held))
        self.clock.advance(1)

        done = await self.replay(held.task.id)

        task = await self.load(held.task.id)
        assert list(done) == [held.task.id]
        assert (task.state, task.attempt, task.run_at) == (State.READY, 0, self.clock.now())
        assert (task.fence, task.finished_at) == (held.task.fence, None)
        assert task.payload == held.task.payload

    async def test_a_cancelled_scheduled_task_is_replayed_as_ready(self, worker: ManualWorker) -> None:
        task_id = await self.enqueue_one(delay=timedelta(days=1))
        await self.cancel(task_id)

        await self.replay(task_id)

        assert (await worker.claim_one()).task.run_at == self.clock.now()

    async def test_a_replay_can_change_the_payload(self, worker: ManualWorker, held: Claimed) -> None:
        await self.settle_now(bury(held))

        await self.replay(held.task.id, payload=b'{"to":"eve"}')

        again = await worker.claim_one(held.task.queue)
        (line,) = await self.all_records(Audit)
        assert again.task.payload == b'{"to":"eve"}'
        assert line.detail

    async def test_a_replay_of_dead_tasks_leaves_out_cancelled_ones(self, worker: ManualWorker) -> None:
        dead, _, cancelled = [
            await self.enqueue_and_settle(worker, ending, queue="q") for ending in (bury, complete, stop)
        ]
        where = Filter(queues=("q",), states=(State.DEAD,))

        done = await self.store.apply(Replay(by=OPERATOR), where, limit=10)

        assert list(done.ids) == [dead.task.id]
        assert (await self.load(cancelled.task.id)).state is State.CANCELLED


class TestDiscard(StoreTest):
    async def test_a_discarded_task_is_deleted(self, held: Claimed) -> None:
        await self.settle_now(bury(held))

        done = await self.discard(held.task.id)

        assert list(done) == [held.task.id]
        assert not await self.exists(held.task.id)
        assert list(await self.store.attempts(held.task.id)) == []

    async def test_only_dead_tasks_can_be_discarded(self, worker: ManualWorker) -> None:
        running = await self.enqueue_and_claim(worker)
        ended = [await self.enqueue_and_settle(worker, ending) for ending in (complete, stop)]
        ids = [await self.enqueue_one(), *(one.task.id for one in (running, *ended))]

        async with self.unchanged():
            assert list(await self.discard(*ids)) == []


class TestFilters(StoreTest):
    async def test_only_matching_tasks_are_changed(self) -> None:
        spared = await self.enqueue_one(queue="a")
        meant = await self.enqueue_one(queue="b")

        done = await self.store.apply(CancelTasks(by=OPERATOR), Filter(queues=("b",)), limit=10)

        assert list(done.ids) == [meant]
        assert await self.state_of(spared) is State.READY

    async def test_the_limit_takes_the_oldest(self) -> None:
        batch = some_tasks(5)
        await self.store.enqueue(batch[::-1])
        action = CancelTasks(by=OPERATOR)

        parts = [await self.store.apply(action, Filter(), limit=2) for _ in range(4)]

        ids = [new.id for new in batch]
        assert [list(part.ids) for part in parts] == [ids[:2], ids[2:4], ids[4:], []]

    async def test_tasks_that_the_action_skips_do_not_count_towards_the_limit(
        self, worker: ManualWorker
    ) -> None:
        for _ in range(3):
            await self.enqueue_and_settle(worker, complete)
        pending = await self.enqueue_one()

        done = await self.store.apply(CancelTasks(by=OPERATOR), Filter(), limit=1)

        assert list(done.ids) == [pending]

    async def test_successors_cancelled_along_are_not_in_the_result(self) -> None:
        first, second = a_task(queue="q"), a_task(queue="q")
        await self.store.enqueue([first, second, a_task(queue="q", after=(second.id,))])

        done = await self.store.apply(CancelTasks(by=OPERATOR), Filter(queues=("q",)), limit=10)

        assert list(done.ids) == [first.id, second.id]
        assert {task.state for task in await self.all_tasks()} == {State.CANCELLED}
        assert len(await self.all_records(Audit)) == 2


class TestAudit(StoreTest):
    @pytest.mark.parametrize("word", ["cancel", "replay", "discard"])
    async def test_the_audit_log_records_who_did_what_to_which_task_and_why(
        self, held: Claimed, word: str
    ) -> None:
        action = {"cancel": CancelTasks, "replay": Replay, "discard": Discard}[word]
        if word != "cancel":
            await self.settle_now(bury(held))
        self.clock.advance(1)

        await self.act(action(by=By(who="ada", why="by mistake")), held.task.id)

        (line,) = await self.all_records(Audit)
        assert (line.who, line.why, line.action) == ("ada", "by mistake", word)
        assert (line.task_id, line.at) == (held.task.id, self.clock.now())
        assert msgspec.json.decode(line.detail)["type"] == held.task.type
        assert line.id

    @pytest.mark.parametrize("by_filter", [False, True])
    async def test_a_discard_keeps_the_masked_payload_and_the_failure(
        self, worker: ManualWorker, *, by_filter: bool
    ) -> None:
        held = await self.enqueue_and_claim(
            worker, payload=b'{"to":"ada","card":"4242"}', secret=("card",), tenant="acme", queue="mail"
        )
        await self.settle_now(bury(held))
        where = Filter(queues=("mail",)) if by_filter else Filter(ids=(held.task.id,))

        await self.store.apply(Discard(by=OPERATOR), where, limit=10)

        (line,) = await self.all_records(Audit)
        assert msgspec.json.decode(line.detail) == {
            "type": held.task.type,
            "queue": "mail",
            "tenant": "acme",
            "attempts": 1,
            "payload": {"to": "ada", "card": "[secret]"},
            "error": {"type": BOOM.type, "message": BOOM.message},
        }

    async def test_the_entry_of_a_discard_masks_what_its_type_keeps_secret_by_now(
        self, worker: ManualWorker
    ) -> None:
        held = await self.enqueue_and_claim(worker, payload=b'{"card":"4242-1111"}')
        told = Error(type="Declined", message="card 4242-1111 was declined")
        await self.settle_now(replace(bury(held), verdict=Bury(error=told)))
        secret = Defaults(secret=("card",))
        await self.store.put(DeclaredType(name="new.name", aliases=(held.task.type,), defaults=secret))

        await self.discard(held.task.id)

        (line,) = await self.all_records(Audit)
        assert "4242" not in line.detail
        assert msgspec.json.decode(line.detail)["error"]["message"] == "card [secret] was declined"

    async def test_each_task_has_an_entry_in_order(self) -> None:
        ids = [await self.enqueue_one() for _ in range(5)]

        await self.cancel(*ids)

        lines = await self.all_records(Audit)
        assert [line.task_id for line in lines] == ids
        assert len({line.id for line in lines}) == 5

    async def test_actions_without_effect_are_not_logged(self) -> None:
        task_id = await self.enqueue_one()

        await self.replay(task_id)
        await self.discard(task_id)

        assert await self.all_records(Audit) == ()

    async def test_the_audit_log_outlives_the_task(self, held: Claimed) -> None:
        await self.settle_now(bury(held))

        await self.discard(held.task.id)

        assert [line.task_id for line in await self.all_records(Audit)] == [held.task.id]


class TestTrigger(StoreTest):
    async def test_a_trigger_is_logged_with_its_task_and_schedule(self) -> None:
        task_id = await self.enqueue_one()
        before = await self.load(task_id)

        done = await self.store.apply(Trigger(by=OPERATOR, schedule="nightly"), Filter(ids=(task_id,)), 1)

        (line,) = await self.all_records(Audit)
        assert (done.ids, done.transitions) == ((task_id,), ())
        assert await self.load(task_id) == before
        assert (line.action, line.subject, line.task_id) == ("trigger", "schedule nightly", task_id)
        assert (line.who, line.why) == (OPERATOR.who, OPERATOR.why)


class TestReveal(StoreTest):
    async def test_a_reveal_changes_nothing_and_is_logged_for_each_task_in_any_state(
        self, worker: ManualWorker
    ) -> None:
        ended = [await self.enqueue_and_settle(worker, ending) for ending in (complete, bury, stop)]
        running = await self.enqueue_and_claim(worker)
        ids = [*(one.task.id for one in ended), running.task.id, await self.enqueue_one()]
        await self.enqueue_one()
        before = [await self.load(task_id) for task_id in ids]

        done = await self.store.apply(Reveal(by=By(who="ann", why="support")), Filter(ids=tuple(ids)), 10)

        assert sorted(done.ids) == sorted(ids)
        assert done.transitions == ()
        assert [await self.load(task_id) for task_id in ids] == before
        lines = await self.all_records(Audit)
        assert sorted(line.task_id or "" for line in lines) == sorted(ids)
        assert {(line.who, line.why, line.action) for line in lines} == {("ann", "support", "reveal")}

    async def test_a_reveal_by_filter_keeps_to_its_limit(self) -> None:
        ids = [await self.enqueue_one() for _ in range(3)]

        assert list((await self.store.apply(Reveal(by=OPERATOR), Filter(), 2)).ids) == ids[:2]
        assert (await self.store.apply(Reveal(by=OPERATOR), Filter(), 0)).ids == ()
        assert (await self.store.apply(Reveal(by=OPERATOR), Filter(ids=()), 10)).ids == ()
        assert [line.task_id for line in await self.all_records(Audit)] == ids[:2]

    async def test_the_reveal_of_a_record_is_one_entry(self) -> None:
        await self.enqueue_one()

        done = await self.store.apply(Reveal(by=OPERATOR, subject="schedule nightly"), Filter(), 10)

        (line,) = await self.all_records(Audit)
        assert done.ids == ()
        assert (line.action, line.subject, line.task_id) == ("reveal", "schedule nightly", None)


class TestRewrite(StoreTest):
    async def test_documents_are_replaced_in_any_state_with_one_entry(self, worker: ManualWorker) -> None:
        ended = [await self.enqueue_and_settle(worker, ending) for ending in (complete, bury, stop)]
        running = await self.enqueue_and_claim(worker)
        ids = [*(one.task.id for one in ended), running.task.id, await self.enqueue_one()]
        before = [await self.load(task_id) for task_id in ids]
        tasks = tuple(rewritten(task, b'{"other":1}') for task in before)

        done = await self.store.apply(Rewrite(by=OPERATOR, tasks=tasks), Filter(), 10)

        assert sorted(done.ids) == sorted(ids)
        assert done.transitions == ()
        assert [await self.load(task_id) for task_id in ids] == [
            replace(task, payload=b'{"other":1}', next=one.after.next, result=one.after.result)
            for task, one in zip(before, tasks, strict=True)
        ]
        (line,) = await self.all_records(Audit)
        assert (line.action, line.subject, line.detail) == ("rewrite", "tasks", '{"tasks":5}')

    async def test_a_task_that_has_changed_meanwhile_stays_as_it_is(self) -> None:
        changed, same = [await self.load(await self.enqueue_one()) for _ in range(2)]
        stale = rewritten(replace(changed, payload=b'{"stale":1}'), b'{"other":1}')
        wrong = rewritten(replace(same, next=b"[]"), b'{"other":1}')
        gone = rewritten(replace(same, id="00000000-0000-7000-8000-000000000000"), b'{"other":1}')

        done = await self.store.apply(Rewrite(by=OPERATOR, tasks=(stale, wrong, gone)), Filter(), 10)

        assert done.ids == ()
        assert [await self.load(task.id) for task in (changed, same)] == [changed, same]
        assert await self.all_records(Audit) == ()

    async def test_a_running_task_can_be_settled_as_before(self, held: Claimed) -> None:
        task = await self.load(held.task.id)

        await self.store.apply(Rewrite(by=OPERATOR, tasks=(rewritten(task, b'{"a":2}'),)), Filter(), 1)
        await self.settle_now(complete(held))

        ended = await self.load(task.id)
        assert (ended.state, ended.payload) == (State.COMPLETED, b'{"a":2}')


def rewritten(task: Task, payload: bytes) -> Rewritten:
    """Another payload, and another result if there is one."""
    after = TaskDocuments(payload=payload, next=task.next, result=None if task.result is None else b"[1]")
    return Rewritten(id=task.id, before=documents_of(task), after=after)
