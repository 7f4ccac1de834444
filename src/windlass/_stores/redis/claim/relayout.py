"""Move ready tasks to other lanes, keys and ranks after a queue's settings or a limit have changed.

Some tasks per commit, of any tenants. Which queues are unfinished is kept in the store: if the process dies,
the keeper starts again. Meanwhile claims serve outdated lanes and keys too, and check each task.
"""

from functools import partial

from ...._model.filter import Filter
from ...._model.limit import Limit
from ...._model.queue import QueueSettings
from ...._model.state import State
from ...._model.task import TaskId
from ...._policy.order import lanes, limits
from ...._policy.order.limits import Subject, permits_of
from ...._policy.order.rank import changes_ranks
from ...rules.usage import refilled
from ..database import Database
from ..keys import SEPARATOR
from ..read import Reader
from ..rows import instant
from ..unit_of_work import UnitOfWork
from .answers import read_bucket

RECOUNT = SEPARATOR
"""Marks, among the queues, that running tasks may lack the permits of a limit."""

_AT_ONCE = 200
_GROUPS_AT_ONCE = 1_000


def after_settings(
    unit: UnitOfWork, name: str, before: QueueSettings | None, after: QueueSettings | None
) -> bool:
    """Mark a queue whose ready tasks must move after a change of its settings; return whether they must."""
    unit.wakes.ready.add(name)  # It may have been paused.
    if not lanes.changes_lanes(before, after) and not changes_ranks(before, after):
        return False
    unit.run("SADD", unit.keys.relayout, name)
    return True


async def after_limit(
    database: Database, unit: UnitOfWork, before: Limit | None, after: Limit | None
) -> bool:
    """Refill the buckets of a changed limit; mark the queues whose tasks must move; return whether any."""
    unit.wakes.all_queues = True
    if before is not None and limits.changes_refill(before, after):
        await _refill(database, unit, before)
    if not limits.regroups_tasks(before, after):
        return False
    named = {limit.queue for limit in (before, after) if limit is not None}
    queues = {queue for queue in named if queue is not None}
    if None in named:
        queues = await ready_queues(database)
    unit.run_many("SADD", unit.keys.relayout, [RECOUNT, *sorted(queues)])
    return True


async def _refill(database: Database, unit: UnitOfWork, limit: Limit) -> None:
    first, below = limits.key_range(limit)
    found = [name.decode() for name in await database.client.call("HKEYS", unit.keys.buckets)]
    buckets = await unit.guarded(unit.keys.buckets, [name for name in found if first <= name < below])
    read = [(name, *read_bucket(value)) for name, value in buckets.items()]
    known = [(name, tokens, at) for name, tokens, at in read if tokens is not None and at is not None]
    for name, tokens in refilled(limit, known, unit.now):
        unit.run("HSET", unit.keys.buckets, name, f"{tokens!r} {instant(unit.now)}")


async def ready_queues(database: Database) -> set[str]:
    """Return the queues that have, or had, ready tasks."""
    return {group.queue for group in await Reader(database).groups(Filter(states=(State.READY,)))}


# -- step by step -----------------------------------------------------------------------------------


async def finish_relayouts(database: Database) -> None:
    """Move all tasks of marked queues, and count the permits of running tasks if that is marked."""
    while True:
        rules = await database.read_rules()
        marked = rules.rules.relayouts
        if not marked:
            return
        if RECOUNT in marked:
            await _recount(database)
        await _place_all(database, marked - {RECOUNT})
        unit = await database.begin()
        if (await database.rules()).version == rules.version:  # Otherwise some tasks must move again.
            unit.run_many("SREM", unit.keys.relayout, sorted(marked))
            unit.change_rules()
            unit.wakes.all_queues = True
            await database.commit("commit", unit)


async def _recount(database: Database) -> None:
    """Write the permits of tasks that run, so that limits count them."""
    for ids in _chunks(await running(database)):
        await database.transact(partial(_count, ids=ids))


async def _count(unit: UnitOfWork, ids: list[TaskId]) -> None:
    for task in (await unit.load(ids)).values():
        if task.state is State.RUNNING:
            subject = Subject(task.queue, task.type, task.tenant, task.payload)
            needed = tuple(permit.key for permit in permits_of(unit.rules.limits, subject))
            if needed != unit.permits_held(task.id):
                unit.hold_permits(task.id, needed)


async def running(database: Database) -> list[TaskId]:
    """Return the ids of all running tasks."""
    reader = Reader(database)
    return await reader.ids_of(await reader.groups(Filter(states=(State.RUNNING,))))


async def _place_all(database: Database, queues: frozenset[str]) -> None:
    """Move all ready tasks of queues: by their groups, as claims take expired ones out of their places."""
    reader = Reader(database)
    every = await reader.groups(Filter(states=(State.READY,)))
    groups = [group for group in every if group.queue in queues]
    for at in range(0, len(groups), _GROUPS_AT_ONCE):
        for ids in _chunks(await reader.ids_of(groups[at : at + _GROUPS_AT_ONCE])):
            await database.transact(partial(_place_again, ids=ids))


async def _place_again(unit: UnitOfWork, ids: list[TaskId]) -> None:
    for task in (await unit.load(ids)).values():
        if task.state is State.READY:
            unit.place_again(task)


def _chunks(ids: list[TaskId]) -> list[list[TaskId]]:
    return [ids[at : at + _AT_ONCE] for at in range(0, len(ids), _AT_ONCE)]
