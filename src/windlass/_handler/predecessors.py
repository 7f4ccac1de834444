"""Results of predecessors, for tasks that take them as a parameter."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from msgspec import Struct

from .._model.brief import Brief
from .._model.filter import MAX_PAGE, Filter, Page
from .._model.state import State
from .._model.task import Task, TaskId
from .._policy.input.chain import awaited_ends, results_list, with_result
from .._policy.secrets.shown import task_mask
from .._policy.secrets.values import longest_first
from .._store.protocol import Store
from ..errors import InvalidOption
from ..signals import Fatal


class FullPayload(Brief, Struct, frozen=True):
    """A payload with the predecessors' results in it, and the secret values that these may have."""

    payload: bytes
    secrets: tuple[str, ...] = ()


WithSecrets: TypeAlias = Callable[[Iterable[Task]], Awaitable[Iterable[Task]]]
"""Returns tasks with the secret fields of their types, which their senders may not have known."""


async def payload_with_results(store: Store, task: Task, with_secrets: WithSecrets) -> FullPayload:
    """Return the payload, with the predecessors' results in it if the task takes them.

    What is secret in a result is what is secret in its own task, and must not show in texts of this one.
    Raises Fatal if a predecessor has not completed, its record was pruned, or a record cannot be read.
    """
    if task.result_into is None or not task.after:
        return FullPayload(task.payload)
    try:
        found, ends = await _sources(store, task)
        _check_completed(found, (*task.after, *ends))
        results = results_list(tuple(found[end].result for end in ends))
        payload = with_result(task.payload, task.result_into, results)
        return FullPayload(payload, await _secrets(store, found, with_secrets))
    except (InvalidOption, ValueError) as error:
        raise Fatal(f"the results of its predecessors cannot be read: {error}") from None


async def secrets_in_results(store: Store, task: Task, with_secrets: WithSecrets) -> tuple[str, ...]:
    """Return the secret values in the results that a task takes, of predecessors that still exist."""
    if task.result_into is None or not task.after:
        return ()
    try:
        return await _secrets(store, (await _sources(store, task))[0], with_secrets)
    except (InvalidOption, ValueError):  # nobody can read these results
        return ()


async def _sources(store: Store, task: Task) -> tuple[dict[TaskId, Task], list[TaskId]]:
    """Return the tasks from which a task has results, as far as they exist, and in order their ids."""
    found = await _existing(store, task.after)
    ends = [end for one in task.after if one in found for end in awaited_ends(found[one], task.id)]
    return found | await _existing(store, [end for end in ends if end not in found]), ends


async def _secrets(store: Store, found: Mapping[TaskId, Task], with_secrets: WithSecrets) -> tuple[str, ...]:
    """Return what is secret in these results; also what they may repeat of results that they took."""
    known, takers = dict(found), [*found.values()]
    while takers:
        above: dict[TaskId, Task] = {}
        for one in takers:
            if one.result_into is not None and not known.keys() >= set(one.after):
                above |= (await _sources(store, one))[0]
        takers = [task for id, task in above.items() if id not in known]
        known |= above
    return longest_first(*[task_mask(one).values for one in await with_secrets(known.values()) if one.result])


async def _existing(store: Store, ids: Sequence[TaskId]) -> dict[TaskId, Task]:
    found: dict[TaskId, Task] = {}
    for start in range(0, len(ids), MAX_PAGE):
        part = tuple(ids[start : start + MAX_PAGE])
        found |= {task.id: task for task in (await store.find(Filter(ids=part), Page(limit=MAX_PAGE))).items}
    return found


def _check_completed(found: Mapping[TaskId, Task], ids: Iterable[TaskId]) -> None:
    for task in found.values():
        if task.state is not State.COMPLETED:  # the waiting task was replayed, its predecessor was not
            raise Fatal(f"predecessor {task.id} has no result: it is {task.state}")
    for task_id in ids:
        if task_id not in found:
            raise Fatal(f"the result of predecessor {task_id} is gone: its record was pruned")
