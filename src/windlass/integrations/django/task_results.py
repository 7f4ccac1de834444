"""Results of Django's Tasks framework, made from tasks of windlass and their attempts."""

import builtins
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from django.conf import settings
from django.utils import timezone
from django.utils.module_loading import import_string

try:
    from django.tasks import TaskContext, TaskResult, TaskResultStatus
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskError
    from django.tasks.exceptions import TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
except ModuleNotFoundError:  # before Django 6: the package that it came from
    from django_tasks import TaskContext, TaskResult, TaskResultStatus
    from django_tasks.backends.base import BaseTaskBackend
    from django_tasks.base import TaskError
    from django_tasks.exceptions import TaskResultDoesNotExist
    from django_tasks.signals import task_enqueued, task_finished, task_started
    from django_tasks.utils import normalize_json

from ..._model.attempt import Attempt
from ..._model.state import State
from ..._model.task import Error, Task
from ..._policy.input.payload import decode
from ...signals import Fatal

__all__ = [
    "BaseTaskBackend",
    "TaskContext",
    "TaskResult",
    "TaskResultDoesNotExist",
    "fail",
    "new_result",
    "normalize_json",
    "result_of",
    "start",
    "succeed",
    "task_enqueued",
]

_STATUS = {
    State.RUNNING: TaskResultStatus.RUNNING,
    State.COMPLETED: TaskResultStatus.SUCCESSFUL,
    State.DEAD: TaskResultStatus.FAILED,
    State.CANCELLED: TaskResultStatus.FAILED,
}
_UNCOUNTED = ("snoozed", "released", "interrupted")


class ResultNotJson(Fatal, TypeError):
    """A Django task has returned what is not JSON: it is not run again. Its result says TypeError."""


_OF_DJANGO = {f"{ResultNotJson.__module__}.{ResultNotJson.__qualname__}": "builtins.TypeError"}
"""Errors of ours that the framework has another class for."""

_OF_WINDLASS = {"TimedOut": "builtins.TimeoutError"}
_OTHER = "builtins.RuntimeError"
"""What the framework is told if a worker died, a process was killed, or a task was cancelled or expired."""


def new_result(task: Any, task_id: str, args: Any, kwargs: Any, alias: str) -> Any:
    """Return the result of a Django task that was just enqueued. Raises TypeError for what is not JSON."""
    return TaskResult(
        task=task,
        id=task_id,
        status=TaskResultStatus.READY,
        enqueued_at=_enqueued_at(task_id),
        started_at=None,
        finished_at=None,
        last_attempted_at=None,
        args=args,
        kwargs=kwargs,
        backend=alias,
        errors=[],
        worker_ids=[],
    )


def result_of(stored: Task, attempts: Sequence[Attempt]) -> Any:
    """Return the result of a Django task as the store has it; raises ImportError if its function is gone."""
    payload = decode(stored.payload)
    result = new_result(
        _task_of(stored, payload), stored.id, payload["args"], payload["kwargs"], payload["via"]
    )
    counted = [one for one in attempts if one.outcome not in _UNCOUNTED]
    result.errors.extend(_task_error(one.error) for one in counted if one.error is not None)
    if stored.state is State.CANCELLED and stored.error is not None:
        result.errors.append(_task_error(stored.error))
    result.worker_ids.extend(one.worker or "" for one in counted)
    starts = [one.claimed_at for one in counted]
    if stored.state is State.RUNNING and stored.claimed_at is not None:
        result.worker_ids.append(stored.worker or "")
        starts.append(stored.claimed_at)
    _change(
        result,
        status=_STATUS.get(stored.state, TaskResultStatus.READY),
        started_at=_local(starts[0]) if starts else None,
        last_attempted_at=_local(starts[-1]) if starts else None,
        finished_at=None if stored.finished_at is None else _local(stored.finished_at),
    )
    if stored.state is State.COMPLETED:
        _change(result, _return_value=None if stored.result is None else decode(stored.result))
    return result


def start(result: Any, sender: type) -> None:
    """Tell Django that a task starts."""
    task_started.send(sender=sender, task_result=result)


def succeed(result: Any, sender: type, value: Any) -> Any:
    """Tell Django that a task has succeeded; returns its value as JSON. Raises ResultNotJson."""
    try:
        returned = normalize_json(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ResultNotJson(f"the handler ran, but its result is not JSON: {error}") from error
    _change(result, status=TaskResultStatus.SUCCESSFUL, finished_at=timezone.now(), _return_value=returned)
    _send_finished(result, sender)
    return returned


def fail(result: Any, sender: type, error: Error) -> None:
    """Tell Django that a task has failed for good; call it where the exception is handled, for the log."""
    _change(result, status=TaskResultStatus.FAILED, finished_at=timezone.now())
    result.errors.append(_task_error(error))
    _send_finished(result, sender)


def _send_finished(result: Any, sender: type) -> None:
    """Send `task_finished`. Django logs what receivers raise, which must not change how the task ended."""
    task_finished.send_robust(sender=sender, task_result=result)


def _task_of(stored: Task, payload: dict[str, Any]) -> Any:
    run_after = payload.get("run_after")
    return import_string(stored.type).using(
        priority=stored.priority,
        queue_name=stored.queue,
        run_after=None if run_after is None else datetime.fromisoformat(run_after),
        backend=payload["via"],
    )


def _task_error(error: Error) -> Any:
    return TaskError(
        exception_class_path=_class_path(error.type),
        traceback=error.traceback or f"{error.type}: {error.message}\n",
    )


def _class_path(error_type: str) -> str:
    """Return where the class of an error can be imported from, as Django does it; some of ours have none."""
    if "." in error_type:
        return _OF_DJANGO.get(error_type, error_type)
    return f"builtins.{error_type}" if hasattr(builtins, error_type) else _OF_WINDLASS.get(error_type, _OTHER)


def _enqueued_at(task_id: str) -> datetime:
    """Return when the id was made: it begins with the milliseconds since 1970."""
    return _local(datetime.fromtimestamp(int(task_id[:8] + task_id[9:13], 16) / 1000, UTC))


def _local(instant: datetime) -> datetime:
    """Return an instant as the project has them: aware, or without USE_TZ naive and local."""
    return instant if settings.USE_TZ else timezone.make_naive(instant)


def _change(result: Any, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(result, name, value)  # results are frozen; Django changes them so, too
