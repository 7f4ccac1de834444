"""The common rules on Postgres: each question becomes statements of the script that is played."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, TypeVar, assert_never

from msgspec.structs import astuple

from ..._model.attempt import MAX_RECORDED, Attempt
from ..._model.options import DeclaredType
from ..._model.record import KINDS, Audit
from ..._model.task import Enqueued, NewTask, TaskId
from ..records import readable, reader
from ..rules import questions
from ..rules.admission import admit, check_due, is_plain
from ..rules.questions import Rule
from .enqueue.plain import await_standbys, insert_columns, insert_plain
from .queue_layout import Environment
from .rows import NEW_COLUMNS, columns_of, error_columns, ids_of, new_row
from .script import Script, answered, fetch, pairs, value
from .unit_of_work import UnitOfWork

T = TypeVar("T")

_read_type = reader(DeclaredType)


def transact(
    env: Environment,
    make_rule: Callable[[UnitOfWork], Rule[T]],
    ids: Sequence[TaskId] = (),
    cancelled: Sequence[TaskId] = (),
) -> Script[T]:
    """Run a rule in a unit of work of its own: load these tasks, write its changes, and notify listeners."""
    unit = UnitOfWork((yield from value("now", env.clock)), env.layout)
    yield from unit.load(ids)
    yield from unit.load_cancelled(cancelled)
    result = yield from run(env, unit, make_rule(unit))
    yield from unit.flush()
    yield from unit.wake()
    return result


def run(env: Environment, unit: UnitOfWork, rule: Rule[T]) -> Script[T]:
    """Run a rule; its changes are in the unit of work afterwards."""
    return answered(rule, partial(_answer, env, unit))


def enqueue(env: Environment, batch: Sequence[NewTask]) -> Script[list[Enqueued]]:
    """Insert all of the batch. If one task is refused, the caller must roll back."""
    if all(map(is_plain, batch)):
        check_due(batch, env.near_now)
        return (yield from insert_plain(env, batch))
    results = yield from transact(env, lambda unit: admit(unit, batch))
    yield from await_standbys(env, results)
    return results


def _answer(
    env: Environment, unit: UnitOfWork, question: questions.Question | questions.Write
) -> Script[Any]:
    match question:
        case questions.LoadTasks(ids) | questions.LoadJoins(ids):
            yield from unit.load(ids)
            if isinstance(question, questions.LoadJoins):
                yield from unit.load_cancelled(ids)
            return {task_id: task for task_id in ids if (task := unit.get(task_id)) is not None}
        case questions.States(ids):
            yield from unit.flush()
            return (yield from pairs("states", ids_of(ids)))
        case questions.EndedFences(ids):
            return (yield from pairs("ended_fences", ids_of(ids)))
        case questions.Dependents(predecessors):
            awaited = [task_id for task_id in predecessors if unit.is_awaited(task_id)]
            return [row[1] for row in (yield from fetch("dependents", awaited))] if awaited else ()
        case questions.StillWaiting(ids):
            yield from unit.flush()
            return {row[0] for row in (yield from fetch("still_waiting", ids))}
        case questions.TakenKeys(keys):
            return (yield from _take_keys(unit.now, keys))
        case questions.TakenFingerprints(fingerprints):
            # Other transactions that ask for one of these wait until this one has ended.
            yield from fetch("lock_fingerprints", fingerprints)
            return (yield from pairs("taken_fingerprints", fingerprints))
        case questions.LockPredecessors(ids):
            return (yield from _lock_predecessors(ids_of(ids)))
        case questions.DeclaredTypes():
            found = yield from fetch("all_records", KINDS[DeclaredType])
            return readable(_read_type, (row[0] for row in found))
        case _:
            return (yield from _write(env, question))


def _write(env: Environment, write: questions.Write) -> Script[None]:
    match write:
        case questions.InsertTasks():
            yield from _insert(env, write)
        case questions.DropDependencies(ids):
            yield from fetch("delete_dependencies", ids)
        case questions.RecordAttempts(attempts):
            yield from _record(attempts)
        case questions.DeleteDead(tasks):
            yield from delete_dead([task.id for task in tasks])
        case questions.WriteAudit(entries):
            yield from write_audit(entries)
        case _:
            assert_never(write)


# -- questions ---------------------------------------------------------------------------------------


def _lock_predecessors(ids: Sequence[TaskId]) -> Script[Mapping[TaskId, str]]:
    """Keep tasks from ending, and those that have ended from being pruned; return their states."""
    states = yield from pairs("lock_predecessors", ids)
    for name in ("lock_ended", "states"):  # A replay may have moved one in between.
        if missing := [one for one in ids if one not in states]:
            states = states | (yield from pairs(name, missing))
    return states


def _take_keys(
    now: datetime, keys: Sequence[questions.NewKey]
) -> Script[Mapping[tuple[str, str], questions.Key]]:
    """Insert the keys that are free, and read the tasks that the others belong to."""
    rows = [(*key.name, key.task_id, key.digest, key.until(now)) for key in keys]
    columns = columns_of(rows, 5)
    inserted = {(row[0], row[1]) for row in (yield from fetch("take_keys", now, *columns))}
    return {
        (tenant, key): questions.Key(task_id, digest)
        for tenant, key, task_id, digest in (yield from fetch("key_owners", *columns[:2]))
        if (tenant, key) not in inserted
    }


# -- writes ------------------------------------------------------------------------------------------


def _insert(env: Environment, asked: questions.InsertTasks) -> Script[None]:
    awaited = {predecessor for predecessor, _ in asked.dependencies}
    rows = [
        new_row(new, env.layout.placement(new), awaited=new.id in awaited, waiting=new.id in asked.waiting)
        for new in asked.tasks
    ]
    inserted = yield insert_columns(env, asked.tasks, columns_of(rows, NEW_COLUMNS))
    assert len(inserted) == len(rows), "tasks were inserted by another transaction during their own enqueue"
    if asked.dependencies:
        yield from fetch("insert_dependencies", *columns_of(asked.dependencies, 2))


def _record(attempts: Sequence[Attempt]) -> Script[None]:
    rows = [
        (
            one.task_id, one.fence, one.number, one.worker, one.claimed_at, one.finished_at, one.duration,
            one.outcome, *error_columns(one.error), one.trace, one.notes,
        )
        for one in attempts
    ]  # fmt: skip
    yield from fetch("insert_attempts", *columns_of(rows, 13))
    long = [attempt.task_id for attempt in attempts if attempt.fence > MAX_RECORDED]
    if long:  # With fewer leases there cannot be more records.
        yield from fetch("delete_old_attempts", long, MAX_RECORDED)


def delete_dead(ids: Sequence[TaskId]) -> Script[None]:
    """Delete dead tasks, their attempts and dependencies, and the idempotency keys that last as long."""
    yield from fetch("delete_dead", ids)
    yield from fetch("delete_dependencies", ids)
    yield from fetch("delete_attempts_and_keys", ids)


def delete_ended(ids: Sequence[TaskId]) -> Script[list[str]]:
    """Delete those of these locked tasks in the history that no other needs, and what is theirs.

    Return their queues.
    """
    rows = (yield from fetch("delete_ended", ids)) if ids else ()
    deleted = [row[0] for row in rows]
    if deleted:
        yield from fetch("delete_attempts_and_keys", deleted)
        yield from fetch("delete_dependencies", deleted)  # A cancelled one might have been replayed.
    return [row[1] for row in rows]


def write_audit(entries: Sequence[Audit]) -> Script[None]:
    """Add entries to the audit log, in the transaction of what they record."""
    rows = [astuple(entry) for entry in entries]
    yield from fetch("insert_audit", *columns_of(rows, len(Audit.__struct_fields__)))
