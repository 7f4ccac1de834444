"""Lifespans: what a program opens when a worker process starts, and closes when it stops."""

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

from ..errors import InvalidOption, LifespanFailed
from .names import function_name, takes

logger = logging.getLogger("windlass.worker")

Lifespan: TypeAlias = Callable[[Any], AsyncIterator[Any] | AbstractAsyncContextManager[Any]]

_CANCEL_TIMEOUT = 1.0  # seconds for a lifespan that was cancelled, and for an end after a second signal


def check_lifespan(function: Lifespan) -> None:
    """Raise InvalidOption for what cannot be a lifespan."""
    wrong = inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function)
    if not callable(function) or wrong or not takes(function, 1):
        raise InvalidOption(
            f"lifespan takes an async function of the app that yields once, not {function!r}; "
            f"see docs/around.md"
        )


class Lifespans:
    """The lifespans of an app in one process: entered in order, left in reverse.

    They run in an asyncio task of their own, so that task groups and cancel scopes in them work.
    """

    def __init__(self, lifespans: Sequence[Lifespan], app: object) -> None:
        self._lifespans = lifespans
        self._app = app
        self._task: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()  # all were entered, or entering them has ended
        self._leave = asyncio.Event()
        self._failure: LifespanFailed | None = None
        self._leaving = ""  # the name of the one that is being left
        self.state: Any = None  # what one of them yielded

    @property
    def has_ended(self) -> bool:
        """Whether they have ended, or are about to: a task group in one of them was cancelled."""
        return self._task is not None and (self._task.done() or self._task.cancelling() > 0)

    def borrowed(self) -> "Lifespans":
        """Return lifespans with this state and nothing to start or end, for workers that do not own these."""
        made = Lifespans((), self._app)
        made.state = self.state
        return made

    async def start(self, stop: asyncio.Event | None = None, on_end: Callable[[], object] = bool) -> bool:
        """Enter them; return False if `stop` was set before all were entered. Raises LifespanFailed.

        `on_end` is called if they end by themselves later.
        """
        if not self._lifespans:
            return True
        self._task = asyncio.create_task(self._run(), name="windlass-lifespan")
        watch = None if stop is None else asyncio.create_task(self._cancel_on(stop, self._task))
        try:
            await self._changed.wait()
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        finally:
            if watch is not None:
                watch.cancel()
        self._note_end(self._task)
        self.raise_failure()
        self._task.add_done_callback(lambda _: self._leave.is_set() or on_end())
        return not self._task.done()

    async def end(self, seconds: float, cut: asyncio.Event | None = None) -> None:
        """Leave them, within this time and until `cut` is set; then they are cancelled. Errors are logged."""
        if self._task is None:
            return
        self._note_end(self._task)
        self._leave.set()
        if cut is not None and cut.is_set():  # that of child processes was cut off
            seconds, cut = _CANCEL_TIMEOUT, None
        cutting = asyncio.ensure_future((cut or asyncio.Event()).wait())
        await asyncio.wait([self._task, cutting], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not self._task.done():
            why = "was cut off by a second signal" if cutting.done() else f"took more than {seconds:.1f} s"
            logger.error("the end of the lifespan %s %s; cancelling it", self._leaving, why)
            self._task.cancel()
            await asyncio.wait([self._task], timeout=_CANCEL_TIMEOUT)
        cutting.cancel()

    def raise_failure(self) -> None:
        """Raise LifespanFailed if they ended by themselves."""
        if self._failure is not None:
            raise self._failure

    def _note_end(self, task: "asyncio.Task[None]") -> None:
        """Keep as the failure that they ended before they were told to leave."""
        if task.done() and not self._leave.is_set() and self._failure is None:
            self._failure = LifespanFailed("a lifespan ended by itself; the log says why")

    async def _run(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                await self._enter_all(stack)
                self._changed.set()
                await self._leave.wait()
        except LifespanFailed as failure:
            self._failure = failure
        finally:
            self._changed.set()

    async def _enter_all(self, stack: AsyncExitStack) -> None:
        giver = ""
        for lifespan in self._lifespans:
            name = function_name(lifespan)
            try:
                manager = _manager(lifespan)(self._app)
                state = await manager.__aenter__()
            except Exception as error:
                logger.exception("the lifespan %s failed at start", name)
                message = f"the lifespan {name} failed at start: {type(error).__name__}: {error}"
                raise LifespanFailed(message) from error
            stack.push_async_callback(partial(self._leave_one, manager, name))
            if state is None:
                continue
            if giver:
                raise LifespanFailed(
                    f"the lifespans {giver} and {name} both yield a state; only one of them can be ctx.state"
                )
            giver, self.state = name, state

    async def _leave_one(self, manager: AbstractAsyncContextManager[Any], name: str) -> None:
        """Leave one as at a normal end, whatever has failed elsewhere. The others are left in any case."""
        self._leaving = name
        try:
            await manager.__aexit__(None, None, None)
        except Exception:
            logger.exception("the lifespan %s failed at its end", name)

    async def _cancel_on(self, stop: asyncio.Event, entering: "asyncio.Task[None]") -> None:
        await stop.wait()
        self._leave.set()
        entering.cancel()


def _manager(lifespan: Lifespan) -> Callable[[Any], Any]:
    return asynccontextmanager(lifespan) if inspect.isasyncgenfunction(lifespan) else lifespan
