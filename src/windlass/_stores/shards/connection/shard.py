"""One shard: a store with a name. While it does not answer it is asked again only after growing pauses."""

import asyncio
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any, ParamSpec, TypeVar

from ...._store.outage import Outage, Pauses
from ...._store.protocol import Store
from ....errors import StoreError, StoreUnavailable

P = ParamSpec("P")
T = TypeVar("T")

ANSWER_WITHIN = 10.0
"""Seconds that a shard has to answer what all shards are asked at once."""


class ShardHealth:
    """Whether a shard answers, as all handles of this process have seen it. Logs both ends of an outage."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._pauses = Pauses(Outage(f"shard {name}"))
        self._ask_again_at = 0.0
        self._error = ""

    def check(self) -> None:
        """Raise StoreUnavailable while the shard is not to be asked."""
        if monotonic() < self._ask_again_at:
            raise StoreUnavailable(self._error)

    def failed(self, error: StoreError) -> StoreError:
        """Note a failure; return it with the shard's name."""
        self._ask_again_at = monotonic() + self._pauses.failed(error)
        self._error = f"shard {self.name}: {error}"
        return type(error)(self._error)

    def succeeded(self) -> None:
        """Note an answer."""
        if self._error:
            self._error, self._ask_again_at = "", 0.0
            self._pauses.succeeded()


class Shard:
    """A handle on one shard."""

    def __init__(self, store: Store, health: ShardHealth) -> None:
        self.name = health.name
        self.store = store
        self.health = health
        self._is_open = False

    async def call(self, verb: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a verb of its store; open the store first if it is not. Raises StoreUnavailable."""
        await self.open()
        try:
            result = await verb(*args, **kwargs)
        except StoreError as error:
            raise self.health.failed(error) from error
        self.health.succeeded()
        return result

    async def call_within(
        self, verb: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a verb that must not hold up other shards.

        It fails after some seconds without an answer, and at once while the shard is not to be asked.
        """
        self.health.check()
        try:
            async with asyncio.timeout(ANSWER_WITHIN):
                return await self.call(verb, *args, **kwargs)
        except TimeoutError:
            silent = StoreUnavailable(f"it did not answer within {ANSWER_WITHIN:g} s")
            raise self.health.failed(silent) from None

    async def open(self) -> None:
        """Open its store, unless it is open. Raises StoreUnavailable."""
        if not self._is_open:
            try:
                await self.store.open()
            except StoreError as error:
                raise self.health.failed(error) from error
            self._is_open = True

    async def close(self) -> None:
        """Close its store."""
        self._is_open = False
        await self.store.close()
