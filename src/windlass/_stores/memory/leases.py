"""Granting leases and ending them."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import assert_never

from msgspec import Struct
from msgspec.structs import replace

from ..._model.attempt import MAX_RECORDED, Attempt, is_recorded
from ..._model.lease import RESCUED, Claim, Claimed, Heartbeat, Lease
from ..._model.limit import Limit
from ..._model.state import State, Verb
from ..._model.task import Task
from ..._model.verdict import Bury, Cancel, Complete, Postpone, Reason, Receipt, Settlement
from ..._policy.order.limits import limits_in_queue
from ..rules.claim_planner import ClaimPlanner, ClaimRules, Rotation
from ..rules.questions import play
from .ready import Answers
from .shelf import Shelf


class Grant(Struct, frozen=True):
    """What a claim was given, and the seconds after which another look is worth while (None: unknown)."""

    claimed: list[Claimed]
    wait: float | None = None


def grant(shelf: Shelf, claim: Claim, turns: Rotation, now: datetime) -> Grant:
    """Lease ready tasks to the claim's session, as its queues and the limits have it."""
    queues = [queue for queue in dict.fromkeys(claim.queues) if not shelf.is_paused(queue)]
    limits = shelf.limits
    if claim.level is None and all(_is_line(shelf, queue, limits) for queue in queues):
        return Grant(_lease(shelf, claim, shelf.take_ready(queues, claim.limit), now))
    planner = ClaimPlanner(
        ClaimRules({queue: shelf.queues.get(queue) for queue in queues}, limits), turns, now
    )
    running = [shelf.tasks[task_id] for held in shelf.held.values() for task_id in held]
    answers = Answers(shelf.ready, running, shelf.buckets)
    picked = play(planner.pick(max(claim.limit, 0), claim.level), answers.answer)
    shelf.buckets.update({key: (tokens, now) for key, tokens in planner.tokens.items()})
    chosen = [one.head.row for one in picked]
    for task in answers.taken.values():  # Those that were not chosen are still ready.
        shelf.keep(task)
    return Grant(_lease(shelf, claim, chosen, now), planner.wait)


def _is_line(shelf: Shelf, queue: str, limits: Sequence[Limit]) -> bool:
    return shelf.ready.line(queue) is not None and not (limits and limits_in_queue(limits, queue))


def _lease(shelf: Shelf, claim: Claim, tasks: Iterable[Task], now: datetime) -> list[Claimed]:
    """The fence rises, the attempt counts."""
    worker = shelf.sessions[claim.session].worker.name
    claimed = []
    for task in tasks:
        shelf.hold(claim.session, task.id, claim.number)
        moved = shelf.move(
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


def leased(shelf: Shelf, lease: Lease) -> Task | None:
    """The running task if this lease still holds it."""
    task = shelf.tasks.get(lease.task_id)
    return task if task is not None and task.state is State.RUNNING and task.fence == lease.fence else None


def settle_one(shelf: Shelf, settlement: Settlement, now: datetime) -> Receipt:
    """Apply a verdict if its lease still holds; otherwise change nothing."""
    task = shelf.tasks.get(settlement.lease.task_id)
    # A task that is gone had ended, and while it is leased only its holder can end it: this is a repeat.
    if task is None:
        return Receipt.REPEATED
    if task.fence != settlement.lease.fence:
        return Receipt.LOST
    if task.state is not State.RUNNING:
        return Receipt.REPEATED
    shelf.release(task)
    _apply(shelf, task, settlement, now)
    _record(shelf, task, settlement, now)
    return Receipt.APPLIED


def hand_back_strangers(shelf: Shelf, beat: Heartbeat, now: datetime) -> None:
    """Release what was granted to this session in a reply that it never got.

    What it claimed never ran and is not counted; what it rescued did run, and its attempt stays counted.
    """
    known = set(beat.held)
    granted = [(shelf.tasks[task_id], number) for task_id, number in shelf.held.get(beat.session, {}).items()]
    for task, number in granted:
        if number > beat.through or Lease(task.id, task.fence) in known:
            continue
        shelf.release(task)
        # The fence rises, so that whoever might still hold the old lease cannot settle with it.
        freed = replace(task, fence=task.fence + 1, session=None)
        if task.cancel_requested:
            shelf.move(freed, Verb.CANCEL, State.CANCELLED, finished_at=now)
            shelf.abandon(task.id, now, "was cancelled")
        else:
            uncounted = 0 if number == RESCUED else 1
            shelf.move(freed, Verb.POSTPONE, State.READY, attempt=task.attempt - uncounted)
        shelf.wake((task.id,))


def _apply(shelf: Shelf, task: Task, settlement: Settlement, now: datetime) -> None:
    verdict = settlement.verdict
    end = {"session": None, "finished_at": now, "duration": settlement.duration}
    match verdict:
        case Complete(result=result, successors=successors):
            shelf.move(task, Verb.COMPLETE, State.COMPLETED, result=result, error=None, **end)
            freed = shelf.unblock(task.id, now)
            if successors:
                shelf.admit(successors, now)
            shelf.wake([*freed, *(new.id for new in successors)])
        case Postpone() if task.cancel_requested:
            shelf.move(task, Verb.CANCEL, State.CANCELLED, error=verdict.error or task.error, **end)
            shelf.abandon(task.id, now, "was cancelled")
        case Postpone(delay=delay, reason=reason, error=error):
            shelf.move(
                task,
                Verb.POSTPONE,
                State.SCHEDULED if delay else State.READY,
                # Handed back, it keeps its place in the queue.
                run_at=task.run_at if reason is Reason.RELEASE and not delay else now + delay,
                attempt=task.attempt if reason is Reason.RETRY else task.attempt - 1,
                session=None,
                duration=settlement.duration,
                error=error or task.error,
            )
            shelf.wake((task.id,))
        case Bury(error=error):
            shelf.move(task, Verb.BURY, State.DEAD, error=error, **end)
        case Cancel(error=error):
            shelf.move(task, Verb.CANCEL, State.CANCELLED, error=error or task.error, **end)
            shelf.abandon(task.id, now, "was cancelled")
        case _:
            assert_never(verdict)


def _record(shelf: Shelf, task: Task, settlement: Settlement, now: datetime) -> None:
    if not is_recorded(settlement):
        return
    line = Attempt(
        task_id=task.id,
        number=task.attempt,
        fence=task.fence,
        worker=task.worker,
        claimed_at=task.claimed_at or now,
        finished_at=now,
        duration=settlement.duration,
        outcome=settlement.outcome,
        error=None if isinstance(settlement.verdict, Complete) else settlement.verdict.error,
        trace=task.trace,
    )
    lines = shelf.attempts.setdefault(task.id, [])
    lines.append(line)
    del lines[:-MAX_RECORDED]
