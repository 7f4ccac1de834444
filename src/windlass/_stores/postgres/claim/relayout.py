"""Move ready tasks into and out of lanes, and store limits, whose change moves tasks too."""

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from ...._model.limit import Limit, Usage
from ...._model.record import KINDS
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
from ...rules import usage
from ...rules.claim_planner import ClaimRules
from ..queue_layout import queue_of, read_limit, read_settings, stored_names
from ..rows import Row, columns_of
from ..script import Ask, Script, ask, value

if TYPE_CHECKING:
    from ..database import Database

AT_ONCE = 1000
"""Tasks that one transaction moves, so that none blocks others for long."""

_MIN_UNUSED = timedelta(minutes=1)
"""How long the count of a limit that is not in use is kept at least."""

_MAX_QUEUES = 100_000
_LONGEST = timedelta(days=366).total_seconds()
_encoder = msgspec.json.Encoder()


# -- moves, a transaction for each AT_ONCE tasks -----------------------------------------------------


async def move_tasks(database: "Database", queues: Collection[str | None]) -> None:
    """Move the ready tasks of these queues to where they belong now; None means all queues."""
    if not queues:
        return
    rules = ClaimRules(database.layout.settings, database.layout.limits)
    ready = await database.fetch(Ask("ready_queues", (_MAX_QUEUES,))) if None in queues else ()
    for queue in [row[0] for row in ready] or [queue for queue in queues if queue is not None]:
        while await database.play(partial(take_out, queue)) >= AT_ONCE:
            continue
        while database.layout.has_lanes(queue) and await database.play(
            partial(place_in_lanes, rules, [queue])
        ):
            continue
    await database.fetch(Ask("mark_moved", (stored_names(queues),)))
    await database.refresh_layout()


async def apply_limits(database: "Database", changed: Sequence[Limit]) -> None:
    """Give running tasks permits of the limits as they are now, and regroup ready tasks of changed ones."""
    await database.play(partial(count_running, await database.now()))
    await database.refresh_layout()
    await move_tasks(database, queues_of(changed))


async def tidy(database: "Database") -> None:
    """Make queues FIFO that need no lanes any more, finish moves, and delete unused counts of limits."""
    clock = database.env.clock
    await database.play(lambda: drop_unneeded_lanes(clock))
    await database.refresh_layout()
    # Of queues that became FIFO just now, or earlier: by a transaction that had begun before.
    laned = [row[0] for row in await database.fetch(Ask("laned_queues"))]
    moving = [queue_of(row[0]) for row in await database.fetch(Ask("moving_queues"))]
    await move_tasks(database, [*moving, *(queue for queue in laned if not database.layout.has_lanes(queue))])
    while await database.play(lambda: forget_unused(clock)):
        continue


# -- lanes -------------------------------------------------------------------------------------------


def place_in_lanes(rules: ClaimRules, queues: Iterable[str]) -> Script[bool]:
    """Move up to AT_ONCE ready tasks of these queues into their lanes; return whether there may be more."""
    rows = yield from ask("misplaced", sorted(queues), AT_ONCE)
    placed = [(row[0], *_lane_and_key(rules, row)) for row in rows]
    if placed:
        yield from ask("place_in_lanes", *columns_of(placed, 3))
    return len(placed) >= AT_ONCE


def _lane_and_key(rules: ClaimRules, row: Row) -> tuple[str, str]:
    _, queue, type_, tenant, priority, payload = row
    lane = lane_of(rules.queues.get(queue), tenant, priority)
    return lane, limit_key(limits_in_queue(rules.limits, queue), Subject(queue, type_, tenant, payload))


def take_out(queue: str) -> Script[int]:
    """Move up to AT_ONCE of a queue's ready tasks out of their lanes; return how many."""
    number: int = yield from value("take_out_of_lanes", queue, AT_ONCE)
    return number


