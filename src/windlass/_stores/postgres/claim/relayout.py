"""Putting ready tasks where they belong: into lanes, out of them, and under limits that have changed."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from ...._model.limit import Limit, Usage
from ...._model.queue import QueueSettings
from ...._model.record import KINDS
from ...._policy.order.lanes import lane_of
from ...._policy.order.limits import (
    PermitUsage,
    Subject,
    changes_rate,
    key_range,
    limit_key,
    limits_in_queue,
    permits_of,
    regroups_tasks,
    split_key,
    tokens_at,
)
from ...rules.claim_planner import ClaimRules
from ..queue_layout import ALL, read_limit
from ..rows import Row, columns_of
from ..script import Script, ask, value

AT_ONCE = 1000
"""So many tasks are laid in one transaction, so that none holds up others for long."""

_UNUSED_FOR = timedelta(minutes=1)
"""For so long at least what a limit counted is remembered."""

_LONGEST = timedelta(days=366).total_seconds()
_encoder = msgspec.json.Encoder()


# -- lanes -------------------------------------------------------------------------------------------


def lay_some(rules: ClaimRules, queues: Iterable[str]) -> Script[bool]:
    """Put ready tasks of these queues into their lanes; says whether there may be more of them."""
    rows = yield from ask("unlaid", sorted(queues), AT_ONCE)
    laid = [(row[0], *_place(rules, row)) for row in rows]
    if laid:
        yield from ask("lay", *columns_of(laid, 3))
    return len(laid) >= AT_ONCE


def _place(rules: ClaimRules, row: Row) -> tuple[str, str]:
    _, queue, type_, tenant, priority, payload = row
    lane = lane_of(rules.queues.get(queue), tenant, priority)
    return lane, limit_key(limits_in_queue(rules.limits, queue), Subject(queue, type_, tenant, payload))


def take_out(queue: str) -> Script[int]:
    """Take some of a queue's ready tasks out of their lanes; how many there were."""
    number: int = yield from value("unlay", queue, AT_ONCE)
    return number


def straighten(clock: datetime | None, settings: Sequence[QueueSettings]) -> Script[None]:
    """Queues that have had no need of lanes for a while are one line again."""
    yield from ask("straighten", [one.name for one in settings if one.is_laned], clock)


# -- limits ------------------------------------------------------------------------------------------


def put_limit(clock: datetime | None, limit: Limit) -> Script[list[Limit]]:
    """Keep a limit; from now on only claims that count take anything it applies to.

    Answers with the limits, old and new, whose tasks are told apart otherwise now.
    """
    before = yield from _limit(limit.name)
    yield from ask("put_record", KINDS[Limit], limit.name, _encoder.encode(limit).decode())
    yield from _guard(clock)
    yield from _settle_buckets(clock, before, limit)
    if not regroups_tasks(before, limit):
        return []
    changed = [limit] if before is None else [before, limit]
    yield from ask("unsettle", queues_of(changed))
    return changed


def remove_limit(clock: datetime | None, name: str) -> Script[list[Limit]]:
    """Forget a limit; answers with it, if there was one."""
    before = yield from _limit(name)
    yield from ask("remove_record", KINDS[Limit], name)
    yield from _guard(clock)
    yield from _settle_buckets(clock, before, None)
    if before is None:
        return []
    yield from ask("unsettle", queues_of([before]))
    return [before]


def _limit(name: str) -> Script[Limit | None]:
    body = yield from value("one_record", KINDS[Limit], name)
    return None if body is None else read_limit(body)


def queues_of(limits: Iterable[Limit]) -> list[str]:
    """The queues that these limits apply to; ALL stands for all."""
    return sorted({ALL if limit.queue is None else limit.queue for limit in limits})


def all_limits() -> Script[list[Limit]]:
    """Every limit there is."""
    return [read_limit(row[0]) for row in (yield from ask("all_records", KINDS[Limit]))]


def _guard(clock: datetime | None) -> Script[None]:
    limits = yield from all_limits()
    queues = queues_of(limits)
    if queues:
        yield from ask("guard", queues, clock)
    yield from ask("unguard", queues, clock)


def _settle_buckets(clock: datetime | None, before: Limit | None, now: Limit | None) -> Script[None]:
    if before is not None and changes_rate(before, now):
        yield from ask("lock_buckets", *key_range(before))
        yield from ask("settle_buckets", *key_range(before), before.rate, float(before.capacity), clock)


def count_running(now: datetime) -> Script[None]:
    """Have what runs already count for the limits as they are now."""
    limits = yield from all_limits()
    held = [
        (permit.key, task_id, claimed_at)
        for task_id, queue, type_, tenant, payload, claimed_at in (yield from ask("running"))
        for permit in permits_of(limits, Subject(queue, type_, tenant, payload))
    ]
    if held:
        keys = sorted({key for key, _, _ in held})
        yield from ask("bucket_make", keys, now)
        yield from ask("bucket_lock", keys)
        yield from ask("permit_running", *columns_of(sorted(held), 3))
    yield from ask("wake_waiting")


def forget_unused(clock: datetime | None) -> Script[bool]:
    """Forget some of what limits counted and is not in use; says whether there may be more."""
    limits = yield from all_limits()
    filled = [timedelta(seconds=min(limit.capacity / limit.rate, _LONGEST)) for limit in limits if limit.rate]
    gone = yield from ask("prune_buckets", clock, max([_UNUSED_FOR, *filled]), AT_ONCE)
    return len(gone) == AT_ONCE


def usages(now: datetime) -> Script[list[Usage]]:
    """What of each limit is in use."""
    limits = {limit.name: limit for limit in (yield from all_limits())}
    found = []
    for key, running, tokens, at in (yield from ask("uses")):
        name, which = split_key(key)
        limit = limits.get(name)
        if limit is None or (not running and tokens is None):
            continue
        left = None if limit.rate is None else tokens_at(limit, PermitUsage(0, tokens, at), now)
        found.append(Usage(name=key, limit=name, value=which, running=running, tokens=left))
    return found
