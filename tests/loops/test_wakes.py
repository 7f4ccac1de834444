"""Listening for wakes goes on after errors, and ends when it is cancelled."""

import asyncio
from collections.abc import AsyncIterator, Sequence

from windlass._store.outage import Outage
from windlass._store.protocol import Wake
from windlass._store.wakes import listen_for_wakes
from windlass._stores.memory import MemoryStore


class FailsToUnsubscribe(MemoryStore):
    """A store that is not able to stop listening in an orderly way."""

    async def wakes(self, queues: Sequence[str]) -> AsyncIterator[Wake]:
        try:
            yield Wake.READY
            async for wake in super().wakes(queues):
                yield wake
        finally:
            raise KeyError(queues)


async def test_it_can_be_cancelled_even_if_the_store_fails_to_unsubscribe() -> None:
    woken = asyncio.Event()
    listening = asyncio.ensure_future(
        listen_for_wakes(FailsToUnsubscribe(), ["q"], lambda _: woken.set(), Outage())
    )
    async with asyncio.timeout(10):
        await woken.wait()

    listening.cancel()
    await asyncio.wait([listening], timeout=10)

    assert listening.cancelled()
