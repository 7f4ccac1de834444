"""Runner: runs a task's handler, from its payload to its outcome."""

import asyncio
import contextvars
import logging
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from .._encryption.encrypted_store import key_ids_of
from .._handler.around import AsyncAround, run_around
from .._handler.context import Context, running, taken_secrets
from .._handler.failure import describe, stand_in
from .._handler.hooks import Hooks
from .._handler.lifespan import Lifespans
from .._handler.predecessors import WithSecrets, payload_with_results
from .._model.lease import Lease
from .._model.outcome import Crashed, Failed, Outcome, Returned, Snoozed, Stopped, TimedOut, name_of
from .._model.task import Error, Task
from .._observe.tracing import attempt_span, end_attempt
from .._policy.input.payload import decode
from .._policy.input.quote import printable
from .._policy.secrets.encrypted import MARKER
from .._policy.secrets.values import longest_first, secret_values
from .._policy.verdict import error_of, undecrypted
from .._store.protocol import Store
from ..errors import InvalidPayload, StoreUnavailable
from ..signals import Fatal, Retry, Snooze
from ..signals import Stop as StopSignal
from .error_hooks import ErrorHooks
from .exactly_once import Effects
from .processes import Processes
from .run import Phase, Run, Stop
from .settings import WorkerSettings
from .threads import Threads

logger = logging.getLogger("windlass.worker")

T = TypeVar("T")

_RETRY_RESULTS_AFTER = 1.0  # seconds until a task runs again whose predecessors' results could not be read


