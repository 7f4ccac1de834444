"""Exactly-once effects of a run: completing its task in a transaction, and `ctx.once` keys."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import wait
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from time import perf_counter
from types import TracebackType
from typing import Any, TypeVar

from msgspec import Struct

from .._handler.context import Once
from .._model.lease import Lease
from .._model.outcome import Returned, name_of
from .._model.verdict import Receipt, Settled, Settlement
from .._policy.input.keys import checked_key
from .._policy.verdict import completion
from .._store.protocol import Capability, Store, require
from ..errors import LeaseLost, Refused, StoreUnavailable, TaskFinished, UsageError
from ..signals import Stop as StopSignal
from .run import Phase, Run, Stop

T = TypeVar("T")

logger = logging.getLogger("windlass.worker")

_STORE_TIMEOUT = 90.0  # seconds that a thread waits for the store: longer than two requests may take


class Effects(Struct, eq=False):
    """The exactly-once effects of one run. Called on the event loop or in the handler's thread."""

    _run: Run
    _store: Store
    _drop: Callable[[Iterable[Lease]], None]
    _loop: asyncio.AbstractEventLoop
    _marked: set[str] = set()  # keys marked in this run
    _used: bool = False  # an attempt may have one transaction
    _is_open: bool = False

    # -- transaction -------------------------------------------------------------------------------

    def transaction(self, result: object) -> "CompletingTransaction":
        """Return a transaction that completes the task. Raises NotSupported, Refused."""
        require(self._store, Capability.JOIN, "complete a task inside a transaction")
        self._check_first()
        return CompletingTransaction(self, result)

    @asynccontextmanager
    async def completing(self, result: object) -> AsyncIterator[Any]:
        """Begin; settle and commit at the end of the block. On the event loop."""
        with self._block():
            async with self._store.transaction() as connection:
                self._is_open = True
                yield connection
                settled = self._store.join(connection).settle([self._settlement(result)])
                self._check(await settled if isinstance(settled, Awaitable) else settled)

    @contextmanager
    def completing_in_thread(self, result: object) -> Iterator[Any]:
        """Begin; settle and commit at the end of the block. In this thread."""
        with self._block(), self._store.transaction() as connection:
            self._is_open = True
            yield connection
            settled = self._store.join(connection).settle([self._settlement(result)])
            assert not isinstance(settled, Awaitable), "a store's blocking transaction gives a blocking join"
            self._check(settled)

    @contextmanager
    def _block(self) -> Iterator[None]:
        self._check_first()
        self._used = True
        run = self._run
        try:
            yield
            run.phase = Phase.SETTLED
            self._drop([run.lease])
        finally:
            self._is_open = False
            if run.phase is Phase.SETTLING:
                run.phase = Phase.RUNNING

    def _check_first(self) -> None:
        if self._run.phase is Phase.SETTLED:
            raise self._finished()
        if self._used:
            raise Refused(
                f"this attempt of task {self._run.task.id} has already used its transaction; "
                f"raise to use one in the next attempt"
            )

    def _settlement(self, result: object) -> Settlement:
        run = self._run
        if run.stop is not None:
            raise StopSignal("the task was asked to stop; its transaction is rolled back")
        verdict = completion(run.task, run.spec.signature.result.encode(result), run.secrets)
        run.phase = Phase.SETTLING
        duration = perf_counter() - run.started
        return Settlement(
            lease=run.lease,
            verdict=verdict,
            outcome=name_of(Returned()),
            duration=duration,
            progress=run.progress,
            notes=run.encoded_notes(),
        )

    def _check(self, settled: Settled) -> None:
        """Raise LeaseLost unless this step settled the task: REPEATED means that another one did."""
        if settled.receipts != (Receipt.APPLIED,):
            raise self._lost("its transaction is rolled back")

    # -- once keys -----------------------------------------------------------------------------------

    def once(self, key: str) -> Once:
        """Mark a key: true for one run of the task only."""
        key = checked_key(key, "key of ctx.once")
        if _is_on_a_loop():
            return Once(lambda: self._once(key))
        return Once(answer=self._wait_for(self._once(key)))

    async def _once(self, key: str) -> bool:
        if self._run.phase is Phase.SETTLED:
            raise self._finished()
        if self._is_open:
            raise Refused("ctx.once() would wait for the open transaction; call it before the block")
        if key in self._marked:
            return False
        self._marked.add(key)
        try:
            return await self._mark_with_retry(key)
        except LeaseLost:
            raise self._lost(f"{key!r} is not marked") from None
        except BaseException:
            self._marked.discard(key)
            raise

    async def _mark_with_retry(self, key: str) -> bool:
        """Mark the key, retrying once: repeated by the same lease, the result is the same."""
        try:
            return await self._store.once(self._run.lease, key)
        except StoreUnavailable:
            return await self._store.once(self._run.lease, key)

    def _wait_for(self, coroutine: Coroutine[Any, Any, bool]) -> bool:
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError as error:  # the loop has closed
            coroutine.close()
            raise StoreUnavailable("the worker has stopped; the store is not available any more") from error
        done, _ = wait([future], timeout=_STORE_TIMEOUT)
        if not done:
            future.cancel()
            raise StoreUnavailable(f"timed out after {_STORE_TIMEOUT:.0f} s waiting for the store; retry")
        return future.result()

    # -- errors --------------------------------------------------------------------------------------

    def _lost(self, what: str) -> LeaseLost:
        """Fence the run and drop its lease; return the error to raise."""
        run = self._run
        logger.warning("lost the lease of task %s; the outcome of its run is dropped", run.task.id)
        run.stop = Stop.FENCED
        self._drop([run.lease])
        return LeaseLost(
            f"the lease of task {run.task.id} is lost (another worker has it, or it was settled); {what}"
        )

    def _finished(self) -> TaskFinished:
        return TaskFinished(f"task {self._run.task.id} has already completed in its transaction")


class CompletingTransaction:
    """A transaction that completes the task: `async with` on the event loop, `with` in a thread."""

    __slots__ = ("_block", "_blocking", "_effects", "_result")

    def __init__(self, effects: Effects, result: object) -> None:
        self._effects = effects
        self._result = result

    async def __aenter__(self) -> Any:
        # A block for each entry: the second one is refused with a message that says why.
        self._block: AbstractAsyncContextManager[Any] = self._effects.completing(self._result)
        return await self._block.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _uncancelled(self._block.__aexit__(kind, error, trace))

    def __enter__(self) -> Any:
        if _is_on_a_loop():
            raise UsageError("this would block the event loop; use `async with ctx.transaction()`")
        self._blocking: AbstractContextManager[Any] = self._effects.completing_in_thread(self._result)
        return self._blocking.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._blocking.__exit__(kind, error, trace)


async def _uncancelled(coroutine: Coroutine[Any, Any, T]) -> T:
    """Await to the end, then raise a cancellation that came meanwhile: a commit must not be interrupted."""
    leaving = asyncio.ensure_future(coroutine)
    cancelled: asyncio.CancelledError | None = None
    while not leaving.done():
        try:
            await asyncio.wait([leaving])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled from leaving.exception()
    return leaving.result()


def _is_on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
