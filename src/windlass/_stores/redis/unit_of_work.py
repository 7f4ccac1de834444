"""A unit of work: what was read, what is to change, and how to commit it unless a reading is outdated.

Redis has no transactions that read, decide and write. So decisions are made here, on readings that are each
guarded: every change of a task raises its version, and the commit is refused if one that was read has risen.
Then the work is done again from the start.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any

from msgspec.structs import replace

from ..._model.attempt import MAX_RECORDED, Attempt
from ..._model.record import Audit
from ..._model.state import ENDED, State, Verb, targets
from ..._model.task import NewTask, Task, TaskId, expiry_of
from ..._model.transition import TaskTransition
from ..._policy.order.limits import Subject
from ..rules.queue_rules import QueueRules
from . import task_commands
from .connection.client import Client
from .connection.link import Argument
from .keys import NO_PLACE, Keys, packed, place_of
from .rows import (
    HEAD_BYTES,
    IN_DOCUMENT,
    LONGEST_INSIDE,
    STATE_AT,
    STATES,
    Stored,
    document_of,
    encode,
    instant,
    read_task,
    row_of,
    version_of,
)
from .schema import new_version
from .task_commands import Commands

_AT_ONCE = 500  # arguments of one command
_GIVEN = sorted({*NewTask.__struct_fields__} & {*Task.__struct_fields__} - {"run_at", "expires_at"})
_given = attrgetter(*_GIVEN)


class Wakes:
    """What became claimable or due; listeners are woken by the commit."""

    def __init__(self) -> None:
        self.ready: set[str] = set()  # queues
        self.scheduled = False
        self.all_queues = False

    def add(self, state: State, queue: str) -> None:
        """Note that a task of this queue entered this state."""
        if state is State.READY:
            self.ready.add(queue)
        elif state is State.SCHEDULED:
            self.scheduled = True

    @property
    def messages(self) -> list[str]:
        """What listeners are sent: "r" and a queue, or "s"."""
        ready = ["r"] if self.all_queues else [f"r{queue}" for queue in sorted(self.ready)]
        return [*ready, *(["s"] if self.scheduled else [])]


class UnitOfWork:
    """The readings and changes of one commit; the `Changes` of the rules."""

    def __init__(
        self,
        client: Client,
        keys: Keys,
        rules: QueueRules,
        rules_version: str,
        now: datetime,
        seeds: Mapping[TaskId, Stored | None] | None = None,
    ) -> None:
        """`seeds` are tasks as they are thought to be (None: absent); the commit is refused if one is not."""
        self.now = now
        self.keys = keys
        self.rules = rules
        self.transitions: list[TaskTransition] = []
        self.wakes = Wakes()
        self._client = client
        self._stored: dict[TaskId, Stored | None] = dict(seeds or {})
        self._current: dict[TaskId, Task | None] = {}  # changed tasks; None: deleted
        self._rewritten: set[TaskId] = set()  # tasks whose document changes
        self._touched: dict[TaskId, None] = {}  # tasks whose dependencies change
        self._outcomes: dict[TaskId, str] = {}
        self._permits: dict[TaskId, tuple[str, ...]] = {}
        self._joined: set[tuple[TaskId, TaskId]] = set()  # new dependencies: predecessor and successor
        self._dropped: set[TaskId] = set()  # tasks that wait for nothing any more
        self._sets: dict[str, set[str]] = {}
        self._guards: dict[tuple[str, str], str | bytes] = {(keys.meta, "rules"): rules_version}
        self._rows: dict[TaskId, bytes] = {}  # new ones of changed tasks
        self._commands = Commands()

    # -- tasks ---------------------------------------------------------------------------------------

    async def load(self, ids: Iterable[TaskId]) -> dict[TaskId, Task]:
        """Return those of these tasks that exist, with the changes made so far."""
        wanted = list(dict.fromkeys(ids))
        unread = [one for one in wanted if one not in self._stored]
        for start in range(0, len(unread), _AT_ONCE):
            some = unread[start : start + _AT_ONCE]
            rows = await self._client.run("load", [self.keys.meta], [self.keys.prefix, *map(packed, some)])
            for task_id, (row, *document) in zip(some, rows, strict=True):
                self._stored[task_id] = None if row is None else read_task(task_id, row, *document)
        return {one: task for one in wanted if (task := self._now_is(one)) is not None}

    async def states(self, ids: Sequence[TaskId]) -> dict[TaskId, State]:
        """Return the states of those of these tasks that exist; without a guard unless they are loaded."""
        unread = [one for one in ids if one not in self._stored]
        found = await self._client.call_all(
            [("GETRANGE", self.keys.task(one), STATE_AT, STATE_AT) for one in unread]
        )
        states = {one: STATES[letter] for one, letter in zip(unread, found, strict=True) if letter in STATES}
        return states | {one: task.state for one in ids if (task := self._now_is(one)) is not None}

    def _now_is(self, task_id: TaskId) -> Task | None:
        if task_id in self._current:
            return self._current[task_id]
        stored = self._stored.get(task_id)
        return None if stored is None else stored.task

    def move(self, task: Task, verb: Verb, state: State, **changes: Any) -> Task:
        assert state in targets(task.state, verb), f"{task.state} -> {verb} -> {state} is not in the table"
        if state in ENDED:
            changes["unhandled_since"] = None
        elif state is State.READY:
            changes["boost"] = self.rules.boost(task.queue, task.priority)
        moved = self.update(task, state=state, **changes)
        self.wakes.add(state, task.queue)
        return moved

    def update(self, task: Task, **changes: Any) -> Task:
        changed = replace(task, **changes)
        self._current[task.id] = changed
        if not IN_DOCUMENT.isdisjoint(changes):
            self._rewritten.add(task.id)
        return changed

    def note_outcome(self, task_id: TaskId, outcome: str) -> None:
        self._outcomes[task_id] = outcome

    def hold_permits(self, task_id: TaskId, permits: tuple[str, ...]) -> None:
        """Set the permits that a running task holds."""
        self._permits[task_id] = permits

    def permits_held(self, task_id: TaskId) -> tuple[str, ...]:
        """Return the permits that a loaded task holds."""
        stored = self._stored.get(task_id)
        return () if stored is None else stored.permits

    def place_again(self, task: Task) -> None:
        """Move a loaded ready task to the lane, key and rank that it belongs to now."""
        stored, boost = self._stored[task.id], self.rules.boost(task.queue, task.priority)
        if stored is None or task.boost != boost or stored.place != self._place(task):
            self.update(task, boost=boost)

    def insert(self, new: NewTask, *, waiting: bool) -> None:
        """Add a new task, due or not."""
        run_at = new.run_at or (self.now if new.delay is None else self.now + new.delay)
        state = State.WAITING if waiting else State.SCHEDULED if run_at > self.now else State.READY
        task = Task(
            **dict(zip(_GIVEN, _given(new), strict=True)),
            boost=self.rules.boost(new.queue, new.priority),
            state=state,
            attempt=0,
            fence=0,
            run_at=run_at,
            created_at=self.now,
            expires_at=expiry_of(new, run_at, self.now),
        )
        self._stored.setdefault(new.id, None)
        self._current[new.id] = task
        self.wakes.add(state, new.queue)

    def delete(self, task: Task) -> None:
        """Delete an ended task and everything about it, but for its idempotency key."""
        self._current[task.id] = None

    # -- dependencies --------------------------------------------------------------------------------

    def join(self, dependencies: Iterable[tuple[TaskId, TaskId]]) -> None:
        """Let tasks wait for others: pairs of predecessor and successor, all of them loaded."""
        for predecessor, successor in dependencies:
            self._joined.add((predecessor, successor))
            self._touched[predecessor] = self._touched[successor] = None

    async def successors(self, predecessor: TaskId) -> list[TaskId]:
        """Return the tasks that wait for this one."""
        if predecessor not in self._stored:
            await self.load([predecessor])
        stored = self._stored[predecessor]
        if not self._joined and (stored is None or not stored.has_dependents):
            return []
        found = {after for before, after in self._joined if before == predecessor}
        if stored is not None and stored.has_dependents:
            found |= await self._members(self.keys.successors(predecessor))
        return sorted(found - self._dropped)

    async def predecessors(self, successor: TaskId) -> list[TaskId]:
        """Return the tasks that this one waits for, completed or not."""
        found = {before for before, after in self._joined if after == successor}
        if successor not in self._dropped and self._stored.get(successor) is not None:
            found |= await self._members(self.keys.predecessors(successor))
        return sorted(found)

    async def some_predecessors(self, successor: TaskId, number: int) -> list[TaskId]:
        """Return up to so many of the tasks that a loaded one waited for before this unit of work."""
        if successor in self._dropped:
            return []
        found = await self._client.call("SRANDMEMBER", self.keys.predecessors(successor), number)
        return [one.decode() for one in found]

    async def drop_dependencies(self, successor: TaskId) -> None:
        """Let a task wait for nothing any more."""
        await self.load([successor])
        for predecessor in await self.predecessors(successor):
            self._joined.discard((predecessor, successor))
            self.run("SREM", self.keys.successors(predecessor), successor)
        self.run("DEL", self.keys.predecessors(successor))
        self._dropped.add(successor)

    async def _members(self, key: str) -> set[str]:
        if key not in self._sets:
            self._sets[key] = {one.decode() for one in await self._client.call("SMEMBERS", key)}
        return self._sets[key]

    # -- other readings ------------------------------------------------------------------------------

    async def guarded(self, key: str, fields: Collection[str]) -> dict[str, bytes]:
        """Read fields of a hash; the commit is refused if one of them changes."""
        if not fields:
            return {}
        names = list(fields)
        found = await self._client.call("HMGET", key, *names)
        for name, value in zip(names, found, strict=True):
            self._guards[key, name] = "" if value is None else value
        return {name: value for name, value in zip(names, found, strict=True) if value is not None}

    async def values(self, key: str) -> list[bytes]:
        """Return all values of a hash, without a guard: for advice."""
        found: list[bytes] = await self._client.call("HVALS", key)
        return found

    async def holders(self, fingerprints: Collection[str]) -> dict[str, TaskId]:
        """Return the tasks that have these fingerprints and have not ended, with the changes made so far."""
        stored = await self.guarded(self.keys.fingerprints, fingerprints)
        found = {name: value.decode() for name, value in stored.items()}
        for task in self._current.values():
            if task is not None and task.fingerprint is not None and _has(task, task.fingerprint):
                found[task.fingerprint] = task.id
        return {
            name: task_id
            for name, task_id in found.items()
            if name in fingerprints
            if task_id not in self._current or _has(self._current[task_id], name)
        }

    # -- writes --------------------------------------------------------------------------------------

    def run(self, command: str, key: str | bytes, *arguments: Argument) -> None:
        """Run a command at the commit."""
        self._commands.run(command, key, *arguments)

    def run_many(self, command: str, key: str, members: Iterable[Argument]) -> None:
        """Run a command with any number of members at the commit, in as many parts as Lua needs."""
        for member in members:
            self._commands.many(command, key, member)

    def change_rules(self) -> None:
        """Give the rules of queues another version: commits on those that were read before are refused."""
        self.run("HSET", self.keys.meta, "rules", new_version())

    def record(self, attempt: Attempt) -> None:
        """Write the record of an attempt, and keep the newest."""
        key = self.keys.attempts(attempt.task_id)
        self.run("RPUSH", key, encode(attempt))
        if attempt.fence > MAX_RECORDED:
            self.run("LTRIM", key, -MAX_RECORDED, -1)

    def audit(self, audits: Iterable[Audit]) -> None:
        """Add entries to the audit log."""
        for entry in audits:
            self._commands.many("ZADD", self.keys.names("audit"), 0, entry.id)
            self._commands.many("HSET", self.keys.bodies("audit"), entry.id, encode(entry))

    def spend(self, read: Mapping[str, bytes], left: Mapping[str, str]) -> None:
        """Write what buckets have left; the commit is refused unless they are as they were read."""
        for key, bucket in left.items():
            self._guards[self.keys.buckets, key] = read[key]
            self.run("HSET", self.keys.buckets, key, bucket)

    # -- commit --------------------------------------------------------------------------------------

    def statement(self) -> tuple[list[str | bytes], list[Argument]]:
        """Return keys and arguments of `commit` in lua/parts: tasks, guards and commands."""
        self._write()
        names: list[str | bytes] = [self.keys.meta, *map(self.keys.task, self._stored)]
        index = {name: position for position, name in enumerate(names, 1)}

        def at(key: Argument) -> int:
            return index.setdefault(key if isinstance(key, bytes) else str(key), len(index) + 1)

        tasks: list[Argument] = []
        for task_id, stored in self._stored.items():
            tasks += (version_of(stored), self._rows.get(task_id, b""))
        guards: list[Argument] = []
        for (hashed, field), value in self._guards.items():
            guards += (at(hashed), field, value)
        commands: list[Argument] = []
        for name, key, *rest in self._commands:
            arguments = rest
            if name == "LEAVE":
                arguments = [rest[0], at(rest[1]), rest[2]]
            elif name == "DELETE":
                arguments = [at(one) for one in rest]
            commands += (len(arguments), name, at(key), *arguments)
        counts = len(tasks) // 2, len(guards) // 3, len(self._commands)
        return list(index), [counts[0], *tasks, counts[1], *guards, counts[2], *commands]

    def discard(self) -> None:
        """Forget all changes, so that a commit only checks the readings."""
        self._current, self._touched, self._permits = {}, {}, {}
        self._joined, self._commands, self.wakes = set(), Commands(), Wakes()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not (self._current or self._commands or self._touched or self._permits or self.wakes.messages)

    def _write(self) -> None:
        """Turn changed tasks into commands."""
        for predecessor, successor in sorted(self._joined):
            self.run("SADD", self.keys.successors(predecessor), successor)
            self.run("SADD", self.keys.predecessors(successor), predecessor)
        changed = dict.fromkeys([*self._current, *self._touched, *self._permits])
        waited_for = {predecessor for predecessor, _ in self._joined}
        positions = dict(zip(self._stored, range(1, len(self._stored) + 1), strict=True))
        for task_id in changed:
            before, task = self._stored.get(task_id), self._now_is(task_id)
            if task is not None:
                after = self._next(before, task, waited_for=task_id in waited_for)
                if before is not None and task_id not in self._current and task.state in ENDED:
                    # Its result may be long, and a join may have a thousand of these.
                    self.run("SETRANGE", self.keys.task(task_id), 0, row_of(after)[:HEAD_BYTES])
                    continue
                self._rows[task_id] = row_of(after)
                task_commands.write(self._commands, self.keys, before, after, positions[task_id])
                self.wakes.all_queues |= before is not None and not {*before.permits} <= {*after.permits}
            elif before is not None:
                task_commands.delete(self._commands, self.keys, before, positions[task_id])
        for message in self.wakes.messages:
            self.run("PUBLISH", self.keys.wakes, message)

    def _next(self, before: Stored | None, task: Task, *, waited_for: bool) -> Stored:
        permits: tuple[str, ...] = ()
        if task.state is State.RUNNING and before is not None:
            permits = self._permits.get(task.id, before.permits)
        outcome = (
            self._outcomes.get(task.id) if before is None else self._outcomes.get(task.id, before.outcome)
        )
        return Stored(
            task,
            1 if before is None else before.version + 1,
            before.due if before is not None and before.task.run_at is task.run_at else instant(task.due_at),
            self._document(before, task),
            self._place(task),
            permits,
            outcome if task.state is State.COMPLETED else None,
            waited_for or (before is not None and before.has_dependents),
        )

    def _document(self, before: Stored | None, task: Task) -> bytes:
        """Return the document of a task as its row has it; b"" if it has a key of its own."""
        if before is not None and task.id not in self._rewritten:
            return before.document
        document = document_of(task)
        if len(document) > LONGEST_INSIDE:
            self.run("SET", self.keys.document(task.id), document)
            return b""
        if before is not None and not before.document:
            self.run("DEL", self.keys.document(task.id))
        return document

    def _place(self, task: Task) -> str:
        if task.state is not State.READY or self.rules.is_fifo(task.queue):
            return NO_PLACE
        subject = Subject(task.queue, task.type, task.tenant, task.payload)
        return place_of(*self.rules.lane_and_key(subject, task.priority))


def _has(task: Task | None, fingerprint: str) -> bool:
    return task is not None and task.fingerprint == fingerprint and task.state not in ENDED
