"""Hearing the store's hints. They only save waiting, so losing them must never cost more than that."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from .._store.protocol import Store, Wake
from ..errors import StoreError

_LISTEN_AGAIN = 1.0


async def hear(
    store: Store, queues: Sequence[str], take: Callable[[Wake], None], logger: logging.Logger
) -> None:
    """Pass on wake-ups until cancelled. A lost listener is replaced; what it may have missed is hinted at."""
    while True:
        try:
            async for wake in store.wakes(queues):
                take(wake)
        except StoreError as error:
            logger.warning("wake-ups are interrupted: %s", error)
        except Exception:
            logger.exception("wake-ups are interrupted")
        await asyncio.sleep(_LISTEN_AGAIN)
        for missed in Wake:
            take(missed)
