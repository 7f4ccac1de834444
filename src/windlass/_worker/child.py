"""The child process that runs handlers for a worker: `python -m windlass._worker.child`."""

import asyncio
import contextvars
import importlib
import logging
import os
import queue
import runpy
import signal
import socket
import sys
import threading
from collections.abc import Coroutine, Mapping
from operator import attrgetter
from types import ModuleType
from typing import Any, BinaryIO

from .._handler.context import Context, NoEffects, running, taken_secrets
from .._handler.dependencies import Plan
from .._handler.hooks import Hooks
from .._handler.lifespan import Lifespans
from .._handler.names import CHILD_MAIN
from .._handler.spec import HandlerSpec
from .._model.outcome import Failed, Returned, Snoozed
from .._model.task import Progress
from .._observe.tracing import current_span
from .._policy.input.notes import merged_notes
from ..errors import InvalidPayload
from ..signals import Fatal
from .child_logs import LogSender
from .processes import (
    FromChild,
    Hello,
    Leave,
    NotesUpdate,
    ProgressUpdate,
    RunRequest,
    Started,
    ToChild,
    pack,
    receive_blocking,
)
from .runner import outcome_of_error

logger = logging.getLogger("windlass.worker")

_ROUNDS = 5  # of the event loop, in which a task group notices that one of its tasks has failed


def main() -> None:
    """Run tasks until the worker closes the pipe or dies."""
    inbound, outbound = _private_pipes()
    logs = LogSender(_log_socket())
    messages: queue.SimpleQueue[ToChild] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(inbound, messages), daemon=True).start()
    programs: dict[str, ModuleType] = {}
    loop = _Loop()
    while True:
        message = messages.get()
        if isinstance(message, Leave):
            loop.leave(message.seconds)
            logs.flush()
            os._exit(0)
        if isinstance(message, Hello):
            sys.path[:] = message.path
            logs.install(message.levels)
            if message.script is not None:
                programs["__main__"] = module = ModuleType(CHILD_MAIN)
                vars(module).update(runpy.run_path(message.script, run_name=CHILD_MAIN))
            for name in message.imports:
                importlib.import_module(name)
            logs.restore_levels()
        else:
            outcome = _run(message, programs, outbound, logs, loop)
            logs.flush()
            _send(outbound, outcome)


def _private_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Move our ends of the pipes away from stdin and stdout, which belong to the handler."""
    inbound = os.fdopen(os.dup(0), "rb")
    outbound = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # what a handler prints goes to the worker's stderr
    os.close(nothing)
    return inbound, outbound


def _log_socket() -> socket.socket:
    """Return our end of the socket for log records, whose number is the argument of this process."""
    connection = socket.socket(fileno=int(sys.argv.pop()))
    connection.set_inheritable(False)
    return connection


def _read(inbound: BinaryIO, messages: "queue.SimpleQueue[ToChild]") -> None:
    while (message := receive_blocking(inbound)) is not None:
        messages.put(message)
    if os.getpgrp() == os.getpid():  # the worker has died, so the running task cannot be settled
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


_NO_STORE = NoEffects(
    "not available in a child process, which has no connection to the store; declare the task type without "
    "process=True"
)


class _Reports:
    """What a handler reports of its run goes to the worker."""

    cancel = None
    is_stopping = False  # a child is killed, not asked

    def __init__(self, outbound: BinaryIO) -> None:
        self._outbound = outbound
        self._notes: dict[str, Any] = {}

    def report_progress(self, progress: Progress) -> None:
        _send(self._outbound, ProgressUpdate(progress=progress))

    def keep_notes(self, facts: Mapping[str, object]) -> None:
        self._notes = merged_notes(self._notes, facts)
        _send(self._outbound, NotesUpdate(notes=self._notes))


class _Loop:
    """The event loop of this process: one for all tasks if there are lifespans, else one for each."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._lifespans: Lifespans | None = None
        self._is_new = True

    def start(self, hooks: Hooks) -> bool:
        """Start the lifespans of the program, if there are any, unless they run.

        Returns whether it has started some, and True at the first call.
        """
        is_news, self._is_new = self._is_new, False
        if self._lifespans is not None and self._have_ended(self._lifespans):
            logger.error("the lifespans of a child process ended by themselves; starting them again")
            self._lifespans = None
        if self._lifespans is not None or not hooks.has_lifespans:
            return is_news
        self._is_new = True  # until they have started
        self._runner = self._runner or asyncio.Runner()
        lifespans = hooks.lifespans()
        self._runner.run(lifespans.start())
        self._lifespans, self._is_new = lifespans, False
        return True

    def _have_ended(self, lifespans: Lifespans) -> bool:
        async def let_run() -> None:
            for _ in range(_ROUNDS):
                await asyncio.sleep(0)

        self.run(let_run())  # between tasks the loop stands still
        return lifespans.has_ended

    @property
    def state(self) -> Any:
        return None if self._lifespans is None else self._lifespans.state

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        if self._runner is None:
            return asyncio.run(coroutine)
        return self._runner.run(coroutine, context=contextvars.copy_context())

    def leave(self, seconds: float) -> None:
        """Leave the lifespans."""
        if self._runner is not None and self._lifespans is not None:
            self._runner.run(self._lifespans.end(seconds))


def _run(
    request: RunRequest,
    programs: dict[str, ModuleType],
    outbound: BinaryIO,
    logs: LogSender,
    loop: _Loop,
) -> Returned | Failed | Snoozed:
    fatal: tuple[type[BaseException], ...] = ()
    try:
        running.set(request.task)
        taken_secrets.set(request.secrets)
        spec, hooks = _find(request, programs)
        logs.restore_levels()
        fatal = spec.fatal
        if loop.start(hooks):
            _send(outbound, Started())
        with current_span(request.task.trace):
            result = _call(spec, hooks.plan(spec), request, outbound, loop)
        return Returned(spec.signature.result.encode(result))
    except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its outcome
        return outcome_of_error(request.task, error, fatal, request.secrets)


def _find(request: RunRequest, programs: dict[str, ModuleType]) -> tuple[HandlerSpec, Hooks]:
    module = programs.get(request.module) or importlib.import_module(request.module)
    found = attrgetter(request.qualname)(module)
    spec = getattr(found, "spec", None)
    if not isinstance(spec, HandlerSpec):
        raise Fatal(f"{request.module}.{request.qualname} is not a task type in the child process")
    return spec, found.hooks


def _call(spec: HandlerSpec, plan: Plan, request: RunRequest, outbound: BinaryIO, loop: _Loop) -> Any:
    try:
        arguments = spec.signature.arguments(request.payload)
    except InvalidPayload as error:
        raise Fatal(str(error)) from None
    context: Context[Any] = Context(request.task, _Reports(outbound), lambda _: _NO_STORE, loop.state)
    if spec.signature.context_name is not None:
        arguments[spec.signature.context_name] = context
    if spec.is_async:
        return loop.run(plan.acall(spec.handler, context, arguments))
    return plan.call(spec.handler, context, arguments)


def _send(outbound: BinaryIO, message: FromChild) -> None:
    outbound.write(pack(message))
    outbound.flush()


if __name__ == "__main__":
    main()
