"""Results of predecessors, for tasks that take them as a parameter."""

from .._model.filter import Filter, Page
from .._model.state import State
from .._model.task import Task
from .._policy.input.chain import results_list, with_result
from .._store.protocol import Store
from ..signals import Fatal


async def payload_with_results(store: Store, task: Task) -> bytes:
    """Return the payload, with the predecessors' results in it if the task takes them.

    Raises Fatal if a predecessor has not completed, or its record was pruned.
    """
    if task.result_into is None or not task.after:
        return task.payload
    found = await store.find(Filter(ids=task.after), Page(limit=len(task.after)))
    results = {predecessor.id: predecessor.result for predecessor in found.items}
    for predecessor in found.items:
        if predecessor.state is not State.COMPLETED:  # this task was replayed, its predecessor was not
            raise Fatal(f"predecessor {predecessor.id} has no result: it is {predecessor.state}")
    missing = [task_id for task_id in task.after if task_id not in results]
    if missing:
        raise Fatal(f"the result of predecessor {missing[0]} is gone: its record was pruned")
    return with_result(task.payload, task.result_into, results_list(tuple(results[t] for t in task.after)))
