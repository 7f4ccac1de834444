"""Look up the tasks that a new one waits for: the option `after`."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from ..._model.filter import Filter, Page
from ..._model.task import Predecessor, TaskId, is_task_id
from ..._policy.input.new_task import checked_after, predecessor_of
from ..._policy.input.quote import quoted
from ..._store.protocol import Store
from ...errors import InvalidOption, NotFound


@runtime_checkable
class Awaited(Protocol):
    """A handle, blocking or not."""

    def as_predecessor(self) -> Predecessor | TaskId: ...


async def look_up(store: Store, after: Any) -> Sequence[Predecessor]:
    """Return the tasks of `after`, which are handles or ids. Raises InvalidOption or NotFound.

    Handles of tasks just enqueued need no look-up: these may be in a transaction of the caller.
    """
    given = [_predecessor(one) for one in checked_after(after)]
    ids = tuple(dict.fromkeys(one for one in given if isinstance(one, str)))
    found: dict[TaskId, Predecessor] = {}
    if ids:
        await store.open()
        page = await store.find(Filter(ids=ids), Page(limit=len(ids)))
        found = {task.id: predecessor_of(task) for task in page.items}
    return [existing(found, one) if isinstance(one, str) else one for one in given]


def existing(found: Mapping[TaskId, Predecessor], task_id: TaskId) -> Predecessor:
    """Return the task with this id from those that were found; raise NotFound if it is not among them."""
    if task_id not in found:
        raise NotFound(
            f"there is no task {task_id} to wait for: it was never enqueued here, or its record was pruned"
        )
    return found[task_id]


def _predecessor(given: object) -> Predecessor | TaskId:
    if isinstance(given, str) and is_task_id(given):
        return given
    if isinstance(given, Awaited):
        return given.as_predecessor()
    raise InvalidOption(f"after must be a list of handles or task ids, got {quoted(given)} in it")
