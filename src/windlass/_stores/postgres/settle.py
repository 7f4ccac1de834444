"""Settle tasks and lease others: plain completions and claims in one statement, the rest by the rules."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from ..._model.lease import Claim, Claimed, ProgressReport
from ..._model.task import TaskId
from ..._model.verdict import Complete, Settled, Settlement, last_reports
from ..rules.settlement import settle as settle_rule
from .queue_layout import START, Environment, Stripe
from .rows import Row, columns_of, read_leased
from .rule_player import transact
from .script import Query, Script
from .statements import (
    MANY_STRIPES,
    settle_from_lanes_statement,
    settle_from_many_statement,
    settle_statement,
)


class Grant(Struct, frozen=True):
    """The result of settle.sql, or of a claim."""

    done: list[TaskId] | None  # the completed tasks if not all could be completed like this; None if all were
    alive: bool  # The claim's session is.
    claimed: list[Claimed]
    guarded: bool = False  # A limit applies to a queue, so nothing was claimed from it.
    missed: bool = False  # Others had locked tasks that were to be claimed; there may be more behind them.
    wait: float | None = None  # seconds after which another claim may succeed
    has_misplaced: bool = False  # Some ready tasks are not in their lane yet.
    is_outdated: bool = False  # A queue has no lanes any more.


def put_progress(reports: Iterable[ProgressReport]) -> Query:
    """Return the statement that writes the progress of tasks whose leases hold."""
    rows = [
        (reported.lease.task_id, reported.lease.fence, reported.progress.fraction, reported.progress.message)
        for reported in reports
    ]
    return Query("put_progress", tuple(columns_of(rows, 4)))


def is_quick(batch: Sequence[Settlement]) -> bool:
    """Whether all of these are completions without successors or notes, each of a different task."""
    for settlement in batch:
        verdict = settlement.verdict
        if type(verdict) is not Complete or verdict.successors or settlement.notes is not None:
            return False
    return len({settlement.lease.task_id for settlement in batch}) == len(batch)


def settle_and_claim_from_lanes(
    env: Environment, batch: Sequence[Settlement], claim: Claim, numbers: Mapping[tuple[str, str], int]
) -> Query:
    """Return the statement that completes these and claims a number of tasks from each (queue, lane)."""
    plain = settle_and_claim(env, batch, claim, ())
    queues, lanes = [queue for queue, _ in numbers], [lane for _, lane in numbers]
    parameters = (*plain.parameters[:7], sorted(set(queues)), *plain.parameters[8:])
    more = (queues, lanes, list(numbers.values()))
    return Query("settle from lanes", (*parameters, *more), settle_from_lanes_statement(env.schema))


def settle_and_claim(
    env: Environment,
    batch: Sequence[Settlement],
    claim: Claim | None,
    stripes: Sequence[Stripe],
    locked: int = 0,
) -> Query:
    """Return the statement that completes these tasks and, if that was possible for all, claims.

    `locked`: how many ready tasks others may have locked, as far as is known.
    """
    # In the order of ids, so that concurrent settlements of the same tasks cannot deadlock.
    ordered = sorted(batch, key=lambda settlement: settlement.lease.task_id)
    outcomes = [settlement.outcome for settlement in ordered]
    results = [one.verdict.result if isinstance(one.verdict, Complete) else None for one in ordered]
    parameters = (
        env.clock,
        [settlement.lease.task_id for settlement in ordered],
        [settlement.lease.fence for settlement in ordered],
        [settlement.duration for settlement in ordered],
        # An outcome that all share is sent once, and results only if there are any.
        outcomes[:1] if len(set(outcomes)) == 1 else outcomes,
        results if any(results) else [],
        None if claim is None else claim.session,
        [stripe.queue for stripe in stripes],
        [stripe.number for stripe in stripes],
        0 if claim is None else max(claim.limit, 0),
        0 if claim is None else claim.number,
        [stripe.start[0] for stripe in stripes],
        [stripe.start[1] for stripe in stripes],
    )
    types = () if claim is None or claim.types is None or not stripes else (claim.types,)
    if claim is not None and (locked or len(stripes) > MANY_STRIPES):
        return _settle_and_claim_from_many(env, parameters, stripes, locked, types)
    sql = settle_statement(0 if claim is None else len(stripes), env.schema, typed=bool(types))
    return Query("settle", (*parameters, *types), sql)


def _settle_and_claim_from_many(
    env: Environment,
    parameters: tuple[Any, ...],
    stripes: Sequence[Stripe],
    locked: int,
    types: tuple[Sequence[str], ...],
) -> Query:
    if all(stripe.number == 0 and stripe.start == START for stripe in stripes):
        parameters = (*parameters[:8], [], *parameters[9:11], [], [])  # the defaults of many_heads.sql
    # Another claim under way may have locked as many as this one wants.
    read = 2 * parameters[9] + MANY_STRIPES + locked
    sql = settle_from_many_statement(env.schema, typed=bool(types))
    return Query("settle from many", (*parameters, read, *types), sql)


def read_grant(rows: Sequence[Row]) -> Grant:
    """Read the rows of settle.sql."""
    complete, done, worker, guarded, missed = rows[0][:5]
    given = [row for row in rows if row[5] is not None]
    given.sort(key=lambda row: (row[-1], row[5]))
    claimed = [Claimed(read_leased(row[5:-1])) for row in given]
    return Grant(None if complete else (done or []), worker is not None, claimed, bool(guarded), bool(missed))


def merged(first: Grant, second: Grant) -> Grant:
    """Combine two grants, the second for what was missing after the first."""
    claimed = sorted([*first.claimed, *second.claimed], key=lambda one: (one.task.rank, one.task.id))
    wait = min((one.wait for one in (first, second) if one.wait is not None), default=None)
    guarded = first.guarded or second.guarded
    return Grant(first.done, second.alive, claimed, guarded, second.missed, wait)


def settle(
    env: Environment, batch: Sequence[Settlement], claim: Claim | None, stripes: Sequence[Stripe]
) -> Script[tuple[Settled, Grant | None]]:
    """Apply any verdicts whose leases hold, then claim."""
    if reports := last_reports(batch):
        yield put_progress(reports)
    settled = yield from transact(env, lambda unit: settle_rule(unit, batch))
    if claim is None or not stripes:
        return settled, None
    return settled, read_grant((yield settle_and_claim(env, (), claim, stripes)))
