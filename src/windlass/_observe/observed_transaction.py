"""Observed transactions and joins: they record what was written, for events when it is committed."""

from collections.abc import Awaitable, Callable, Generator, Iterator, MutableMapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Generic, TypeVar

from msgspec import Struct

from .._model.task import Enqueued, NewTask
from .._model.transition import TaskTransition
from .._model.verdict import Receipt, Settled, Settlement
from .._store.protocol import Join, Transaction

T = TypeVar("T")


class Writes(Struct):
    """What was done in one transaction, in order."""

    enqueued: list[tuple[NewTask, Enqueued]] = []
    settled: list[tuple[Settlement, Receipt]] = []
    transitions: list[TaskTransition] = []

    def add(self, more: "Writes") -> None:
        """Add what was done later in the same transaction."""
        self.enqueued += more.enqueued
        self.settled += more.settled
        self.transitions += more.transitions


class ObservedTransaction(Struct):
    """Records its writes by the connection's id; calls `ended` with them and whether they were committed."""

    _inner: Transaction
    _open_writes: MutableMapping[int, Writes]
    _ended: Callable[[Writes, bool], None]
    _id: int = 0

    async def __aenter__(self) -> Any:  # the driver's own type
        return self._entered(await self._inner.__aenter__())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._leaving(kind):
            await self._inner.__aexit__(kind, error, trace)

    def __enter__(self) -> Any:  # the driver's own type
        return self._entered(self._inner.__enter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._leaving(kind):
            self._inner.__exit__(kind, error, trace)

    def _entered(self, connection: Any) -> Any:  # the driver's own type
        self._id = id(connection)
        self._open_writes[self._id] = Writes()
        return connection

    @contextmanager
    def _leaving(self, kind: type[BaseException] | None) -> Iterator[None]:
        committed = False
        try:
            yield
            committed = kind is None
        finally:
            self._ended(self._open_writes.pop(self._id), committed)


class ObservedJoin(Struct):
    """A join that passes on what was written, at each call."""

    _inner: Join
    _written: Callable[[Writes], None]

    def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued] | Awaitable[Sequence[Enqueued]]:
        return _then(
            self._inner.enqueue(batch),
            lambda results: self._written(Writes(enqueued=[*zip(batch, results, strict=True)])),
        )

    def settle(self, batch: Sequence[Settlement]) -> Settled | Awaitable[Settled]:
        return _then(
            self._inner.settle(batch),
            lambda settled: self._written(
                Writes(
                    settled=[*zip(batch, settled.receipts, strict=True)], transitions=[*settled.transitions]
                )
            ),
        )


def _then(result: T | Awaitable[T], record: Callable[[T], None]) -> T | Awaitable[T]:
    """Record a result now, or once it has been awaited."""
    if isinstance(result, Awaitable):
        return _Recorded(result, record)
    record(result)
    return result


class _Recorded(Generic[T]):
    """Records a result once it has been awaited. Unlike a coroutine, one that never is causes no warning."""

    def __init__(self, result: Awaitable[T], record: Callable[[T], None]) -> None:
        self._result = result
        self._record = record

    def __await__(self) -> Generator[Any, Any, T]:
        value = yield from self._result.__await__()
        self._record(value)
        return value
