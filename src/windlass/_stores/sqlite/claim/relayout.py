"""Move ready tasks to other lanes, keys and ranks after a queue's settings or a limit have changed.

A few thousand tasks per transaction, so that other writes do not wait for long. Progress is kept in the
file: if the process dies, the keeper continues. Meanwhile claims still serve outdated lanes and keys, and
check the limits of each task itself.
"""

from collections.abc import Iterable

from ...._model.limit import Limit
from ...._model.queue import QueueSettings
from ...._policy.order import lanes, limits
from ...._policy.order.limits import Subject, permits_of
from ...._policy.order.rank import changes_ranks
from ...rules.queue_rules import NO_LANE
from ...rules.usage import refilled
from ..rows import Row, listed_or_none, moment
from ..transaction import Transaction
from .queries import fill_buckets

MAX_MOVED = 2_000
"""Tasks that one transaction checks: about 40 ms."""


def after_settings(
    tx: Transaction, name: str, before: QueueSettings | None, now: QueueSettings | None
) -> bool:
    """Start the relayout after a change of a queue's settings; return whether it is unfinished."""
    tx.rules_changed()
    tx.wakes.ready.add(name)  # It may have been paused.
    if lanes.changes_lanes(before, now) or (
        changes_ranks(before, now) and tx.value("any_prioritised", {"queue": name})
    ):
        return _begin(tx, [name])
    return False


def after_limit(tx: Transaction, before: Limit | None, now: Limit | None) -> bool:
    """Start the relayout after a change of a limit; return whether it is unfinished."""
    tx.rules_changed()
    tx.wakes.limits_changed = True
    if before is not None and limits.changes_refill(before, now):
        first, below = limits.key_range(before)
        found = tx.rows("limit_buckets", {"first": first, "below": below})
        buckets = [(key, tokens, moment(at)) for key, tokens, at in found]
        fill_buckets(tx, refilled(before, buckets, tx.now))
    if not limits.regroups_tasks(before, now):
        return False
    _count_running(tx)
    named = {limit.queue for limit in (before, now) if limit is not None}
    queues = [queue for queue in named if queue is not None]
    return _begin(tx, [row[0] for row in tx.rows("ready_queues")] if None in named else queues)


def _count_running(tx: Transaction) -> None:
    """Write the permits of tasks that are already running, so that limits count them."""
    changed: list[Row] = []
    for queue, type_, tenant, payload, rowid, text in tx.rows("running"):
        permits = permits_of(tx.queue_rules.limits, Subject(queue, type_, tenant, payload))
        due = listed_or_none([permit.key for permit in permits])
        if due != text:
            changed.append((due, rowid))
    tx.run_many("permit", changed)


# -- step by step -----------------------------------------------------------------------------------


def _begin(tx: Transaction, queues: Iterable[str]) -> bool:
    tx.run_many("relayout_start", [{"queue": queue} for queue in queues])
    return continue_relayout(tx)


def continue_relayout(tx: Transaction) -> bool:
    """Move the next batch of tasks; return whether the relayout is unfinished."""
    room = MAX_MOVED
    for queue, lane, key, rank, task_id in tx.rows("relayouts"):
        after = {"lane": lane, "key": key, "rank": rank, "id": task_id}
        found = tx.rows("ready_after", {"queue": queue, **after, "limit": room})
        _place(tx, queue, found)
        if len(found) == room:
            after = dict(zip(after, found[-1][-4:], strict=True))
            tx.run("relayout_advance", {"queue": queue, **after})
            return True
        tx.run("relayout_finish", {"queue": queue})
        room -= len(found)
    return False


def _place(tx: Transaction, queue: str, rows: Iterable[Row]) -> None:
    """Move these tasks to the lanes, keys and ranks that they belong to now."""
    rules = tx.queue_rules
    is_fifo = rules.is_fifo(queue)
    moves: list[Row] = []
    boosts: list[dict[str, int]] = []
    for *about, rowid, level, head_start, lane, key, _, _ in rows:
        lane_and_key = NO_LANE if is_fifo else rules.lane_and_key(Subject(*about), level)
        if lane_and_key != (lane, key):
            moves.append((*lane_and_key, rowid))
        if (due := rules.boost(queue, level)) != head_start:
            boosts.append({"boost": due, "rowid": rowid})
    tx.run_many("set_lane", moves)
    tx.run_many("set_boost", boosts)
