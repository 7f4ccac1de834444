"""Error hooks: functions that a program declares with `@app.on_error`, called with every failed attempt."""

import asyncio
import contextvars
import inspect
import logging
import queue
import threading
from collections.abc import Sequence
from typing import NamedTuple

from .._handler.failure import whereabouts
from .._handler.hooks import ErrorHook
from .._handler.names import takes
from .._model.task import Task
from .._policy.input.quote import counted
from ..errors import InvalidOption

logger = logging.getLogger("windlass.worker")

MAX_WAITING = 1_000  # calls; beyond that they are dropped and counted
CLOSE_TIMEOUT = 5.0  # seconds for the calls that wait when the worker stops


def checked_hook(hook: ErrorHook) -> ErrorHook:
    """Return a hook that can be called with a task and an error; raises InvalidOption for anything else."""
    if not callable(hook) or inspect.iscoroutinefunction(hook) or not takes(hook, 2):
        raise InvalidOption(
            f"on_error takes a function of (task, error) that is not async, not {hook!r}; see docs/logging.md"
        )
    return hook


class _Call(NamedTuple):
    context: contextvars.Context
    task: Task
    error: BaseException


class ErrorHooks:
    """Calls the hooks one after another in a thread of its own, so that a slow one delays no task.

    Each is called in the context of its attempt: context variables and the current span are the handler's.
    """

    def __init__(self, hooks: Sequence[ErrorHook]) -> None:
        self._hooks = hooks
        self._waiting: queue.Queue[_Call | None] = queue.Queue(MAX_WAITING + 1)  # and None, which ends it
        self._thread: threading.Thread | None = None
        self._dropped = 0

    def call(self, task: Task, error: BaseException) -> None:
        """Call the hooks soon, in the caller's context. Never blocks; call it on the event loop."""
        if not self._hooks:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="windlass-on-error", daemon=True)
            self._thread.start()
        if self._waiting.qsize() >= MAX_WAITING:
            self._dropped += 1
            if self._dropped == 1:
                logger.warning("on_error is too slow: %d calls wait; dropping further ones", MAX_WAITING)
            return
        if self._dropped:
            logger.warning("on_error was not called for %s", counted(self._dropped, "failed attempt"))
            self._dropped = 0
        self._waiting.put_nowait(_Call(contextvars.copy_context(), task, error))

    async def close(self) -> None:
        """Wait until the hooks have been called with what is waiting, for at most CLOSE_TIMEOUT."""
        if self._thread is None:
            return
        self._waiting.put_nowait(None)
        await asyncio.to_thread(self._thread.join, CLOSE_TIMEOUT)
        lost = self._dropped + max(self._waiting.qsize() - 1, 0)
        if lost:
            logger.warning("on_error was not called for %s", counted(lost, "failed attempt"))

    def _run(self) -> None:
        while (call := self._waiting.get()) is not None:
            for hook in self._hooks:
                call.context.run(_call, hook, call.task, call.error)
            del call  # the traceback holds what the handler had in hand


def _call(hook: ErrorHook, task: Task, error: BaseException) -> None:
    try:
        hook(task, error)
    except BaseException as problem:  # noqa: BLE001 - its message may hold a secret: log frames only
        logger.error("task %s: on_error raised %s", task.id, whereabouts(problem))  # noqa: TRY400
