"""One shard: a store with a name. While it does not answer, it is asked again in the background only."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from copy import copy
from time import monotonic
from typing import Any, ParamSpec, TypeVar

from ...._model.filter import Page
from ...._model.record import ShardMap
from ...._store.outage import LAST_PAUSE, Outage, Pauses, ShardUnavailable
from ...._store.protocol import Store
from ....errors import StoreError, StoreUnavailable

P = ParamSpec("P")
T = TypeVar("T")

ANSWER_WITHIN = 10.0
"""Seconds that a shard has to answer what all shards are asked at once."""

_QUICK = 0.25  # seconds to wait for a shard that did not answer the last time
_STABLE_SECONDS = 2.0


class ShardHealth:
    """Whether a shard answers, as all handles of this process have seen it. Logs both ends of an outage."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._pauses = Pauses(Outage(f"shard {name}"))
        self._ask_again_at = 0.0
        self._answers_since: float | None = None  # in an outage that may have ended
        self.error: StoreError | None = None  # why it did not answer the last call

    def may_ask_again(self) -> bool:
        """Whether it is time to ask it again; if so, nobody else does meanwhile."""
        now = monotonic()
        is_due = now >= self._ask_again_at
        if is_due:
            self._ask_again_at = now + ANSWER_WITHIN + LAST_PAUSE
        return is_due

    def failed(self, error: StoreError) -> StoreError:
        """Note a failure; return it with the shard's name."""
        self._ask_again_at = monotonic() + self._pauses.failed(error)
        self._answers_since = None
        text = f"shard {self.name}: {error}"
        is_transient = isinstance(error, StoreUnavailable)
        self.error = ShardUnavailable(text, self.name) if is_transient else type(error)(text)
        return copy(self.error)

    def succeeded(self) -> None:
        """Note an answer. An outage has ended if no call fails for a while: it may answer reads only."""
        if self.error is not None:
            self.error, self._answers_since = None, monotonic()
        elif self._answers_since is not None and monotonic() - self._answers_since > _STABLE_SECONDS:
            self._answers_since = None
            self._pauses.succeeded()


class Shard:
    """A handle on one shard."""

    def __init__(self, store: Store, health: ShardHealth) -> None:
        self.name = health.name
        self.store = store
        self.health = health
        self.is_open = False
        self._asking: asyncio.Task[None] | None = None

    async def call(self, verb: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call a verb of its store; open the store first if it is not. Raises StoreUnavailable."""
        await self.open()
        return await self.call_unopened(verb, *args, **kwargs)

    async def call_unopened(
        self, verb: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a verb that needs no open store, as those about its schema."""
        try:
            result = await verb(*args, **kwargs)
        except StoreError as error:
            raise self.health.failed(error) from error
        self.health.succeeded()
        return result

    async def call_within(
        self, verb: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a verb that must not hold up other shards: it fails after some seconds without an answer.

        It fails at once while the shard is known not to answer.
        """
        return await self.call_for(ANSWER_WITHIN, verb, *args, **kwargs)

    async def call_for(
        self, seconds: float, verb: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Do the same with another time limit."""
        await self.check()
        return await self._within(seconds, self.call(verb, *args, **kwargs))

    async def call_unless_silent(
        self, verb: Callable[P, Coroutine[Any, Any, T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Call a verb that may take long; it fails at once while the shard is known not to answer."""
        await self.check()
        return await self.call(verb, *args, **kwargs)

    async def check(self) -> None:
        """Raise the last error while the shard does not answer.

        After growing pauses it is asked in the background, so that nobody waits for it longer than a moment.
        """
        if self.health.error is not None and self.health.may_ask_again():
            self._asking = asyncio.create_task(self._ask())
            await asyncio.wait([self._asking], timeout=_QUICK)
        if (error := self.health.error) is not None:
            raise copy(error)

    async def _ask(self) -> None:
        with suppress(StoreError):
            await self._within(ANSWER_WITHIN, self.call(self.store.records, ShardMap, Page(limit=1)))

    async def _within(self, seconds: float, call: Coroutine[Any, Any, T]) -> T:
        try:
            async with asyncio.timeout(seconds):
                return await call
        except TimeoutError:
            silent = StoreUnavailable(f"it did not answer within {seconds:g} s")
            raise self.health.failed(silent) from None

    async def open(self) -> None:
        """Open its store, unless it is open. Raises StoreUnavailable."""
        if not self.is_open:
            try:
                await self.store.open()
            except StoreError as error:
                raise self.health.failed(error) from error
            self.is_open = True

    async def open_within(self) -> None:
        """Do the same, but not for long, and not while the shard is known not to answer."""
        if not self.is_open:
            await self.check()
            await self._within(ANSWER_WITHIN, self.open())

    async def close(self) -> None:
        """Close its store."""
        self.is_open = False
        asking, self._asking = self._asking, None
        if asking is not None and asking.get_loop() is asyncio.get_running_loop():  # else it ends by itself
            asking.cancel()
            await asyncio.wait([asking])
        await self.store.close()
