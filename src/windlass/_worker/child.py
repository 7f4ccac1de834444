"""The child's side: `python -m windlass._worker.child`, started and fed by a worker."""

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
from .child_messages import Failure, Hello, Message, Order, Result, Told, pack, receive_blocking
from .result import encoded
from .runner import failed

SCRIPT_NAME = "__windlass_child__"

_OUT_OF_REACH = NoEffects(
    "this handler runs in a child process, and the store is its worker's; declare it without process=True"
)


def main() -> None:
    """Serve orders until the worker closes the pipe or dies."""
    inbound, outbound = _private_pipes()
    orders: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(inbound, orders), daemon=True).start()
    programs: dict[str, ModuleType] = {}
    while True:
        message = orders.get()
        if isinstance(message, Hello):
            sys.path[:] = message.path
            if message.script is not None:
                programs["__main__"] = _load_script(message.script)
        elif isinstance(message, Order):
            _send(outbound, _serve(message, programs, outbound))


def _private_pipes() -> tuple[BinaryIO, BinaryIO]:
    """Our ends of the pipes, moved away from stdin and stdout, which belong to the handler."""
    inbound = os.fdopen(os.dup(0), "rb")
    outbound = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)  # what a handler prints goes where the worker's errors go
    os.close(nothing)
    return inbound, outbound


def _listen(inbound: BinaryIO, orders: "queue.SimpleQueue[Message]") -> None:
    while (message := receive_blocking(inbound)) is not None:
        orders.put(message)
    if os.getpgrp() == os.getpid():  # the worker is gone: whatever runs here can no longer be settled
        os.killpg(0, signal.SIGKILL)
    os._exit(0)


def _load_script(path: str) -> ModuleType:
    module = ModuleType(SCRIPT_NAME)
    module.__dict__.update(runpy.run_path(path, run_name=SCRIPT_NAME))
    return module


def _serve(order: Order, programs: dict[str, ModuleType], outbound: BinaryIO) -> Message:
    task = order.task
    fatal: tuple[type[BaseException], ...] = ()
    try:
        declared = _find(order, programs)
        fatal = declared.fatal
        running.set(task)
        with current_span(task.trace):
            result = _call(declared, order, outbound)
        return Result(result=encoded(result))
    except BaseException as error:
        match failed(task, error, fatal):
            case Snoozed(delay):
                return Failure(snooze=delay)
            case Failed(error=described, fatal=is_fatal, retry_after=after):
                return Failure(error=described, fatal=is_fatal, retry_after=after)
            case other:
                raise AssertionError(f"no such outcome: {other}") from error


def _find(order: Order, programs: dict[str, ModuleType]) -> HandlerSpec:
    module = programs.get(order.module) or importlib.import_module(order.module)
    found = attrgetter(order.qualname)(module)
    declared = getattr(found, "spec", None)
    if not isinstance(declared, HandlerSpec):
        raise Fatal(
            f"{order.module}.{order.qualname} is not a task type where the child process looks for it"
        )
    return declared


def _call(declared: HandlerSpec, order: Order, outbound: BinaryIO) -> Any:
    try:
        arguments = declared.signature.arguments(order.payload)
    except InvalidPayload as error:
        raise Fatal(str(error)) from None
    if declared.signature.context_name is not None:
        arguments[declared.signature.context_name] = Context(
            order.task,
            report=lambda progress: _send(outbound, Told(progress=progress)),
            stopping=lambda: False,  # a child is not asked, it is killed
            effects=_OUT_OF_REACH,
        )
    if declared.is_async:
        return asyncio.run(declared.handler(**arguments))
    return declared.handler(**arguments)


def _send(outbound: BinaryIO, message: Message) -> None:
    outbound.write(pack(message))
    outbound.flush()


if __name__ == "__main__":
    main()
