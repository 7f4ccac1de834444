"""The child process that runs handlers for a worker: `python -m windlass._worker.child`."""

import asyncio
import importlib
import os
import queue
import runpy
import signal
import sys
import threading
from operator import attrgetter
from types import ModuleType
from typing import Any, BinaryIO

from .._handler.context import Context, NoEffects, running
from .._handler.spec import HandlerSpec
from .._model.outcome import Failed, Snoozed
from .._observe.tracing import current_span
from ..errors import InvalidPayload
from ..signals import Fatal
from .processes import Failure, Hello, Message, ProgressUpdate, Result, RunRequest, pack, receive_blocking
from .run import encode_result
from .runner import outcome_of_error

SCRIPT_NAME = "__windlass_child__"

_NO_EFFECTS = NoEffects(
    "not available in a child process, which has no connection to the store; declare the task type without "
    "process=True"
)


def main() -> None:
    """Run tasks until the worker closes the pipe or dies."""
    inbound, outbound = _private_pipes()
    messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(inbound, messages), daemon=True).start()
    programs: dict[str, ModuleType] = {}
    while True:
        message = messages.get()
        if isinstance(message, Hello):
            sys.path[:] = message.path
            if message.script is not None:
                programs["__main__"] = _load_script(message.script)
        elif isinstance(message, RunRequest):
            _send(outbound, _run(message, programs, outbound))


def _private_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Move our ends of the pipes away from stdin and stdout, which belong to the handler."""
    inbound = os.fdopen(os.dup(0), "rb")
    outbound = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # what a handler prints goes to the worker's stderr
    os.close(nothing)
    return inbound, outbound


def _read(inbound: BinaryIO, messages: "queue.SimpleQueue[Message]") -> None:
    while (message := receive_blocking(inbound)) is not None:
        messages.put(message)
    if os.getpgrp() == os.getpid():  # the worker has died, so the running task cannot be settled
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _load_script(path: str) -> ModuleType:
    module = ModuleType(SCRIPT_NAME)
    module.__dict__.update(runpy.run_path(path, run_name=SCRIPT_NAME))
    return module


def _run(request: RunRequest, programs: dict[str, ModuleType], outbound: BinaryIO) -> Message:
    task = request.task
    fatal: tuple[type[BaseException], ...] = ()
    try:
        spec = _find(request, programs)
        fatal = spec.fatal
        running.set(task)
        with current_span(task.trace):
            result = _call(spec, request, outbound)
        return Result(result=encode_result(result))
    except BaseException as error:
        match outcome_of_error(task, error, fatal):
            case Snoozed(delay):
                return Failure(snooze=delay)
            case Failed(error=described, fatal=is_fatal, retry_after=after):
                return Failure(error=described, fatal=is_fatal, retry_after=after)
            case other:
                raise AssertionError(f"unexpected outcome: {other}") from error


def _find(request: RunRequest, programs: dict[str, ModuleType]) -> HandlerSpec:
    module = programs.get(request.module) or importlib.import_module(request.module)
    found = attrgetter(request.qualname)(module)
    spec = getattr(found, "spec", None)
    if not isinstance(spec, HandlerSpec):
        raise Fatal(f"{request.module}.{request.qualname} is not a task type in the child process")
    return spec


def _call(spec: HandlerSpec, request: RunRequest, outbound: BinaryIO) -> Any:
    try:
        arguments = spec.signature.arguments(request.payload)
    except InvalidPayload as error:
        raise Fatal(str(error)) from None
    if spec.signature.context_name is not None:
        arguments[spec.signature.context_name] = Context(
            request.task,
            report=lambda progress: _send(outbound, ProgressUpdate(progress=progress)),
            stopping=lambda: False,  # a child is killed, not asked
            effects=_NO_EFFECTS,
        )
    if spec.is_async:
        return asyncio.run(spec.handler(**arguments))
    return spec.handler(**arguments)


def _send(outbound: BinaryIO, message: Message) -> None:
    outbound.write(pack(message))
    outbound.flush()


if __name__ == "__main__":
    main()
