"""The context of a running task, which its handler receives."""

import logging
from collections.abc import Callable, Coroutine, Generator, Mapping, MutableMapping
from contextvars import ContextVar
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, cast, get_origin

from .._model.lease import CancelRequest
from .._model.task import Progress, Task, TaskId
from .._policy.input.keys import external_key
from .._policy.input.notes import merged_notes
from .._store.protocol import Transaction
from ..errors import InvalidOption, NotSupported, UsageError
from ..signals import Stop

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # type checkers have it: `Context` alone is `Context[Any]`

    S = TypeVar("S", default=Any)
else:
    from typing import TypeVar

    S = TypeVar("S")

logger = logging.getLogger("windlass.task")

_MAX_MESSAGE = 10_000  # characters of progress that go to the worker, which masks secrets before it cuts them

running: ContextVar[Task | None] = ContextVar("windlass.running", default=None)
"""The task whose handler is running here: in the event loop, in a thread or in a child process."""

taken_secrets: ContextVar[tuple[str, ...]] = ContextVar("windlass.taken_secrets", default=())
"""Secret values in the results that the running task takes from its predecessors."""


def current_task() -> Task | None:
    """Return the task whose handler is running here; None outside of handlers."""
    return running.get()


class Once:
    """What `Context.once` returns: awaitable in a coroutine; in a thread already true or false."""

    __slots__ = ("_answer", "_ask")

    def __init__(
        self, ask: Callable[[], Coroutine[Any, Any, bool]] | None = None, *, answer: bool | None = None
    ) -> None:
        self._ask = ask
        self._answer = answer  # None until it has been awaited

    def __await__(self) -> Generator[Any, None, bool]:
        if self._answer is None:
            assert self._ask is not None
            self._answer = yield from self._ask().__await__()
        return self._answer

    def __bool__(self) -> bool:
        if self._answer is None:
            raise UsageError("in a coroutine, await it: `if await ctx.once(key):`")
        return self._answer


class Effects(Protocol):
    """What a context needs of the worker that runs its task."""

    def transaction(self, result: object) -> Transaction: ...

    def once(self, key: str) -> Once: ...


class NoEffects:
    """Effects where there are none: every call raises NotSupported with the reason."""

    __slots__ = ("_why",)

    def __init__(self, why: str) -> None:
        self._why = why

    def transaction(self, result: object) -> NoReturn:  # noqa: ARG002  the protocol's shape
        raise NotSupported(f"ctx.transaction() is not available here: {self._why}")

    def once(self, key: str) -> NoReturn:  # noqa: ARG002  the protocol's shape
        raise NotSupported(f"ctx.once() is not available here: {self._why}")


class RunningTask(Protocol):
    """What a context needs of the run of its task."""

    @property
    def cancel(self) -> CancelRequest | None: ...

    @property
    def is_stopping(self) -> bool: ...

    def report_progress(self, progress: Progress) -> None: ...

    def keep_notes(self, facts: Mapping[str, object]) -> None: ...


class _NoRun:
    """Stands for the run where no worker runs the task: reports go nowhere."""

    cancel = None
    is_stopping = False

    def report_progress(self, progress: Progress) -> None: ...

    def keep_notes(self, facts: Mapping[str, object]) -> None:
        merged_notes({}, facts)


_NO_RUN = _NoRun()
_NO_WORKER = NoEffects("no worker runs this task")


