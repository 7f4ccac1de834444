"""One task: from its payload to its outcome. (D7, D8, D13)"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from .._handler.context import Context, running
from .._handler.failure import describe, whereabouts
from .._handler.predecessors import payload_with_results
from .._model.lease import Lease
from .._model.outcome import Crashed, Failed, Outcome, Returned, Snoozed, Stopped, name_of
from .._model.task import Error, Task
from .._observe.tracing import attempt_span
from .._policy.input.options import MAX_DELAY
from .._policy.input.payload import decode
from .._policy.input.quoting import printable
from .._policy.input.redact import secret_values
from .._store.protocol import Store
from ..errors import InvalidPayload, StoreUnavailable
from ..signals import Fatal, Retry, Snooze
from ..signals import Stop as StopSignal
from .context_isolation import isolated
from .exactly_once import Effects
from .processes import ChildDied, ChildFailed, Processes
from .result import encoded
from .run import Phase, Run, Stop
from .settings import WorkerSettings
from .threads import Threads

logger = logging.getLogger("windlass.worker")

_ASK_AGAIN = 1.0  # seconds until a task is tried again that could not be given its predecessors' results


class Runner:
    """Runs handlers where they belong: async ones in the loop, others in threads or child processes."""

    def __init__(
        self,
        store: Store,
        loop: asyncio.AbstractEventLoop,
        settings: WorkerSettings,
        dropped: Callable[[Iterable[Lease]], None],
        on_error: Callable[[Task, BaseException], None] | None = None,
    ) -> None:
        self._tracing = settings.tracing
        self._dropped = dropped
        self._on_error = on_error
        self._store = store
        self._threads = Threads(loop)
        self._processes = Processes(settings.processes)

    async def close(self) -> None:
        """Let idle threads and child processes end."""
        self._threads.close()
        await self._processes.close()

    async def outcome(self, run: Run) -> Outcome:
        """Run it to its end, whatever that is. Raises nothing but the cancellation of its own slot."""
        outcome = await self._traced(run)
        if run.phase is Phase.SETTLED and not isinstance(outcome, Returned):
            logger.warning("task %s has completed; its handler then %s", run.task.id, _told(outcome))
        return outcome

    async def _traced(self, run: Run) -> Outcome:
        """Run it as the task that is current here and, if somebody traces, within a span of its own.

        What follows from the run goes on with the span: its logs, its chain, and what its handler enqueues.
        """
        attempt, outcome = attempt_span(run.task, self._tracing), None
        if attempt is not None:
            run.task = replace(run.task, trace=attempt.trace)
        running.set(run.task)
        try:
            outcome = await self._outcome(run)
            return outcome
        finally:
            running.set(None)
            if attempt is not None:
                is_lost = run.stop is Stop.FENCED and run.phase is not Phase.SETTLED
                attempt.end(None if is_lost else outcome)

    async def _outcome(self, run: Run) -> Outcome:
        if run.task.cancel_requested:
            return Stopped()
        try:
            return Returned(await self._call(run))
        except asyncio.CancelledError:
            return run.stopped() if run.stop else _failed(run, RuntimeError("the handler cancelled itself"))
        except StopSignal as signal:
            return run.stopped() if run.stop else _failed(run, signal)
        except ChildDied as death:
            return run.stopped() if run.stop else Crashed(error=Error(type="ProcessDied", message=str(death)))
        except ChildFailed as failure:
            return failure.outcome
        except BaseException as error:  # noqa: BLE001 - whatever a handler raises is its outcome
            if self._on_error is not None and not isinstance(error, Snooze):
                self._tell(run.task, error)
            return failed(run.task, error, run.declared.fatal)

    def _tell(self, task: Task, error: BaseException) -> None:
        """Call `on_error`. It is told of what happened and changes nothing about it, not even by raising."""
        assert self._on_error is not None
        try:
            self._on_error(task, error)
        except BaseException as problem:  # noqa: BLE001 - the task is to be settled whatever it does
            logger.error("on_error itself failed for task %s: %s", task.id, whereabouts(problem))  # noqa: TRY400

    async def _call(self, run: Run) -> bytes | None:
        declared = run.declared
        try:
            payload = await payload_with_results(self._store, run.task)
        except StoreUnavailable as error:  # no fault of the task's: it loses no attempt
            raise Snooze(_ASK_AGAIN) from error
        if run.stop is not None:
            raise StopSignal("the task was asked to stop before its handler began")
        if declared.process:
            return await self._processes.run(run, payload)
        try:
            arguments = declared.signature.arguments(payload)
        except InvalidPayload as error:
            raise Fatal(str(error)) from None
        run.begin()
        if declared.signature.context_name is not None:
            arguments[declared.signature.context_name] = self._context_of(run)
        if declared.is_async:
            assert run.slot is not None
            run.enforce = run.slot.cancel
            result = await isolated(declared.handler(**arguments))
        else:
            result = await self._in_thread(run, arguments)
        return None if run.phase is Phase.SETTLED else encoded(result)

    def _context_of(self, run: Run) -> Context:
        """What the handler may ask and tell."""
        return Context(
            run.task,
            report=lambda progress: run.report(run, progress),
            stopping=lambda: run.stop is not None,
            effects=Effects(run, self._store, self._dropped),
        )

    async def _in_thread(self, run: Run, arguments: dict[str, Any]) -> Any:
        """A thread cannot be stopped, so nothing about the run is decided until it has ended."""
        future = self._threads.run(run.declared.handler, arguments)
        run.enforce = None
        while True:
            try:
                result, error = await asyncio.shield(future)
            except asyncio.CancelledError:
                if run.stop is Stop.FENCED:
                    raise
                continue
            if error is not None:
                raise error
            return result


def failed(task: Task, error: BaseException, fatal: tuple[type[BaseException], ...]) -> Outcome:
    """What an exception that left a handler means. One alone in a TaskGroup's group speaks for it."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    match error:
        case Snooze(delay=delay):
            return Snoozed(_bounded(delay))
        case Retry(after=after):
            after = None if after is None else _bounded(after)
            return Failed(error=_described(task, error), retry_after=after)
        case _:
            return Failed(error=_described(task, error), fatal=isinstance(error, (Fatal, *fatal)))


def _failed(run: Run, error: BaseException) -> Outcome:
    return failed(run.task, error, run.declared.fatal)


def _bounded(delay: timedelta) -> timedelta:
    """No longer than any delay may be: what a handler asks for must fit every store's calendar."""
    return min(max(delay, timedelta(0)), MAX_DELAY)


def _described(task: Task, error: BaseException) -> Error:
    try:
        secrets = secret_values(decode(task.payload), task.secret)
    except ValueError:  # not JSON: nothing in it can be told apart, so nothing of the error is told
        return Error(type=type(error).__name__, message="the payload is not JSON")
    return describe(error, secrets)


def _told(outcome: Outcome) -> str:
    """An outcome in a line of the log; the error is described already, and so without secrets."""
    if not isinstance(outcome, Failed):
        return f"was {name_of(outcome)}"
    return printable(f"failed: {outcome.error.type}: {outcome.error.message.partition(chr(10))[0]}")
