"""The backend of Django's Tasks framework: `django.tasks` of Django 6, or the package `django-tasks` before.

    TASKS = {"default": {"BACKEND": "windlass.integrations.django.backend.WindlassBackend"}}

A Django task becomes a task type of the same name, `shop.tasks.send`: limits, schedules, alerts and the
dashboard know it by that. Its payload has `args` and `kwargs`.
"""

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta
from inspect import iscoroutinefunction
from typing import Any, cast

from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from msgspec.structs import replace

from ..._handler.context import Context
from ..._handler.failure import describe
from ..._model.attempt import Attempt
from ..._model.outcome import Crashed, Failed, Outcome, TimedOut
from ..._model.task import is_task_id
from ..._model.verdict import Bury, Cancel
from ..._policy.input.quote import suggestion
from ..._policy.verdict import decide, error_of
from ..._worker.run import Run, Stop
from ..._worker.runner import outcome_of_error
from ...errors import NotFound
from ...signals import Stop as StopSignal
from ...tasktype import TaskType
from . import app
from .task_results import (
    BaseTaskBackend,
    TaskContext,
    TaskResultDoesNotExist,
    fail,
    new_result,
    normalize_json,
    result_of,
    start,
    succeed,
    task_enqueued,
)

_OF_TYPE = ("backoff", "fatal")
_OF_TASK = ("expires", "max_attempts", "timeout")


class WindlassBackend(BaseTaskBackend):
    """Keeps Django tasks in the store of the project. `OPTIONS`: of `app.task`, for all of its tasks."""

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        for name in self.options:
            if name not in (known := (*_OF_TYPE, *_OF_TASK)):
                hint = suggestion(str(name), known, f"the options are {', '.join(known)}")
                raise ImproperlyConfigured(f"the task backend {alias!r} has no option {name!r}{hint}")

    def validate_task(self, task: Any) -> None:
        """Raise InvalidTask if Django's rules do not allow the task; else declare its type."""
        super().validate_task(task)
        self._type_of(task)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Enqueue a task, in the open transaction if there is one; returns its result, which is ready."""
        self.validate_task(task)
        payload = {"args": normalize_json(list(args)), "kwargs": normalize_json(kwargs), "via": self.alias}
        options = {name: self.options[name] for name in _OF_TASK if name in self.options}
        if (run_after := task.run_after) is not None:
            payload["run_after"] = run_after.isoformat()
            options["run_at"] = run_after if timezone.is_aware(run_after) else timezone.make_aware(run_after)
        enqueued = self._type_of(task).using(queue=task.queue_name, priority=int(task.priority), **options)
        result = new_result(task, enqueued.enqueue(**payload).id, args, kwargs, self.alias)
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """Return the result of a task as it is now; raises TaskResultDoesNotExist.

        A task of a transaction that is open does not exist yet.
        """
        if not is_task_id(result_id):
            raise TaskResultDoesNotExist(result_id)
        try:
            stored = app.sync_client.get(result_id).task()
            return result_of(stored, app.sync_operator.attempts(result_id))
        except (NotFound, ImportError, LookupError, AttributeError) as error:  # or not a Django task
            raise TaskResultDoesNotExist(result_id) from error

    def _type_of(self, task: Any) -> TaskType[Any, Any, Any]:
        """Return the type of a Django task, declared at first use."""
        path = task.module_path
        if path not in _types:
            options = {name: value for name, value in self.options.items() if name != "expires"}
            _types[path] = app.task(name=path, queue=task.queue_name, **options)(_handler_of(task.func))
        return _types[path]


_types: dict[str, TaskType[Any, Any, Any]] = {}
"""The types of Django tasks, by their paths."""


def _handler_of(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the handler of a Django task: it runs the function and sends Django's signals."""
    if iscoroutinefunction(function):

        async def run_async(
            args: list[Any], kwargs: dict[str, Any], via: str, ctx: Context, run_after: str | None = None
        ) -> Any:
            del via, run_after
            run = _Run(ctx, await app.operator.attempts(ctx.task.id) if ctx.task.attempt > 1 else ())
            try:
                return run.succeeded(await function(*run.before(args), **kwargs))
            except BaseException as error:
                run.failed(error)
                raise

        return run_async

    def run_blocking(
        args: list[Any], kwargs: dict[str, Any], via: str, ctx: Context, run_after: str | None = None
    ) -> Any:
        del via, run_after
        run = _Run(ctx, app.sync_operator.attempts(ctx.task.id) if ctx.task.attempt > 1 else ())
        try:
            return run.succeeded(function(*run.before(args), **kwargs))
        except BaseException as error:
            run.failed(error)
            raise

    return run_blocking


class _Run:
    """One attempt at a Django task, as its signals tell of it."""

    def __init__(self, ctx: Context, earlier: Sequence[Attempt]) -> None:
        self._ctx = ctx
        self._run = cast(Run, ctx._run)  # noqa: SLF001 - a context does not say why its task is to stop
        self._result = result_of(ctx.task, earlier)
        self._sender = type(self._result.task.get_backend())

    def before(self, args: list[Any]) -> list[Any]:
        """Send `task_started`; return the arguments, with the context if the function takes it."""
        start(self._result, self._sender)
        takes_context = self._result.task.takes_context
        return [TaskContext(task_result=self._result), *args] if takes_context else args

    def succeeded(self, value: Any) -> Any:
        """Send `task_finished`; return the value as JSON."""
        return succeed(self._result, self._sender, value)

    def failed(self, error: BaseException) -> None:
        """Send `task_finished` if the task ends with this error: if it is buried or cancelled."""
        outcome = self._outcome_of(error)
        task = self._ctx.task
        if self._run.stop is Stop.CANCEL:
            task = replace(task, cancel_requested=True)
        is_final = isinstance(decide(task, outcome, _no_delay, 0.0), (Bury, Cancel))
        if is_final and not self._run.is_lost and not isinstance(error, KeyboardInterrupt):
            described = (
                error_of(outcome) if isinstance(outcome, (Failed, TimedOut, Crashed)) else describe(error)
            )
            fail(self._result, self._sender, described)

    def _outcome_of(self, error: BaseException) -> Outcome:
        if self._run.is_stopping and isinstance(error, (asyncio.CancelledError, StopSignal)):
            return self._run.stop_outcome()
        task = self._ctx.task
        return outcome_of_error(task, error, _types[task.type].spec.fatal)


def _no_delay(_attempt: int, _draw: float) -> timedelta:
    """Stand for the backoff where only matters whether a task is tried again, not when."""
    return timedelta(0)