def drop_unneeded_lanes(clock: datetime | None) -> Script[None]:
    """Make queues FIFO again that have not needed lanes for a while."""
    settings = [read_settings(row[0]) for row in (yield from ask("all_queues"))]
    yield from ask("drop_unneeded_lanes", [one.name for one in settings if one.is_laned], clock)


# -- limits ------------------------------------------------------------------------------------------


def put_limit(clock: datetime | None, limit: Limit) -> Script[list[Limit]]:
    """Store a limit and mark its queues guarded, so that only limit-aware claims take from them.

    Return the old and the new limit if their tasks must be regrouped, else [].
    """
    before = yield from _limit(limit.name)
    yield from ask("put_record", KINDS[Limit], limit.name, _encoder.encode(limit).decode())
    yield from _guard(clock)
    yield from _settle_buckets(clock, before, limit)
    if not regroups_tasks(before, limit):
        return []
    changed = [limit] if before is None else [before, limit]
    yield from ask("mark_moving", stored_names(queues_of(changed)))
    return changed


def remove_limit(clock: datetime | None, name: str) -> Script[list[Limit]]:
    """Remove a limit; return it in a list, [] if there was none."""
    before = yield from _limit(name)
    yield from ask("remove_record", KINDS[Limit], name)
    yield from _guard(clock)
    yield from _settle_buckets(clock, before, None)
    if before is None:
        return []
    yield from ask("mark_moving", stored_names(queues_of([before])))
    return [before]


def _limit(name: str) -> Script[Limit | None]:
    body = yield from value("get_record", KINDS[Limit], name)
    return None if body is None else read_limit(body)


def queues_of(limits: Iterable[Limit]) -> set[str | None]:
    """Return the queues that these limits apply to; None means all queues."""
    return {limit.queue for limit in limits}


def all_limits() -> Script[list[Limit]]:
    """Read every limit."""
    return [read_limit(row[0]) for row in (yield from ask("all_records", KINDS[Limit]))]


def _guard(clock: datetime | None) -> Script[None]:
    limits = yield from all_limits()
    queues = stored_names(queues_of(limits))
    if queues:
        yield from ask("guard_queues", queues, clock)
    yield from ask("unguard_queues", queues, clock)


def _settle_buckets(clock: datetime | None, before: Limit | None, after: Limit | None) -> Script[None]:
    if before is not None and changes_refill(before, after):
        rows = yield from ask("lock_limit_buckets", *key_range(before))
        now = yield from value("now", clock)
        used = [(key, tokens, at) for key, tokens, at in rows if tokens is not None]
        yield from ask("fix_tokens", *columns_of(usage.refilled(before, used, now), 2), now)


def count_running(now: datetime) -> Script[None]:
    """Give running tasks permits of the limits as they are now."""
    limits = yield from all_limits()
    held = [
        (permit.key, task_id, claimed_at)
        for task_id, queue, type_, tenant, payload, claimed_at in (yield from ask("running_tasks"))
        for permit in permits_of(limits, Subject(queue, type_, tenant, payload))
    ]
    if held:
        keys = sorted({key for key, _, _ in held})
        yield from ask("insert_buckets", keys, now)
        yield from ask("lock_buckets", keys)
        yield from ask("insert_permits", *columns_of(sorted(held), 3))
    yield from ask("wake_all")


def forget_unused(clock: datetime | None) -> Script[bool]:
    """Delete up to AT_ONCE counts of limits that are not in use; return whether there may be more."""
    limits = yield from all_limits()
    seconds = [min(seconds_to_fill(limit), _LONGEST) for limit in limits if limit.is_metered]
    unused = max(_MIN_UNUSED, timedelta(seconds=max(seconds, default=0)))
    gone = yield from ask("prune_buckets", clock, unused, AT_ONCE)
    return len(gone) == AT_ONCE


def usages(now: datetime) -> Script[list[Usage]]:
    """Return how much of each limit is in use."""
    limits = yield from all_limits()
    rows = yield from ask("limit_usage")
    used = {key: PermitUsage(running, tokens, at) for key, running, tokens, at in rows}
    return usage.usages(limits, used, now)
