"""A store whose verbs are timed. It is in between only where somebody wants to know."""

from collections.abc import Awaitable, Callable, Sequence
from time import perf_counter
from typing import Any, Protocol

from .._model.lease import Claim
from .._model.verdict import Settled, Settlement
from .._store.protocol import Store
from ..errors import StoreError, WindlassError

VERBS = (
    *("enqueue", "claim", "heartbeat", "once", "lead", "promote", "rescue", "prune"),
    *("find", "count", "attempts", "apply", "put", "records", "remove"),
)


class Timer(Protocol):
    """Who wants to know. Called from any thread."""

    def took(self, verb: str, seconds: float) -> None:
        """A verb was answered, or failed, after so long."""
        ...

    def failed(self, verb: str, code: str) -> None:
        """The store failed at it: not that it refused."""
        ...

    def batch(self, size: int) -> None:
        """So many were settled at once."""
        ...


class TimedStore:
    """The store within, with a clock on its verbs; everything else is the store's own."""

    def __init__(self, store: Store, timer: Timer) -> None:
        self.within = store
        self.timer = timer
        for verb in VERBS:
            setattr(self, verb, self._timed(verb, getattr(store, verb)))
        self._settle = self._timed("settle", store.settle)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.within, name)

    def another(self) -> "TimedStore":
        """A further handle, timed as well."""
        return TimedStore(self.within.another(), self.timer)

    async def settle(self, batch: Sequence[Settlement], claim: Claim | None = None) -> Settled:
        """Settle and claim. A round trip that only claims is no batch."""
        if batch:
            self.timer.batch(len(batch))
        settled: Settled = await self._settle(batch, claim)
        return settled

    def _timed(self, verb: str, ask: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        timer = self.timer

        async def asked(*args: Any, **options: Any) -> Any:
            began = perf_counter()
            try:
                return await ask(*args, **options)
            except Exception as error:
                if isinstance(error, StoreError) or not isinstance(error, WindlassError):
                    timer.failed(verb, getattr(error, "code", "unexpected"))
                raise
            finally:
                timer.took(verb, perf_counter() - began)

        return asked
