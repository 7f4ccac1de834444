"""Granting leases and ending them: the hot path in one statement, everything else as a script."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from ..._model.attempt import MAX_RECORDED, is_recorded
from ..._model.lease import Claim, Claimed
from ..._model.state import State
from ..._model.task import Error, Task, TaskId
from ..._model.verdict import Complete, Receipt, Settlement
from ..rules.transitions import settled
from .claim.arms import Arm
from .enqueue.plain import Admission, Terms
from .rows import Row, columns_of, error_columns, ids_of, read_leased
from .script import Ask, Script, ask, pairs, value
from .statements import settle_and_claim, settle_and_claim_from_lanes
from .successors import abandon, unblock
from .unit_of_work import UnitOfWork


class Grant(Struct, frozen=True):
    """The answer to the hot path.

    `done` are the tasks that were completed, if not all were; None: all. `alive` says whether the claim's
    session is. `guarded`: a limit applies to a queue, and so nothing was claimed from it. `wait`: after so
    many seconds a look is worth while.
    """

    done: list[TaskId] | None
    alive: bool
    claimed: list[Claimed]
    guarded: bool = False
    wait: float | None = None
    is_unlaid: bool = False  # Some tasks lie outside their lanes still.
    is_outdated: bool = False  # A queue has no lanes any more.


def is_quick(batch: Sequence[Settlement]) -> bool:
    """Whether all of these are plain completions, each of another task."""
    for settlement in batch:
        verdict = settlement.verdict
        if type(verdict) is not Complete or verdict.successors:
            return False
    return len({settlement.lease.task_id for settlement in batch}) == len(batch)


def exchange_in_lanes(
    terms: Terms, batch: Sequence[Settlement], wish: Claim, numbers: Mapping[tuple[str, str], int]
) -> Ask:
    """The hot path, claiming so many tasks of each queue's lanes."""
    plain = exchange(terms, batch, wish, ())
    queues, lanes = [queue for queue, _ in numbers], [lane for _, lane in numbers]
    parameters = (*plain.parameters[:7], sorted(set(queues)), *plain.parameters[8:])
    more = (queues, lanes, list(numbers.values()))
    return Ask("settle in lanes", (*parameters, *more), settle_and_claim_from_lanes(terms.schema))


def exchange(terms: Terms, batch: Sequence[Settlement], wish: Claim | None, arms: Sequence[Arm]) -> Ask:
    """The hot path: complete those whose leases hold and, if that was all of them, claim."""
    # In the order of ids, so that two that settle the same tasks do not wait for each other.
    given = sorted(batch, key=_task_id)
    outcomes = [settlement.outcome for settlement in given]
    results = [_result(settlement) for settlement in given]
    parameters = (
        terms.clock,
        [settlement.lease.task_id for settlement in given],
        [settlement.lease.fence for settlement in given],
        [settlement.duration for settlement in given],
        # What is the same for all, or nothing for all, need not be said for each.
        outcomes[:1] if len(set(outcomes)) == 1 else outcomes,
        results if any(results) else [],
        "" if wish is None else wish.session,
        [arm.queue for arm in arms],
        [arm.stripe for arm in arms],
        0 if wish is None else max(wish.limit, 0),
        0 if wish is None else wish.number,
        [arm.floor[0] for arm in arms],
        [arm.floor[1] for arm in arms],
    )
    return Ask("settle", parameters, settle_and_claim(0 if wish is None else len(arms), terms.schema))


def read_grant(rows: Sequence[Row]) -> Grant:
    """What the hot path's rows say."""
    complete, done, worker, guarded = rows[0][:4]
    given = [row for row in rows if row[4] is not None]
    given.sort(key=lambda row: (row[-1], row[4]))
    claimed = [Claimed(read_leased(row[4:-1])) for row in given]
    return Grant(
        done=None if complete else (done or []),
        alive=worker is not None,
        claimed=claimed,
        guarded=bool(guarded),
    )


def together(first: Grant, second: Grant) -> Grant:
    """What two looks came to, the second for what was missing after the first."""
    claimed = sorted([*first.claimed, *second.claimed], key=lambda one: (one.task.rank, one.task.id))
    waits = [one.wait for one in (first, second) if one.wait is not None]
    return Grant(
        done=first.done,
        alive=second.alive,
        claimed=claimed,
        guarded=first.guarded or second.guarded,
        wait=min(waits) if waits else None,
    )


