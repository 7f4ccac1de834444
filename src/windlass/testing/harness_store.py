"""The store of the harness: a memory store on which `within=` can be used."""

from collections.abc import Awaitable, Generator, Sequence
from inspect import iscoroutinefunction
from typing import Any, NoReturn

from .._model.task import Enqueued, NewTask
from .._model.verdict import Settlement
from .._store.protocol import Capability
from .._stores.memory import MemoryStore
from ..errors import NotSupported


class HarnessStore(MemoryStore):
    """A memory store that enqueues `within=` at once: it cannot know what becomes of the transaction."""

    capabilities = Capability.JOIN

    def join(self, connection: object) -> "HarnessJoin":
        """Accept a connection of any driver. Raises NotSupported for what is no connection."""
        if not hasattr(connection, "execute") and not hasattr(connection, "cursor"):
            kind = f"{type(connection).__module__}.{type(connection).__name__}"
            raise NotSupported(f"cannot enqueue within a {kind}; pass the connection of your transaction")
        driver_connection = getattr(connection, "_con", connection)  # asyncpg's pool hands out proxies
        return HarnessJoin(self, is_async=iscoroutinefunction(getattr(driver_connection, "execute", None)))


class HarnessJoin:
    """Stands in for a transaction on the caller's connection. Awaitable if its driver is async."""

    def __init__(self, store: HarnessStore, *, is_async: bool) -> None:
        self._store = store
        self._is_async = is_async

    def enqueue(self, batch: Sequence[NewTask]) -> Sequence[Enqueued] | Awaitable[Sequence[Enqueued]]:
        return _Deferred(self._store, batch) if self._is_async else self._store.admit(batch)

    def settle(self, batch: Sequence[Settlement]) -> NoReturn:  # noqa: ARG002  as the protocol has it
        self._store.transaction()


class _Deferred:
    """An enqueue that happens when it is awaited."""

    def __init__(self, store: HarnessStore, batch: Sequence[NewTask]) -> None:
        self._store = store
        self._batch = batch

    def __await__(self) -> Generator[Any, Any, Sequence[Enqueued]]:
        return self._store.enqueue(self._batch).__await__()
