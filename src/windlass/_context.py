"""What a handler may ask about the task it runs, and tell about it."""

import logging
from collections.abc import Callable, Mapping, MutableMapping
from datetime import timedelta
from typing import Any, cast

from ._model.task import Progress, Task, TaskId
from ._policy.keys import external_key
from .errors import InvalidOption
from .signals import Stop

logger = logging.getLogger("windlass.task")


class Context:
    """The running task, from inside its handler.

    Injected into the parameter annotated `Context`; never part of the payload.
    """

    __slots__ = ("_report", "_stopping", "task")

    def __init__(
        self, task: Task, *, report: Callable[[Progress], None], stopping: Callable[[], bool]
    ) -> None:
        self.task = task
        self._report = report
        self._stopping = stopping

    @property
    def task_id(self) -> TaskId:
        """The task's id: the same at every attempt."""
        return self.task.id

    @property
    def attempt(self) -> int:
        """Which try this is, from 1."""
        return self.task.attempt

    @property
    def is_last_attempt(self) -> bool:
        """Whether a failure now is the task's death."""
        return self.task.attempt >= self.task.max_attempts

    @property
    def fence(self) -> int:
        """This lease's number. It only rises: an effect elsewhere can refuse a lower one than it has seen."""
        return self.task.fence

    @property
    def timeout(self) -> timedelta | None:
        """How long this attempt may run."""
        return self.task.timeout

    @property
    def logger(self) -> "logging.LoggerAdapter[logging.Logger]":
        """A logger whose records carry the task's id, type, attempt and trace."""
        return _TaskLogger(logger, _labels(self.task))

    def idempotency_key(self, name: str = "") -> str:
        """A key to pass to an outside API: stable over all attempts; one for each `name`. (D16)"""
        return external_key(self.task.id, name)

    def progress(self, fraction: float, message: str = "") -> None:
        """Say how far it has come, from 0 to 1. Kept with the next heartbeat, at most about once a second."""
        if not 0 <= fraction <= 1:
            raise InvalidOption(f"progress is a fraction from 0 to 1, not {fraction!r}")
        self._report(Progress(fraction=float(fraction), message=str(message)[:500]))

    @property
    def stopping(self) -> bool:
        """Whether this task was asked to stop: cancelled, out of time, or its worker is shutting down."""
        return self._stopping()

    def check(self) -> None:
        """Raise `Stop` if this task was asked to stop. For handlers in threads, which cannot be cancelled."""
        if self._stopping():
            raise Stop("the task was asked to stop")


class _TaskLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the task's labels to what the caller gives as `extra`."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        labels = cast(Mapping[str, object], self.extra or {})
        return msg, {**kwargs, "extra": {**labels, **(kwargs.get("extra") or {})}}


def _labels(task: Task) -> dict[str, object]:
    return {
        "task_id": task.id,
        "task_type": task.type,
        "queue": task.queue,
        "tenant": task.tenant,
        "attempt": task.attempt,
        "trace": task.trace,
    }


class _Injected:
    """Stands where a worker will put the context; called without a worker, it says so."""

    def __repr__(self) -> str:
        return "INJECTED"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"there is no {name}: no worker runs this; pass a Context of your own")


INJECTED: Context = cast(Context, _Injected())
"""A default for a handler's context parameter, so that type checkers do not ask callers for it."""
