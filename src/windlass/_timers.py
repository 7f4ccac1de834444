"""Waiting for an event, but not for ever; and for the earliest of several instants."""

import asyncio
from collections.abc import Callable


async def happened(event: asyncio.Event, seconds: float | None) -> bool:
    """Whether it happened within so many seconds; None waits for as long as it takes.

    Not by wait_for: in Python 3.11 it forgets a cancellation that meets the event.
    """
    try:
        async with asyncio.timeout(seconds):
            return await event.wait()
    except TimeoutError:
        return False


class Timer:
    """One timer for the earliest of the instants it is told. It calls once, and may then be told another."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._loop: asyncio.AbstractEventLoop | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._instant = 0.0  # kept beside the handle: uvloop's do not all know theirs

    def at(self, instant: float) -> None:
        """Call then, by the running loop's clock, unless it will call sooner anyway."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            # One that another loop keeps is not ours to cancel, and may never come: that loop may have ended.
            self._loop, self._handle = loop, None
        if self._handle is None or instant < self._instant:
            self.cancel()
            self._handle, self._instant = loop.call_at(instant, self._come), instant

    def cancel(self) -> None:
        """Call no more. In the loop that it was told the instant in."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _come(self) -> None:
        if asyncio.get_running_loop() is self._loop:
            self._handle = None
        self._call()
