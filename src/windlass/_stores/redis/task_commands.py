"""The commands that write what a task is found by: sorted sets, sets and hashes.

What is written is the difference between the task as it was read and as it is to be.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from ..._model.state import ENDED, State
from .connection.link import Argument
from .keys import NO_PLACE, Keys, group_of
from .rows import Stored, instant

Command: TypeAlias = Sequence[Argument]
"""A command, its key and its arguments. `LEAVE` is our own: see lua/parts/commit.lua."""

_MERGED = ("ZADD", "ZREM", "SADD", "SREM", "HDEL")
"""Commands of which several on one key can be one: no unit of work adds and removes the same member."""

_MOST_ARGUMENTS = 1000


def merged(commands: Iterable[Command]) -> list[Command]:
    """Merge commands on the same set: a commit of many tasks is then a few large commands."""
    result: list[list[Argument]] = []
    open_ones: dict[tuple[Argument, Argument], list[Argument]] = {}
    for command in commands:
        name, key = command[0], command[1]
        if name not in _MERGED:
            result.append([*command])
            continue
        found = open_ones.get((name, key))
        if found is not None and len(found) < _MOST_ARGUMENTS:
            found += command[2:]
        else:
            open_ones[name, key] = found = [*command]
            result.append(found)
    return [*result]


def write(keys: Keys, before: Stored | None, after: Stored) -> Iterator[Command]:
    """Insert a task, or change one; its row is written apart from this."""
    task = after.task
    if before is None:
        yield "ZADD", keys.ids, 0, task.id
        if task.root != task.id:
            yield "SADD", keys.root(task.root), task.id
        if task.idempotency_key is not None:
            yield "SADD", keys.with_key(task.idempotency_key), task.id
    yield from _index(keys, before, after)


def delete(keys: Keys, before: Stored) -> Iterator[Command]:
    """Delete a task and everything about it, but for its idempotency key."""
    task = before.task
    for key in (keys.task, keys.document, keys.attempts, keys.marks, keys.successors, keys.predecessors):
        yield "DEL", key(task.id)
    yield "ZREM", keys.ids, task.id
    if task.root != task.id:
        yield "SREM", keys.root(task.root), task.id
    if task.idempotency_key is not None:
        yield "SREM", keys.with_key(task.idempotency_key), task.id
    yield from _index(keys, before, None)


def _index(keys: Keys, before: Stored | None, after: Stored | None) -> Iterator[Command]:
    old = {} if before is None else _entries(keys, before)
    new = {} if after is None else _entries(keys, after)
    task_id = (before or after).task.id  # type: ignore[union-attr]  # one of them is given
    for key in old:
        if key not in new:
            yield "ZREM", key, task_id
    for key, score in new.items():
        if old.get(key) != score:
            yield "ZADD", key, score, task_id
    if after is not None and (before is None or before.task.state is not after.task.state):
        yield "SADD", keys.groups, next(iter(new)).removeprefix(f"{keys.prefix}g:")
    yield from _line_up(keys, before, after)
    yield from _stand(keys, before, after)
    if before is not None and before.task.state is State.RUNNING:
        yield from _release(keys, before, after)


def _entries(keys: Keys, stored: Stored) -> dict[str, int]:
    """Return the sorted sets that a task is in, its group first; not that of ready tasks. Key to score."""
    task = stored.task
    due = instant(task.due_at)
    found = {keys.group(task.state.value, group_of(task.queue, task.type, task.tenant)): due}
    if task.state is State.SCHEDULED:
        found[keys.scheduled] = instant(task.run_at)
    if task.state in ENDED:
        ended_at = due if task.finished_at is None else instant(task.finished_at)
        found[keys.ended(task.state.value, task.queue, task.type)] = ended_at
    elif task.expires_at is not None:
        found[keys.expiring] = instant(task.expires_at)
    return found


def _line_up(keys: Keys, before: Stored | None, after: Stored | None) -> Iterator[Command]:
    """Move a task between the places of ready tasks."""
    was = before if before is not None and before.task.state is State.READY else None
    now = after if after is not None and after.task.state is State.READY else None
    if was is not None and (now is None or now.place != was.place):
        queue, task_id = was.task.queue, was.task.id
        if was.place == NO_PLACE:
            yield "ZREM", keys.ready(queue), task_id
        else:
            yield "LEAVE", keys.ready(queue, was.place), task_id, keys.places(queue), was.place
    if now is not None and (was is None or was.place != now.place or was.task.rank != now.task.rank):
        yield "ZADD", keys.ready(now.task.queue, now.place), now.task.rank, now.task.id
        if now.place != NO_PLACE:
            yield "ZADD", keys.places(now.task.queue), 0, now.place


def _stand(keys: Keys, before: Stored | None, after: Stored | None) -> Iterator[Command]:
    """Take or give back the fingerprint of a task."""
    old, new = _standing(before), _standing(after)
    if old != new:
        if old is not None:
            yield "HDEL", keys.fingerprints, old
        if new is not None and after is not None:
            yield "HSET", keys.fingerprints, new, after.task.id


def _standing(stored: Stored | None) -> str | None:
    return None if stored is None or stored.task.state in ENDED else stored.task.fingerprint


def _release(keys: Keys, before: Stored, after: Stored | None) -> Iterator[Command]:
    """Give back the lease of a task that runs no longer, and permits that it no longer holds."""
    task = before.task
    is_running = after is not None and after.task.state is State.RUNNING
    if not is_running and task.session:
        yield "HDEL", keys.held(task.session), task.id
    held = () if after is None else after.permits
    for permit in before.permits:
        if permit not in held:
            yield "SREM", keys.permit(permit), task.id
    for permit in held:
        if permit not in before.permits:
            yield "SADD", keys.permit(permit), task.id
