"""Granting leases and ending them: the hot path in one statement, everything else as a script."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from ..._model.lease import Claim, Claimed
from ..._model.task import TaskId
from ..._model.verdict import Complete, Receipt, Settlement
from ..rules.settlement import settle as settle_rule
from .claim.arms import Arm
from .enqueue.plain import Terms
from .rows import Row, read_leased
from .rule_player import transact
from .script import Ask, Script
from .statements import settle_and_claim, settle_and_claim_from_lanes


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


# -- everything else ---------------------------------------------------------------------------------


def settle(
    terms: Terms, batch: Sequence[Settlement], wish: Claim | None, arms: Sequence[Arm]
) -> Script[tuple[tuple[Receipt, ...], Grant | None]]:
    """Apply the verdicts whose leases hold, then claim."""
    receipts = yield from transact(terms, lambda unit: settle_rule(unit, batch))
    if wish is None or not arms:
        return receipts, None
    return receipts, read_grant((yield exchange(terms, (), wish, arms)))
