"""The commands of a commit, and those that write what a task is found by: sorted sets, sets and hashes.

What is written is the difference between the task as it was read and as it is to be.
"""

from collections.abc import Iterator
from typing import TypeAlias

from ..._model.state import ENDED, State
from ..._model.task import Task
from .connection.link import Argument
from .keys import NO_PLACE, SEPARATOR, Keys, group_of, packed
from .rows import Stored, instant

Command: TypeAlias = list[Argument]
"""A command, its key and its arguments. Some are our own: see lua/parts/commit.lua."""

_MOST_ARGUMENTS = 1000


class Commands:
    """Commands in the order in which they run, except that several on the same set become one.

    That changes nothing, as no unit of work adds and removes the same member. Tasks of the commit are members
    by their position in it; positions that follow each other are a run, of which only the ends are sent.
    """

    def __init__(self) -> None:
        self._all: list[Command] = []
        self._open: dict[tuple[str, str], Command] = {}
        self._done: set[tuple[str, str, str]] = set()

    def __iter__(self) -> Iterator[Command]:
        return iter(self._all)

    def __len__(self) -> int:
        return len(self._all)

    def run(self, name: str, key: str | bytes, *arguments: Argument) -> None:
        """Add a command."""
        self._all.append([name, key, *arguments])

    def run_once(self, name: str, key: str, member: str) -> None:
        """Add a command with one member, unless it is there already."""
        if (name, key, member) not in self._done:
            self._done.add((name, key, member))
            self.run(name, key, member)

    def many(self, name: str, key: str, *members: Argument) -> None:
        """Add members to the last command of this name on a set or hash, or add a command."""
        found = self._open.get((name, key))
        if found is not None and len(found) < _MOST_ARGUMENTS:
            found += members
        else:
            self._open[name, key] = found = [name, key, *members]
            self._all.append(found)

    def delete(self, key: str | bytes) -> None:
        """Delete a key."""
        found = self._open.get(("DELETE", ""))
        if found is None:
            self._open["DELETE", ""] = found = ["DELETE", key]
            self._all.append(found)
        else:
            found.append(key)

    def file(self, key: str, score: int, task: int) -> None:
        """Add the task at a position to a sorted set."""
        found = self._open.get(("FILE", key))
        if found is None:
            self._open["FILE", key] = found = ["FILE", key, score, task, task]
            self._all.append(found)
        elif found[-1] == task - 1 and found[-3] == score:
            found[-1] = task
        else:
            found += (score, task, task)

    def drop(self, name: str, key: str, task: int) -> None:
        """Remove the task at a position from a set or hash, by a command such as ZREM."""
        found = self._open.get(("DROP", key))
        if found is None:
            self._open["DROP", key] = found = ["DROP", key, name, task, task]
            self._all.append(found)
        elif found[-1] == task - 1:
            found[-1] = task
        else:
            found += (task, task)


def write(commands: Commands, keys: Keys, before: Stored | None, after: Stored, position: int) -> None:
    """Insert the task at a position of the commit, or change it; its row is written apart from this."""
    task = after.task
    if before is None:
        commands.file(keys.ids, 0, position)
        _name(commands, keys, task)
    _index(commands, keys, before, after, position)


def _name(commands: Commands, keys: Keys, task: Task) -> None:
    """Let a new task be found by its root and its idempotency key."""
    if task.root != task.id:
        commands.many("SADD", keys.root(task.root), task.id)
    if task.idempotency_key is not None:
        commands.many("SADD", keys.with_key(task.idempotency_key), task.id)


def delete(commands: Commands, keys: Keys, before: Stored, position: int) -> None:
    """Delete the task at a position of the commit and everything about it, but for its idempotency key."""
    task = before.task
    for key in (keys.task, keys.document, keys.attempts, keys.marks, keys.successors, keys.predecessors):
        commands.delete(key(task.id))
    commands.drop("ZREM", keys.ids, position)
    if task.root != task.id:
        commands.many("SREM", keys.root(task.root), task.id)
    if task.idempotency_key is not None:
        commands.many("SREM", keys.with_key(task.idempotency_key), task.id)
    _index(commands, keys, before, None, position)


