"""Move ready tasks into and out of lanes, and store limits, whose change moves tasks too."""

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from functools import partial

import msgspec
from msgspec import Struct

from ...._model.limit import Limit, Usage
from ...._model.queue import QueueSettings
from ...._model.record import KINDS, Record
from ...._policy.order.lanes import lane_of
from ...._policy.order.limits import (
    PermitUsage,
    Subject,
    changes_refill,
    key_range,
    limit_key,
    limits_in_queue,
    permits_of,
    regroups_tasks,
    seconds_to_fill,
)
from ...records import readable
from ...rules import usage
from ...rules.claim_planner import ClaimRules
from ..database import Database
from ..queue_layout import queue_of, read_limit, read_settings, stored_names
from ..rows import columns_of
from ..script import Query, Script, fetch, value
from .ranks import rerank, rerank_mixed

AT_ONCE = 1000
"""Tasks that one transaction moves, so that none blocks others for long."""

_MIN_UNUSED = timedelta(minutes=1)
"""How long the count of a limit that is not in use is kept at least."""

_MAX_QUEUES = 100_000
_LONGEST = timedelta(days=366).total_seconds()
_encoder = msgspec.json.Encoder()


class Displaced(Struct, frozen=True):
    """Queues whose ready tasks are no longer where they belong after a change of settings or of a limit."""

    queues: Collection[str | None] = ()  # to be moved to other lanes; None: all queues
    reranked: str | None = None  # to be ranked by another ageing


# -- moves, a transaction for each AT_ONCE tasks -----------------------------------------------------


async def move_tasks(database: Database, queues: Collection[str | None]) -> None:
    """Move the ready tasks of these queues to where they belong now; None means all queues."""
    if not queues:
        return
    rules = ClaimRules(database.layout.settings, database.layout.limits)
    ready = await database.fetch(Query("ready_queues", (_MAX_QUEUES,))) if None in queues else ()
    for queue in [row[0] for row in ready] or [queue for queue in queues if queue is not None]:
        while (await database.fetch(Query("take_out_of_lanes", (queue, AT_ONCE))))[0][0] >= AT_ONCE:
            continue
        place = partial(place_in_lanes, rules, [queue])
        while database.layout.has_lanes(queue) and await database.play(place):
            continue
    await database.fetch(Query("mark_moved", (stored_names(queues),)))
    await database.refresh_layout()


async def apply_rules(database: Database, kind: type[Record], displaced: Displaced) -> None:
    """Apply changed settings of a queue, or a changed limit, to running tasks and to those displaced."""
    if kind is Limit:
        await database.play(partial(count_running, await database.now()))
    if kind in (Limit, QueueSettings):
        await database.refresh_layout()
        await move_tasks(database, displaced.queues)
    if displaced.reranked is not None:
        head_start = database.layout.head_start(displaced.reranked)
        await rerank(database.fetch, database.address.schema, displaced.reranked, head_start)


async def tidy(database: Database) -> None:
    """Make queues FIFO that need no lanes any more, finish moves, and delete unused counts of limits.

    Also rank tasks that were ranked by a former ageing of their queue.
    """
    clock = database.env.clock
    await database.play(lambda: drop_unneeded_lanes(clock))
    await database.refresh_layout()
    # Of queues that became FIFO just now, or earlier: by a transaction that had begun before.
    laned = [row[0] for row in await database.fetch(Query("laned_queues"))]
    moving = [queue_of(row[0]) for row in await database.fetch(Query("moving_queues"))]
    await move_tasks(database, [*moving, *(queue for queue in laned if not database.layout.has_lanes(queue))])
    await rerank_mixed(database.fetch, database.address.schema)
    while await database.play(lambda: forget_unused(clock)):
        continue


# -- lanes -------------------------------------------------------------------------------------------


def place_in_lanes(rules: ClaimRules, queues: Iterable[str]) -> Script[bool]:
    """Move up to AT_ONCE ready tasks of these queues into their lanes; return whether there may be more."""
    rows = yield from fetch("misplaced", sorted(queues), AT_ONCE)
    placed = []
    for task_id, queue, type_, tenant, priority, payload in rows:
        lane = lane_of(rules.queues.get(queue), tenant, priority)
        limits = limits_in_queue(rules.limits, queue)
        placed.append((task_id, lane, limit_key(limits, Subject(queue, type_, tenant, payload))))
    if placed:
        yield from fetch("place_in_lanes", *columns_of(placed, 3))
    return len(placed) >= AT_ONCE


