"""Claims, settlements and the usage of limits."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import assert_never

from msgspec.structs import replace

from ..._model.attempt import MAX_RECORDED, attempt_of, is_recorded
from ..._model.lease import RESCUED, Claim, Claimed, Heartbeat, Lease
from ..._model.limit import Limit, Usage
from ..._model.state import State, Verb
from ..._model.task import Task
from ..._model.verdict import Bury, Cancel, Complete, Postpone, Reason, Receipt, Settlement
from ..._policy.failure import failure_of
from ..._policy.order.limits import PermitUsage, limits_in_queue, permits_of, split_key, usage_of
from ..._policy.order.windows import open_queues
from ..rules.admission import check_due
from ..rules.cancellation import while_running
from ..rules.claim_planner import ClaimPlanner, ClaimRules, Rotation, earliest
from ..rules.questions import play
from .admission import admit_successors
from .ready import Answers, subject_of
from .tables import Tables


def grant(
    tables: Tables, claim: Claim, rotation: Rotation, now: datetime
) -> tuple[list[Claimed], float | None]:
    """Lease ready tasks to the claim's session, by the rules of its queues and limits.

    Also return the seconds after which to claim again (None: when woken).
    """
    queues, wait = open_queues(claim.queues, tables.queues, now)
    limits = tables.limits
    tables.ready.now = now
    if claim.level is None and all(_is_fifo(tables, queue, limits) for queue in queues):
        return _lease(tables, claim, tables.take_ready(queues, claim), now), wait
    planner = ClaimPlanner(
        ClaimRules({queue: tables.queues.get(queue) for queue in queues}, limits), rotation, now
    )
    running = [tables.tasks[task_id] for held in tables.held.values() for task_id in held]
    answers = Answers(tables.ready, running, tables.buckets, claim.takes)
    picked = play(planner.pick(max(claim.limit, 0), claim.level), answers.answer)
    tables.buckets.update({key: (tokens, now) for key, tokens in planner.ledger.tokens.items()})
    chosen = [one.head.row for one in picked]
    for task in answers.taken.values():  # The others are still ready.
        tables.keep(task)
    return _lease(tables, claim, chosen, now), earliest(planner.wait, wait)


def _is_fifo(tables: Tables, queue: str, limits: Sequence[Limit]) -> bool:
    return tables.ready.single_heap(queue) is not None and not (limits and limits_in_queue(limits, queue))


def _lease(tables: Tables, claim: Claim, tasks: Iterable[Task], now: datetime) -> list[Claimed]:
    """Lease tasks: raise the fence and count the attempt."""
    worker = tables.sessions[claim.session].worker.name
    claimed = []
    for task in tasks:
        tables.hold(claim.session, task.id, claim.number)
        moved = tables.move(
            task,
            Verb.CLAIM,
            State.RUNNING,
            fence=task.fence + 1,
            attempt=task.attempt + 1,
            claimed_at=now,
            session=claim.session,
            worker=worker,
            progress=None,
        )
        claimed.append(Claimed(moved))
    return claimed


def leased(tables: Tables, lease: Lease) -> Task | None:
    """Return the running task if the lease still holds, else None."""
    task = tables.tasks.get(lease.task_id)
    return task if task is not None and task.state is State.RUNNING and task.fence == lease.fence else None


def settle(tables: Tables, batch: Sequence[Settlement], now: datetime) -> tuple[Receipt, ...]:
    """Apply each verdict whose lease still holds, then enqueue the successors; return a receipt for each.

    Raises InvalidOption if a successor is due out of bounds, before anything is changed.
    """
    for settlement in batch:
        if isinstance(settlement.verdict, Complete | Bury) and leased(tables, settlement.lease) is not None:
            check_due(settlement.verdict.successors, now)
    receipts = tuple([_settle_one(tables, settlement, now) for settlement in batch])
    successors = [
        new
        for settlement, receipt in zip(batch, receipts, strict=True)
        if receipt is Receipt.APPLIED and isinstance(settlement.verdict, Complete | Bury)
        for new in settlement.verdict.successors
    ]
    if successors:  # First, as a task that waits may wait for them too.
        admit_successors(tables, successors, now)
        tables.wake(new.id for new in successors)
    for settlement, receipt in zip(batch, receipts, strict=True):
        if receipt is Receipt.APPLIED and isinstance(settlement.verdict, Complete):
            tables.wake(tables.unblock(settlement.lease.task_id, now))
    return receipts


def _settle_one(tables: Tables, settlement: Settlement, now: datetime) -> Receipt:
    """Apply a verdict if its lease still holds; otherwise change nothing."""
    task = tables.tasks.get(settlement.lease.task_id)
    # A deleted task had ended, and only the lease holder can end a running one: this is a repeat.
    if task is None:
        return Receipt.REPEATED
    if task.fence != settlement.lease.fence:
        return Receipt.LOST
    if task.state is not State.RUNNING:
        return Receipt.REPEATED
    tables.release(task)
    if settlement.progress is not None:
        task = replace(task, progress=settlement.progress)
    _apply(tables, task, settlement, now)
    if is_recorded(settlement):
        recorded = tables.attempts.setdefault(task.id, [])
        recorded.append(attempt_of(task, settlement, now))
        del recorded[:-MAX_RECORDED]
    return Receipt.APPLIED


def release_unacknowledged_claims(tables: Tables, beat: Heartbeat, now: datetime) -> None:
    """Release the tasks granted to this session in replies that never arrived.

    A claimed task never ran, so its attempt is not counted; a rescued one did, so its attempt stays counted.
    """
    known = set(beat.held)
    granted = [
        (tables.tasks[task_id], number) for task_id, number in tables.held.get(beat.session, {}).items()
    ]
    for task, number in granted:
        if number > beat.through or Lease(task.id, task.fence) in known:
            continue
        tables.release(task)
        # The fence rises, so that the old lease can no longer settle it.
        freed = replace(task, fence=task.fence + 1, session=None)
        if task.cancel_requested:
            why = while_running(task)
            tables.step(freed, Verb.CANCEL, State.CANCELLED, finished_at=now, **why.fields)
            tables.abandon(task.id, now, why)
        else:
            uncounted = 0 if number == RESCUED else 1
            tables.step(freed, Verb.POSTPONE, State.READY, attempt=task.attempt - uncounted)
        tables.wake((task.id,))


def _apply(tables: Tables, task: Task, settlement: Settlement, now: datetime) -> None:
    verdict = settlement.verdict
    end = {"session": None, "finished_at": now, "duration": settlement.duration}
    match verdict:
        case Complete(result=result):
            tables.move(task, Verb.COMPLETE, State.COMPLETED, result=result, error=None, failure=None, **end)
        case Postpone(error=error) | Cancel(error=error) if task.cancel_requested:
            why = while_running(task)
            tables.step(task, Verb.CANCEL, State.CANCELLED, error=error or why.error, failure=None, **end)
            tables.abandon(task.id, now, why)
        case Postpone(delay=delay, reason=reason, error=error):
            tables.move(
                task,
                Verb.POSTPONE,
                State.SCHEDULED if delay else State.READY,
                # A released task keeps its place in the queue.
                run_at=task.run_at if reason is Reason.RELEASE and not delay else now + delay,
                attempt=task.attempt if reason is Reason.RETRY else task.attempt - 1,
                session=None,
                duration=settlement.duration,
                error=error or task.error,
                failure=task.failure if error is None else failure_of(task.type, error),
                unhandled_since=verdict.unhandled_since,
            )
            tables.wake((task.id,))
        case Bury(error=error):
            tables.move(task, Verb.BURY, State.DEAD, error=error, failure=failure_of(task.type, error), **end)
        case Cancel(error=error):
            tables.move(task, Verb.CANCEL, State.CANCELLED, error=error or task.error, failure=None, **end)
            tables.abandon(task.id, now, while_running(task))
        case _:
            assert_never(verdict)


# -- limits ------------------------------------------------------------------------------------------


def usages(tables: Tables, now: datetime) -> list[Usage]:
    """Return the usage of every limited value in use."""
    limits = {limit.name: limit for limit in tables.limits}
    running = Counter(
        permit.key
        for held in tables.held.values()
        for task_id in held
        for permit in permits_of(limits.values(), subject_of(tables.tasks[task_id]))
    )
    return [
        usage_of(key, limit, PermitUsage(running[key], *tables.buckets.get(key, (None, None))), now)
        for key in {*running, *tables.buckets}
        if (limit := limits.get(split_key(key)[0])) is not None
    ]