def _index(
    commands: Commands, keys: Keys, before: Stored | None, after: Stored | None, position: int
) -> None:
    old = None if before is None else before.task
    new = None if after is None else after.task
    _count(commands, keys, before, after, position)
    _put(commands, keys.scheduled, _scheduled(old), _scheduled(new), position)
    _put(commands, keys.expiring, _expiring(old), _expiring(new), position)
    if old is not None and old.state in ENDED and (new is None or new.state is not old.state):
        commands.drop("ZREM", keys.ended(old.state.value, old.queue, old.type), position)
    if new is not None and new.state in ENDED and (old is None or old.finished_at != new.finished_at):
        ended_at = instant(new.finished_at or new.due_at)
        commands.file(keys.ended(new.state.value, new.queue, new.type), ended_at, position)
    _line_up(commands, keys, before, after, position)
    _stand(commands, keys, old, new)
    if before is not None and before.task.state is State.RUNNING:
        _release(commands, keys, before, after, position)


def _count(
    commands: Commands, keys: Keys, before: Stored | None, after: Stored | None, position: int
) -> None:
    """Move a task between the groups of states."""
    was = None if before is None else before.task.state
    now = None if after is None else after.task.state
    task = (after or before).task  # type: ignore[union-attr]  # one of them is given
    group = group_of(task.queue, task.type, task.tenant)
    if was is not None and was is not now:
        commands.drop("ZREM", keys.group(was.value, group), position)
    if after is not None and now is not None:
        if was is not now:
            commands.run_once("SADD", keys.groups, f"{now.value}{SEPARATOR}{group}")
        if before is None or was is not now or before.due != after.due:
            commands.file(keys.group(now.value, group), after.due, position)


def _put(commands: Commands, key: str, was: int | None, now: int | None, position: int) -> None:
    """Add a task to a sorted set, move it within that, or remove it."""
    if was == now:
        return
    if now is not None:
        commands.file(key, now, position)
    else:
        commands.drop("ZREM", key, position)


def _scheduled(task: Task | None) -> int | None:
    return instant(task.run_at) if task is not None and task.state is State.SCHEDULED else None


def _expiring(task: Task | None) -> int | None:
    if task is None or task.expires_at is None or task.state in ENDED:
        return None
    return instant(task.expires_at)


def _line_up(
    commands: Commands, keys: Keys, before: Stored | None, after: Stored | None, position: int
) -> None:
    """Move a task between the places of ready tasks."""
    was = before if before is not None and before.task.state is State.READY else None
    now = after if after is not None and after.task.state is State.READY else None
    if was is not None and (now is None or now.place != was.place):
        queue, task_id = was.task.queue, was.task.id
        if was.place == NO_PLACE:
            commands.drop("ZREM", keys.ready(queue), position)
        else:
            commands.run(
                "LEAVE", keys.ready(queue, was.place), packed(task_id), keys.places(queue), was.place
            )
    if now is not None and (was is None or was.place != now.place or was.task.rank != now.task.rank):
        commands.file(keys.ready(now.task.queue, now.place), now.task.rank, position)
        if now.place != NO_PLACE:
            # Not together with others: it must follow a LEAVE that empties the same place.
            commands.run("ZADD", keys.places(now.task.queue), 0, now.place)


def _stand(commands: Commands, keys: Keys, old: Task | None, new: Task | None) -> None:
    """Take or give back the fingerprint of a task."""
    was, now = _standing(old), _standing(new)
    if was != now:
        if was is not None:
            commands.run("HDEL", keys.fingerprints, was)
        if now is not None and new is not None:
            commands.run("HSET", keys.fingerprints, now, new.id)


def _standing(task: Task | None) -> str | None:
    return None if task is None or task.state in ENDED else task.fingerprint


def _release(commands: Commands, keys: Keys, before: Stored, after: Stored | None, position: int) -> None:
    """Give back the lease of a task that runs no longer, and permits that it no longer holds."""
    task = before.task
    is_running = after is not None and after.task.state is State.RUNNING
    if not is_running and task.session:
        commands.drop("HDEL", keys.held(task.session), position)
    held = () if after is None else after.permits
    for permit in before.permits:
        if permit not in held:
            commands.drop("SREM", keys.permit(permit), position)
    for permit in held:
        if permit not in before.permits:
            commands.many("SADD", keys.permit(permit), packed(task.id))
