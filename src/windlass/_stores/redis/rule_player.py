"""The common rules on Redis: each question is answered by readings that the commit guards."""

from collections.abc import Collection, Sequence
from typing import Any, TypeVar, assert_never

import msgspec

from ..._model.options import DeclaredType
from ..._model.record import KINDS
from ..._model.state import State
from ..._model.task import DAMAGED, Task, TaskId, may_need_results
from ..records import readable, reader
from ..rules import questions
from ..rules.questions import Rule
from .rows import encode, instant
from .unit_of_work import UnitOfWork

T = TypeVar("T")

SAMPLE = 32
"""Predecessors of a task that are looked at before all of them are."""

_keys = msgspec.msgpack.Decoder(tuple[str, str, int | None])  # task, digest, until
_read_type = reader(DeclaredType)
_TENANT = "\x1f"  # between a tenant and its idempotency key


async def play(unit: UnitOfWork, rule: Rule[T]) -> T:
    """Run a rule in a unit of work. What it raises leaves nothing behind."""
    try:
        question = next(rule)
        while True:
            question = rule.send(await _answer(unit, question))
    except StopIteration as end:
        result: T = end.value
        return result


async def _answer(unit: UnitOfWork, question: questions.Question | questions.Write) -> Any:
    match question:
        case questions.LoadTasks(ids) | questions.LoadJoins(ids):
            return await unit.load(ids)
        case questions.States(ids) | questions.LockPredecessors(ids):
            return {task.id: task.state.value for task in (await unit.load(ids)).values()}
        case questions.EndedFences():
            return {}  # questions.LoadTasks leaves out no ended task.
        case questions.Dependents(ids):
            return [successor for one in ids for successor in await unit.successors(one)]
        case questions.StillWaiting(ids):
            return {one for one in ids if await _is_blocked(unit, one)}
        case questions.TakenKeys(keys):
            return await taken_keys(unit, keys)
        case questions.TakenFingerprints(fingerprints):
            return await unit.holders(set(fingerprints))
        case questions.DeclaredTypes():
            return await declared_types(unit)
        case _:
            return await _write(unit, question)


async def _is_blocked(unit: UnitOfWork, successor: TaskId) -> bool:
    """Whether a task waits for one that has not completed.

    One is enough: it is loaded, so that the commit is refused if it completes meanwhile. All are loaded only
    if none is found, as there may be a thousand, and others complete some of them at the same time.
    """
    if await _is_unfinished(unit, await unit.some_predecessors(successor, SAMPLE)):
        return True
    predecessors = await unit.predecessors(successor)
    if len(predecessors) > SAMPLE and await _is_unfinished(unit, predecessors):
        return True
    found = await unit.load(predecessors)
    return any(task.state is not State.COMPLETED for task in found.values())


async def _is_unfinished(unit: UnitOfWork, ids: Sequence[TaskId]) -> bool:
    """Load one of these tasks that has not completed; return whether there is one."""
    states = await unit.states(ids)
    # Rather one that nobody works on, and the newest: others are less likely to change it now.
    unfinished = [
        (state is not State.RUNNING, one) for one, state in states.items() if state is not State.COMPLETED
    ]
    if not unfinished:
        return False
    _, witness = max(unfinished)
    return any(task.state is not State.COMPLETED for task in (await unit.load([witness])).values())


async def _write(unit: UnitOfWork, write: questions.Write) -> None:
    match write:
        case questions.InsertTasks(tasks, waiting, dependencies, keys):
            for new in tasks:
                unit.insert(new, waiting=new.id in waiting)
            await unit.load({task_id for pair in dependencies for task_id in pair})
            unit.join(dependencies)
            take_keys(unit, keys)
        case questions.DropDependencies(ids):
            for task_id in ids:
                await unit.drop_dependencies(task_id)
        case questions.RecordAttempts(attempts):
            for attempt in attempts:
                unit.record(attempt)
        case questions.DeleteDead(tasks):
            await delete(unit, tasks)
        case questions.WriteAudit(entries):
            unit.audit(entries)
        case _:
            assert_never(write)


# -- keys and types ----------------------------------------------------------------------------------


async def taken_keys(
    unit: UnitOfWork, keys: Collection[questions.NewKey]
) -> dict[tuple[str, str], questions.Key]:
    """Return which of these keys are taken and have not expired."""
    names = {_name(*key.name): key.name for key in keys}
    found = await unit.guarded(unit.keys.idempotency, names)
    taken = {}
    for name, value in found.items():
        task_id, digest, until = _keys.decode(value)
        if until is None or until > instant(unit.now):
            taken[names[name]] = questions.Key(task_id, digest)
    return taken


def take_keys(unit: UnitOfWork, keys: Sequence[questions.NewKey]) -> None:
    """Write keys, in the place of expired ones."""
    for key in keys:
        until, name = key.until(unit.now), _name(*key.name)
        ends = None if until is None else instant(until)
        unit.run("HSET", unit.keys.idempotency, name, encode((key.task_id, key.digest, ends)))
        if ends is None:
            unit.run("ZREM", unit.keys.idempotency_until, name)
        else:
            unit.run("ZADD", unit.keys.idempotency_until, ends, name)


async def delete(unit: UnitOfWork, tasks: Sequence[Task]) -> None:
    """Delete ended tasks and everything about them, except keys that are kept for longer."""
    names = {
        task.id: _name(task.tenant, task.idempotency_key)
        for task in tasks
        if task.idempotency_key is not None
    }
    found = await unit.guarded(unit.keys.idempotency, set(names.values()))
    for task in tasks:
        if task.state is not State.COMPLETED and (may_need_results(task) or _is_damaged(task)):
            await unit.drop_dependencies(task.id)
        unit.delete(task)
        value = found.get(names.get(task.id, ""))
        if value is not None:
            owner, _, until = _keys.decode(value)
            if owner == task.id and until is None:
                unit.run("HDEL", unit.keys.idempotency, names[task.id])


def _is_damaged(task: Task) -> bool:
    """Whether it cannot be read if a task takes results."""
    return task.error is not None and task.error.type == DAMAGED


def _name(tenant: str, key: str) -> str:
    return f"{tenant}{_TENANT}{key}"


async def declared_types(unit: UnitOfWork) -> list[DeclaredType]:
    """Return the task types that programs have published."""
    return readable(_read_type, await unit.values(unit.keys.bodies(KINDS[DeclaredType])))
