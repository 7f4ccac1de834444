"""Assertions about what a test has enqueued."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from .._model.task import Task
from .._policy.input.payload import decode, encode
from .._policy.input.quote import counted
from ..tasktype import TaskType

_MAX_LISTED = 20


class Wanted(Struct, frozen=True, kw_only=True):
    """What tasks must have to be meant by an assertion; None: anything.

    `payload`: values that the payload must have, among others; objects in it are compared alike.
    """

    type: TaskType[Any, Any, Any] | str | None = None
    payload: Mapping[str, Any] | None = None
    queue: str | None = None
    tenant: str | None = None

    def matches(self, tasks: Sequence[Task]) -> list[Task]:
        """Return the tasks that are meant."""
        expected = None if self.payload is None else decode(encode(self.payload, "payload"))
        name = type_name(self.type)
        return [
            task
            for task in tasks
            if (name is None or task.type == name)
            and (self.queue is None or task.queue == self.queue)
            and (self.tenant is None or task.tenant == self.tenant)
            and (expected is None or _has(decode(task.payload), expected))
        ]

    def __str__(self) -> str:
        type_ = "" if self.type is None else f" of type {type_name(self.type)}"
        payload = "" if self.payload is None else f" with payload {_json(self.payload)}"
        queue = "" if self.queue is None else f" in queue {self.queue!r}"
        tenant = "" if self.tenant is None else f" of tenant {self.tenant!r}"
        return f"{type_}{payload}{queue}{tenant}"


def check_enqueued(tasks: Sequence[Task], wanted: Wanted, number: int | None) -> list[Task]:
    """Return the tasks that are meant. Raises AssertionError unless there are `number`, or any if None."""
    __tracebackhide__ = True  # so that pytest shows the line of the test
    found = wanted.matches(tasks)
    if len(found) == number or (number is None and found):
        return found
    expected = "a task" if number is None else counted(number, "task")
    raise AssertionError(f"expected {expected}{wanted}, found {len(found)}; {_listed(tasks)}")


def check_not_enqueued(tasks: Sequence[Task], wanted: Wanted) -> None:
    """Raise AssertionError if there is a task that is meant."""
    __tracebackhide__ = True
    if found := wanted.matches(tasks):
        raise AssertionError(f"expected no task{wanted}, found {len(found)}; {_listed(found)}")


def type_name(of: TaskType[Any, Any, Any] | str | None) -> str | None:
    """Return the name of a type that may be given by its name."""
    return of.name if isinstance(of, TaskType) else of


def _has(value: Any, expected: Any) -> bool:
    """Whether a value equals another, or is an object that has its members, among others."""
    if isinstance(value, dict) and isinstance(expected, dict):
        return all(name in value and _has(value[name], one) for name, one in expected.items())
    return isinstance(value, bool) is isinstance(expected, bool) and bool(value == expected)


def _listed(tasks: Sequence[Task]) -> str:
    """List tasks for the message of a failure; secret fields are masked."""
    if not tasks:
        return "nothing was enqueued"
    lines = [_line(task) for task in tasks[:_MAX_LISTED]]
    if len(tasks) > _MAX_LISTED:
        lines.append(f"… and {len(tasks) - _MAX_LISTED} more")
    return "\n  ".join(["enqueued were:", *lines])


def _line(task: Task) -> str:
    tenant = f", tenant {task.tenant!r}" if task.tenant else ""
    return f"{task.type} {_json(task.as_dict()['payload'])} in queue {task.queue!r}{tenant}: {task.state}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
