"""The verbs of the keeper: lead, promote and prune."""

from collections import Counter
from datetime import datetime, timedelta
from functools import partial
from typing import TypeAlias

from ..._model.filter import By
from ..._model.queue import Retention
from ..._model.record import ARCHIVE_NAME, KINDS, Archive
from ..._model.state import ENDED, State, Verb
from ..._model.task import TaskId
from ..._model.transition import Pruned, TaskTransition, pruned_counts
from ..._policy.order.limits import PermitUsage, split_key, tokens_at
from ..._store.protocol import Promoted
from ..records import read_archive
from ..rules.audit import audited_prune
from ..rules.cancellation import pruned
from ..rules.queue_rules import QueueRules
from ..rules.retention import RetentionRules, archived
from ..rules.successors import abandon
from .claim.answers import read_bucket
from .claim.relayout import finish_relayouts
from .database import Database
from .keys import SEPARATOR, unpacked
from .rows import STATE_AT, STATES, instant, moment
from .rule_player import declared_types, delete, play
from .unit_of_work import UnitOfWork

Numbers: TypeAlias = Counter[tuple[str, str]]
"""Deleted tasks by queue and state."""

AT_ONCE = 200
"""Tasks that one commit promotes or deletes."""

KEYS_AT_ONCE = 1000
KEPT_AFTER_LIMIT = timedelta(days=1)
"""Time to keep the buckets of a removed limit, which may be added again."""


async def lead(database: Database, holder: str, lease_for: timedelta) -> bool:
    """Take, renew or give up the lead; return whether `holder` leads."""

    async def take(unit: UnitOfWork) -> bool:
        found = (await unit.guarded(unit.keys.meta, ["leader"])).get("leader")
        until = instant(unit.now + lease_for)
        if found is not None:
            ends, _, leader = found.decode().partition(" ")
            # A lead that lasts longer than any request was granted before the clock was set back.
            if leader != holder and (not lease_for or instant(unit.now) < int(ends) <= until):
                return False
        if lease_for:
            unit.run("HSET", unit.keys.meta, "leader", f"{until} {holder}")
        else:
            unit.run("HDEL", unit.keys.meta, "leader")
        return bool(lease_for)

    return await database.transact(take)


async def promote(database: Database, limit: int) -> Promoted:
    """Make due tasks ready, earliest first."""
    number = 0
    while number < limit:
        room = min(limit - number, AT_ONCE)
        promoted, dropped = await database.transact(partial(_promote, database=database, limit=room))
        number += promoted
        if promoted + dropped < room:
            break
    first = await database.client.call("ZRANGE", database.keys.scheduled, 0, 0, "WITHSCORES")
    return Promoted(number=number, next_at=moment(first[1]) if first else None)


async def _promote(unit: UnitOfWork, database: Database, limit: int) -> tuple[int, int]:
    """Return how many tasks became ready, and how many are no longer looked for.

    Those are tasks whose keys were deleted or damaged; they must not hold up the ones behind them.
    """
    due = await database.client.call(
        "ZRANGEBYSCORE", unit.keys.scheduled, "-inf", instant(unit.now), "LIMIT", 0, limit
    )
    tasks = await unit.load(map(unpacked, due))
    scheduled = {task.id: task for task in tasks.values() if task.state is State.SCHEDULED}
    ready = [task for task in scheduled.values() if task.run_at <= unit.now]
    for task in ready:
        unit.move(task, Verb.PROMOTE, State.READY)
    gone = [member for member in due if unpacked(member) not in scheduled]
    unit.run_many("ZREM", unit.keys.scheduled, gone)
    return len(ready), len(gone)


# -- prune -------------------------------------------------------------------------------------------


async def prune(database: Database, default: Retention, limit: int, by: By | None) -> Pruned:
    """Delete ended tasks that are past their retention; return what was deleted."""
    if by is not None:

        async def audit(unit: UnitOfWork) -> None:
            unit.audit([audited_prune(default, by, unit.now)])

        await database.transact(audit)
    numbers: Numbers = Counter()
    transitions: list[TaskTransition] = []
    rules = (await database.read_rules()).rules
    for key, horizon in await _horizons(database, default):
        start = 0
        while numbers.total() < limit:
            room = min(limit - numbers.total(), AT_ONCE)
            # By rank: ZRANGEBYSCORE would walk over all that is skipped.
            range_ = await database.client.call("ZRANGE", key, start, start + room - 1, "WITHSCORES")
            pairs = zip(range_[::2], range_[1::2], strict=True)
            found = [member for member, ended_at in pairs if int(ended_at) < instant(horizon)]
            ids = await _unneeded(database, [unpacked(one) for one in found])
            gone, cancelled = await database.transact(partial(_delete, ids=ids, rules=rules))
            numbers += gone
            transitions += cancelled
            start += len(found) - gone.total()  # Those that others need stay.
            if len(found) < room:
                break
    await _prune_keys(database)
    await finish_relayouts(database)
    if numbers.total() < limit:  # Only when nothing else is left to prune.
        await _prune_buckets(database)
        await _prune_groups(database)
    return Pruned(counts=pruned_counts(numbers), transitions=tuple(transitions))


