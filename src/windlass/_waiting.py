"""Waiting for an event, but not for ever."""

import asyncio


async def happened(event: asyncio.Event, seconds: float | None) -> bool:
    """Whether it happened within so many seconds; None waits for as long as it takes.

    Not by wait_for: in Python 3.11 it forgets a cancellation that meets the event.
    """
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False