class Context(Generic[S]):
    """The running task, as its handler sees it. `Context[State]` says what `state` is.

        @app.task
        async def resize(path: str, *, ctx: Context = INJECTED) -> None:
            ctx.progress(0.5, "halfway")

    The worker passes it for the parameter annotated `Context`; it is never part of the payload.
    """

    __slots__ = ("_effects", "_run", "state", "task")

    def __init__(
        self,
        task: Task,
        run: RunningTask = _NO_RUN,
        effects: Callable[[Any], Effects] = lambda _: _NO_WORKER,
        state: S = cast(Any, None),  # noqa: B008
    ) -> None:
        self.task = task
        self.state = state
        self._run = run
        self._effects: Effects | Callable[[Any], Effects] = effects  # of the run, made when first used

    @property
    def task_id(self) -> TaskId:
        """The task's id, the same in every attempt."""
        return self.task.id

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self.task.attempt

    @property
    def is_last_attempt(self) -> bool:
        """Whether the task dies if this attempt fails."""
        return self.task.attempt >= self.task.max_attempts

    @property
    def fence(self) -> int:
        """The number of this lease. It only rises, so another system can refuse older ones."""
        return self.task.fence

    @property
    def timeout(self) -> timedelta | None:
        """How long this attempt may run; None: no limit."""
        return self.task.timeout

    @property
    def logger(self) -> "logging.LoggerAdapter[logging.Logger]":
        """A logger whose records carry the task's id, type, attempt and trace."""
        labels = {
            "task_id": self.task.id,
            "task_type": self.task.type,
            "queue": self.task.queue,
            "tenant": self.task.tenant,
            "attempt": self.task.attempt,
            "trace": self.task.trace,
        }
        return _TaskLogger(logger, labels)

    def idempotency_key(self, name: str = "") -> str:
        """Return a key for an external API: the same in all attempts, and different for each `name`."""
        return external_key(self.task.id, name)

    def transaction(self, *, result: object = None) -> Transaction:
        """Open a transaction on the store's own database that also completes this task: both or neither.

            async with ctx.transaction(result=order_id) as connection:
                await connection.execute("UPDATE orders …")

        In a thread, use `with`. At most one an attempt. Leaving the block completes the task with `result`,
        which is encoded then, and commits; what the handler returns afterwards is ignored. An exception in
        the block, a request to stop or a lost lease rolls everything back.

        Raises LeaseLost; NotSupported if the store cannot do it or the handler runs in a child process.
        """
        return self._made_effects().transaction(result)

    def once(self, key: str) -> Once:
        """Return True the first time this task asks for `key`, over all attempts, and False after that.

            if await ctx.once("charge"):
                bank.charge(amount)

        In a thread, leave out `await`. It is stored before it returns, so at most one attempt gets True; if
        that attempt dies before the effect, the effect does not happen. Raises LeaseLost, NotSupported.
        """
        return self._made_effects().once(key)

    def _made_effects(self) -> Effects:
        if callable(self._effects):
            self._effects = self._effects(self._run)
        return self._effects

    def progress(self, fraction: float, message: str = "") -> None:
        """Report progress from 0 to 1, with a message of at most 500 characters.

        Stored within about a second, at most once a second; the last with the task's end. Raises
        InvalidOption.
        """
        if not 0 <= fraction <= 1:
            raise InvalidOption(f"progress must be a fraction from 0 to 1, got {fraction!r}")
        self._run.report_progress(Progress(fraction=float(fraction), message=str(message)[:_MAX_MESSAGE]))

    def note(self, /, **facts: object) -> None:
        """Keep small facts with the record of this attempt, whatever its outcome; a repeated name replaces.

            ctx.note(response_code=503, host="api.example.org")

        JSON values, together at most 4 KiB. Secrets are masked before they are stored, as in errors. Stored
        when the attempt is settled, so a crash loses them. Raises InvalidPayload, InvalidOption.
        """
        self._run.keep_notes(facts)

    @property
    def stopping(self) -> bool:
        """Whether this task should stop: it was cancelled, timed out, or its worker is shutting down."""
        return self._run.is_stopping

    @property
    def cancelled_by(self) -> str | None:
        """Who asked this task to stop; None if nobody has, as far as its worker knows."""
        request = self._run.cancel
        return None if request is None else request.by

    @property
    def cancel_reason(self) -> str | None:
        """Why it was asked to stop; None if it was not, or if no reason was given."""
        request = self._run.cancel
        return None if request is None else request.reason

    def check(self) -> None:
        """Raise `Stop` if this task should stop. For handlers in threads, which cannot be interrupted."""
        if self._run.is_stopping:
            raise Stop("the task was asked to stop")


def is_context(hint: object) -> bool:
    """Whether an annotation is `Context` or `Context[State]`."""
    return hint is Context or get_origin(hint) is Context


class _TaskLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the task's labels to the caller's `extra`."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        labels = cast(Mapping[str, object], self.extra or {})
        return msg, {**kwargs, "extra": {**labels, **(kwargs.get("extra") or {})}}


class _Injected:
    """Placeholder for what a worker passes; used without a worker, it raises an error that says so."""

    def __repr__(self) -> str:
        return "INJECTED"

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"{name} is not available: no worker runs this; pass a Context or dependency of your own"
        )


INJECTED: Any = _Injected()
"""The default of a parameter that the worker passes, so that type checkers do not require it of callers."""
