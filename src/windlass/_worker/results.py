"""What a task that waited for others is given: their results. (P11)"""

from .._model.filter import Filter, Page
from .._model.state import State
from .._model.task import Task
from .._policy.input.chain import results_list, with_result
from .._store.protocol import Store
from ..signals import Fatal


async def with_results(store: Store, task: Task) -> bytes:
    """The payload of a task, with its predecessors' results if it takes them; Fatal if they are not there."""
    if task.result_into is None or not task.after:
        return task.payload
    found = await store.find(Filter(ids=task.after), Page(limit=len(task.after)))
    results = {predecessor.id: predecessor.result for predecessor in found.items}
    for predecessor in found.items:
        if predecessor.state is not State.COMPLETED:  # somebody replayed this task, but not that one
            raise Fatal(f"{predecessor.id} has no result to give: it is {predecessor.state}")
    missing = [task_id for task_id in task.after if task_id not in results]
    if missing:
        raise Fatal(f"the result of {missing[0]} is gone: its record was pruned before this task ran")
    return with_result(task.payload, task.result_into, results_list(tuple(results[t] for t in task.after)))
