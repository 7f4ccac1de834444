"""Putting what waits already where it belongs, after a queue's settings or a limit have changed. (F3, F5)

A few thousand tasks at a time, each lot in a transaction of its own, so that nobody else waits for long. How
far it has come is in the file: whoever began may die, and the keeper goes on. Meanwhile nothing is lost, for
picking serves lanes and keys that no longer fit, and judges every task by its own permits.
"""

from collections.abc import Iterable

from ...._model.limit import Limit
from ...._model.queue import QueueSettings
from ...._policy.order import lanes, limits
from ...._policy.order.limits import Subject, permits_of
from ..rows import Row, permits_row
from ..transaction import Transaction
from .queue_rules import ONE_LINE

AT_ONCE = 2_000
"""Tasks that one transaction looks at: some 40 ms."""


def after_settings(
    tx: Transaction, name: str, before: QueueSettings | None, now: QueueSettings | None
) -> bool:
    """A queue's settings were written; says whether there is more to put elsewhere than was done at once."""
    tx.rules_changed()
    tx.wakes.ready.add(name)  # It may have been paused.
    return lanes.changes_lanes(before, now) and _begin(tx, [name])


def after_limit(tx: Transaction, before: Limit | None, now: Limit | None) -> bool:
    """A limit was written; says whether there is more to put elsewhere than was done at once."""
    tx.rules_changed()
    tx.wakes.limits_changed = True
    if before is not None and limits.changes_rate(before, now):
        _settle_buckets(tx, before)
    if not limits.regroups_tasks(before, now):
        return False
    _count_running(tx)
    named = {limit.queue for limit in (before, now) if limit is not None}
    queues = [queue for queue in named if queue is not None]
    return _begin(tx, [row[0] for row in tx.rows("ready_queues")] if None in named else queues)


def _settle_buckets(tx: Transaction, limit: Limit) -> None:
    first, below = limits.key_range(limit)
    filling = {"rate": limit.rate, "capacity": float(limit.capacity), "now": tx.at}
    tx.run("settle_buckets", {"first": first, "below": below, **filling})


def _count_running(tx: Transaction) -> None:
    """Limits count what runs already."""
    changed: list[Row] = []
    for queue, type_, tenant, payload, rowid, text in tx.rows("running"):
        permits = permits_of(tx.places.limits, Subject(queue, type_, tenant, payload))
        due = permits_row([permit.key for permit in permits])
        if due != text:
            changed.append((due, rowid))
    tx.run_many("permit", changed)


# -- lot by lot --------------------------------------------------------------------------------------


def _begin(tx: Transaction, queues: Iterable[str]) -> bool:
    tx.run_many("rearrange", [{"queue": queue} for queue in queues])
    return go_on(tx)


def go_on(tx: Transaction) -> bool:
    """Put the next lot where it belongs; says whether there is more."""
    room = AT_ONCE
    for queue, lane, key, rank, task_id in tx.rows("rearranging"):
        after = {"lane": lane, "key": key, "rank": rank, "id": task_id}
        found = tx.rows("ready_after", {"queue": queue, **after, "limit": room})
        tx.run_many("place", _misplaced(tx, queue, found))
        if len(found) == room:
            after = dict(zip(after, found[-1][-4:], strict=True))
            tx.run("rearranged_to", {"queue": queue, **after})
            return True
        tx.run("rearranged", {"queue": queue})
        room -= len(found)
    return False


def _misplaced(tx: Transaction, queue: str, rows: Iterable[Row]) -> list[Row]:
    one_line = tx.places.is_one_line(queue)
    moves: list[Row] = []
    for *about, rowid, priority, lane, key, _, _ in rows:
        place = ONE_LINE if one_line else tx.places.of(Subject(*about), priority)
        if place != (lane, key):
            moves.append((*place, rowid))
    return moves