def drop_unneeded_lanes(clock: datetime | None) -> Script[None]:
    """Make queues FIFO again that have not needed lanes for a while."""
    settings = readable(read_settings, [row[0] for row in (yield from fetch("all_queues"))])
    yield from fetch("drop_unneeded_lanes", [one.name for one in settings if one.is_laned], clock)


# -- limits ------------------------------------------------------------------------------------------


def put_limit(clock: datetime | None, limit: Limit) -> Script[set[str | None]]:
    """Store a limit and mark its queues guarded, so that only limit-aware claims take from them.

    Return the queues whose tasks must be regrouped, of the old limit as well (None: all queues).
    """
    before = yield from _limit(limit.name)
    yield from fetch("put_record", KINDS[Limit], limit.name, _encoder.encode(limit).decode())
    yield from _guard(clock)
    yield from _settle_buckets(clock, before, limit)
    if not regroups_tasks(before, limit):
        return set()
    queues = {limit.queue} if before is None else {before.queue, limit.queue}
    yield from fetch("mark_moving", stored_names(queues))
    return queues


def remove_limit(clock: datetime | None, name: str) -> Script[set[str | None]]:
    """Remove a limit; return its queue (None: all queues), or nothing if there was no such limit."""
    before = yield from _limit(name)
    yield from fetch("remove_record", KINDS[Limit], name)
    yield from _guard(clock)
    yield from _settle_buckets(clock, before, None)
    if before is None:
        return set()
    yield from fetch("mark_moving", stored_names([before.queue]))
    return {before.queue}


def _limit(name: str) -> Script[Limit | None]:
    body = yield from value("get_record", KINDS[Limit], name)
    return None if body is None else read_limit(body)


def all_limits() -> Script[list[Limit]]:
    return readable(read_limit, [row[0] for row in (yield from fetch("all_records", KINDS[Limit]))])


def _guard(clock: datetime | None) -> Script[None]:
    queues = stored_names([limit.queue for limit in (yield from all_limits())])
    if queues:
        yield from fetch("guard_queues", queues, clock)
    yield from fetch("unguard_queues", queues, clock)


def _settle_buckets(clock: datetime | None, before: Limit | None, after: Limit | None) -> Script[None]:
    if before is not None and changes_refill(before, after):
        rows = yield from fetch("lock_limit_buckets", *key_range(before))
        now = yield from value("now", clock)
        used = [(key, tokens, at) for key, tokens, at in rows if tokens is not None]
        yield from fetch("fix_tokens", *columns_of(usage.refilled(before, used, now), 2), now)


def count_running(now: datetime) -> Script[None]:
    """Give running tasks permits of the limits as they are now."""
    limits = yield from all_limits()
    held = [
        (permit.key, task_id, claimed_at)
        for task_id, queue, type_, tenant, payload, claimed_at in (yield from fetch("running_tasks"))
        for permit in permits_of(limits, Subject(queue, type_, tenant, payload))
    ]
    if held:
        keys = sorted({key for key, _, _ in held})
        yield from fetch("lock_new_buckets")
        yield from fetch("insert_buckets", keys, now)
        yield from fetch("lock_buckets", keys)
        yield from fetch("insert_permits", *columns_of(sorted(held), 3))
    yield from fetch("wake_all")


def forget_unused(clock: datetime | None) -> Script[bool]:
    """Delete up to AT_ONCE counts of limits that are not in use; return whether there may be more."""
    limits = yield from all_limits()
    seconds = [min(seconds_to_fill(limit), _LONGEST) for limit in limits if limit.is_metered]
    unused = max(_MIN_UNUSED, timedelta(seconds=max(seconds, default=0)))
    gone = yield from fetch("prune_buckets", clock, unused, AT_ONCE)
    return len(gone) == AT_ONCE


def usages(now: datetime) -> Script[list[Usage]]:
    limits = yield from all_limits()
    rows = yield from fetch("limit_usage")
    used = {key: PermitUsage(running, tokens, at) for key, running, tokens, at in rows}
    return usage.usages(limits, used, now)
