"""Observed transactions: events for what is enqueued and settled in one are emitted once it has committed."""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from .._model.task import Enqueued, NewTask
from .._model.verdict import Receipt, Settlement
from .._store.protocol import Join, Transaction

T = TypeVar("T")


class Writes:
    """What was done in one transaction, in order."""

    __slots__ = ("enqueued", "settled")

    def __init__(self) -> None:
        self.enqueued: list[tuple[NewTask, Enqueued]] = []
        self.settled: list[tuple[Settlement, Receipt]] = []


class ObservedTransaction:
    """A transaction that records its writes in `open_writes`, by the connection's id.

    `ended` is called with the writes, and whether they were committed.
    """

    def __init__(
        self,
        inner: Transaction,
        open_writes: MutableMapping[int, Writes],
        ended: Callable[[Writes, bool], None],
    ) -> None:
        self._inner = inner
        self._open_writes = open_writes
        self._ended = ended
        self._id = 0

    async def __aenter__(self) -> Any:  # the driver's own type
        return self._entered(await self._inner.__aenter__())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        committed = False
        try:
            await self._inner.__aexit__(kind, error, trace)
            committed = kind is None
        finally:
            self._ended(self._open_writes.pop(self._id), committed)

    def __enter__(self) -> Any:  # the driver's own type
        return self._entered(self._inner.__enter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        committed = False
        try:
            self._inner.__exit__(kind, error, trace)
            committed = kind is None
        finally:
            self._ended(self._open_writes.pop(self._id), committed)

    def _entered(self, connection: Any) -> Any:  # the driver's own type
        self._id = id(connection)
        self._open_writes[self._id] = Writes()
        return connection


class ObservedJoin:
    """A join that records its writes."""

    def __init__(self, inner: Join, writes: Writes) -> None:
        self._inner = inner
        self._writes = writes

    def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued] | Awaitable[Sequence[Enqueued]]:
        return _then(
            self._inner.enqueue(batch),
            lambda results: self._writes.enqueued.extend(zip(batch, results, strict=True)),
        )

    def settle(self, batch: Sequence[Settlement]) -> Sequence[Receipt] | Awaitable[Sequence[Receipt]]:
        return _then(
            self._inner.settle(batch),
            lambda receipts: self._writes.settled.extend(zip(batch, receipts, strict=True)),
        )


def _then(result: T | Awaitable[T], record: Callable[[T], None]) -> T | Awaitable[T]:
    """Record a result now, or once it has been awaited."""
    if isinstance(result, Awaitable):
        return _awaited(result, record)
    record(result)
    return result


async def _awaited(result: Awaitable[T], record: Callable[[T], None]) -> T:
    value = await result
    record(value)
    return value
