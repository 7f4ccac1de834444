"""Stored JSON that cannot be read: older versions, other programs or a person may have written it."""

from typing import Any

import msgspec

from ..._model.task import DAMAGED, Error, Task
from ...errors import InvalidOption
from .chain import decode_steps

UNREADABLE = "[unreadable]"
"""Shown in place of what is not JSON."""


def readable_json(data: bytes) -> Any:
    """Decode JSON to show it."""
    try:
        return msgspec.json.decode(data)
    except (ValueError, RecursionError):
        return UNREADABLE


def is_object(data: bytes) -> bool:
    """Whether this is a JSON object."""
    return isinstance(readable_json(data), dict)


def shown_error(task: Task) -> Error | None:
    """Return the error to show of a task: its own or, if it has none, what of it cannot be read."""
    if task.error is not None:
        return task.error
    found = [*_damage(task)]
    return Error(type=DAMAGED, message=f"stored damaged: {'; '.join(found)}") if found else None


def _damage(task: Task) -> list[str]:
    found = [] if is_object(task.payload) else ["the payload is not a JSON object"]
    if task.result is not None and readable_json(task.result) == UNREADABLE:
        found.append("the result is not JSON")
    try:
        decode_steps(task.next)
    except InvalidOption as error:
        found.append(str(error))
    return found