def _task_id(settlement: Settlement) -> TaskId:
    return settlement.lease.task_id


def _result(settlement: Settlement) -> bytes | None:
    return settlement.verdict.result if isinstance(settlement.verdict, Complete) else None


# -- the longer way ----------------------------------------------------------------------------------


def settle(
    terms: Terms, batch: Sequence[Settlement], wish: Claim | None, arms: Sequence[Arm]
) -> Script[tuple[tuple[Receipt, ...], Grant | None]]:
    """Apply the verdicts whose leases hold, then claim."""
    settling = Settling(terms, UnitOfWork((yield from value("now", terms.clock))))
    receipts = yield from settling.settle(batch)
    if wish is None or not arms:
        return receipts, None
    return receipts, read_grant((yield exchange(terms, (), wish, arms)))


class Settling:
    """Settlements on their way in, all of one transaction."""

    def __init__(self, terms: Terms, work: UnitOfWork) -> None:
        self._terms = terms
        self._work = work
        self._ended: dict[TaskId, int] = {}  # fences of tasks in the history
        self._lines: list[Row] = []
        self._completed: list[TaskId] = []
        self._cancelled: list[TaskId] = []

    def settle(self, batch: Sequence[Settlement]) -> Script[tuple[Receipt, ...]]:
        """Apply each verdict whose lease still holds."""
        ids = [settlement.lease.task_id for settlement in batch]
        yield from self._work.load(ids)
        gone = ids_of(task_id for task_id in ids if self._work.get(task_id) is None)
        self._ended = (yield from pairs("fences", gone)) if gone else {}
        receipts = tuple([self._settle_one(settlement) for settlement in batch])
        yield from self._work.flush()
        yield from self._record()
        yield from self._follow(batch, receipts)
        yield from self._work.flush()
        yield from self._work.wake()
        return receipts

    def _settle_one(self, settlement: Settlement) -> Receipt:
        lease = settlement.lease
        task = self._work.get(lease.task_id)
        if task is None:
            # A task that is gone had ended, and while it is leased only its holder can end it: a repeat.
            fence = self._ended.get(lease.task_id, lease.fence)
            return Receipt.REPEATED if fence == lease.fence else Receipt.LOST
        if task.fence != lease.fence:
            return Receipt.LOST
        if task.state is not State.RUNNING:
            return Receipt.REPEATED
        self._apply(task, settlement)
        return Receipt.APPLIED

    def _apply(self, task: Task, settlement: Settlement) -> None:
        change = settled(task, settlement, self._work.now)
        if isinstance(settlement.verdict, Complete):
            self._work.note_outcome(
                task.id, settlement.outcome
            )  # Before it moves: a record has it as its line.
            self._work.move(task, change.verb, change.state, **change.fields)
            self._completed.append(task.id)
            return
        self._work.move(task, change.verb, change.state, **change.fields)
        if change.state is State.CANCELLED:
            self._cancelled.append(task.id)
        if is_recorded(settlement):
            self._lines.append(_line(task, settlement, settlement.verdict.error, self._work.now))

    def _record(self) -> Script[None]:
        if not self._lines:
            return
        yield from ask("record", *columns_of(self._lines, 12))
        long = [line[0] for line in self._lines if line[1] > MAX_RECORDED]
        if long:  # With fewer leases there cannot be more lines.
            yield from ask("forget_old_attempts", long, MAX_RECORDED)

    def _follow(self, batch: Sequence[Settlement], receipts: Sequence[Receipt]) -> Script[None]:
        """What the ends mean to other tasks."""
        yield from unblock(self._work, self._completed)
        for task_id in self._cancelled:
            yield from abandon(self._work, task_id, "was cancelled")
        successors = [
            new
            for settlement, receipt in zip(batch, receipts, strict=True)
            if receipt is Receipt.APPLIED and isinstance(settlement.verdict, Complete)
            for new in settlement.verdict.successors
        ]
        if successors:
            yield from Admission(self._terms, self._work).admit(successors)


def _line(task: Task, settlement: Settlement, error: Error | None, now: datetime) -> Row:
    return (
        task.id,
        task.fence,
        task.attempt,
        task.worker,
        task.claimed_at or now,
        now,
        settlement.duration,
        settlement.outcome,
        *error_columns(error),
        task.trace,
    )
