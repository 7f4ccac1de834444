"""Task ids by their first characters."""

from typing import TYPE_CHECKING

from .._model.filter import Filter, Page
from .._model.task import TaskId, is_task_id
from ..errors import NotFound, Refused

if TYPE_CHECKING:
    from .._client.operator import Operator

ID_PREFIX = 23  # characters that narrow tables show: the time, a counter and 14 random bits

_LOWEST = "00000000-0000-7000-8000-000000000000"


async def whole_id(operator: "Operator", given: str) -> TaskId:
    """Return the id of the task whose id begins so; raises NotFound, or Refused if there are several."""
    if is_task_id(given):
        return TaskId(given)
    lowest = f"{given}{_LOWEST[len(given) :]}"
    found: list[TaskId] = []
    if is_task_id(lowest):  # else no id begins so
        # Listings are in the order of ids, so those with the prefix are the first after the lowest.
        equal = await operator.find(Filter(ids=(lowest,)), Page(limit=1))
        after = await operator.find(Filter(), Page(limit=3, cursor=lowest))
        found = [task.id for task in (*equal.items, *after.items) if task.id.startswith(given)]
    if not found:
        raise NotFound(f"there is no task whose id begins with {given}")
    if len(found) > 1:
        some = ", ".join([*found[:2], "…"][: len(found)])
        raise Refused(f"several tasks have an id that begins with {given}: {some}")
    return found[0]
