"""The common rules on SQLite: each question is answered at once, in the transaction of the writer thread."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, assert_never

from msgspec.structs import asdict, replace

from ..._model.attempt import MAX_RECORDED, Attempt
from ..._model.filter import Change, Filter, Page, Rewrite
from ..._model.options import DeclaredType
from ..._model.record import Audit
from ..._model.state import State
from ..._model.task import Enqueued, NewTask, TaskId
from ..._model.transition import Applied
from ..._policy.order.limits import Subject
from ..records import readable, reader
from ..rules import actions, questions
from ..rules.admission import admit, check_due, is_plain
from ..rules.audit import audited_rewrite
from ..rules.questions import Rule, play
from ..rules.queue_rules import NO_LANE
from .read.filters import page_query
from .rows import Row, error_row, instant, listed, new_row, optional_instant, read_tasks
from .transaction import Transaction

T = TypeVar("T")

_CHUNK = 500
_read_type = reader(DeclaredType)


def run(tx: Transaction, rule: Rule[T]) -> T:
    """Run a rule in this transaction. If it raises, the caller must roll back."""
    return play(rule, partial(_answer, tx))


def enqueue(tx: Transaction, batch: Sequence[NewTask]) -> list[Enqueued]:
    """Insert all of the batch. If one task is refused, the caller must roll back."""
    return _enqueue_plain(tx, batch) if all(map(is_plain, batch)) else run(tx, admit(tx, batch))


def _enqueue_plain(tx: Transaction, batch: Sequence[NewTask]) -> list[Enqueued]:
    """Insert plain tasks without the rule, which would take half as long again for a single one."""
    check_due(batch, tx.now)
    known = {row[0] for row in tx.rows("existing", {"ids": listed(new.id for new in batch)})}
    enqueued, fresh = [], []
    for new in batch:
        created = new.id not in known
        if created:
            known.add(new.id)
            fresh.append(new)
        enqueued.append(Enqueued(id=new.id, created=created))
    _insert(tx, fresh)
    return enqueued


def apply(tx: Transaction, action: Change, where: Filter, limit: int) -> Applied:
    """Apply an action to the tasks that match and permit it, oldest first.

    The writer waits for the search, so an index must serve the filter.
    """
    where = actions.applicable(action, where)
    return run(tx, actions.apply(tx, action, _matching(tx, where), where.states or (), limit))


def rewrite(tx: Transaction, action: Rewrite) -> Applied:
    """Replace the documents of tasks that still have those that are expected, and audit it."""
    done = []
    for one in action.tasks:
        before = {f"{name}_before": value for name, value in asdict(one.before).items()}
        if tx.run("rewrite", {"id": one.id, **asdict(one.after), **before}):
            done.append(one.id)
    write_audit(tx, audited_rewrite(action, len(done), tx.now))
    return Applied(ids=tuple(done))


def _matching(tx: Transaction, where: Filter) -> Iterator[TaskId]:
    """Find the tasks that match, oldest first, a chunk at a time; a long list of ids is split into chunks."""
    parts = [where]
    if where.ids is not None:
        ids = sorted(set(where.ids))
        parts = [replace(where, ids=tuple(ids[at : at + _CHUNK])) for at in range(0, len(ids), _CHUNK)]
    for part in parts:
        cursor: str | None = ""
        while cursor is not None:
            query = page_query("find_ids", part, Page(limit=_CHUNK, cursor=cursor or None))
            found = [row[0] for row in tx.select(query.sql, query.parameters)]
            yield from found
            cursor = found[-1] if len(found) == _CHUNK else None


def _answer(tx: Transaction, question: questions.Question | questions.Write) -> Any:
    match question:
        case questions.States(ids) | questions.LockPredecessors(ids):
            return dict(tx.rows("existing", {"ids": listed(ids)}))
        case questions.Dependents(ids):
            return [row[1] for row in tx.rows("dependents", {"ids": listed(ids)})]
        case questions.LoadTasks(ids) | questions.LoadJoins(ids):
            return {task.id: task for one in ids for task in read_tasks(tx.rows("get", {"id": one}))}
        case questions.EndedFences():
            return {}  # questions.LoadTasks leaves out no ended task.
        case questions.StillWaiting(ids):
            return {one for one in ids if tx.value("still_waits", {"successor": one}) is not None}
        case questions.TakenKeys(keys):
            return {
                one.name: questions.Key(task_id, digest)
                for one in keys
                for task_id, digest in tx.rows("key", {"tenant": one.tenant, "key": one.key, "now": tx.at})
            }
        case questions.TakenFingerprints(fingerprints):
            found = {one: tx.value("standing", {"fingerprint": one}) for one in fingerprints}
            return {fingerprint: task_id for fingerprint, task_id in found.items() if task_id is not None}
        case questions.DeclaredTypes():
            return declared_types(tx)
        case _:
            return _write(tx, question)


def _write(tx: Transaction, write: questions.Write) -> None:
    match write:
        case questions.InsertTasks(tasks, waiting, dependencies, keys):
            _insert(tx, tasks, waiting)
            tx.run_many("keep_key", [_key_row(tx, key) for key in keys])
            tx.run_many("depend", [{"predecessor": p, "successor": s} for p, s in dependencies])
        case questions.DropDependencies(ids):
            tx.run("forget_dependencies", {"successors": listed(ids)})
        case questions.RecordAttempts(attempts):
            _record(tx, attempts)
        case questions.DeleteDead(tasks):
            for task in tasks:
                delete(tx, task.id, task.tenant, task.idempotency_key)
        case questions.WriteAudit(entries):
            write_audit(tx, entries)
        case _:
            assert_never(write)


def declared_types(tx: Transaction) -> list[DeclaredType]:
    """Return the task types that programs have published."""
    return readable(_read_type, (body for (body,) in tx.rows("types")))


# -- writes ------------------------------------------------------------------------------------------


def _insert(tx: Transaction, tasks: Sequence[NewTask], waiting: Collection[TaskId] = ()) -> None:
    now, rules = tx.now, tx.queue_rules
    rows: list[Row] = []
    for new in tasks:
        run_at = new.run_at or (now if new.delay is None else now + new.delay)
        state = State.SCHEDULED if run_at > now else State.READY
        if waiting and new.id in waiting:
            state = State.WAITING
        tx.wakes.add(state, new.queue)
        lane_and_key = NO_LANE
        if not rules.all_fifo and state is State.READY and not rules.is_fifo(new.queue):
            subject = Subject(new.queue, new.type, new.tenant, new.payload)
            lane_and_key = rules.lane_and_key(subject, new.priority)
        boost = rules.boost(new.queue, new.priority) if new.priority else 0
        rows.append(new_row(new, state, run_at, tx.at, boost, lane_and_key))
    tx.run_many("enqueue", rows)


def _key_row(tx: Transaction, key: questions.NewKey) -> Mapping[str, object]:
    return {
        "tenant": key.tenant,
        "key": key.key,
        "task_id": key.task_id,
        "digest": key.digest,
        "until": optional_instant(key.until(tx.now)),
    }


def _record(tx: Transaction, attempts: Sequence[Attempt]) -> None:
    for attempt in attempts:
        row = asdict(attempt)
        error = row.pop("error")
        row["claimed_at"], row["finished_at"] = instant(attempt.claimed_at), instant(attempt.finished_at)
        tx.run("record", {**row, **error_row(error)})
        if attempt.fence > MAX_RECORDED:  # With fewer leases there cannot be more records.
            tx.run("forget_old_attempts", {"id": attempt.task_id, "keep": MAX_RECORDED})


def delete(tx: Transaction, task_id: TaskId, tenant: str, idempotency_key: str | None) -> None:
    """Delete an ended task and everything about it, except an idempotency key that is kept for longer."""
    for name in ("forget", "forget_attempts", "forget_marks"):
        tx.run(name, {"id": task_id})
    tx.run("forget_dependencies", {"successors": listed([task_id])})
    if idempotency_key is not None:
        tx.run("forget_key", {"tenant": tenant, "key": idempotency_key, "task_id": task_id})


def write_audit(tx: Transaction, entries: Sequence[Audit]) -> None:
    """Add entries to the audit log. An entry about no task has an empty task id."""
    for entry in entries:
        tx.run("audit", {**asdict(entry), "at": tx.at, "task_id": entry.task_id or ""})