class Runner:
    """Runs async handlers in the event loop, others in threads, `process=True` ones in child processes."""

    def __init__(
        self,
        store: Store,
        with_secrets: WithSecrets,
        settings: WorkerSettings,
        drop: Callable[[Iterable[Lease]], None],
        hooks: Hooks,
        lifespans: Lifespans,
    ) -> None:
        self._tracing = settings.tracing
        self._drop = drop
        self._hooks = hooks
        self._lifespans = lifespans
        self._error_hooks = ErrorHooks(hooks.error_hooks)
        self._store = store
        self._with_secrets = with_secrets
        self._loop = asyncio.get_running_loop()
        self._threads = Threads(self._loop)
        self._has_children = True
        self._processes = Processes(settings.processes, has_lifespans=hooks.has_lifespans)

    def use_threads(self, threads: Threads | None, *, has_children: bool) -> None:
        """Run blocking handlers in these (None: its own), without children also `process=True` ones."""
        self._threads, self._has_children = threads or self._threads, has_children

    async def close(self, seconds: float, cut: asyncio.Event) -> None:
        """End idle threads, child processes within this time and until `cut`, and calls of error hooks."""
        self._threads.close()
        await self._processes.close(seconds, cut)
        await self._error_hooks.close()

    async def outcome(self, run: Run) -> Outcome:
        """Run the handler to its end: with the task as the current one and, if the program traces, in a span.

        Logs, successors and tasks that the handler enqueues belong to the span. Raises nothing but the
        cancellation of its own slot.
        """
        span, outcome = attempt_span(run.task, self._tracing), None
        if span is not None:
            run.task = replace(run.task, trace=span.trace)
        running.set(run.task)
        try:
            outcome = await self._outcome(run)
        finally:
            running.set(None)
            if run.secrets:
                taken_secrets.set(())
            if span is not None:
                end_attempt(span, None if run.is_lost else outcome)
        if run.phase is Phase.SETTLED and not isinstance(outcome, Returned):
            logger.warning("task %s completed, but its handler then %s", run.task.id, _summary(outcome))
        return outcome

    async def _outcome(self, run: Run) -> Outcome:
        task = run.task
        if task.cancel_requested:
            return Stopped()
        try:
            payload = task.payload
            if task.result_into is not None and task.after:
                payload = await self._payload_with_results(run)
                if MARKER in payload:
                    return self._reported(run, undecrypted(key_ids_of(self._store), payload))
            if run.stop is not None:
                raise StopSignal("the task was asked to stop before its handler started")
            arounds = self._hooks.arounds
            outcome = await (
                self._around(run, payload, arounds) if arounds else self._handle(run, payload, None)
            )
        except (asyncio.CancelledError, StopSignal) as signal:
            if run.stop:
                return self._reported(run, run.stop_outcome())
            cancelled = isinstance(signal, asyncio.CancelledError)
            return self._failed(run, RuntimeError("the handler cancelled itself") if cancelled else signal)
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its outcome
            return self._failed(run, error)
        # Children return their failures.
        return outcome if type(outcome) is Returned else self._reported(run, outcome)

    def _failed(self, run: Run, error: BaseException) -> Outcome:
        return self._reported(run, outcome_of_error(run.task, error, run.spec.fatal, run.secrets), error)

    def _reported(self, run: Run, outcome: Outcome, error: BaseException | None = None) -> Outcome:
        """Call the error hooks if this is a failure; return the outcome."""
        if isinstance(outcome, (Failed, TimedOut, Crashed)) and not run.is_lost:
            self._error_hooks.call(run.task, error or stand_in(error_of(outcome)))
        return outcome

    async def _payload_with_results(self, run: Run) -> bytes:
        """Return the payload with the results of its predecessors; note the secrets in these."""
        try:
            full = await payload_with_results(self._store, run.task, self._with_secrets)
        except StoreUnavailable as error:  # not the task's fault: does not count as an attempt
            raise Snooze(_RETRY_RESULTS_AFTER) from error
        run.secrets = full.secrets
        if run.secrets:
            taken_secrets.set(run.secrets)
        return full.payload

    def _around(self, run: Run, payload: bytes, arounds: Sequence[AsyncAround]) -> Awaitable[Outcome]:
        """Start the time limit and the arounds, which run the handler."""
        context = self._context(run)
        if not (run.spec.process and self._has_children):
            run.start()
        run.interrupt = run.slot.cancel
        handle = partial(self._handle, run, payload, context)
        run.coroutine = run_around(arounds, context, handle)
        return _isolated(run.coroutine)

    def _context(self, run: Run) -> Context[Any]:
        return Context(run.task, run, self._effects_of, self._lifespans.state)

    def _effects_of(self, run: Run) -> Effects:
        return Effects(run, self._store, self._drop, self._loop)

    async def _handle(self, run: Run, payload: bytes, context: Context[Any] | None) -> Outcome:
        """Run the handler where it belongs. `context`: of the arounds, which have started the time limit."""
        spec = run.spec
        if spec.process and self._has_children:
            return await self._processes.run(run, payload)
        signature, handler, plan = spec.signature, spec.handler, self._hooks.plan(spec)
        try:
            arguments = signature.arguments(payload)
        except InvalidPayload as error:
            raise Fatal(str(error)) from None
        is_isolated = context is not None  # with the arounds
        if context is None:
            run.start()
            run.interrupt = run.slot.cancel
            if signature.context_name is not None or plan.providers:
                context = self._context(run)
        if signature.context_name is not None:
            arguments[signature.context_name] = context
        if plan.providers:
            assert context is not None
            call = plan.acall if spec.is_async else plan.call
            handler, arguments = partial(call, handler, context), {"arguments": arguments}
        if not spec.is_async:
            result = await self._in_thread(run, handler, arguments)
        elif is_isolated:
            result = await handler(**arguments)
        else:
            run.coroutine = handler(**arguments)
            result = await _isolated(run.coroutine)
        return Returned(None if run.phase is Phase.SETTLED else signature.result.encode(result))

    async def _in_thread(self, run: Run, handler: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        """Run the handler in a thread. A thread cannot be interrupted, so wait for its end.

        Do not wait for one whose lease is lost, or that is replaced.
        """
        future = self._threads.run(handler, arguments, run)
        run.interrupt = None
        while True:
            try:
                result, error = await asyncio.shield(future)
            except asyncio.CancelledError:
                if run.stop is Stop.FENCED or run.is_replaced:
                    raise
                continue
            run.interrupt = run.slot.cancel
            if error is None:
                return result
            try:
                raise error
            finally:
                del error, future  # its traceback has this frame: no cycle that only the collector ends


def outcome_of_error(
    task: Task, error: BaseException, fatal: tuple[type[BaseException], ...], secrets: tuple[str, ...] = ()
) -> Failed | Snoozed:
    """Return the outcome that an exception stands for. A group of one exception is treated as that one.

    `secrets` are values to mask in the error besides those in the task's payload.
    """
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    match error:
        case Snooze(delay=delay):
            return Snoozed(delay)
        case Retry(after=after):
            return Failed(error=_described(task, error, secrets), retry_after=after)
        case _:
            described = _described(task, error, secrets)
            return Failed(error=described, fatal=isinstance(error, (Fatal, *fatal)))


def _described(task: Task, error: BaseException, others: tuple[str, ...]) -> Error:
    try:
        secrets = longest_first(secret_values(decode(task.payload), task.secret), others)
    except (ValueError, RecursionError):  # not JSON, so secrets cannot be found: record nothing of the error
        return Error(type=type(error).__name__, message="the payload is not JSON")
    return describe(error, secrets)


def _summary(outcome: Outcome) -> str:
    """Describe an outcome in one line. Its error has already been stripped of secrets."""
    if not isinstance(outcome, Failed):
        return f"was {name_of(outcome)}"
    return printable(f"failed: {outcome.error.type}: {outcome.error.message.partition(chr(10))[0]}")


@types.coroutine
def _isolated(coroutine: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
    """Await a coroutine in a copy of the context, so that the next task here does not see what it sets.

    An asyncio task for each handler would do the same at several times the cost.
    """
    run = contextvars.copy_context().run
    step, value = coroutine.send, None
    while True:
        try:
            awaited = run(step, value)
        except StopIteration as stop:
            result: T = stop.value
            return result
        try:
            value = yield awaited
            step = coroutine.send
        except GeneratorExit:
            coroutine.close()
            raise
        except BaseException as error:  # noqa: BLE001 - the coroutine handles its own cancellation
            step, value = coroutine.throw, error
