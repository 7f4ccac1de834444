"""What a run may do exactly once: complete its task in a transaction of its own, and mark keys. (D15)"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
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

from .._handler.context import Once
from .._model.lease import Lease
from .._model.outcome import Returned, name_of
from .._model.verdict import Receipt, Settlement
from .._policy.input.keys import once_key
from .._policy.verdict import completion
from .._store.protocol import Capability, Store, require
from ..errors import LeaseLost, Refused, StoreUnavailable, TaskFinished, UsageError
from ..signals import Stop as StopSignal
from .result import encoded
from .run import Phase, Run, Stop

T = TypeVar("T")

logger = logging.getLogger("windlass.worker")

_PATIENCE = 90.0  # seconds that a thread waits for the store's answer: longer than two requests may take


class Effects:
    """The exactly-once effects of one run. From the loop, and from the thread that its handler runs in."""

    __slots__ = ("_dropped", "_is_open", "_loop", "_marked", "_run", "_store", "_taken")

    def __init__(self, run: Run, store: Store, dropped: Callable[[Iterable[Lease]], None]) -> None:
        self._run = run
        self._store = store
        self._dropped = dropped
        self._loop = asyncio.get_running_loop()
        self._marked: set[str] = set()  # keys that were asked for in this run
        self._taken = False  # an attempt has one transaction, and this is it
        self._is_open = False

    # -- a transaction -------------------------------------------------------------------------------

    def transaction(self, result: object) -> "Completing":
        """A transaction that completes the task."""
        require(self._store, Capability.JOIN, "complete a task inside a transaction")
        self._refuse_second()
        return Completing(self, result)

    @asynccontextmanager
    async def completing(self, result: object) -> AsyncIterator[Any]:
        """Begin; at the end of the block settle and commit, in the event loop."""
        with self._block():
            async with self._store.transaction() as connection:
                self._is_open = True
                yield connection
                receipts = self._store.join(connection).settle([self._settlement(result)])
                self._check(await receipts if isinstance(receipts, Awaitable) else receipts)

    @contextmanager
    def completing_here(self, result: object) -> Iterator[Any]:
        """Begin; at the end of the block settle and commit, in this thread."""
        with self._block(), self._store.transaction() as connection:
            self._is_open = True
            yield connection
            receipts = self._store.join(connection).settle([self._settlement(result)])
            assert not isinstance(receipts, Awaitable), "a store's blocking transaction gives a blocking join"
            self._check(receipts)

    @contextmanager
    def _block(self) -> Iterator[None]:
        self._refuse_second()
        self._taken = True
        run = self._run
        try:
            yield
            run.phase = Phase.SETTLED
            self._dropped([run.lease])
        finally:
            self._is_open = False
            if run.phase is Phase.SETTLING:
                run.phase = Phase.RUNNING

    def _refuse_second(self) -> None:
        if self._run.phase is Phase.SETTLED:
            raise self._finished()
        if self._taken:
            raise Refused(
                f"this attempt of task {self._run.task.id} has had its transaction: raise, "
                f"and the next attempt has another"
            )

    def _settlement(self, result: object) -> Settlement:
        run = self._run
        if run.stop is not None:
            raise StopSignal("the task was asked to stop, so its transaction is rolled back")
        verdict = completion(run.task, encoded(result))
        run.phase = Phase.SETTLING
        return Settlement(
            lease=run.lease,
            verdict=verdict,
            outcome=name_of(Returned()),
            duration=perf_counter() - run.started,
        )

    def _check(self, receipts: Sequence[Receipt]) -> None:
        """Only what this very step has settled may be committed: REPEATED was another's settlement."""
        if list(receipts) != [Receipt.APPLIED]:
            raise self._lost("its transaction is rolled back")

    # -- marks ---------------------------------------------------------------------------------------

    def once(self, key: str) -> Once:
        """A mark that only one run of the task gets."""
        key = once_key(key)
        if _is_on_a_loop():
            return Once(lambda: self._once(key))
        return Once(answer=self._wait_for(self._once(key)))

    async def _once(self, key: str) -> bool:
        if self._run.phase is Phase.SETTLED:
            raise self._finished()
        if self._is_open:
            raise Refused("ctx.once() would wait for the transaction that is open: ask before the block")
        if key in self._marked:
            return False
        self._marked.add(key)
        try:
            return await self._ask_surely(key)
        except LeaseLost:
            raise self._lost(f"{key!r} is not marked") from None
        except BaseException:
            self._marked.discard(key)
            raise

    async def _ask_surely(self, key: str) -> bool:
        """Ask, and once more if the store faltered: the same lease gets the same answer."""
        try:
            return await self._store.once(self._run.lease, key)
        except StoreUnavailable:
            return await self._store.once(self._run.lease, key)

    def _wait_for(self, coroutine: Coroutine[Any, Any, bool]) -> bool:
        try:
            asking = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError as error:  # the loop has closed
            coroutine.close()
            raise StoreUnavailable("the worker has ended, so the store cannot be asked") from error
        done, _ = wait([asking], timeout=_PATIENCE)
        if not done:
            asking.cancel()
            raise StoreUnavailable(f"the store gave no answer within {_PATIENCE:.0f} s; try again")
        return asking.result()

    # -- ends ----------------------------------------------------------------------------------------

    def _lost(self, what: str) -> LeaseLost:
        """The run has nothing to settle any more."""
        run = self._run
        logger.warning("the lease of task %s is lost; its run has nothing to settle any more", run.task.id)
        run.stop = Stop.FENCED
        self._dropped([run.lease])
        return LeaseLost(
            f"the lease of task {run.task.id} is lost: it is another worker's or settled, and {what}"
        )

    def _finished(self) -> TaskFinished:
        return TaskFinished(f"task {self._run.task.id} has completed in its transaction: it can do no more")


class Completing:
    """One `async with` or `with`."""

    __slots__ = ("_block", "_blocking", "_effects", "_result")

    def __init__(self, effects: Effects, result: object) -> None:
        self._effects = effects
        self._result = result

    async def __aenter__(self) -> Any:
        self._block: AbstractAsyncContextManager[Any] = self._effects.completing(self._result)
        return await self._block.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _to_the_end(self._block.__aexit__(kind, error, trace))

    def __enter__(self) -> Any:
        if _is_on_a_loop():
            raise UsageError("this would block the event loop: write `async with ctx.transaction()`")
        self._blocking: AbstractContextManager[Any] = self._effects.completing_here(self._result)
        return self._blocking.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._blocking.__exit__(kind, error, trace)


async def _to_the_end(coroutine: Coroutine[Any, Any, T]) -> T:
    """Await it to its end. A cancellation waits until then: a commit cut short would be anybody's guess."""
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
    """Whether this thread runs an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
