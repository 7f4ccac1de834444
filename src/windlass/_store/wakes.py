"""Listening for wakes. They only shorten waits, so losing one must never cost more than a poll interval."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from ..errors import StoreError
from .protocol import Store, Wake

_RECONNECT_AFTER = 1.0  # seconds


async def listen_for_wakes(
    store: Store, queues: Sequence[str], on_wake: Callable[[Wake], None], logger: logging.Logger
) -> None:
    """Call `on_wake` for every wake until cancelled; after a reconnect for each kind: one may be missed."""
    while True:
        try:
            async for wake in store.wakes(queues):
                on_wake(wake)
        except StoreError as error:
            logger.warning("lost the connection for wakes, reconnecting: %s", error)
        except Exception:
            logger.exception("lost the connection for wakes, reconnecting")
        await asyncio.sleep(_RECONNECT_AFTER)
        for missed in Wake:
            on_wake(missed)
