"""Awaiting a coroutine in a context of its own without an asyncio task of its own."""

import contextvars
import types
from collections.abc import Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")


@types.coroutine
def isolated(coroutine: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Await it so that the context variables it sets are not seen by whoever runs here next.

    An asyncio task per handler would do the same at several times the price.
    """
    run = contextvars.copy_context().run
    step, value = coroutine.send, None
    while True:
        try:
            waited_for = run(step, value)
        except StopIteration as stop:
            result: T = stop.value
            return result
        try:
            value = yield waited_for
            step = coroutine.send
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:  # noqa: BLE001 - cancellation is the coroutine's to handle
            step, value = coroutine.throw, error
