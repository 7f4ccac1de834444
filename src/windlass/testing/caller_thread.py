"""CallerThread: runs blocking handlers in the thread of the test, which waits for the engine beside it."""

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from .._worker.run import Run
from .._worker.threads import Threads

T = TypeVar("T")


class CallerThread:
    """Runs coroutines on an event loop beside the caller, and blocking handlers in the caller's thread.

    So handlers have the caller's thread-local values: the connection and transaction of a test, for example.
    """

    def __init__(self) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def threads(self, loop: asyncio.AbstractEventLoop) -> Threads:
        """Return what a worker runs blocking handlers with."""
        return _Calls(loop, self._calls)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the caller's context and wait for its result; meanwhile, run handlers here."""
        future: Future[T] = Future()
        future.add_done_callback(lambda _: self._calls.put(None))
        arguments = (contextvars.copy_context(), coroutine, future)
        # If the caller is interrupted, the thread stays behind.
        threading.Thread(target=_run, args=arguments, name="windlass-harness", daemon=True).start()
        while (call := self._calls.get()) is not None:
            call()
        return future.result()


class _Calls(Threads):
    """No threads of its own: functions run in the caller's."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, calls: "queue.SimpleQueue[Callable[[], None] | None]"
    ) -> None:
        super().__init__(loop)
        self._calls = calls

    def run(
        self, function: Callable[..., Any], arguments: dict[str, Any], run: Run
    ) -> asyncio.Future[tuple[Any, BaseException | None]]:
        """Run a function in the caller's thread; the future gets its result and its error."""
        context, future = contextvars.copy_context(), self._loop.create_future()

        def call() -> None:
            outcome: tuple[Any, BaseException | None]
            run.thread = threading.get_ident()
            try:
                outcome = context.run(function, **arguments), None
            except BaseException as raised:  # noqa: BLE001 - the runner turns it into an outcome
                outcome = None, raised
            run.thread = None
            with suppress(RuntimeError):  # the loop has closed
                self._loop.call_soon_threadsafe(_resolve, future, outcome)

        self._calls.put(call)
        return future


def _resolve(
    future: "asyncio.Future[tuple[Any, BaseException | None]]", outcome: tuple[Any, BaseException | None]
) -> None:
    if not future.done():
        future.set_result(outcome)


def _run(context: contextvars.Context, coroutine: Coroutine[Any, Any, T], future: Future[T]) -> None:
    try:
        future.set_result(context.run(asyncio.run, coroutine))
    except BaseException as error:  # noqa: BLE001 - raised in the caller's thread
        future.set_exception(error)
