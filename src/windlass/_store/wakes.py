"""Listening for wakes. They only shorten waits, so losing one must never cost more than a poll interval."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from time import monotonic

from .outage import LAST_PAUSE, Outage, Pauses
from .protocol import Store, Wake

logger = logging.getLogger("windlass.store")

_RECONNECT_AFTER = 1.0  # seconds


async def listen_for_wakes(
    store: Store, queues: Sequence[str], on_wake: Callable[[Wake], None], outage: Outage
) -> None:
    """Call `on_wake` for every wake until cancelled; after a lost connection for each kind: it may be missed.

    That makes the caller use the store. If the store is not available, the caller logs it; else this does.
    """
    pauses = Pauses(outage, _RECONNECT_AFTER)
    while True:
        began = monotonic()
        problem: Exception | None = None
        try:
            async for wake in store.wakes(queues):
                on_wake(wake)
        except Exception as error:  # without wakes, tasks would wait for the next poll
            if _is_cancelled():  # and the store failed while it stopped listening
                raise asyncio.CancelledError from error
            problem = error
        if monotonic() - began > LAST_PAUSE:
            pauses.succeeded()
        for missed in Wake:
            on_wake(missed)
        await pauses.wait(pauses.grow())
        if problem is not None and not outage.is_open:
            logger.warning("lost the connection for wakes, reconnecting: %s", problem)
        for missed in Wake:
            on_wake(missed)


def _is_cancelled() -> bool:
    current = asyncio.current_task()
    return current is not None and current.cancelling() > 0
