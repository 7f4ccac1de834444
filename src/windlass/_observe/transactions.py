"""A transaction, seen: what is settled and enqueued in it is told once it stands, and not before."""

from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from .._model.task import Enqueued, NewTask
from .._model.verdict import Receipt, Settlement
from .._store.protocol import Join, Transaction

T = TypeVar("T")


class Noted:
    """What has been done within one transaction, in order."""

    __slots__ = ("enqueued", "settled")

    def __init__(self) -> None:
        self.enqueued: list[tuple[NewTask, Enqueued]] = []
        self.settled: list[tuple[Settlement, Receipt]] = []


class ObservedTransaction:
    """The transaction within. `noted` has, by the connection's id, what is done in the open ones."""

    def __init__(
        self, within: Transaction, noted: MutableMapping[int, Noted], tell: Callable[[Noted, bool], None]
    ) -> None:
        self._within = within
        self._noted = noted
        self._tell = tell
        self._id = 0

    async def __aenter__(self) -> Any:  # the driver's own type
        return self._entered(await self._within.__aenter__())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stands = False
        try:
            await self._within.__aexit__(kind, error, trace)
            stands = kind is None
        finally:
            self._tell(self._noted.pop(self._id), stands)

    def __enter__(self) -> Any:  # the driver's own type
        return self._entered(self._within.__enter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stands = False
        try:
            self._within.__exit__(kind, error, trace)
            stands = kind is None
        finally:
            self._tell(self._noted.pop(self._id), stands)

    def _entered(self, connection: Any) -> Any:  # the driver's own type
        self._id = id(connection)
        self._noted[self._id] = Noted()
        return connection


class ObservedJoin:
    """The join within, taking notes."""

    def __init__(self, within: Join, noted: Noted) -> None:
        self._within = within
        self._noted = noted

    def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued] | Awaitable[Sequence[Enqueued]]:
        """Enqueue, and note what was answered."""
        return _then(
            self._within.enqueue(batch),
            lambda answers: self._noted.enqueued.extend(zip(batch, answers, strict=True)),
        )

    def settle(self, batch: Sequence[Settlement]) -> Sequence[Receipt] | Awaitable[Sequence[Receipt]]:
        """Settle, and note the receipts."""
        return _then(
            self._within.settle(batch),
            lambda receipts: self._noted.settled.extend(zip(batch, receipts, strict=True)),
        )


def _then(answer: T | Awaitable[T], note: Callable[[T], None]) -> T | Awaitable[T]:
    if isinstance(answer, Awaitable):
        return _noting(answer, note)
    note(answer)
    return answer


async def _noting(answer: Awaitable[T], note: Callable[[T], None]) -> T:
    got = await answer
    note(got)
    return got
