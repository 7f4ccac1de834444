"""What a handler may ask about the task it runs, and tell about it."""

import logging
from collections.abc import Callable, Coroutine, Generator, Mapping, MutableMapping
from contextvars import ContextVar
from datetime import timedelta
from typing import Any, NoReturn, Protocol, cast

from .._model.task import Progress, Task, TaskId
from .._policy.input.keys import external_key
from .._store.protocol import Transaction
from ..errors import InvalidOption, NotSupported, UsageError
from ..signals import Stop

logger = logging.getLogger("windlass.task")

running: ContextVar[Task | None] = ContextVar("windlass.running", default=None)
"""The task whose handler this is called from, in the event loop, in a thread and in a child process."""


class Once:
    """The answer of `Context.once`: to be awaited in an event loop; in a thread it is there, true or not."""

    __slots__ = ("_answer", "_ask")

    def __init__(
        self, ask: Callable[[], Coroutine[Any, Any, bool]] | None = None, *, answer: bool | None = None
    ) -> None:
        self._ask = ask
        self._answer = answer  # None: not known before it is awaited

    def __await__(self) -> Generator[Any, None, bool]:
        if self._answer is None:
            assert self._ask is not None
            self._answer = yield from self._ask().__await__()
        return self._answer

    def __bool__(self) -> bool:
        if self._answer is None:
            raise UsageError("in a coroutine the answer must be waited for: write `await ctx.once(key)`")
        return self._answer


class Effects(Protocol):
    """What a worker does for the handler it runs, seen from here."""

    def transaction(self, result: object) -> Transaction:
        """A transaction that completes the task."""
        ...

    def once(self, key: str) -> Once:
        """A mark that only one run of the task gets."""
        ...


class NoEffects:
    """Stands where there is no worker to ask, and says why."""

    __slots__ = ("_why",)

    def __init__(self, why: str) -> None:
        self._why = why

    def transaction(self, result: object) -> NoReturn:  # noqa: ARG002  the protocol's shape
        """Refused."""
        raise NotSupported(f"ctx.transaction() is not to be had here: {self._why}")

    def once(self, key: str) -> NoReturn:  # noqa: ARG002  the protocol's shape
        """Refused."""
        raise NotSupported(f"ctx.once() is not to be had here: {self._why}")


_NO_WORKER = NoEffects("no worker runs this task")


class Context:
    """The running task, from inside its handler.

    Injected into the parameter annotated `Context`; never part of the payload.
    """

    __slots__ = ("_effects", "_report", "_stopping", "task")

    def __init__(
        self,
        task: Task,
        *,
        report: Callable[[Progress], None],
        stopping: Callable[[], bool],
        effects: Effects = _NO_WORKER,
    ) -> None:
        self.task = task
        self._report = report
        self._stopping = stopping
        self._effects = effects

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

    def transaction(self, *, result: object = None) -> Transaction:
        """A transaction on the store's own database that completes this task: both stand, or neither. (D15)

        `async with ctx.transaction() as connection:` in a coroutine, `with` in a thread; one an attempt.
        Leaving the block completes the task with `result`, which is encoded then, and commits; what the
        handler returns afterwards is not kept. An exception in the block, a request to stop or a lost lease
        (LeaseLost) rolls everything back.
        """
        return self._effects.transaction(result)

    def once(self, key: str) -> Once:
        """Whether this is the first time, over all attempts, that this task asks for `key`. (D15)

        `if await ctx.once("charge"):` in a coroutine, `if ctx.once("charge"):` in a thread. It is written
        down before it answers, so at most one run gets True: one that dies between the answer and the effect
        leaves the effect undone. Raises LeaseLost.
        """
        return self._effects.once(key)

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
