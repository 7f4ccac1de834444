"""Results of predecessors, for tasks that take them as a parameter."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias

from msgspec import Struct

from .._model.filter import MAX_PAGE, Filter, Page
from .._model.state import State
from .._model.task import Task, TaskId
from .._policy.input.chain import awaited_ends, results_list, with_result
from .._policy.input.redact import longest_first
from .._policy.task_secrets import task_mask
from .._store.protocol import Store
from ..errors import InvalidOption
from ..signals import Fatal


class FullPayload(Struct, frozen=True):
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
        return await _with_results(store, task, task.result_into, with_secrets)
    except (InvalidOption, ValueError) as error:
        raise Fatal(f"the results of its predecessors cannot be read: {error}") from None


async def _with_results(store: Store, task: Task, into: str, with_secrets: WithSecrets) -> FullPayload:
    predecessors = await _completed(store, task.after)
    ends = [end for one in task.after for end in awaited_ends(predecessors[one], task.id)]
    found = predecessors | await _completed(store, [end for end in ends if end not in predecessors])
    results = tuple(found[end].result for end in ends)
    secrets = [task_mask(one).values for one in await with_secrets(found.values()) if one.result]
    payload = with_result(task.payload, into, results_list(results))
    return FullPayload(payload, longest_first(*secrets))


async def _completed(store: Store, ids: Sequence[TaskId]) -> dict[TaskId, Task]:
    found: dict[TaskId, Task] = {}
    for start in range(0, len(ids), MAX_PAGE):
        part = tuple(ids[start : start + MAX_PAGE])
        found |= {task.id: task for task in (await store.find(Filter(ids=part), Page(limit=MAX_PAGE))).items}
    for task in found.values():
        if task.state is not State.COMPLETED:  # the waiting task was replayed, its predecessor was not
            raise Fatal(f"predecessor {task.id} has no result: it is {task.state}")
    missing = [task_id for task_id in ids if task_id not in found]
    if missing:
        raise Fatal(f"the result of predecessor {missing[0]} is gone: its record was pruned")
    return found
