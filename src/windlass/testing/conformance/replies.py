"""Conformance: replies report every transition that a verb made, for events."""

from collections.abc import Sequence

import pytest

from ..._model.filter import CancelTasks, Discard, Filter, Replay
from ..._model.lease import Claimed
from ..._model.queue import Retention
from ..._model.state import State, Verb
from ..._model.transition import PrunedCount, TaskTransition
from ..._store.protocol import Capability
from .steps import (
    LEASE,
    NO_DELAY,
    OPERATOR,
    ManualWorker,
    StoreTest,
    a_task,
    bury,
    complete,
    release,
    stop,
)
from .work.transactions import awaited

AT_ONCE = Retention(completed=NO_DELAY, cancelled=NO_DELAY, dead=NO_DELAY)


def moves(transitions: Sequence[TaskTransition]) -> set[tuple[Verb, str]]:
    """Which tasks made which transition."""
    return {(step.verb, step.task_id) for step in transitions}


class TestReplies(StoreTest):
    async def test_a_settle_without_consequences_reports_no_steps(self, held: Claimed) -> None:
        assert (await self.store.settle([complete(held)])).transitions == ()

    async def test_a_completion_reports_what_it_unblocks(self, held: Claimed) -> None:
        waiting = await self.enqueue_one(after=(held.task.id,), queue="next", tenant="acme")

        settled = await self.store.settle([complete(held)])

        (step,) = settled.transitions
        assert moves(settled.transitions) == {(Verb.UNBLOCK, waiting)}
        assert (step.type, step.queue, step.tenant, step.error) == (
            (await self.load(waiting)).type,
            "next",
            "acme",
            None,
        )

    async def test_a_cancelled_task_reports_the_whole_chain_behind_it(self, held: Claimed) -> None:
        second = await self.enqueue_one(after=(held.task.id,))
        third = await self.enqueue_one(after=(second,))

        settled = await self.store.settle([stop(held)])

        assert moves(settled.transitions) == {(Verb.CANCEL, second), (Verb.CANCEL, third)}
        errors = {step.task_id: step.error for step in settled.transitions}
        for task_id, error in errors.items():
            assert error == (await self.load(task_id)).error
            assert error is not None

    async def test_a_postponed_task_that_was_asked_to_stop_reports_its_cancellation(
        self, held: Claimed
    ) -> None:
        await self.cancel(held.task.id)

        settled = await self.store.settle([release(held)])

        assert moves(settled.transitions) == {(Verb.CANCEL, held.task.id)}

    async def test_an_enqueue_reports_a_task_that_is_cancelled_at_once(self, worker: ManualWorker) -> None:
        gone = await self.enqueue_and_settle(worker, stop)
        doomed = a_task(after=(gone.task.id,))
        behind = a_task(after=(doomed.id,))

        enqueued = await self.store.enqueue([doomed, behind, a_task()])

        assert [one.created for one in enqueued] == [True, True, True]
        assert [bool(one.cancelled) for one in enqueued] == [True, True, False]
        assert [one.cancelled for one in await self.store.enqueue([doomed])] == [None]

    async def test_a_cancellation_by_an_operator_reports_successors_too(self, held: Claimed) -> None:
        first = await self.enqueue_one()
        second = await self.enqueue_one(after=(first,))

        applied = await self.store.apply(
            CancelTasks(by=OPERATOR), Filter(ids=(first, held.task.id)), limit=10
        )

        assert set(applied.ids) == {first, held.task.id}
        assert moves(applied.transitions) == {(Verb.CANCEL, first), (Verb.CANCEL, second)}

    async def test_replay_and_discard_report_the_task(self, worker: ManualWorker) -> None:
        dead = await self.enqueue_and_settle(worker, bury, queue="mail", tenant="acme")
        waiting = await self.enqueue_one(after=(dead.task.id,))
        where = Filter(ids=(dead.task.id,))

        replayed = await self.store.apply(Replay(by=OPERATOR), where, limit=10)
        await self.settle_now(bury(await worker.claim_one("mail")))
        discarded = await self.store.apply(Discard(by=OPERATOR), where, limit=10)

        assert moves(replayed.transitions) == {(Verb.REPLAY, dead.task.id)}
        assert moves(discarded.transitions) == {(Verb.DISCARD, dead.task.id), (Verb.CANCEL, waiting)}
        (step,) = [step for step in discarded.transitions if step.verb is Verb.DISCARD]
        assert (step.type, step.queue, step.tenant) == (dead.task.type, "mail", "acme")

    async def test_a_prune_reports_numbers_and_the_successors_of_dead_tasks(
        self, worker: ManualWorker
    ) -> None:
        for _ in range(2):
            await self.enqueue_and_settle(worker, complete, queue="mail")
        await self.enqueue_and_settle(worker, complete, queue="other")
        dead = await self.enqueue_and_settle(worker, bury, queue="mail")
        waiting = await self.enqueue_one(after=(dead.task.id,))
        self.clock.advance(LEASE)

        pruned = await self.store.prune(AT_ONCE, limit=10)

        assert set(pruned.counts) == {
            PrunedCount(queue="mail", state=State.COMPLETED, number=2),
            PrunedCount(queue="other", state=State.COMPLETED, number=1),
            PrunedCount(queue="mail", state=State.DEAD, number=1),
        }
        assert pruned.number == 4
        assert moves(pruned.transitions) == {(Verb.CANCEL, waiting)}

    async def test_a_heartbeat_reports_tasks_that_never_arrived(self, worker: ManualWorker) -> None:
        task_id = await self.enqueue_one()
        asked = await self.enqueue_one()
        waiting = await self.enqueue_one(after=(asked,))
        await self.store.claim(worker.next_claim(5))
        await self.cancel(asked)

        reply = await worker.beat(through=worker.claims)

        assert moves(reply.transitions) == {
            (Verb.POSTPONE, task_id),
            (Verb.CANCEL, asked),
            (Verb.CANCEL, waiting),
        }

    async def test_a_joined_settlement_reports_its_steps(self, held: Claimed) -> None:
        if Capability.JOIN not in self.store.capabilities:
            pytest.skip("this store has no transactions")
        waiting = await self.enqueue_one(after=(held.task.id,))

        async with self.store.transaction() as connection:
            settled = await awaited(self.store.join(connection).settle([complete(held)]))

        assert moves(settled.transitions) == {(Verb.UNBLOCK, waiting)}