async def _horizons(database: Database, default: Retention) -> list[tuple[str, datetime]]:
    """Return the sets of ended tasks, and the instant before which their tasks may be deleted."""
    unit = await database.begin()
    rules = RetentionRules(default, unit.rules.settings.values(), await declared_types(unit))
    stored = await database.client.call("HGET", database.keys.bodies(KINDS[Archive]), ARCHIVE_NAME)
    archive = None if stored is None else read_archive(stored)
    names = await database.client.members(database.keys.groups)
    groups = {tuple(name.split(SEPARATOR)[:3]) for name in names}
    found = []
    for state, queue, type_name in sorted(groups):
        if State(state) in ENDED:
            horizon = archived(rules.of(queue, type_name).horizon(State(state), unit.now), archive)
            if horizon is not None:
                found.append((database.keys.ended(state, queue, type_name), horizon))
    return found


async def _unneeded(database: Database, ids: list[TaskId]) -> list[TaskId]:
    """Leave out ended tasks that another needs, unless they are dead, without reading their results.

    What has changed meanwhile is noticed when the others are deleted.
    """
    needed = await database.client.call_all([("EXISTS", database.keys.successors(one)) for one in ids])
    states = await database.client.call_all(
        [("GETRANGE", database.keys.task(one), STATE_AT, STATE_AT) for one in ids]
    )
    return [
        one
        for one, is_needed, letter in zip(ids, needed, states, strict=True)
        if not is_needed or STATES.get(letter) is State.DEAD
    ]


async def _delete(
    unit: UnitOfWork, ids: list[TaskId], rules: QueueRules
) -> tuple[Numbers, list[TaskTransition]]:
    """Delete those of these tasks that nobody waits for; none if a setting has changed."""
    numbers: Numbers = Counter()
    if unit.rules is not rules:
        return numbers, []
    for task in (await unit.load(ids)).values():
        if task.state not in ENDED or (task.state is not State.DEAD and await unit.successors(task.id)):
            continue
        await play(unit, abandon(unit, task.id, pruned()))
        await delete(unit, [task])
        numbers[task.queue, task.state.value] += 1
    return numbers, unit.transitions


async def _prune_keys(database: Database) -> None:
    """Delete expired idempotency keys, some at a time."""
    more = True
    while more:

        async def forget(unit: UnitOfWork) -> bool:
            keys = unit.keys
            found = await database.client.call(
                "ZRANGEBYSCORE", keys.idempotency_until, "-inf", instant(unit.now), "LIMIT", 0, KEYS_AT_ONCE
            )
            if found:
                names = [one.decode() for one in found]
                await unit.guarded(keys.idempotency, names)
                unit.run("HDEL", keys.idempotency, *names)
                unit.run("ZREM", keys.idempotency_until, *names)
            return len(found) == KEYS_AT_ONCE

        more = await database.transact(forget)


async def _prune_buckets(database: Database) -> None:
    """Delete buckets that are full, like ones that were never used, or whose limit was removed long ago."""
    unit = await database.begin()
    found = [one async for one in database.client.scan("HSCAN", database.keys.buckets)]
    buckets = dict(zip(found[::2], found[1::2], strict=True))
    names = [name.decode() for name, value in buckets.items() if _is_redundant(unit, name.decode(), value)]
    for at in range(0, len(names), AT_ONCE):
        await database.transact(partial(_forget_buckets, names=names[at : at + AT_ONCE]))


async def _forget_buckets(unit: UnitOfWork, names: list[str]) -> None:
    for name, value in (await unit.guarded(unit.keys.buckets, names)).items():
        if _is_redundant(unit, name, value):
            unit.run("HDEL", unit.keys.buckets, name)


def _is_redundant(unit: UnitOfWork, name: str, bucket: bytes) -> bool:
    """Whether a bucket says the same as none, or is one that nobody needs any more."""
    limit, (tokens, at) = unit.rules.limits_by_name.get(split_key(name)[0]), read_bucket(bucket)
    if limit is None or not limit.is_metered:
        return at is None or at <= unit.now - KEPT_AFTER_LIMIT
    return tokens_at(limit, PermitUsage(0, tokens, at), unit.now) >= limit.capacity


async def _prune_groups(database: Database) -> None:
    """Forget the names of groups that have no tasks any more."""
    names = sorted(await database.client.members(database.keys.groups))
    for at in range(0, len(names), KEYS_AT_ONCE):
        some = names[at : at + KEYS_AT_ONCE]
        await database.client.run("forget_groups", [database.keys.meta], [database.keys.prefix, *some])
