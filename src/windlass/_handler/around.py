"""Around: functions of the program that run around every handler, as middleware does."""

import inspect
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, TypeAlias

from ..errors import InvalidOption, UsageError
from .context import Context
from .failure import add_origin
from .names import function_name

CallNext: TypeAlias = Callable[[], Awaitable[Any]]
"""Runs what is inside: the next around, or the handler. Returns the result as plain JSON values."""

AsyncAround: TypeAlias = Callable[[Context[Any], CallNext], Awaitable[object]]
GeneratorAround: TypeAlias = Callable[[Context[Any]], Iterator[None]]
Around: TypeAlias = AsyncAround | GeneratorAround


def is_generator(around: Around) -> bool:
    """Tell the two kinds apart; raises InvalidOption for anything else."""
    is_async, is_sync = inspect.iscoroutinefunction(around), inspect.isgeneratorfunction(around)
    if is_async or is_sync:
        try:
            inspect.signature(around).bind(*range(2 if is_async else 1))
        except TypeError:
            pass
        else:
            return is_sync
    raise InvalidOption(
        f"around takes an async function of (ctx, call_next), or a generator function of (ctx) that yields "
        f"once, not {around!r}; see docs/around.md"
    )


async def run_around(arounds: Sequence[AsyncAround], context: Context[Any], handle: CallNext) -> None:
    """Call the first around, which calls the next, and so on; the last one calls `handle`.

    Raises what they raise. None of them can hide an exception of `handle` or replace its result.
    """
    inner = handle
    for around in reversed(arounds):
        inner = _Layer(around, context, inner).run
    await inner()


class _Layer:
    """One around in one run: its `call_next`, and what became of it."""

    __slots__ = ("_around", "_called", "_context", "_done", "_error", "_inner", "_result")

    def __init__(self, around: AsyncAround, context: Context[Any], inner: CallNext) -> None:
        self._around = around
        self._context = context
        self._inner = inner
        self._called = self._done = False
        self._error: BaseException | None = None
        self._result: Any = None

    async def run(self) -> Any:
        try:
            await self._around(self._context, self._call_next)
        except BaseException as error:
            if error is not self._error:
                add_origin(error, f"around {function_name(self._around)}")
            self._error = None  # its traceback has this frame: no cycle that only the collector ends
            raise
        if not self._done:
            raise UsageError(
                f"the around {function_name(self._around)} returned before call_next had run the handler; "
                f"await call_next(), or raise Snooze, Retry or Fatal"
            )
        error_inside, self._error = self._error, None
        if error_inside is not None:
            try:
                raise error_inside
            finally:
                del error_inside
        return self._result

    async def _call_next(self) -> Any:
        if self._called:
            raise UsageError(f"the around {function_name(self._around)} called call_next twice")
        self._called = True
        try:
            self._result = await self._inner()
        except BaseException as error:
            self._error = error
            raise
        finally:
            self._done = True
        return self._result
