"""Around: functions of the program that run around every handler, as middleware does."""

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeAlias

from .._model.outcome import Crashed, Failed, Outcome, Returned, Snoozed, TimedOut
from .._policy.input.payload import decode
from .._policy.verdict import error_of
from ..errors import InvalidOption, UsageError
from ..signals import Snooze, Stop
from .context import Context
from .failure import add_origin, stand_in
from .names import function_name, takes

CallNext: TypeAlias = Callable[[], Awaitable[Any]]
"""Runs what is inside: the next around, or the handler. Returns the result as plain JSON values."""

AsyncAround: TypeAlias = Callable[[Context[Any], CallNext], Awaitable[object]]
GeneratorAround: TypeAlias = Callable[[Context[Any]], Iterator[None]]
Around: TypeAlias = AsyncAround | GeneratorAround


def is_generator(around: Around) -> bool:
    """Tell the two kinds apart; raises InvalidOption for anything else."""
    is_async, is_sync = inspect.iscoroutinefunction(around), inspect.isgeneratorfunction(around)
    if (is_async or is_sync) and takes(around, 2 if is_async else 1):
        return is_sync
    raise InvalidOption(
        f"around takes an async function of (ctx, call_next), or a generator function of (ctx) that yields "
        f"once, not {around!r}; see docs/around.md"
    )


def run_around(
    arounds: Sequence[AsyncAround], context: Context[Any], handle: Callable[[], Coroutine[Any, Any, Outcome]]
) -> Coroutine[Any, Any, Outcome]:
    """Call the first around, which calls the next, and so on; the last one calls `handle`.

    Returns the outcome of `handle`, or raises what it or an around raised. None of them can hide an exception
    or replace the result.
    """
    inner = handle
    for around in reversed(arounds):
        inner = _Layer(around, context, inner).run
    return inner()


class _Layer:
    """One around in one run: its `call_next`, and what became of it."""

    __slots__ = ("_around", "_called", "_context", "_error", "_inner", "_outcome")

    def __init__(
        self, around: AsyncAround, context: Context[Any], inner: Callable[[], Coroutine[Any, Any, Outcome]]
    ) -> None:
        self._around = around
        self._context = context
        self._inner = inner
        self._called = False
        self._outcome: Outcome | None = None
        self._error: BaseException | None = None  # what call_next has raised

    async def run(self) -> Outcome:
        try:
            await self._around(self._context, self._call_next)
        except BaseException as error:  # noqa: BLE001 - raised again, unless it stands for an outcome
            inside, self._error = self._error, None
            only = error  # without the groups that task groups make of it
            while only is not inside and isinstance(only, BaseExceptionGroup) and len(only.exceptions) == 1:
                only = only.exceptions[0]
            try:
                if only is not inside:
                    add_origin(error, f"around {function_name(self._around)}")
                elif self._outcome is not None:
                    return self._outcome  # which the exception stands for
                raise
            finally:
                del inside, only  # its traceback has this frame: no cycle that only the collector ends
        if self._outcome is not None:
            return self._outcome
        if self._error is None:
            raise UsageError(
                f"the around {function_name(self._around)} returned before call_next had run the handler; "
                f"await call_next(), or raise Snooze, Retry or Fatal"
            )
        hidden, self._error = self._error, None
        try:
            raise hidden
        finally:
            del hidden

    async def _call_next(self) -> Any:
        if self._called:
            raise UsageError(f"the around {function_name(self._around)} called call_next twice")
        self._called = True
        try:
            outcome = await self._inner()
            if type(outcome) is not Returned:
                self._outcome = outcome
                raise _exception_of(outcome)  # of a child process
        except BaseException as error:
            self._error = error
            raise
        self._outcome = outcome
        return None if outcome.result is None else decode(outcome.result)


def _exception_of(outcome: Outcome) -> Exception:
    """Return what stands for the outcome of a child process in this one."""
    match outcome:
        case Snoozed(delay=delay):
            return Snooze(delay)
        case Failed() | TimedOut() | Crashed():
            return stand_in(error_of(outcome))
        case _:
            return Stop("the task was asked to stop")
